/** What held-out documents tell of a study: how the loss changes with position, and with context before the same tokens. */
import { bucketLabel } from "../fit/index.ts";
import { type Estimate, FEWEST_DOCUMENTS, overDocuments, type Row, totals } from "../fit/jackknife.ts";
import {
  byReason,
  fewOf,
  formatLength,
  MOST_TOLD,
  nameAttentions,
  signed,
  signedPercent,
} from "../fit/words.ts";
import { lossBetween } from "../train/evaluate.ts";
import type { RunEnd } from "./laws.ts";

/**
 * How the loss changes with position, by attention: each range of the context against the one before, which is half as
 * long, over the documents that all its runs have (their losses together), so that what stands where in them is part of
 * the interval.
 */
export function positionInWords(finished: readonly RunEnd[]): string[] {
  const known = finished.filter(({ documents, config }) => documents && documents.length > 0 && config);
  const name = nameAttentions(known.map(({ config }) => config!.attention));
  const groups = byReason(known, ({ documents, config }) =>
    JSON.stringify([config!.attention, documents![0].buckets.map((bucket) => bucket.position_end)]),
  );
  const told = groups.slice(0, MOST_TOLD).flatMap((group) => {
    const documents = sharedDocuments(group.map((run) => run.documents!)).map((same) =>
      same.flatMap(({ buckets }) => buckets),
    );
    if (documents.length < FEWEST_DOCUMENTS) return [];
    const ends = documents[0].map((bucket) => bucket.position_end);
    const [width, context] = [Math.min(...ends), Math.max(...ends)];
    const steps: Step[] = [];
    for (let start = width; 2 * start <= context; start *= 2) {
      const before = start === width ? 0 : start / 2;
      const rows = documents.map((buckets) => {
        const [a, b] = [lossBetween(buckets, before, start), lossBetween(buckets, start, 2 * start)];
        return { weight: a.predicted_tokens, losses: [a.lm_loss, b.lm_loss] };
      });
      steps.push({ name: bucketLabel({ position_start: start, position_end: 2 * start }), rows });
    }
    if (steps.length === 0) return [];
    const { falling, words } = stepsInWords(steps, 1);
    const to =
      falling === 0
        ? "is not shown to fall with position"
        : `falls with position up to ${steps[falling - 1].name} at least`;
    return [
      `The loss of ${name(group[0].config!.attention)} ${to}: against the range before, with 95 % intervals over ` +
        `${documents.length} documents, ${words}.`,
    ];
  });
  return [...told, ...moreInChart(groups.length)];
}

function moreInChart(attentions: number): string[] {
  const more = attentions - MOST_TOLD;
  return more > 0 ? [`The same of ${more} more attention${more > 1 ? "s" : ""} is in the chart.`] : [];
}

/** Each document that all of several runs have: what each of them knows of it. */
function sharedDocuments<Of extends { readonly document: string }>(runs: readonly (readonly Of[])[]): Of[][] {
  const known = runs.map((documents) => new Set(documents.map(({ document }) => document)));
  return byReason(runs.flat(), ({ document }) => document).filter(([{ document }]) =>
    known.every((documents) => documents.has(document)),
  );
}

/** Losses of documents before and after a change. */
interface Step {
  readonly name: string;
  readonly rows: readonly Row[];
}

/** Each change, and how many of the first are shown to be falls. */
function stepsInWords(steps: readonly Step[], decimals: number): { falling: number; words: string } {
  const changes = steps.map(({ rows }) => overDocuments(rows, ([before, after]) => after / before - 1));
  const other = changes.findIndex(({ interval }) => !(interval[1] < 0));
  const words = changes.map(({ value, interval }, i) => {
    const [low, high] = interval.map((share) => signedPercent(share, decimals));
    return `${steps[i].name} ${signedPercent(value, decimals)} (${low} to ${high})`;
  });
  return { falling: other < 0 ? changes.length : other, words: words.join(", ") };
}

/** Seeds of one attention and size that kept the same contexts. */
interface Truncated {
  readonly attention: string;
  readonly model: string;
  readonly parameters: number;
  /** With all of the context. */
  readonly loss: number;
  /** Ascending, tokens. */
  readonly contexts: readonly number[];
  /** Losses with each of `contexts`, means over the seeds. */
  readonly documents: ReadonlyMap<string, Row>;
}

/**
 * How the loss of the same tokens changes with more context: what the largest size of each attention gains from each
 * context over the one before, at which sizes all of it is worse than less, and how the gains compare with those of full
 * attention at the largest size that both have.
 */
export function contextInWords(finished: readonly RunEnd[]): string[] {
  const sizes = truncatedOf(finished);
  const name = nameAttentions(sizes.map(({ attention }) => attention));
  // Largest size first, of those as large the one with the lowest loss.
  const groups = byReason(sizes, ({ attention, contexts }) => JSON.stringify([attention, contexts])).map(
    (group) => group.sort((a, b) => b.parameters - a.parameters || a.loss - b.loss),
  );
  const largest = groups.slice(0, MOST_TOLD);
  const full = groups.flat().filter(({ attention }) => attention === "full");
  return [
    ...largest.map(([size]) => gainInWords(size, name)),
    ...largest.flatMap((group) => {
      const own = finished.filter(({ config }) => config?.attention === group[0].attention);
      const models = own.map(({ truncated, config }) => truncated?.model ?? config?.model);
      return excessInWords(group, new Set(models).size, name);
    }),
    ...largest.flatMap((group) => {
      if (group[0].attention === "full") return [];
      for (const base of full) {
        const other = group.find(({ model, contexts }) => {
          return model === base.model && contexts.join() === base.contexts.join();
        });
        if (other) return difference(other, base, name);
      }
      return [];
    }),
    ...moreInChart(groups.length),
  ];
}

/** Those of too few documents are left out. */
function truncatedOf(finished: readonly RunEnd[]): Truncated[] {
  const known = finished.flatMap(({ truncated, config }) =>
    truncated && config ? [{ ...truncated, attention: config.attention }] : [],
  );
  const sizes = byReason(known, ({ attention, model, result }) =>
    JSON.stringify([attention, model, result.contexts]),
  ).map((seeds) => {
    const { attention, model, parameters, result } = seeds[0];
    const documents = sharedDocuments(seeds.map(({ result }) => result.documents)).map((same) => {
      const rows = same.map(({ predicted_tokens, lm_loss }) => ({
        weight: predicted_tokens,
        losses: lm_loss,
      }));
      const weight = rows.reduce((sum, row) => sum + row.weight, 0);
      return [same[0].document, { weight, losses: totals(rows).map((sum) => sum / weight) }] as const;
    });
    const losses = seeds.map((seed) => seed.result.lm_loss.at(-1)!);
    const loss = losses.reduce((sum, one) => sum + one, 0) / losses.length;
    return { attention, model, parameters, loss, contexts: result.contexts, documents: new Map(documents) };
  });
  return sizes.filter(({ documents }) => documents.size >= FEWEST_DOCUMENTS);
}

function gainInWords(
  { attention, model, contexts, documents }: Truncated,
  name: (label: string) => string,
): string {
  const rows = [...documents.values()];
  const steps = contexts.slice(1).map((_, i) => ({
    name: stepOf(contexts, i),
    rows: rows.map(({ weight, losses }) => ({ weight, losses: losses.slice(i, i + 2) })),
  }));
  const { falling, words } = stepsInWords(steps, 2);
  const to =
    falling === 0
      ? `is not shown to fall with more context than ${formatLength(contexts[0])}`
      : `falls with more context up to ${formatLength(contexts[falling])} at least`;
  return (
    `The loss of ${name(attention)} ${model} on the same tokens ${to}: with 95 % intervals over ` +
    `${documents.size} documents, ${words}.`
  );
}

/** A loss with all context that is higher by no more than this share than with less is not told. */
const LEAST_EXCESS = 0.001;

/**
 * Sizes of one attention and the same contexts, the largest first, of so many in all: where all of the context is worse
 * than less.
 */
function excessInWords(sizes: readonly Truncated[], all: number, name: (label: string) => string): string[] {
  const { attention, contexts } = sizes[0];
  const last = contexts.length - 1;
  const found = sizes.flatMap(({ model, documents }) => {
    const rows = [...documents.values()];
    const losses = totals(rows);
    const best = losses.indexOf(Math.min(...losses));
    const excess = overDocuments(rows, (all) => all[last] / all[best] - 1);
    return excess.value > LEAST_EXCESS ? [{ model, best: formatLength(contexts[best]), ...excess }] : [];
  });
  const shown = found.filter(({ interval }) => interval[0] > 0).length;
  if (shown === 0) return [];
  const parts = found.map(({ model, best, value, interval }) => {
    const [low, high] = interval.map((share) => signedPercent(share, 2));
    return `${signedPercent(value, 2)} (${low} to ${high}) against ${best} at ${model}`;
  });
  const [every, some] = [found.length === sizes.length, shown < found.length];
  const lacking = sizes.length < all;
  const places = every
    ? `every size${lacking ? ` that has it (${sizes.length} of ${all})` : ""}`
    : `${found.length} of ${sizes.length} sizes${lacking ? " that have it" : ""}`;
  const where = sizes.length === 1 ? "" : ` at ${places}`;
  return [
    `With all ${formatLength(contexts[last])} of context the loss of ${name(attention)} on the same tokens is higher than ` +
      `with its best shorter one${where}${some ? ` (shown at ${shown})` : ""}: with 95 % intervals over ` +
      `documents, ${fewOf(parts, MOST_TOLD)}.`,
  ];
}

/** Empty when the two share too few documents. */
function difference(other: Truncated, base: Truncated, name: (label: string) => string): string[] {
  const { contexts } = base;
  const shared = [...base.documents].flatMap(([document, { weight, losses }]) => {
    const also = other.documents.get(document)?.losses;
    return also ? [{ weight, losses: [...losses, ...also] }] : [];
  });
  if (shared.length < FEWEST_DOCUMENTS) return [];
  const change = (losses: readonly number[], i: number, j: number) => losses[j] / losses[i] - 1;
  const between = (i: number, j: number) =>
    overDocuments(shared, (losses) => {
      const [k, l] = [i + contexts.length, j + contexts.length];
      return change(losses, k, l) - change(losses, i, j);
    });
  const points = ({ value, interval }: Estimate) => {
    const [low, high] = interval.map((share) => signed(100 * share, 2));
    return `${signed(100 * value, 2)} (${low} to ${high})`;
  };
  const last = contexts.length - 1;
  const whole = between(0, last);
  const all = totals(shared);
  const [ofOther, ofBase] = [change(all, contexts.length, contexts.length + last), change(all, 0, last)];
  const [first, second] = [name(other.attention), name(base.attention)];
  const less =
    whole.interval[0] > 0
      ? `${first} gains less`
      : whole.interval[1] < 0
        ? `${first} gains more`
        : "neither is shown to gain more";
  const steps = contexts.slice(1).map((_, i) => `${stepOf(contexts, i)} ${points(between(i, i + 1))}`);
  return [
    `From ${stepOf(contexts, 0, last)} of context the loss of ${first} ${other.model} on the same tokens changes by ` +
      `${signedPercent(ofOther, 2)}, that of ${second} by ${signedPercent(ofBase, 2)}: ${less}; percentage ` +
      `points apart, with 95 % intervals over the same ${shared.length} documents, ${points(whole)}, ${steps.join(", ")}.`,
  ];
}

function stepOf(contexts: readonly number[], from: number, to = from + 1): string {
  return `${formatLength(contexts[from])} to ${formatLength(contexts[to])}`;
}
