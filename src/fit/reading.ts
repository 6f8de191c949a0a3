/**
 * The finding in words (docs/method.md, section 5): short sentences for the headline bucket, each from a computed
 * figure and in one part.
 */
import { againstLawInWords } from "./against-law.ts";
import { lossesAt, seedSpread } from "./bend.ts";
import { bySizeInWords, growthInWords, type Sizes } from "./by-size.ts";
import { byTimeInWords } from "./by-time.ts";
import { throughout } from "./compare.ts";
import { DISTINCT_BUDGETS_FOR_A_FLOOR } from "./floored.ts";
import type { Sentences } from "./parts.ts";
import {
  type Bucket,
  bucketKey,
  bucketLabel,
  distinctBuckets,
  distinctBudgets,
  finestBuckets,
  type RunCurve,
  sameBucket,
} from "./points.ts";
import type {
  Comparison,
  FormError,
  GrowthRatio,
  Interval,
  Law,
  LawRatio,
  OptimalSize,
  ParametricLaw,
  PowerLaw,
  TimeRatio,
  Verdict,
} from "./types.ts";
import {
  anyOf,
  byReason,
  fewOf,
  formatBudget,
  formatExponent,
  formatFactor,
  formatRatio,
  higherThan,
  listOf,
  MOST_TOLD,
  nameAttentions,
  signed,
  signedPercent,
} from "./words.ts";

interface Fitted extends Sizes {
  readonly laws: readonly Law[];
  readonly forms: readonly FormError[];
  readonly curves: readonly RunCurve[];
  readonly lawRatios: readonly LawRatio[];
  readonly growthRatios: readonly GrowthRatio[];
  readonly timeRatios: readonly TimeRatio[];
  readonly margin: number;
}

type Names = (attention: string) => string;

export function readingInWords(all: Fitted): Sentences {
  const attentions = new Set([
    ...all.comparisons.map((c) => c.baseline),
    ...all.laws.map((l) => l.attention),
  ]);
  const told = new Set([...attentions].slice(0, MOST_TOLD));
  const here = (row: Bucket) => sameBucket(row, all.headline);
  const fitted = {
    ...all,
    laws: all.laws.filter((law) => told.has(law.attention)),
    comparisons: all.comparisons.filter(({ other }) => told.has(other)),
  };
  const { headline, forms } = fitted;
  const laws = fitted.laws.filter(here);
  const primary = laws.filter((law) => law.form !== "parametric" && law.convention === "6ND") as PowerLaw[];
  const comparisons = fitted.comparisons.filter(here);
  const by6ND = comparisons.filter(({ convention }) => convention === "6ND");
  const name = nameAttentions(fitted.finals.map((final) => final.attention));
  const { single: atEqualSize, byPosition } = bySizeInWords(fitted, name);
  const single = [...atEqualSize, ...againstLawInWords(fitted.lawRatios, name)];
  const trends =
    laws.length === 0
      ? [`At ${bucketLabel(headline)} there are too few sizes to fit a law.`]
      : [
          ...laws.flatMap((law) => (law.form === "parametric" ? [surface(law, name)] : [])),
          ...primary.map((law) => trend(law, name)),
        ];
  const compared = comparisons.length > 0;
  // Surfaces, envelopes and IsoFLOP minima are not fitted through the sizes that the forms were judged on.
  const judged = primary.some((law) => ["power", "floored", "broken"].includes(law.form));
  return {
    "In short": [
      ...(compared
        ? byReason(comparisons, ({ other }) => other).flatMap((pair) => inShort(pair, fitted, name))
        : [...uncompared(fitted), ...single, ...trends]),
      ...untold(attentions.size - told.size),
    ],
    Laws: [
      ...(compared ? trends : []),
      ...laws.flatMap((law) =>
        [law.optimal_size ?? []].flat().map((size) => optimum(size, name(law.attention))),
      ),
      ...by6ND.map((comparison) => exponents(comparison, primary, name)),
      ...bending(primary, name),
    ],
    "At equal compute": comparisons.flatMap((comparison) => atEqualCompute(comparison, fitted.margin, name)),
    "Single sizes": compared ? single : [],
    "By position": [...positions(fitted, name), ...byPosition],
    "Noise and hold-out": [
      ...spread(fitted, primary, name),
      ...noiseFloors(primary, name),
      ...comparisons.flatMap((comparison) => withoutSizes(comparison, name)),
      ...primary.flatMap((law) => holdout(law, name)),
      ...(judged ? choice(forms) : []),
    ],
    "Beyond the data": primary.map((law) => projection(law, name)),
  };
}

/** The answer, given the comparisons of one pair of attentions: by each convention, by time, and past the first positions. */
function inShort(pair: readonly Comparison[], { timeRatios, growthRatios }: Fitted, name: Names): string[] {
  const same = ({ other }: { readonly other: string }) => other === pair[0].other;
  return [
    ...pair.flatMap((comparison, i) => [
      `${i === 0 ? level(comparison, 1, name) : alsoLevel(comparison, name)}; ${multiplier(comparison)}.`,
      verdict(comparison, name),
      ...(comparison.verdict === "crossing" ? [crossing(comparison, name)] : []),
    ]),
    ...byTimeInWords(timeRatios.filter(same), name),
    ...growthInWords(growthRatios.filter(same), name),
  ];
}

/** What of a comparison is not said in short. */
function atEqualCompute(comparison: Comparison, margin: number, name: Names): string[] {
  const ends = ([0, 2] as const).map((which) => `${level(comparison, which, name)}.`);
  if (comparison.convention !== "6ND") return ends;
  return [
    ...ends,
    ...(comparison.verdict === "crossing" ? [] : [crossing(comparison, name)]),
    ...unsupported(comparison, margin, name),
  ];
}

/** Why several attentions have no baseline. */
function uncompared({ baseline, attentions }: Sizes): string[] {
  if (baseline !== null || attentions.length < 2) return [];
  return [
    `Nothing is compared, because no baseline is named and none of the attentions is full: name one with --baseline ` +
      `(${fewOf(attentions, MOST_TOLD)}).`,
  ];
}

function untold(more: number): string[] {
  if (more <= 0) return [];
  const stand = more > 1 ? "s stand" : " stands";
  return [`${more} more attention${stand} in the tables of laws and comparisons, not in these sentences.`];
}

function upperFirst(text: string): string {
  return text[0].toUpperCase() + text.slice(1);
}

function between([low, high]: Interval, format: (value: number) => string): string {
  return `95 % interval ${format(low)} to ${format(high)}`;
}

function trend(law: PowerLaw, name: Names): string {
  const [low, high] = law.exponent_interval;
  const budgets = law.points.map((point) => point.pflops_days);
  const what =
    law.form === "envelope" ? "parts of the lower envelope" : law.form === "isoflop" ? "budgets" : "sizes";
  const range = `over ${law.points.length} ${what} from ${formatBudget(Math.min(...budgets))} to ${formatBudget(Math.max(...budgets))} PFLOP/s-days`;
  const where = `At ${bucketLabel(law)}, the loss of ${name(law.attention)}`;
  const floor =
    law.floor === undefined
      ? ""
      : ` above a floor of ${law.floor.toFixed(3)} (${between(law.floor_interval!, (v) => v.toFixed(3))})`;
  const interval = between(law.exponent_interval, formatExponent);
  const power = `C^${law.exponent.toFixed(4)}${floor} (${interval} for the exponent)`;
  if (law.break !== undefined) {
    const { pflops_days, exponent_after, exponent_after_interval, located, interval: at } = law.break;
    const place = located
      ? `${formatBudget(pflops_days)} PFLOP/s-days (${between(at, formatBudget)})`
      : `${formatBudget(pflops_days)} PFLOP/s-days, a place that these sizes do not pin down`;
    return (
      `${where} follows ${power} up to ${place} and C^${exponent_after.toFixed(4)} ` +
      `(${between(exponent_after_interval, formatExponent)}) from there, ${range}.`
    );
  }
  if (high < 0) return `${where} falls as ${power} ${range}.`;
  if (low > 0) return `${where} rises as ${power} ${range}, so these runs show no scaling.`;
  return `${where} follows ${power} ${range}, so whether it falls with compute cannot be told.`;
}

function surface(law: ParametricLaw, name: Names): string {
  return (
    `At ${bucketLabel(law)}, the losses of ${law.points} runs of ${name(law.attention)} are fitted by ` +
    `L = ${law.E.toPrecision(4)} + ${law.A.toPrecision(4)} N^${(-law.alpha).toPrecision(3)} + ` +
    `${law.B.toPrecision(4)} D^${(-law.beta).toPrecision(3)}${law.converged ? "" : ", a search that did not converge"}.`
  );
}

/** How a budget is best spent. */
function optimum({ method, parameters, tokens }: OptimalSize, attention: string): string {
  const way = {
    quadratic: "by the minima of parabolas",
    envelope: "by the runs on the lower envelope",
    direct: "by the fitted surface",
  }[method];
  const interval =
    parameters.exponent_interval === null
      ? ""
      : ` (${between(parameters.exponent_interval, (v) => formatExponent(v, 3))})`;
  return (
    `The best size of ${attention}, ${way}, grows as C^${parameters.exponent.toFixed(3)}${interval} and its training ` +
    `tokens as C^${tokens.exponent.toFixed(3)}: ${parameters.coefficient.toPrecision(3)} parameters and ` +
    `${tokens.coefficient.toPrecision(3)} tokens at 1 PFLOP/s-day.`
  );
}

function exponents(comparison: Comparison, laws: readonly PowerLaw[], name: Names): string {
  const { exponent, exponent_interval } = comparison.ratio_law;
  const [low, high] = exponent_interval;
  const shown = [comparison.other, comparison.baseline].map(
    (attention) => laws.find((law) => law.attention === attention)?.exponent ?? Number.NaN,
  );
  // The laws told may go through other points, or bend.
  const same = Math.abs(shown[0] - shown[1] - exponent) < 1e-4;
  const by = same ? "" : "by straight lines through the final losses of their pairs, ";
  const figure = `differ by ${signed(exponent, 4)} (${between(exponent_interval, (v) => signed(v, 4))})`;
  const [other, baseline] = [name(comparison.other), name(comparison.baseline)];
  if (low <= 0 && high >= 0) {
    return `The exponents of ${other} and ${baseline} cannot be told apart: ${by}they ${figure}.`;
  }
  return `The loss of ${other} falls ${exponent > 0 ? "more slowly" : "faster"} than that of ${baseline}: ${by}the exponents ${figure}.`;
}

const BUDGETS = ["the smallest budget", "the geometric mean budget", "the largest budget"];
const BY = { "6ND": "by 6ND", attended: "as attended" };
const DONE = " (attention counted as done)";

/** The losses at one of `BUDGETS`, without a full stop. */
function level({ convention, ratio_at, ...comparison }: Comparison, which: 0 | 1 | 2, name: Names): string {
  const { pflops_days, ratio, interval } = ratio_at[which];
  const done = convention === "attended" && which === 1 ? DONE : "";
  return (
    `At ${bucketLabel(comparison)} and ${BUDGETS[which]}, ${formatBudget(pflops_days)} PFLOP/s-days ${BY[convention]}${done}, ` +
    `the loss of ${name(comparison.other)} is ${higherThan(`that of ${name(comparison.baseline)}`, ratio, interval)}`
  );
}

/** The losses at the mean budget by a further convention. */
function alsoLevel({ convention, ratio_at, other }: Comparison, name: Names): string {
  const { pflops_days, ratio, interval } = ratio_at[1];
  const done = convention === "attended" ? DONE : "";
  return (
    `${upperFirst(BY[convention])}${done}, at ${formatBudget(pflops_days)} PFLOP/s-days, the loss of ${name(other)} is ` +
    higherThan("", ratio, interval)
  );
}

function multiplier({ ratio_at, multiplier_at }: Comparison): string {
  const middle = multiplier_at.find(({ pflops_days }) => pflops_days === ratio_at[1].pflops_days);
  if (middle === undefined) return "how much compute the same loss takes is not bounded by these runs";
  const [low, high] = middle.interval.map(formatFactor);
  return `the same loss takes ${formatFactor(middle.multiplier)} times the compute (${low} to ${high})`;
}

function crossing(comparison: Comparison, name: Names): string {
  const { crossing: at, convention, other, baseline, verdict: found } = comparison;
  const pair = `the lines of ${name(other)} and ${name(baseline)}`;
  if (at === null && throughout(found)) {
    return `${upperFirst(pair)} do not cross inside the range: the ratio's interval excludes 1 all over it.`;
  }
  if (at === null) {
    return `No crossing of ${pair} is located: the 95 % set of budgets where they may cross is not a bounded interval.`;
  }
  const figure = `${formatBudget(at.pflops_days)} PFLOP/s-days ${BY[convention]} (${between(at.interval, formatBudget)})`;
  return `${upperFirst(pair)} cross at ${figure}, ${at.inside_data ? "inside" : "outside"} the data.`;
}

function verdictWords(verdict: Verdict, other: string): string {
  if (verdict === "other higher") return `${other} higher over the whole range`;
  if (verdict === "other lower") return `${other} lower over the whole range`;
  return verdict;
}

function verdict(comparison: Comparison, name: Names): string {
  const { fitted_range } = comparison;
  const range = `from ${formatBudget(fitted_range[0])} to ${formatBudget(fitted_range[1])} PFLOP/s-days ${BY[comparison.convention]}`;
  const words = verdictWords(comparison.verdict, name(comparison.other));
  return `Verdict ${range}: ${words}${stretch(comparison, name)}${hanging(comparison)}.`;
}

/** Where the ratio's interval excludes 1, for a verdict that does not say it. */
function stretch({ differs_between: differs, verdict: found, ratio_at, other }: Comparison, name: Names) {
  if (throughout(found)) return "";
  if (differs === null) return "; the ratio's interval holds 1 everywhere";
  const [low, high] = differs;
  // The two differ to one side all over the stretch.
  const inside = ratio_at.find(({ pflops_days }) => pflops_days >= low && pflops_days <= high);
  const differ = inside ? `is ${inside.ratio > 1 ? "higher" : "lower"}` : "differs";
  const but = found === "crossing" ? ";" : ", but";
  return (
    `${but} ${name(other)} ${differ} from ${formatBudget(low)} to ${formatBudget(high)} PFLOP/s-days, ` +
    "where the ratio's interval excludes 1"
  );
}

/** Sizes without which the verdict would not hold, as the end of a sentence; empty where there are none. */
function hanging({ without = [] }: Comparison): string {
  const lost = without.filter(({ holds }) => holds === false).map(({ model }) => model);
  return lost.length === 0 ? "" : `; it does not hold without ${anyOf(lost)}`;
}

/** The comparison without each of its sizes. */
function withoutSizes(comparison: Comparison, name: Names): string[] {
  const { convention, other, baseline, verdict: found, without = [] } = comparison;
  if (without.length === 0) return [];
  const ratios = without.map(({ ratio }) => ratio);
  const [least, most] = [Math.min(...ratios), Math.max(...ratios)].map(formatRatio);
  const lies = least === most ? `is ${least}` : `lies between ${least} and ${most}`;
  const sizes = (some: typeof without) => anyOf(some.map(({ model }) => model));
  const above = without.filter(({ interval }) => interval[0] > 1);
  const below = without.filter(({ interval }) => interval[1] < 1);
  const [side, clear] = above.length >= below.length ? ["above", above] : ["below", below];
  const unclear = without.filter((one) => !clear.includes(one));
  const interval =
    unclear.length === 0
      ? `its interval ${side} 1 each time`
      : above.length + below.length === 0
        ? "its interval holding 1 each time"
        : clear.length > unclear.length
          ? `its interval ${side} 1 except without ${sizes(unclear)}`
          : `its interval ${side} 1 only without ${sizes(clear)}`;
  const moved = without.filter((one) => one.holds === false);
  const open = without.filter((one) => one.verdict !== found);
  const told = throughout(found)
    ? moved.length === 0
      ? "; with the interval of all sizes around it the verdict holds each time"
      : `; with the interval of all sizes around it the verdict does not hold without ${sizes(moved)}`
    : "";
  const wider =
    open.length === 0
      ? told === ""
        ? "; the verdict is the same each time"
        : ""
      : `${told === "" ? ";" : ", and"} by the intervals of one size fewer it is ${listOf(
          byReason(open, (one) => one.verdict).map(
            (group) => `"${verdictWords(group[0].verdict, name(other))}" without ${sizes(group)}`,
          ),
          ", ",
          " and ",
        )}`;
  return [
    `Without any one size the ratio of ${name(other)} to ${name(baseline)} at the mean budget ${BY[convention]} ` +
      `${lies}, ${interval}${told}${wider}.`,
  ];
}

/** The verdicts over all buckets by 6ND, when there are several. */
function positions({ comparisons }: Fitted, name: Names): string[] {
  const sentences: string[] = [];
  for (const other of new Set(comparisons.map((comparison) => comparison.other))) {
    const rows = finestBuckets(
      comparisons.filter((c) => c.convention === "6ND" && c.other === other && c.position_start !== null),
    );
    if (rows.length < 2) continue;
    const counts = new Map<Verdict, Comparison[]>();
    for (const row of rows) counts.set(row.verdict, [...(counts.get(row.verdict) ?? []), row]);
    const parts = [...counts].map(([found, cases]) => {
      const where = cases.length === 1 ? ` (${bucketLabel(cases[0])})` : "";
      return `${verdictWords(found, name(other))} in ${cases.length}${where}`;
    });
    const [first, last] = [rows[0], rows.at(-1)!].map((row) => {
      return `${formatRatio(row.ratio_at[1].ratio)} at ${bucketLabel(row)}`;
    });
    sentences.push(
      `Over the ${distinctBuckets(rows).length} position buckets, against ${name(rows[0].baseline)}: ${listOf(parts, ", ", " and ")}; ` +
        `the ratio at the mean budget goes from ${first} to ${last}.`,
    );
  }
  return sentences;
}

function spread({ curves, finals, headline }: Fitted, laws: readonly PowerLaw[], name: Names): string[] {
  const spreads = laws.flatMap((law) => {
    const smallest = Math.min(...law.points.map((point) => point.pflops_days));
    const own = curves.filter((c) => c.attention === law.attention && bucketKey(c) === bucketKey(headline));
    const losses = lossesAt(own, smallest);
    if (losses.length < 2) return [];
    const range = `${Math.min(...losses).toFixed(2)} to ${Math.max(...losses).toFixed(2)}`;
    return [
      { spent: formatBudget(smallest), runs: `${losses.length} runs of ${name(law.attention)}`, range },
    ];
  });
  const parts = byReason(spreads, ({ spent }) => spent).map((group) => {
    const all = group.map(({ runs, range }, i) => {
      return i === 0 ? `the losses of ${runs} range from ${range}` : `those of ${runs} from ${range}`;
    });
    return `with ${group[0].spent} PFLOP/s-days spent, ${listOf(all, ", ", " and ")}`;
  });
  const sentences = parts.length > 0 ? [`At low compute the runs spread: ${parts.join("; ")}.`] : [];
  const seeds = seedSpread(finals.filter((final) => bucketKey(final) === bucketKey(headline)));
  if (seeds !== null) {
    sentences.push(
      `Runs of one size that differ only by their seed end up to ${(100 * seeds.share).toFixed(1)} % apart (${seeds.model}, ${name(seeds.attention)}).`,
    );
  }
  return sentences;
}

/** What seeds alone change, beside what the law leaves unexplained. */
function noiseFloors(laws: readonly PowerLaw[], name: Names): string[] {
  return laws.flatMap((law) => {
    if (law.seed_noise === undefined) return [];
    const seeds = Math.max(...law.points.map((point) => point.seeds));
    const residual = Math.sqrt(
      law.objective / Math.max(1, law.points.length - (law.form === "power" ? 2 : 3)),
    );
    return [
      `The noise floor of ${name(law.attention)}, the scatter between seeds of one size, is ` +
        `${(100 * law.seed_noise).toFixed(2)} % of the loss (up to ${seeds} seeds); its sizes lie ${(100 * residual).toFixed(2)} % ` +
        "from the law.",
    ];
  });
}

/** Which form predicts best, where there was a choice. */
function choice(forms: readonly FormError[]): string[] {
  if (forms.length < 2) return [];
  const [best, ...rest] = forms.map(
    ({ form, holdout_error }) => `${form} (${(100 * holdout_error).toFixed(2)} % off)`,
  );
  return [
    `The largest sizes are best predicted from the others by form ${best}, then ${listOf(rest, ", ", " and ")}.`,
  ];
}

function bending(laws: readonly PowerLaw[], name: Names): string[] {
  const sentences: string[] = [];
  const tooFew: PowerLaw[] = [];
  for (const law of laws) {
    if (law.form !== "power") continue;
    const found = law.bend;
    if (found === undefined) {
      tooFew.push(law);
      continue;
    }
    sentences.push(
      `A bend in the line of ${name(law.attention)} is ${found.supported ? "supported" : "not supported"}: its curvature in ` +
        `log-log is ${signed(found.curvature, 4)} (${between(found.interval, (v) => signed(v, 4))}).`,
    );
  }
  if (tooFew.length > 0) {
    const counts = tooFew.map(({ attention, points }) => {
      const budgets = distinctBudgets(points);
      return `${name(attention)} (${points.length} sizes${budgets < points.length ? ` of ${budgets} budgets` : ""})`;
    });
    sentences.push(
      `Whether the lines bend cannot be judged for ${listOf(counts, ", ", " and ")}; that takes at least ` +
        `${DISTINCT_BUDGETS_FOR_A_FLOOR} distinct budgets.`,
    );
  }
  return sentences;
}

function holdout(law: PowerLaw, name: Names): string[] {
  if (law.holdout === undefined) return [];
  const { model, predicted, observed, interval } = law.holdout;
  const inside = observed >= interval[0] && observed <= interval[1];
  const error = signedPercent(predicted / observed - 1);
  return [
    `Fitted without ${model}, the law of ${name(law.attention)} predicts a loss of ${predicted.toFixed(3)} where ` +
      `${observed.toFixed(3)} was observed (${error}), ${inside ? "inside" : "outside"} its 95 % prediction interval ` +
      `of ${interval[0].toFixed(3)} to ${interval[1].toFixed(3)}.`,
  ];
}

/** How far a line may be trusted beyond the data: its prediction interval at ten times the largest budget. */
function projection(law: PowerLaw, name: Names): string {
  const largest = Math.max(...law.points.map((point) => point.pflops_days));
  const { loss, prediction_interval } = law.projection;
  return (
    `Beyond ${formatBudget(largest)} PFLOP/s-days the line of ${name(law.attention)} is a projection: at ten times ` +
    `that it says ${loss.toFixed(2)}, with a 95 % prediction interval of ${prediction_interval[0].toFixed(2)} to ` +
    `${prediction_interval[1].toFixed(2)}.`
  );
}

/** The claims that these runs leave open. */
function unsupported(comparison: Comparison, margin: number, name: Names): string[] {
  const open = comparison.claims
    .filter((claim) => claim.judgement === "undecided")
    .map((claim) => claim.claim);
  const words = {
    cross: "whether the lines cross inside the range",
    "never cross": "whether they stay apart there",
    "lower throughout": `whether ${name(comparison.other)} is lower throughout`,
    "the same": `whether the two are the same within ${Number((100 * margin).toPrecision(3))} %`,
  };
  if (open.length === 0) return [];
  const [other, baseline] = [name(comparison.other), name(comparison.baseline)];
  return [
    `For ${other} against ${baseline} these runs do not decide ${listOf(
      open.map((claim) => words[claim]),
      ", ",
      " or ",
    )}.`,
  ];
}
