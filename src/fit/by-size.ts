/** Attentions at single sizes: ratios of their losses, with intervals over documents where losses are kept by document. */
import { lossBetween } from "../train/evaluate.ts";
import { FEWEST_PAIRS } from "./compare.ts";
import { FEWEST_DOCUMENTS, overDocuments, type Row } from "./jackknife.ts";
import { exponentials } from "./law.ts";
import {
  type Bucket,
  bucketLabel,
  type FinalPoint,
  finestBuckets,
  type SizePair,
  sameBucket,
  sizePairs,
} from "./points.ts";
import { powerRatio } from "./ratio.ts";
import { mean } from "./regression.ts";
import type { Comparison, GrowthRatio, SizeRatio } from "./types.ts";
import type { RunFacts } from "./warnings.ts";
import {
  byReason,
  fewOf,
  formatBudget,
  formatLength,
  higherThan,
  listOf,
  MOST_TOLD,
  signedPercent,
} from "./words.ts";

type Runs = ReadonlyMap<string, RunFacts>;

/** Static gates: as many blocks as MoBA, chosen without routing. */
const isControl = (label: string) => /\b(window|sink)-b\d/.test(label) && !isRouted(label);
const isRouted = (label: string) => /\bmoba-b\d/.test(label);
/** What an attention is beside how it chooses its blocks. */
const beside = (label: string) => label.replace(/\b(moba|window|sink)-(b\d+-k\d+)(-shared)?/g, "$2");

/**
 * Where losses by document are known, ratios to the baseline at every size in the headline bucket and in the first one,
 * and in the headline bucket those of routed attentions to controls.
 */
export function ratiosBySize(
  finals: readonly FinalPoint[],
  baseline: string | null,
  headline: Bucket,
  runs: Runs,
): SizeRatio[] {
  const first = finestBuckets(finals).find(({ position_start }) => position_start === 0);
  const buckets = first === undefined || sameBucket(first, headline) ? [headline] : [headline, first];
  const attentions = [...new Set(finals.map(({ attention }) => attention))];
  const controls = attentions.filter((label) => isControl(label) && label !== baseline);
  return buckets.flatMap((bucket) => {
    const of = (attention: string) =>
      finals.filter((final) => final.attention === attention && sameBucket(final, bucket));
    const ratios = (base: string, others: readonly string[]) =>
      others.flatMap((other) => {
        if (other === base || other === baseline) return [];
        const { pairs } = sizePairs(of(base), of(other), "6ND");
        return pairs.flatMap((pair) => sizeRatio(pair, base, other, bucket, runs));
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
export function ratiosOfGrowth(
  finals: readonly FinalPoint[],
  baseline: string | null,
  headline: Bucket,
  runs: Runs,
): GrowthRatio[] {
  const first = finestBuckets(finals).find(({ position_start }) => position_start === 0);
  if (baseline === null || first === undefined || sameBucket(first, headline)) return [];
  const { position_start, position_end } = headline;
  const from_end = first.position_end!;
  const others = [...new Set(finals.map(({ attention }) => attention))].filter((label) => label !== baseline);
  return others.flatMap((other) => {
    const pairsIn = (bucket: Bucket) => {
      const of = (attention: string) =>
        finals.filter((final) => final.attention === attention && sameBucket(final, bucket));
      return sizePairs(of(baseline), of(other), "6ND").pairs;
    };
    const firsts = new Map(pairsIn(first).map((pair) => [String(pair.names), pair]));
    const pairs = pairsIn(headline).flatMap((pair): SizePair[] => {
      const before = firsts.get(String(pair.names));
      const alike = pair.names.flat().every((name) => (runs.get(name)?.reach ?? 0) >= from_end);
      if (!before || !alike) return [];
      const share = (side: "baseline" | "other") => ({
        ...pair[side],
        lm_loss: pair[side].lm_loss / before[side].lm_loss,
      });
      return [{ ...pair, baseline: share("baseline"), other: share("other") }];
    });
    const logs = pairs.map((pair) => Math.log(pair.baseline.pflops_days));
    if (new Set(logs).size < FEWEST_PAIRS) return [];
    const model = powerRatio(pairs);
    const at = mean(logs);
    return [
      {
        ...{ position_start, position_end, baseline, other, from_end },
        pflops_days: Math.exp(at),
        ratio: Math.exp(model.valueAt(at)),
        interval: exponentials(model.intervalAt(at)),
        sizes: pairs.length,
      },
    ];
  });
}

/** Around the ratio of the final losses, as wide as the documents of the last evaluations make it; empty for too few. */
function sizeRatio(
  pair: SizePair,
  baseline: string,
  other: string,
  { position_start, position_end }: Bucket,
  runs: Runs,
): SizeRatio[] {
  const [start, end] = [position_start ?? 0, position_end ?? Number.POSITIVE_INFINITY];
  const names = [...pair.names.map(([base]) => base), ...pair.names.map(([, one]) => one)];
  const losses = names.map((run) => {
    const documents = runs.get(run)?.documents ?? [];
    return new Map(
      documents.map(({ document, buckets }) => [document, lossBetween(buckets, start, end)] as const),
    );
  });
  const seeds = pair.names.length;
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / seeds;
  const rows = [...losses[0]].flatMap(([document, { predicted_tokens: weight }]): Row[] => {
    const all = losses.flatMap((of) => of.get(document) ?? []);
    const same = all.length === names.length && all.every((one) => one.predicted_tokens === weight);
    if (!(weight > 0) || !same) return [];
    const means = all.map(({ lm_loss }) => lm_loss);
    return [{ weight, losses: [mean(means.slice(0, seeds)), mean(means.slice(seeds))] }];
  });
  if (rows.length < FEWEST_DOCUMENTS) return [];
  const { value, interval } = overDocuments(rows, ([base, one]) => one / base);
  const ratio = pair.other.lm_loss / pair.baseline.lm_loss;
  return [
    {
      ...{ position_start, position_end, baseline, other, model: pair.model, seeds, ratio },
      interval: [ratio + interval[0] - value, ratio + interval[1] - value],
      documents: rows.length,
      alike: names.every((run) => (runs.get(run)?.reach ?? 0) >= end),
    },
  ];
}

interface Sizes {
  readonly comparisons: readonly Comparison[];
  readonly finals: readonly FinalPoint[];
  readonly baseline: string | null;
  readonly headline: Bucket;
  readonly sizeRatios: readonly SizeRatio[];
  readonly growthRatios: readonly GrowthRatio[];
}

type Names = (attention: string) => string;

/** `noise`: the scatter between seeds of one size, a share of the loss, for each attention where it is known. */
export function bySizeInWords(sizes: Sizes, noise: readonly number[], name: Names): string[] {
  const sentences = [
    ...singles(sizes, name),
    ...controlled(sizes, name),
    ...covered(sizes, name),
    ...grown(sizes, name),
  ];
  // Said once: of the other intervals it holds as well.
  let told = false;
  return sentences.map(({ ratios, words }) => {
    if (ratios.length === 0) return words("");
    const counts = ratios.map(({ documents }) => documents);
    const [fewest, most] = [Math.min(...counts), Math.max(...counts)].map(String);
    const over = `95 % intervals over ${fewest === most ? most : `${fewest} to ${most}`} documents`;
    if (told) return words(over);
    told = true;
    return words(`${over}, not over seeds${floors(noise)}`);
  });
}

/** A sentence, and what of it has intervals: it is told over what those are. */
interface Sentence {
  readonly ratios: readonly SizeRatio[];
  readonly words: (over: string) => string;
}

function floors(noise: readonly number[]): string {
  if (noise.length === 0) return "";
  const [low, high] = [Math.min(...noise), Math.max(...noise)].map((share) => (100 * share).toFixed(2));
  return ` (noise floor ${low === high ? low : `${low} to ${high}`} % of the loss)`;
}

function percent({ ratio, interval }: SizeRatio): string {
  const [low, high] = interval.map((end) => signedPercent(end - 1));
  return `${signedPercent(ratio - 1)} (${low} to ${high})`;
}

function names(attentions: readonly string[], name: Names): string {
  const all = attentions.map(name);
  return all.length > MOST_TOLD ? fewOf(all, MOST_TOLD) : listOf(all, ", ", " and ");
}

/** By attention, each with its sizes. */
function byAttention(ratios: readonly SizeRatio[], name: Names): string {
  const groups = byReason(ratios, ({ other }) => other).map((group) => {
    const parts = group.map((ratio) => `${percent(ratio)} at ${ratio.model}`);
    return `${name(group[0].other)} ${fewOf(parts, MOST_TOLD)}`;
  });
  const more = groups.length - MOST_TOLD;
  const rest = more > 0 ? `; ${more} more attention${more > 1 ? "s" : ""}` : "";
  return `${groups.slice(0, MOST_TOLD).join("; ")}${rest}`;
}

/** Sizes of attentions that were trained at too few for a comparison by compute, beside all others of those sizes. */
function singles({ comparisons, finals, baseline, headline, sizeRatios }: Sizes, name: Names): Sentence[] {
  if (baseline === null) return [];
  const here = finals.filter((final) => sameBucket(final, headline));
  const of = (attention: string) => here.filter((final) => final.attention === attention);
  const others = [...new Set(here.map(({ attention }) => attention))].filter((label) => label !== baseline);
  const found = others.flatMap((other) => {
    const compared = comparisons.some((comparison) => comparison.other === other);
    const own = sizeRatios.filter((one) => {
      return one.baseline === baseline && one.other === other && sameBucket(one, headline);
    });
    const { pairs } = sizePairs(of(baseline), of(other), "6ND");
    return pairs.map(({ model, ...pair }) => {
      const ratio = pair.other.lm_loss / pair.baseline.lm_loss;
      // A model may have several budgets.
      const known = own.find((one) => one.model === model && one.ratio === ratio);
      return { model, compared, other, ratio, known };
    });
  });
  const sizes = byReason(found, ({ model }) => model).filter((group) =>
    group.some(({ compared }) => !compared),
  );
  if (sizes.length === 0) return [];
  const told = sizes.slice(0, MOST_TOLD);
  const known = told.flat().flatMap((one) => one.known ?? []);
  const ratios = known.length === told.flat().length ? known : [];
  const parts = told.map((group) => {
    const each = group.map(({ other, ratio, known }) => {
      return `${name(other)} ${known && ratios.length > 0 ? percent(known) : signedPercent(ratio - 1)}`;
    });
    return `at ${group[0].model} ${fewOf(each, MOST_TOLD)}`;
  });
  const more = sizes.length > MOST_TOLD ? `; ${sizes.length - MOST_TOLD} more sizes stand in the tables` : "";
  const losses = `losses at ${bucketLabel(headline)} against ${name(baseline)}, ${parts.join("; ")}${more}.`;
  const words = (over: string) =>
    `Single sizes, so ${over === "" ? "without an interval" : `with ${over}`}: ${losses}`;
  return [{ ratios, words }];
}

/** Routed attentions against the controls of their sizes. */
function controlled({ baseline, headline, sizeRatios }: Sizes, name: Names): Sentence[] {
  const pairs = sizeRatios.filter((ratio) => ratio.baseline !== baseline);
  return byReason(pairs, ({ baseline: control }) => control).map((ratios) => {
    const control = ratios[0].baseline;
    const others = [...new Set(ratios.map(({ other }) => other))];
    const alone = others.filter((other) => beside(other) === beside(control));
    const which =
      alone.length === 0
        ? "which does not route"
        : `from which ${names(alone, name)} differ${alone.length === 1 ? "s" : ""} by routing alone`;
    const words = (over: string) =>
      `Losses at ${bucketLabel(headline)} against ${name(control)}, ${which}, with ${over}: ${byAttention(ratios, name)}.`;
    return { ratios, words };
  });
}

/** The first positions, where a sparse attention may leave nothing out. */
function covered({ baseline, sizeRatios }: Sizes, name: Names): Sentence[] {
  const ratios = sizeRatios.filter((one) => {
    return one.alike && one.baseline === baseline && one.position_start === 0;
  });
  if (baseline === null || ratios.length === 0) return [];
  const others = [...new Set(ratios.map(({ other }) => other))];
  const words = (over: string) =>
    `In the first ${formatLength(ratios[0].position_end!)} positions, where ${names(others, name)} ` +
    `${others.length === 1 ? "attends" : "attend"} to everything as ${name(baseline)} does, losses differ by training ` +
    `alone; against ${name(baseline)}, with ${over}: ${byAttention(ratios, name)}.`;
  return [{ ratios, words }];
}

/** What is lost from the first positions to the headline bucket. */
function grown({ growthRatios, headline }: Sizes, name: Names): Sentence[] {
  return growthRatios.map(({ baseline, other, from_end, ratio, interval, sizes, pflops_days }) => {
    const text =
      `Relative to each one's own loss in the first ${formatLength(from_end)} positions, the loss of ${name(other)} at ` +
      `${bucketLabel(headline)} is ${higherThan(`that of ${name(baseline)}`, ratio, interval)}, over ${sizes} sizes at ` +
      `${formatBudget(pflops_days)} PFLOP/s-days.`;
    return { ratios: [], words: () => text };
  });
}
