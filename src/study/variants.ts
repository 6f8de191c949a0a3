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
import { pairsInBucket } from "../fit/points.ts";
import { mean } from "../fit/regression.ts";
import { byReason, fewOf, formatFactor, listOf, MOST_TOLD, signed } from "../fit/words.ts";
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

/** The models of one size that differ in an option. */
interface Variants {
  readonly field: string;
  /** Whether learning rates are factors on the rule's, which are those of all sizes. */
  readonly byRule: boolean;
  /** The plain model: that of the shortest name. */
  readonly size: string;
  /** Its value of the option. */
  readonly plain: string;
  readonly attentions: readonly string[];
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

/** Answers, and the figures behind them. */
interface Sentences {
  readonly answers: readonly string[];
  readonly details: readonly string[];
}

type Names = (attention: string) => string;

export function variantsInWords(known: Known, finished: readonly RunEnd[]): Sentences {
  const all = variantsOf(known, finished);
  const name = nameAttentions(known.finals.map(({ attention }) => attention));
  const sweeps = all.filter(({ field }) => field === LEARNING_RATE);
  const others = all.flatMap((variants) => {
    const { field, plain, values } = variants;
    if (field === LEARNING_RATE) return [];
    return values.flatMap((value) => (value === plain ? [] : { ...variants, value }));
  });
  const options = byReason(others, ({ field, plain, value }) => JSON.stringify([field, plain, value]));
  const told = [
    ...sweeps.slice(0, MOST_TOLD).map((sweep, i) => sweepInWords(sweep, known, i < SIZES_TOLD, name)),
    ...options.slice(0, MOST_TOLD).map((option) => optionInWords(option, known, finished, name)),
  ];
  const more = (count: number, what: string, words: string) =>
    count > 0 ? [`${count} more ${what}${count > 1 ? "s" : ""} ${words}`] : [];
  return {
    answers: told.flatMap(({ answers }) => answers),
    details: [
      ...told.flatMap(({ details }) => details),
      ...more(sweeps.length - SIZES_TOLD, "size", "with several learning rates in the table of these."),
      ...more(options.length - MOST_TOLD, "value", "of options not told here."),
    ],
  };
}

/** The largest size first. */
function variantsOf({ finals, headline, attentions }: Known, finished: readonly RunEnd[]): Variants[] {
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
      const leftOut = runs.filter((run) => offTrend(run, runs)).map(({ name }) => name);
      return {
        field,
        byRule,
        size: plain.model,
        plain: plain.value,
        values: [...new Set(ownValue.values())].sort((a, b) => Number(a) - Number(b)),
        attentions: attentions.filter((label) =>
          finals.some(({ attention, model }) => attention === label && ownValue.has(model)),
        ),
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
  known: Known,
  label = size,
): Change[] {
  const side = ([attention, value]: One, as: string) =>
    finals
      .filter((final) => final.attention === attention && final.value === value)
      .map((final) => ({ ...final, model: size, attention: as }));
  const pairs = pairsInBucket([...side(base, "base"), ...side(other, "other")], bucket, "base", "other");
  return pairs.slice(0, 1).map((pair) => {
    return { ...ratioOfPair(pair, bucket, known.runs), other: other[0], model: label, names: pair.names };
  });
}

/** What an attention has in a sweep: two factors or more. */
interface Tried {
  readonly attention: string;
  /** The factor that the others are compared with: the plain one where there is one. */
  readonly from: string;
  /** Of the others, which are their `model`. */
  readonly changes: readonly Change[];
  readonly lowest: string;
  /** All factors in words, and whether the lowest is at an end of them. */
  readonly range: string;
  readonly open: boolean;
}

function triedIn(sweep: Variants, bucket: Bucket, known: Known): Tried[] {
  return sweep.attentions.flatMap((attention) => {
    const own = sweep.finals.filter((final) => final.attention === attention && sameBucket(final, bucket));
    const there = sweep.values.filter((factor) => own.some(({ value }) => value === factor));
    const from = there.includes(sweep.plain) ? sweep.plain : there[0];
    const changes = there.flatMap((factor) =>
      factor === from ? [] : change(sweep, [attention, from], [attention, factor], bucket, known, factor),
    );
    if (changes.length === 0) return [];
    const least = changes.reduce((a, b) => (b.ratio < a.ratio ? b : a));
    const lowest = least.ratio < 1 ? least.model : from;
    const factors = there.filter(
      (factor) => factor === from || changes.some(({ model }) => model === factor),
    );
    const open = lowest === factors[0] || lowest === factors.at(-1);
    return { attention, from, changes, lowest, range: `${factors[0]} to ${factors.at(-1)}`, open };
  });
}

function sweepInWords(sweep: Variants, known: Known, atLength: boolean, name: Names): Sentences {
  const tried = triedIn(sweep, known.headline, known);
  if (tried.length === 0) return { answers: [], details: [] };
  const everywhere = sameBucket(known.headline, ALL) ? [] : triedIn(sweep, ALL, known);
  const rates = (some: readonly Tried[], bucket: Bucket) =>
    byReason(some, ({ from }) => from).map((same) => {
      const changes = same.flatMap((one) => one.changes);
      const what = `Learning rates at ${sweep.size}, losses against those at ${same[0].from}${sweep.byRule ? " of the rule's" : ""}`;
      return `${what}, ${changesInWords(changes, bucket, known, name)}.`;
    });
  return {
    answers: [
      lowestInWords(sweep, tried, everywhere, known, name),
      ...eachAtItsOwn(sweep, tried, known, name),
    ],
    details: atLength ? [...rates(tried, known.headline), ...rates(everywhere, ALL)] : [],
  };
}

function changesInWords(changes: readonly Change[], bucket: Bucket, { finals }: Known, name: Names): string {
  const seeds = seedsApart(finals.filter((final) => sameBucket(final, bucket)));
  const where = sameBucket(bucket, ALL) ? "over all positions" : `at ${bucketLabel(bucket)}`;
  return `${where}, ${toldOver(changes, seeds)}: ${ratiosInWords(changes, seeds, name)}`;
}

/** Which factor of each attention is lowest, and how far apart these are. */
function lowestInWords(
  { size, byRule, leftOut }: Variants,
  tried: readonly Tried[],
  everywhere: readonly Tried[],
  { headline }: Known,
  name: Names,
): string {
  const list = (items: readonly string[]) =>
    items.length > MOST_TOLD ? fewOf(items, MOST_TOLD) : listOf(items, ", ", " and ");
  const places = tried.map(
    ({ attention, lowest, range, open }) =>
      `at ${lowest} with ${name(attention)} (of ${range}${open ? ", so not bracketed" : ""})`,
  );
  const elsewhere = everywhere.flatMap(({ attention, lowest }) => {
    const same = tried.some((one) => one.attention === attention && one.lowest === lowest);
    return same ? [] : `at ${lowest} with ${name(attention)}`;
  });
  const also = elsewhere.length > 0 ? `; over all positions ${list(elsewhere)}` : "";
  return (
    `Learning rate at ${size}${byRule ? ", as a factor on the rule's" : ""}: the loss at ${bucketLabel(headline)} is lowest ` +
    `${list(places)}${also}.${apartInWords(tried)}${leftOutInWords(leftOut)}`
  );
}

function apartInWords(tried: readonly Tried[]): string {
  if (tried.length < 2) return "";
  const factors = tried.map(({ lowest }) => Number(lowest));
  const apart = Math.max(...factors) / Math.min(...factors);
  const found = `These lie a factor of ${formatFactor(apart)} apart`;
  if (tried.some(({ open }) => open)) {
    return ` ${found}, as far as tried; up to ${ONE_RULE} one rule serves all attentions.`;
  }
  const limit = apart > ONE_RULE * (1 + 1e-9) ? "more than" : "within";
  return ` ${found}, ${limit} the ${ONE_RULE} up to which one rule serves all attentions.`;
}

function leftOutInWords(leftOut: readonly string[]): string {
  if (leftOut.length === 0) return "";
  const [ends, its] = leftOut.length > 1 ? ["end", "their"] : ["ends", "its"];
  return ` Left out: ${fewOf(leftOut)}, which ${ends} before the sudden drop of ${its} training loss, in it or just after it.`;
}

/** The attentions against the baseline, each at its own lowest factor, and all at the plain one. */
function eachAtItsOwn(sweep: Variants, tried: readonly Tried[], known: Known, name: Names): string[] {
  const { headline, finals } = known;
  const base = tried.find(({ attention }) => attention === known.baseline);
  const others = tried.filter((one) => one !== base).slice(0, MOST_TOLD);
  if (base === undefined || others.length === 0) return [];
  const between = (of: (one: Tried) => string) =>
    others.flatMap((one) =>
      change(sweep, [base.attention, of(base)], [one.attention, of(one)], headline, known),
    );
  const own = between(({ lowest }) => lowest);
  const common = tried.every(({ lowest }) => lowest === sweep.plain) ? [] : between(() => sweep.plain);
  const seeds = seedsApart(finals.filter((final) => sameBucket(final, headline)));
  const percent = percents([...own, ...common], seeds);
  const list = (changes: readonly Change[]) =>
    changes.map((one) => `${name(one.other)} ${percent.of(one)}`).join(", ");
  const parts = [
    ...(own.length > 0 ? [`each at its own lowest rate, ${list(own)}`] : []),
    ...(common.length > 0 ? [`all at ${sweep.plain}, ${list(common)}`] : []),
  ];
  return parts.length === 0
    ? []
    : [
        `Losses at ${bucketLabel(headline)} at ${sweep.size} against ${name(base.attention)} by learning rate, ` +
          `${toldOver([...own, ...common], seeds)}: ${parts.join("; ")}${percent.end}.`,
      ];
}

/** One value of an option against the plain one, at every size that has both. */
function optionInWords(
  sizes: readonly (Variants & { readonly value: string })[],
  known: Known,
  finished: readonly RunEnd[],
  name: Names,
): Sentences {
  const { field, plain, value } = sizes[0];
  const changes = sizes.flatMap((size) =>
    size.attentions.flatMap((attention) =>
      change(size, [attention, plain], [attention, value], known.headline, known),
    ),
  );
  if (changes.length === 0) return { answers: [], details: [] };
  const words = field.replace(/^.*\./, "").replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  const option = `With ${words} ${value} instead of ${plain}`;
  const middles = new Map(finished.map(({ name, drop }) => [name, drop?.middle ?? Number.NaN]));
  const moves = changes.flatMap(({ other, model, names }) => {
    const [before, after] = [0, 1].map((side) => mean(names.map((pair) => middles.get(pair[side])! / 1e6)));
    if (Number.isNaN(after - before)) return [];
    return `${signed(after - before, 1)} with ${name(other)} at ${model} (${before.toFixed(1)} to ${after.toFixed(1)})`;
  });
  const leftOut = leftOutInWords(sizes.flatMap((size) => size.leftOut));
  return {
    answers: [`${option} losses change, ${changesInWords(changes, known.headline, known, name)}.${leftOut}`],
    details:
      moves.length === 0
        ? []
        : [
            `${option} the middle of the sudden drop of the training loss moves, in million tokens, by ` +
              `${fewOf(moves, MOST_TOLD)}.`,
          ],
  };
}
