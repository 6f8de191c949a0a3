/**
 * What one option of the recipe does to each attention, where models of a study differ in that option alone: the learning
 * rate in a sweep, or another such as the key convolution.
 */
import { OPERATIONS_PER_PFLOPS_DAY } from "../compute/compute.ts";
import { percents, ratioOfPair, ratiosInWords, seedsApart, type Told, toldOver } from "../fit/by-size.ts";
import {
  type Bucket,
  bucketLabel,
  type FinalPoint,
  type Known,
  nameAttentions,
  sameBucket,
} from "../fit/index.ts";
import { sizePairs } from "../fit/points.ts";
import { mean } from "../fit/regression.ts";
import { allOf, byReason, fewOf, formatFactor, MOST_TOLD, signed } from "../fit/words.ts";
import { optionsOf } from "../train/config.ts";
import type { RunEnd } from "./laws.ts";
import { factorOf } from "./rule.ts";
import { dropState, offTrend } from "./swept.ts";

const LEARNING_RATE = "optimizer.learningRate";
const ALL: Bucket = { position_start: null, position_end: null };
/** Rates up to this factor apart are served by one rule (docs/method.md, section 6). */
const ONE_RULE = 2;
/** Sizes of which every rate is told, the largest first. */
const SIZES_TOLD = 2;

interface Telling extends Known {
  readonly name: (attention: string) => string;
}

/** The models of one size that differ in an option. */
interface Variants {
  readonly field: string;
  /** Whether learning rates are factors on the rule's, which are those of all sizes. */
  readonly byRule: boolean;
  /** The plain model: that of the shortest name. */
  readonly size: string;
  /** Its value of the option. */
  readonly plain: string;
  /** Ascending if they are numbers. */
  readonly values: readonly string[];
  readonly finals: readonly (FinalPoint & { readonly value: string })[];
  /** Runs that end in a sudden drop, or before one that is usual, so that they have no final losses here. */
  readonly leftOut: readonly string[];
}

/** Final losses over those of other runs, as `ratiosInWords` takes them. */
type Change = Told & {
  readonly other: string;
  readonly model: string;
  /** Runs, a pair for each seed. */
  readonly names: readonly (readonly [base: string, other: string])[];
};

/** Learning rates with what they do to each attention, in the headline bucket and, where that is another, over all positions. */
interface Sweep extends Variants {
  readonly tried: readonly Tried[];
  readonly everywhere: readonly Tried[];
}

/** One value of an option against the plain one at one size. */
interface Option extends Variants {
  readonly value: string;
  readonly changes: readonly Change[];
}

/** Answers, and the figures behind them. */
export function variantsInWords(
  known: Known,
  finished: readonly RunEnd[],
): { answers: string[]; details: string[] } {
  const telling = { ...known, name: nameAttentions(known.attentions) };
  const { headline, attentions } = known;
  const all = variantsOf(known, finished);
  const sweeps = all.flatMap((variants): Sweep[] => {
    const tried = variants.field === LEARNING_RATE ? triedIn(variants, headline, known) : [];
    if (tried.length === 0) return [];
    return [
      { ...variants, tried, everywhere: sameBucket(headline, ALL) ? [] : triedIn(variants, ALL, known) },
    ];
  });
  const values = all
    .filter(({ field }) => field !== LEARNING_RATE)
    .flatMap((variants) =>
      variants.values.map((value): Option => {
        const changes = attentions.flatMap((label) =>
          value === variants.plain
            ? []
            : change(variants, [label, variants.plain], [label, value], headline, known),
        );
        return { ...variants, value, changes };
      }),
    );
  const options = byReason(values, ({ field, plain, value }) => JSON.stringify([field, plain, value])).filter(
    (sizes) => sizes.some(({ changes }) => changes.length > 0),
  );
  const more = (count: number, what: string, words: string) =>
    count > 0 ? [`${count} more ${what}${count > 1 ? "s" : ""} ${words}`] : [];
  const told = options.slice(0, MOST_TOLD);
  return {
    answers: [
      ...sweeps
        .slice(0, MOST_TOLD)
        .flatMap((sweep) => [lowestInWords(sweep, telling), ...eachAtItsOwn(sweep, telling)]),
      ...told.map((sizes) => optionInWords(sizes, telling)),
    ],
    details: [
      ...sweeps.slice(0, SIZES_TOLD).flatMap((sweep) => ratesInWords(sweep, telling)),
      ...told.flatMap((sizes) => movesInWords(sizes, finished, telling)),
      ...more(sweeps.length - SIZES_TOLD, "size", "with several learning rates in the table of these."),
      ...more(options.length - MOST_TOLD, "value", "of options not told here."),
    ],
  };
}

/** The largest size first. */
function variantsOf({ finals, headline }: Known, finished: readonly RunEnd[]): Variants[] {
  const ends = new Map(
    finals.filter((final) => sameBucket(final, headline)).map((final) => [final.name, final]),
  );
  const configs = finished.flatMap(({ name, config }) => {
    const end = ends.get(name);
    if (config?.model === undefined || config.optimizer === undefined || end === undefined) return [];
    const { optimizer } = config;
    const factor = factorOf(optimizer.learningRate, end.pflops_days * OPERATIONS_PER_PFLOPS_DAY);
    return { config, byFactor: { ...config, optimizer: { ...optimizer, learningRate: factor } }, factor };
  });
  const byRule = configs.every(({ factor }) => factor !== undefined);
  const budgets = new Map([...ends.values()].map(({ model, pflops_days }) => [model, pflops_days]));
  return optionsOf(configs.map(({ config, byFactor }) => (byRule ? byFactor : config)))
    .map(({ field, models }) => {
      const ownValue = new Map(models.map(({ model, value }) => [model, value]));
      const [plain] = models.toSorted((a, b) => a.model.length - b.model.length);
      const runs = finished.flatMap(({ name, config, drop }) =>
        ownValue.has(config?.model ?? "") ? { name, drop: dropState(drop) } : [],
      );
      const outOfTrend = offTrend(runs.map(({ drop }) => drop));
      const leftOut = runs.filter(({ drop }) => outOfTrend(drop)).map(({ name }) => name);
      return {
        field,
        byRule,
        size: plain.model,
        plain: plain.value,
        values: [...new Set(ownValue.values())].sort((a, b) => Number(a) - Number(b)),
        finals: finals.flatMap((final) => {
          const value = ownValue.get(final.model);
          return value === undefined || leftOut.includes(final.name) ? [] : { ...final, value };
        }),
        leftOut,
      };
    })
    .sort((a, b) => budgets.get(b.size)! - budgets.get(a.size)!);
}

/** An attention with a value of the option. */
type One = readonly [attention: string, value: string];

/** The losses of one over those of another, of the same seeds; empty where none is of both. */
function change(
  { finals, size }: Variants,
  base: One,
  other: One,
  bucket: Bucket,
  { runs }: Known,
  model = size,
): Change[] {
  const side = ([attention, value]: One) =>
    finals
      .filter((final) => final.attention === attention && final.value === value && sameBucket(final, bucket))
      .map((final) => ({ ...final, model }));
  const { pairs } = sizePairs(side(base), side(other), "6ND");
  return pairs.map((pair) => {
    return { ...ratioOfPair(pair, bucket, runs), other: other[0], model, names: pair.names };
  });
}

/** What an attention has in a sweep: two rates or more. */
interface Tried {
  readonly attention: string;
  /** The rate that the others are compared with: the plain one where there is one. */
  readonly from: string;
  /** Of the others, which are their `model`. */
  readonly changes: readonly Change[];
  readonly lowest: string;
  /** All rates in words, and whether the lowest is at an end of them. */
  readonly range: string;
  readonly open: boolean;
}

function triedIn(sweep: Variants, bucket: Bucket, known: Known): Tried[] {
  return known.attentions.flatMap((attention) => {
    const own = sweep.finals.filter((final) => final.attention === attention);
    const from = [sweep.plain, ...sweep.values].find((rate) => own.some(({ value }) => value === rate));
    if (from === undefined) return [];
    const rates = sweep.values.flatMap((rate) =>
      change(sweep, [attention, from], [attention, rate], bucket, known, rate),
    );
    const changes = rates.filter(({ model }) => model !== from);
    if (changes.length === 0) return [];
    const lowest = rates.reduce((a, b) => (b.ratio < a.ratio ? b : a)).model;
    const ends = [rates[0].model, rates.at(-1)!.model];
    return { attention, from, changes, lowest, range: ends.join(" to "), open: ends.includes(lowest) };
  });
}

const seedsAt = ({ finals }: Known, bucket: Bucket) =>
  seedsApart(finals.filter((final) => sameBucket(final, bucket)));

function changesInWords(changes: readonly Change[], bucket: Bucket, telling: Telling): string {
  const seeds = seedsAt(telling, bucket);
  const where = sameBucket(bucket, ALL) ? "over all positions" : `at ${bucketLabel(bucket)}`;
  return `${where}, ${toldOver(changes, seeds)}: ${ratiosInWords(changes, seeds, telling.name)}`;
}

/** Which rate of each attention is lowest, and how far apart these are. */
function lowestInWords(
  { size, byRule, leftOut, tried, everywhere }: Sweep,
  { headline, name }: Telling,
): string {
  const at = ({ lowest, attention }: Tried) => `at ${lowest} with ${name(attention)}`;
  const places = tried.map((one) => `${at(one)} (of ${one.range}${one.open ? ", so not bracketed" : ""})`);
  const elsewhere = everywhere.map(at).filter((place) => !tried.some((one) => at(one) === place));
  const also = elsewhere.length > 0 ? `; over all positions ${allOf(elsewhere)}` : "";
  return (
    `Learning rate at ${size}${byRule ? ", as a factor on the rule's" : ""}: the loss at ${bucketLabel(headline)} is lowest ` +
    `${allOf(places)}${also}.${apartInWords(tried)}${leftOutInWords(leftOut)}`
  );
}

function apartInWords(tried: readonly Tried[]): string {
  if (tried.length < 2) return "";
  const lowest = tried.map((one) => Number(one.lowest));
  const apart = Math.max(...lowest) / Math.min(...lowest);
  const limit = tried.some(({ open }) => open)
    ? `as far as tried; up to ${ONE_RULE} one rule serves all attentions`
    : `${apart > ONE_RULE * (1 + 1e-9) ? "more than" : "within"} the ${ONE_RULE} up to which one rule serves all attentions`;
  return ` These lie a factor of ${formatFactor(apart)} apart, ${limit}.`;
}

function leftOutInWords(leftOut: readonly string[]): string {
  if (leftOut.length === 0) return "";
  const [ends, its] = leftOut.length > 1 ? ["end", "their"] : ["ends", "its"];
  return ` Left out: ${fewOf(leftOut)}, which ${ends} before the sudden drop of ${its} training loss, in it or just after it.`;
}

/** The attentions against the baseline, each at its own lowest rate, and all at the plain one. */
function eachAtItsOwn({ tried, ...sweep }: Sweep, telling: Telling): string[] {
  const { headline, baseline, name } = telling;
  const base = tried.find(({ attention }) => attention === baseline);
  if (base === undefined) return [];
  const others = tried.filter((one) => one !== base).slice(0, MOST_TOLD);
  const between = (rateOf: (one: Tried) => string) =>
    others.flatMap((one) =>
      change(sweep, [base.attention, rateOf(base)], [one.attention, rateOf(one)], headline, telling),
    );
  const own = between(({ lowest }) => lowest);
  const common = tried.every(({ lowest }) => lowest === sweep.plain) ? [] : between(() => sweep.plain);
  const both = [...own, ...common];
  if (both.length === 0) return [];
  const seeds = seedsAt(telling, headline);
  const percent = percents(both, seeds);
  const parts = [
    { what: "each at its own lowest rate", changes: own },
    { what: `all at ${sweep.plain}`, changes: common },
  ].flatMap(({ what, changes }) => {
    const each = changes.map((one) => `${name(one.other)} ${percent.of(one)}`);
    return each.length > 0 ? `${what}, ${each.join(", ")}` : [];
  });
  return [
    `Losses at ${bucketLabel(headline)} at ${sweep.size} against ${name(base.attention)} by learning rate, ` +
      `${toldOver(both, seeds)}: ${parts.join("; ")}${percent.end}.`,
  ];
}

/** Every rate of every attention. */
function ratesInWords({ size, byRule, tried, everywhere }: Sweep, telling: Telling): string[] {
  const rates = (some: readonly Tried[], bucket: Bucket) =>
    byReason(some, ({ from }) => from).map((same) => {
      const against = `${same[0].from}${byRule ? " of the rule's" : ""}`;
      const changes = same.flatMap((one) => one.changes);
      return `Learning rates at ${size}, losses against those at ${against}, ${changesInWords(changes, bucket, telling)}.`;
    });
  return [...rates(tried, telling.headline), ...rates(everywhere, ALL)];
}

function optionLabel([{ field, plain, value }]: readonly Option[]): string {
  const words = field.replace(/^.*\./, "").replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  return `With ${words} ${value} instead of ${plain}`;
}

/** One value of an option against the plain one, at every size that has both. */
function optionInWords(sizes: readonly Option[], telling: Telling): string {
  const changes = changesInWords(
    sizes.flatMap((size) => size.changes),
    telling.headline,
    telling,
  );
  return `${optionLabel(sizes)} losses change, ${changes}.${leftOutInWords(sizes.flatMap(({ leftOut }) => leftOut))}`;
}

/** How it moves the drops. */
function movesInWords(sizes: readonly Option[], finished: readonly RunEnd[], { name }: Telling): string[] {
  const middles = new Map(finished.map((run) => [run.name, (run.drop?.middle ?? Number.NaN) / 1e6]));
  const moves = sizes
    .flatMap(({ changes }) => changes)
    .flatMap(({ other, model, names }) => {
      const [before, after] = [0, 1].map((side) => mean(names.map((pair) => middles.get(pair[side])!)));
      if (Number.isNaN(after - before)) return [];
      return `${signed(after - before, 1)} with ${name(other)} at ${model} (${before.toFixed(1)} to ${after.toFixed(1)})`;
    });
  if (moves.length === 0) return [];
  return [
    `${optionLabel(sizes)} the middle of the sudden drop of the training loss moves, in million tokens, by ` +
      `${fewOf(moves, MOST_TOLD)}.`,
  ];
}
