/** What held-out documents tell of a study: how the loss changes with position, and with context before the same tokens. */
import { bucketLabel } from "../fit/index.ts";
import { t95 } from "../fit/student.ts";
import { byReason, formatLength, nameAttentions, signed, signedPercent } from "../fit/words.ts";
import type { BucketLoss } from "../train/types.ts";
import type { RunEnd } from "./laws.ts";

/** Documents that a mean needs for an interval to be worth saying. */
const FEWEST_DOCUMENTS = 8;

/**
 * How the loss changes with position, by attention: each range of the context against the one before, which is half as
 * long, over the same documents (of all runs together), so that what stands where in them is part of the interval.
 */
export function positionInWords(finished: readonly RunEnd[]): string[] {
  const known = finished.filter(({ documents, config }) => documents && documents.length > 0 && config);
  const name = nameAttentions(known.map(({ config }) => config!.attention));
  return byReason(known, ({ config }) => config!.attention).flatMap((group) => {
    const documents = byReason(
      group.flatMap((run) => run.documents!),
      ({ document }) => document,
    ).map((same) => same.flatMap(({ buckets }) => buckets));
    const ends = [...new Set(documents.flat().map((bucket) => bucket.position_end))].sort((a, b) => a - b);
    const [width, context] = [ends[0], ends.at(-1)!];
    if (documents.length < FEWEST_DOCUMENTS) return [];
    let falls: string | null = null;
    let falling = true;
    const changes: string[] = [];
    for (let start = width; 2 * start <= context; start *= 2) {
      const here = { position_start: start, position_end: 2 * start };
      const before = start === width ? 0 : start / 2;
      const { mean, interval } = overDocuments(
        changesOf(
          documents.map((buckets) => {
            const [a, b] = [lossIn(buckets, before, start), lossIn(buckets, start, 2 * start)];
            return { weight: a.tokens, before: a.loss, after: b.loss };
          }),
        ),
      );
      falling &&= interval[1] < 0;
      if (falling) falls = bucketLabel(here);
      const [low, high] = interval.map((share) => signedPercent(share));
      changes.push(`${bucketLabel(here)} ${signedPercent(mean)} (${low} to ${high})`);
    }
    if (changes.length === 0) return [];
    const to =
      falls === null ? "is not shown to fall with position" : `falls with position up to ${falls} at least`;
    return [
      `The loss of ${name(group[0].config!.attention)} ${to}: against the range before, with 95 % intervals over ` +
        `${documents.length} documents, ${changes.join(", ")}.`,
    ];
  });
}

function lossIn(
  buckets: readonly BucketLoss[],
  start: number,
  end: number,
): { tokens: number; loss: number } {
  const inside = buckets.filter((b) => b.position_start >= start && b.position_end <= end);
  const tokens = inside.reduce((sum, b) => sum + b.predicted_tokens, 0);
  return { tokens, loss: inside.reduce((sum, b) => sum + b.predicted_tokens * b.lm_loss, 0) / tokens };
}

/** Seeds of one attention and size that kept the same contexts. */
interface Truncated {
  readonly attention: string;
  readonly model: string;
  readonly parameters: number;
  /** Ascending, tokens. */
  readonly contexts: readonly number[];
  /** Losses with each of `contexts`, means over the seeds. */
  readonly documents: ReadonlyMap<string, { readonly weight: number; readonly losses: readonly number[] }>;
}

/**
 * How the loss of the same tokens changes with more context: what the largest size of each attention gains from each
 * context over the one before, and how that compares with full attention at the largest size that both have.
 */
export function contextInWords(finished: readonly RunEnd[]): string[] {
  const sizes = truncatedOf(finished);
  const name = nameAttentions(sizes.map(({ attention }) => attention));
  const largest = byReason(sizes, ({ attention, contexts }) => JSON.stringify([attention, contexts]));
  const full = sizes.filter(({ attention }) => attention === "full");
  return [
    ...largest.map(([size]) => gainInWords(size, name)),
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
  ];
}

/** Largest size first, of those as large the one with the lowest loss; those of too few documents are left out. */
function truncatedOf(finished: readonly RunEnd[]): Truncated[] {
  const known = finished.flatMap(({ truncated, config }) =>
    truncated && config ? [{ ...truncated, attention: config.attention }] : [],
  );
  const sizes = byReason(known, ({ attention, model, result }) =>
    JSON.stringify([attention, model, result.contexts]),
  ).map((seeds) => {
    const { attention, model, parameters, result } = seeds[0];
    const documents = byReason(
      seeds.flatMap((seed) => seed.result.documents),
      ({ document }) => document,
    ).map((same) => {
      const weight = same.reduce((sum, { predicted_tokens }) => sum + predicted_tokens, 0);
      const losses = result.contexts.map(
        (_, i) => same.reduce((sum, one) => sum + one.predicted_tokens * one.lm_loss[i], 0) / weight,
      );
      return [same[0].document, { weight, losses }] as const;
    });
    const losses = seeds.map((seed) => seed.result.lm_loss.at(-1)!);
    const loss = losses.reduce((sum, one) => sum + one, 0) / losses.length;
    return { attention, model, parameters, loss, contexts: result.contexts, documents: new Map(documents) };
  });
  return sizes
    .filter(({ documents }) => documents.size >= FEWEST_DOCUMENTS)
    .sort((a, b) => b.parameters - a.parameters || a.loss - b.loss);
}

function gainInWords(
  { attention, model, contexts, documents }: Truncated,
  name: (label: string) => string,
): string {
  let helps = 0;
  const changes = contexts.slice(1).map((context, i) => {
    const rows = [...documents.values()].map(({ weight, losses }) => {
      return { weight, before: losses[i], after: losses[i + 1] };
    });
    const { mean, interval } = overDocuments(changesOf(rows));
    if (interval[1] < 0) helps = context;
    const [low, high] = interval.map((share) => signedPercent(share, 2));
    return `${stepOf(contexts, i)} ${signedPercent(mean, 2)} (${low} to ${high})`;
  });
  const to =
    helps === 0
      ? `is not shown to fall with more context than ${formatLength(contexts[0])}`
      : `falls with more context up to ${formatLength(helps)} at least`;
  return (
    `The loss of ${name(attention)} ${model} on the same tokens ${to}: with 95 % intervals over ` +
    `${documents.size} documents, ${changes.join(", ")}.`
  );
}

/** Empty when the two share too few documents. */
function difference(other: Truncated, base: Truncated, name: (label: string) => string): string[] {
  const { contexts } = base;
  const shared = [...base.documents].flatMap(([document, { weight, losses }]) => {
    const also = other.documents.get(document)?.losses;
    return also ? [{ weight, base: losses, other: also }] : [];
  });
  if (shared.length < FEWEST_DOCUMENTS) return [];
  const between = (i: number, j: number) => {
    const changes = (of: "base" | "other") =>
      changesOf(shared.map((row) => ({ weight: row.weight, before: row[of][i], after: row[of][j] })));
    const [one, two] = [changes("base"), changes("other")];
    const apart = overDocuments(one.map(({ weight, value }, k) => ({ weight, value: two[k].value - value })));
    return { ...apart, base: overDocuments(one).mean, other: overDocuments(two).mean };
  };
  const points = ({ mean, interval }: Mean) => {
    const [low, high] = interval.map((share) => signed(100 * share, 2));
    return `${signed(100 * mean, 2)} (${low} to ${high})`;
  };
  const last = contexts.length - 1;
  const whole = between(0, last);
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
      `${signedPercent(whole.other, 2)}, that of ${second} by ${signedPercent(whole.base, 2)}: ${less}; percentage ` +
      `points apart, with 95 % intervals over the same ${shared.length} documents, ${points(whole)}, ${steps.join(", ")}.`,
  ];
}

function stepOf(contexts: readonly number[], from: number, to = from + 1): string {
  return `${formatLength(contexts[from])} to ${formatLength(contexts[to])}`;
}

/** A value of one document and the tokens behind it. */
interface Weighted {
  readonly weight: number;
  readonly value: number;
}

interface Mean {
  readonly mean: number;
  /** 95 %. */
  readonly interval: [number, number];
}

/** The change of each document's loss as a share of the mean loss before. */
function changesOf(
  documents: readonly { readonly weight: number; readonly before: number; readonly after: number }[],
): Weighted[] {
  const total = documents.reduce((sum, { weight }) => sum + weight, 0);
  const loss = documents.reduce((sum, { weight, before }) => sum + weight * before, 0) / total;
  return documents.map(({ weight, before, after }) => ({ weight, value: (after - before) / loss }));
}

/** The mean over tokens; its interval is over documents. */
function overDocuments(documents: readonly Weighted[]): Mean {
  const total = documents.reduce((sum, { weight }) => sum + weight, 0);
  const mean = documents.reduce((sum, { weight, value }) => sum + weight * value, 0) / total;
  const squares = documents.reduce((sum, { weight, value }) => sum + (weight * (value - mean)) ** 2, 0);
  const count = documents.length;
  const half = (t95(count - 1) * Math.sqrt((squares * count) / (count - 1))) / total;
  return { mean, interval: [mean - half, mean + half] };
}
