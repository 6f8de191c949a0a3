/** Attentions at single sizes: ratios of their losses, with intervals over documents where losses are kept by document. */
import { lossBetween } from "../train/evaluate.ts";
import { seedScatter } from "./bend.ts";
import { FEWEST_PAIRS } from "./compare.ts";
import { FEWEST_DOCUMENTS, overDocuments, type Row } from "./jackknife.ts";
import { exponentials } from "./law.ts";
import {
  type Bucket,
  bucketLabel,
  distinctBudgets,
  type FinalPoint,
  finestBuckets,
  type Known,
  pairsInBucket,
  type SizePair,
  sameBucket,
} from "./points.ts";
import { powerRatio } from "./ratio.ts";
import { mean } from "./regression.ts";
import { t95 } from "./student.ts";
import type { Comparison, GrowthRatio, Interval, SizeRatio } from "./types.ts";
import { allOf, byReason, fewOf, formatLength, higherThan, MOST_TOLD, signedPercent } from "./words.ts";

type Runs = Known["runs"];

/** Static gates: as many blocks as MoBA, chosen without routing. */
const isControl = (label: string) => /\b(window|sink)-b\d/.test(label) && !isRouted(label);
export const isRouted = (label: string) => /\bmoba-b\d/.test(label);
/** What an attention is beside how it chooses its blocks. */
const beside = (label: string) => label.replace(/\b(moba|window|sink)-(b\d+-k\d+)(-shared)?/g, "$2");

/**
 * Where losses by document are known, ratios to the baseline at every size in the headline bucket and in the first one,
 * and in the headline bucket those of routed attentions to controls.
 */
export function ratiosBySize({ finals, attentions, baseline, headline, runs }: Known): SizeRatio[] {
  const first = firstBefore(finals, headline);
  const controls = attentions.filter((label) => isControl(label) && label !== baseline);
  return [headline, ...(first ? [first] : [])].flatMap((bucket) => {
    const ratios = (base: string, others: readonly string[]) =>
      others.flatMap((other) => {
        if (other === base || other === baseline) return [];
        return pairsIn(finals, base, other, bucket, bucket === headline ? first : undefined, runs).flatMap(
          (pair) => sizeRatio(pair, base, other, bucket, runs),
        );
      });
    return [
      ...(baseline === null ? [] : ratios(baseline, attentions)),
      ...(bucket === headline
        ? controls.flatMap((control) => ratios(control, attentions.filter(isRouted)))
        : []),
    ];
  });
}

/**
 * How much less an attention gains from the first bucket to the headline one than the baseline does, where the first is
 * one in which it leaves nothing out: what of the ratio in the headline bucket is not there before attention differs.
 */
export function ratiosOfGrowth({ finals, attentions, baseline, headline, runs }: Known): GrowthRatio[] {
  const first = firstBefore(finals, headline);
  if (baseline === null || first === undefined) return [];
  const { position_start, position_end } = headline;
  const others = attentions.filter((label) => label !== baseline);
  return others.flatMap((other) => {
    const pairs = pairsIn(finals, baseline, other, headline, first, runs).flatMap((pair): SizePair[] => {
      const { before } = pair;
      if (!before) return [];
      const share = (side: "baseline" | "other") => ({
        ...pair[side],
        lm_loss: pair[side].lm_loss / before[side].lm_loss,
      });
      return [{ ...pair, baseline: share("baseline"), other: share("other") }];
    });
    const logs = pairs.map((pair) => Math.log(pair.baseline.pflops_days));
    if (distinctBudgets(pairs.map((pair) => pair.baseline)) < FEWEST_PAIRS) return [];
    const model = powerRatio(pairs);
    const at = mean(logs);
    return [
      {
        ...{ position_start, position_end, baseline, other, from_end: first.position_end! },
        pflops_days: Math.exp(at),
        ratio: Math.exp(model.valueAt(at)),
        interval: exponentials(model.intervalAt(at)),
        sizes: pairs.length,
      },
    ];
  });
}

/** The first bucket, where the headline bucket is another. */
function firstBefore(finals: readonly FinalPoint[], headline: Bucket): Bucket | undefined {
  const first = finestBuckets(finals).find(({ position_start }) => position_start === 0);
  return first && !sameBucket(first, headline) ? first : undefined;
}

/** A pair in one bucket, and the same runs in the first one when all attend to everything there. */
type PairFromStart = SizePair & { readonly before?: SizePair & Bucket };

function pairsIn(
  finals: readonly FinalPoint[],
  baseline: string,
  other: string,
  bucket: Bucket,
  first: Bucket | undefined,
  runs: Runs,
): PairFromStart[] {
  const pairs = pairsInBucket(finals, bucket, baseline, other);
  if (first === undefined) return pairs;
  const { position_start, position_end } = first;
  const firsts = pairsInBucket(finals, first, baseline, other);
  const before = new Map(firsts.map((pair) => [String(pair.names), pair]));
  return pairs.map((pair) => {
    const same = before.get(String(pair.names));
    const alike = reach(pair, runs) >= position_end!;
    return same && alike ? { ...pair, before: { ...same, position_start, position_end } } : pair;
  });
}

/** Tokens from a document's start on in which all runs of a pair attend to everything. */
function reach({ names }: SizePair, runs: Runs): number {
  return Math.min(...names.flat().map((run) => runs.get(run)?.reach ?? 0));
}

/**
 * Around the ratios of the final losses, as wide as the documents of the last evaluations make them; empty for too few.
 */
function sizeRatio(
  pair: PairFromStart,
  baseline: string,
  other: string,
  bucket: Bucket,
  runs: Runs,
): SizeRatio[] {
  const { position_start, position_end } = bucket;
  const ratio = pair.other.lm_loss / pair.baseline.lm_loss;
  const found = around(ratio, documentsOf(pair, [bucket], runs), ([base, one]) => one / base);
  if (found === null) return [];
  const { before } = pair;
  const own =
    before &&
    around(
      ratio / (before.other.lm_loss / before.baseline.lm_loss),
      documentsOf(pair, [bucket, before], runs),
      ([base, one, firstBase, firstOne]) => one / firstOne / (base / firstBase),
    );
  return [
    {
      ...{ position_start, position_end, baseline, other, model: pair.model, seeds: pair.names.length },
      ...found,
      alike: reach(pair, runs) >= (position_end ?? Number.POSITIVE_INFINITY),
      ...(own ? { relative: { from_end: before.position_end!, ...own } } : {}),
    },
  ];
}

interface OverDocuments {
  readonly ratio: number;
  readonly interval: Interval;
  readonly documents: number;
}

/** A ratio with the interval over documents of what `of` makes of them; null for too few. */
function around(
  ratio: number,
  rows: readonly Row[],
  of: (losses: readonly number[]) => number,
): OverDocuments | null {
  if (rows.length < FEWEST_DOCUMENTS) return null;
  const { value, interval } = overDocuments(rows, of);
  return {
    ratio,
    interval: [ratio + interval[0] - value, ratio + interval[1] - value],
    documents: rows.length,
  };
}

/**
 * Documents of which all runs of a pair predicted the same tokens: for each bucket the losses of the baseline and of the
 * other, means over the seeds, by the tokens of the first of `buckets`.
 */
function documentsOf({ names }: SizePair, buckets: readonly Bucket[], runs: Runs): Row[] {
  const ordered = [...names.map(([base]) => base), ...names.map(([, one]) => one)];
  const known = ordered.map((run) => {
    const documents = runs.get(run)?.documents ?? [];
    return new Map(
      documents.map(({ document, buckets: all }) => {
        const losses = buckets.map(({ position_start: start, position_end: end }) =>
          lossBetween(all, start ?? 0, end ?? Number.POSITIVE_INFINITY),
        );
        return [document, losses] as const;
      }),
    );
  });
  return [...known[0]].flatMap(([document, own]): Row[] => {
    const all = known.map((losses) => losses.get(document));
    const same = all.every((one) =>
      own.every(({ predicted_tokens: tokens }, b) => tokens > 0 && one?.[b].predicted_tokens === tokens),
    );
    if (!same) return [];
    const weight = own[0].predicted_tokens;
    const losses = own.flatMap(({ predicted_tokens: tokens }, b) => {
      const each = all.map((one) => (one![b].lm_loss * tokens) / weight);
      return [mean(each.slice(0, names.length)), mean(each.slice(names.length))];
    });
    return [{ weight, losses }];
  });
}

/** What the sentences are made of. */
export interface Sizes extends Known {
  readonly comparisons: readonly Comparison[];
  readonly sizeRatios: readonly SizeRatio[];
}

type Names = (attention: string) => string;

/** Of single sizes, and of what differs between positions. */
export function bySizeInWords(sizes: Sizes, name: Names): { single: string[]; byPosition: string[] } {
  const here = sizes.finals.filter((final) => sameBucket(final, sizes.headline));
  const groups = singleSizes(sizes, here);
  const seeds = seedsApart(here);
  const single = [...singles(sizes, groups, seeds, name), ...controlled(sizes, seeds, name)];
  const all = [...single, ...covered(sizes, name), ...relative(sizes, groups, here, name)];
  // Said at length once.
  const sentences = all.map(({ ratios, seeds, words }, i) => words(toldOver(ratios, seeds, i === 0)));
  return { single: sentences.slice(0, single.length), byPosition: sentences.slice(single.length) };
}

/** What a sentence is told over: the documents of its intervals, and what seeds alone do, `atLength` or not. */
export function toldOver(
  ratios: readonly { readonly documents?: number }[],
  seeds: Seeds,
  atLength = false,
): string {
  const apart = seeds && `${(100 * Math.expm1(seeds(1))).toFixed(1)} % apart`;
  const told =
    apart === null
      ? ""
      : atLength
        ? ` (two runs that differ only by their seeds would end up to ${apart} in 95 of 100 cases)`
        : ` (by seeds alone two runs end up to ${apart})`;
  const counts = ratios.flatMap(({ documents }) => documents ?? []);
  if (counts.length === 0) return `without an interval${told}`;
  const [fewest, most] = [Math.min(...counts), Math.max(...counts)].map(String);
  const over = `with 95 % intervals over ${fewest === most ? most : `${fewest} to ${most}`} documents`;
  return `${over}${atLength ? ", not over seeds" : ""}${told}`;
}

/** A sentence, and what of it has intervals: it is told over what those are. */
interface Sentence {
  readonly ratios: readonly OverDocuments[];
  readonly seeds: Seeds;
  readonly words: (over: string) => string;
}

/**
 * How far apart, in log loss, means over as many runs of one size end by their seeds alone, 95 %; null where no size has
 * several.
 */
type Seeds = ((runs: number) => number) | null;

/** By the scatter between seeds, pooled over all attentions. */
export function seedsApart(finals: readonly FinalPoint[]): Seeds {
  const scatter = seedScatter(finals);
  if (scatter === null) return null;
  const { noise, degreesOfFreedom } = scatter;
  return (runs) => t95(degreesOfFreedom) * Math.sqrt(2 / runs) * noise;
}

export interface Told {
  /** The attentions, and at which size, where that is known. */
  readonly baseline?: string;
  readonly other?: string;
  readonly model?: string;
  readonly ratio: number;
  /** Absent for too few documents, as their number is. */
  readonly interval?: Interval;
  readonly documents?: number;
  readonly seeds: number;
}

/** Of the final losses in a bucket. */
export function ratioOfPair(pair: SizePair, bucket: Bucket, runs: Runs): Told {
  const ratio = pair.other.lm_loss / pair.baseline.lm_loss;
  const found = around(ratio, documentsOf(pair, [bucket], runs), ([base, one]) => one / base);
  return { ratio, seeds: pair.names.length, ...found };
}

/** Which attentions of a ratio have a run, at its size, that is not past the sudden drop of its loss; else empty. */
type OffTrend = (one: Told) => string;

function offTrend({ finals, runs }: Known, name: Names): OffTrend {
  const off = finals.filter((final) => runs.get(final.name)?.offTrend);
  return ({ baseline = "", other = "", model }) => {
    const early = [baseline, other].filter((label) =>
      off.some((run) => run.attention === label && run.model === model),
    );
    return early.length > 0 ? `${allOf(early.map(name))} not past the sudden drop` : "";
  };
}

/** How ratios of one sentence are written, those within what seeds do marked; `end` marks all of them. */
export function percents(
  all: readonly Told[],
  seeds: Seeds,
  off: OffTrend = () => "",
): { of: (one: Told, bare?: string) => string; end: string } {
  const within = (one: Told) => seeds !== null && Math.abs(Math.log(one.ratio)) <= seeds(one.seeds);
  const every = all.length > 1 && all.every(within);
  const mark = "within what seeds alone do";
  return {
    of(one, bare) {
      const range = one.interval?.map((end) => signedPercent(end - 1)).join(" to ") ?? bare;
      const notes = [range, off(one), within(one) && !every ? mark : ""].filter(Boolean).join(", ");
      return `${signedPercent(one.ratio - 1)}${notes && ` (${notes})`}`;
    },
    end: every ? `, all ${mark}` : "",
  };
}

function moreSizes(count: number): string {
  return count > MOST_TOLD ? `; ${count - MOST_TOLD} more sizes stand in the tables` : "";
}

/** By attention, each with its sizes. */
export function ratiosInWords(
  ratios: readonly (Told & Pick<SizeRatio, "other" | "model">)[],
  seeds: Seeds,
  name: Names,
  off?: OffTrend,
): string {
  const percent = percents(ratios, seeds, off);
  const groups = byReason(ratios, ({ other }) => other).map((group) => {
    const parts = group.map((ratio) => `${percent.of(ratio)} at ${ratio.model}`);
    return `${name(group[0].other)} ${fewOf(parts, MOST_TOLD)}`;
  });
  const more = groups.length - MOST_TOLD;
  const rest = more > 0 ? `; ${more} more attention${more > 1 ? "s" : ""}` : "";
  return `${groups.slice(0, MOST_TOLD).join("; ")}${rest}${percent.end}`;
}

/** An attention at one size against the baseline. */
interface Single {
  readonly baseline: string;
  readonly model: string;
  readonly other: string;
  readonly ratio: number;
  readonly seeds: number;
  readonly known?: SizeRatio;
}

/** Sizes of attentions that were trained at too few for a comparison by compute, beside all others of those sizes. */
function singleSizes(
  { comparisons, attentions, baseline, headline, sizeRatios }: Sizes,
  here: readonly FinalPoint[],
): Single[][] {
  if (baseline === null) return [];
  const others = attentions.filter((label) => label !== baseline);
  const found = others.flatMap((other) => {
    const own = sizeRatios.filter((one) => {
      return one.baseline === baseline && one.other === other && sameBucket(one, headline);
    });
    return pairsInBucket(here, headline, baseline, other).map(({ model, ...pair }) => {
      const ratio = pair.other.lm_loss / pair.baseline.lm_loss;
      // A model may have several budgets.
      const known = own.find((one) => one.model === model && one.ratio === ratio);
      return { baseline, model, other, ratio, seeds: pair.names.length, known };
    });
  });
  const compared = new Set(comparisons.map(({ other }) => other));
  return byReason(found, ({ model }) => model).filter((group) =>
    group.some(({ other }) => !compared.has(other)),
  );
}

function singles(all: Sizes, sizes: readonly (readonly Single[])[], seeds: Seeds, name: Names): Sentence[] {
  const { baseline, headline } = all;
  if (baseline === null || sizes.length === 0) return [];
  const told = sizes.slice(0, MOST_TOLD);
  const ratios = told.flat().flatMap(({ known }) => known ?? []);
  const bare = ratios.length > 0 ? "no interval: too few documents of both" : "";
  const percent = percents(told.flat(), seeds, offTrend(all, name));
  const parts = told.map((group) => {
    const each = group.map(({ known, ...own }) => `${name(own.other)} ${percent.of(known ?? own, bare)}`);
    return `at ${group[0].model} ${fewOf(each, MOST_TOLD)}`;
  });
  const more = moreSizes(sizes.length);
  const losses = `losses at ${bucketLabel(headline)} against ${name(baseline)}, ${parts.join("; ")}${more}${percent.end}.`;
  return [{ ratios, seeds, words: (over) => `Single sizes, so ${over}: ${losses}` }];
}

/** Routed attentions against the controls of their sizes. */
function controlled(all: Sizes, seeds: Seeds, name: Names): Sentence[] {
  const { baseline, headline, sizeRatios } = all;
  const pairs = sizeRatios.filter((ratio) => ratio.baseline !== baseline && !ratio.alike);
  return byReason(pairs, ({ baseline: control }) => control).map((ratios) => {
    const control = ratios[0].baseline;
    const others = [...new Set(ratios.map(({ other }) => other))];
    const alone = others.filter((other) => beside(other) === beside(control));
    const rest = others.filter((other) => !alone.includes(other));
    const more = rest.length > 0 ? ` and ${allOf(rest.map(name))} by more than that` : "";
    const which =
      alone.length === 0
        ? "which does not route"
        : `from which ${allOf(alone.map(name))} differ${alone.length === 1 ? "s" : ""} by routing alone${more}`;
    const words = (over: string) =>
      `Losses at ${bucketLabel(headline)} against ${name(control)}, ${which}, ${over}: ${ratiosInWords(ratios, seeds, name, offTrend(all, name))}.`;
    return { ratios, seeds, words };
  });
}

/** The first positions, where a sparse attention may leave nothing out. */
function covered(all: Sizes, name: Names): Sentence[] {
  const { finals, baseline, sizeRatios } = all;
  const ratios = sizeRatios.filter((one) => {
    return one.alike && one.baseline === baseline && one.position_start === 0;
  });
  if (baseline === null || ratios.length === 0) return [];
  const others = [...new Set(ratios.map(({ other }) => other))];
  const seeds = seedsApart(finals.filter((final) => sameBucket(final, ratios[0])));
  const words = (over: string) =>
    `In the first ${formatLength(ratios[0].position_end!)} positions, where ${allOf(others.map(name))} ` +
    `${others.length === 1 ? "attends" : "attend"} to everything as ${name(baseline)} does, losses differ by training ` +
    `alone; against ${name(baseline)}, ${over}: ${ratiosInWords(ratios, seeds, name, offTrend(all, name))}.`;
  return [{ ratios, seeds, words }];
}

/** What of single sizes, and of differences to controls, is not there in the first positions already. */
function relative(
  all: Sizes,
  sizes: readonly (readonly Single[])[],
  here: readonly FinalPoint[],
  name: Names,
): Sentence[] {
  const { finals, baseline, headline, sizeRatios } = all;
  const known = [
    ...sizes.flat().flatMap((single) => single.known ?? []),
    ...sizeRatios.filter((ratio) => ratio.baseline !== baseline),
  ];
  const ratios = known.flatMap(({ relative: own, model, baseline, other, seeds }) =>
    own ? [{ ...own, model, baseline, other, seeds }] : [],
  );
  const end = ratios[0]?.from_end;
  if (end === undefined) return [];
  const firsts = new Map(
    finals
      .filter((final) => final.position_start === 0 && final.position_end === end)
      .map((final) => [final.name, final.lm_loss]),
  );
  const shares = here.flatMap((final) => {
    const first = firsts.get(final.name);
    return first ? [{ ...final, lm_loss: final.lm_loss / first }] : [];
  });
  const seeds = seedsApart(shares);
  const groups = byReason(ratios, ({ model }) => model);
  const told = groups.slice(0, MOST_TOLD);
  const percent = percents(told.flat(), seeds, offTrend(all, name));
  const parts = told.map((group) => {
    const against = byReason(group, ({ baseline }) => baseline).map((same) => {
      const each = same.map((ratio) => `${name(ratio.other)} ${percent.of(ratio)}`);
      return `against ${name(same[0].baseline)} ${fewOf(each, MOST_TOLD)}`;
    });
    return `at ${group[0].model} ${against.join("; ")}`;
  });
  const more = moreSizes(groups.length);
  const words = (over: string) =>
    `Relative to each one's own loss in the first ${formatLength(end)} positions, losses at ${bucketLabel(headline)}, ` +
    `${over}: ${parts.join("; ")}${more}${percent.end}.`;
  return [{ ratios: told.flat(), seeds, words }];
}

/** What is lost from the first positions to the headline bucket. */
export function growthInWords(ratios: readonly GrowthRatio[], name: Names): string[] {
  return ratios.map(
    ({ other, from_end, ratio, interval, sizes }) =>
      `Relative to each one's own loss in the first ${formatLength(from_end)} positions, the loss of ${name(other)} is ` +
      `${higherThan("", ratio, interval)}, over ${sizes} sizes.`,
  );
}
