/**
 * One attention against another in one bucket (docs/method.md, section 4): the ratio of losses, the compute multiplier,
 * the crossing and the verdict.
 */
import type { Convention } from "../compute/compute.ts";
import { judgeClaims } from "./claims.ts";
import { DISTINCT_BUDGETS_FOR_A_FLOOR } from "./floored.ts";
import { exponentials } from "./law.ts";
import { type Bucket, distinctPairs, type SizePair } from "./points.ts";
import { flooredRatio, powerRatio, type RatioModel } from "./ratio.ts";
import { intervalAt, mean, slopeInterval, valueAt } from "./regression.ts";
import type { Comparison, Interval, Verdict } from "./types.ts";

/** Pairs a comparison needs: a line through fewer has no interval. */
export const FEWEST_PAIRS = 3;

/** The logs of the budgets that both attentions cover, or of all budgets when they cover none together. */
function fittedRange(pairs: readonly SizePair[]): [low: number, high: number] {
  const b = pairs.map((pair) => Math.log(pair.baseline.pflops_days));
  const o = pairs.map((pair) => Math.log(pair.other.pflops_days));
  const low = Math.max(Math.min(...b), Math.min(...o));
  const high = Math.min(Math.max(...b), Math.max(...o));
  return low < high ? [low, high] : [Math.min(...b, ...o), Math.max(...b, ...o)];
}

function crossingOf(model: RatioModel, low: number, high: number): Comparison["crossing"] {
  const found = model.crossing();
  if (found === null) return null;
  const interval = exponentials(found.interval);
  // Lines that never approach each other cross at a budget that no number holds.
  if (!(interval[0] > 0 && Number.isFinite(interval[1]))) return null;
  return { pflops_days: Math.exp(found.at), interval, inside_data: found.at >= low && found.at <= high };
}

export interface ComparisonKey extends Bucket {
  readonly convention: Convention;
  readonly baseline: string;
  readonly other: string;
}

/** Whether a verdict says that one attention is the lower one all over the range. */
export const throughout = (verdict: Verdict) => verdict === "other higher" || verdict === "other lower";

/** The ratio of the losses of pairs by compute. */
export function ratioModel(pairs: readonly SizePair[], form: "power" | "floored"): RatioModel {
  return form === "floored" ? flooredRatio(pairs) : powerRatio(pairs);
}

/**
 * Compares at least 3 pairs of different budgets (6 with floors). `margin` is what claims of sameness allow, as a share
 * (0.01: 1 %).
 */
export function compare(
  key: ComparisonKey,
  pairs: readonly SizePair[],
  margin: number,
  model: RatioModel = powerRatio(pairs),
): Comparison {
  const { trend } = model;
  const [low, high] = fittedRange(pairs);
  const middle = mean(
    pairs.map((pair) => (Math.log(pair.baseline.pflops_days) + Math.log(pair.other.pflops_days)) / 2),
  );
  const budgets = [low, Math.min(high, Math.max(low, middle)), high];
  if (low < 0 && high > 0) budgets.push(0);

  const multipliers = budgets.map((x) => {
    const found = model.multiplierAt(x);
    return (
      found && {
        pflops_days: Math.exp(x),
        multiplier: Math.exp(found.value),
        interval: exponentials(found.interval),
      }
    );
  });
  const crossing = crossingOf(model, low, high);
  const different = model.differsBetween(low, high);
  const everywhere = different !== null && different[0] <= low && different[1] >= high;
  let verdict: Verdict = "not distinguishable over the whole range";
  if (everywhere) verdict = model.valueAt(low) > 0 ? "other higher" : "other lower";
  else if (crossing && crossing.interval[0] <= Math.exp(high) && crossing.interval[1] >= Math.exp(low)) {
    verdict = "crossing";
  }
  const fitted_range: Interval = [Math.exp(low), Math.exp(high)];
  return {
    convention: key.convention,
    position_start: key.position_start,
    position_end: key.position_end,
    baseline: key.baseline,
    other: key.other,
    ratio_law: {
      ratio: Math.exp(valueAt(trend, 0)),
      exponent: trend.slope,
      ratio_interval: exponentials(intervalAt(trend, 0)),
      exponent_interval: slopeInterval(trend),
      method: model.method,
      pairs: pairs.length,
      degrees_of_freedom: trend.degreesOfFreedom,
    },
    ratio_at: budgets.map((x) => ({
      pflops_days: Math.exp(x),
      ratio: Math.exp(model.valueAt(x)),
      interval: exponentials(model.intervalAt(x)),
    })),
    multiplier_at: multipliers.filter((entry) => entry !== null),
    crossing,
    differs_between: different && exponentials(different),
    fitted_range,
    verdict,
    claims: judgeClaims({ intervalAt: model.intervalAt, low, high, crossing, verdict, margin }),
  };
}

/**
 * The comparison with what becomes of it without each of its sizes, where enough are left. A line through one size fewer
 * has a wider interval whichever size that is, so a verdict is said to hang on a size only when the line moves: when it no
 * longer holds for the line without the size with the interval of all sizes around it.
 */
export function leavingOut(
  found: Comparison,
  pairs: readonly SizePair[],
  margin: number,
  form: "power" | "floored",
  all: RatioModel,
): Comparison {
  const fewest = form === "floored" ? DISTINCT_BUDGETS_FOR_A_FLOOR : 2;
  const [low, high] = fittedRange(pairs);
  const holdsWith = (line: RatioModel) =>
    [low, (low + high) / 2, high].every((x) => {
      const [least, most] = all.intervalAt(x).map((end) => end - all.valueAt(x) + line.valueAt(x));
      return found.verdict === "other higher" ? least > 0 : most < 0;
    });
  const without = [...new Set(pairs.map(({ model }) => model))].flatMap((model) => {
    const rest = pairs.filter((pair) => pair.model !== model);
    if (rest.length < FEWEST_PAIRS || distinctPairs(rest) < fewest) return [];
    const line = ratioModel(rest, form);
    const { ratio_at, verdict } = compare(found, rest, margin, line);
    const { pflops_days, ratio, interval } = ratio_at[1];
    const holds = throughout(found.verdict) ? { holds: holdsWith(line) } : {};
    return [{ model, pflops_days, ratio, interval, verdict, ...holds }];
  });
  return without.length > 0 ? { ...found, without } : found;
}
