/**
 * One attention against another in one bucket (docs/method.md, section 4): the ratio of losses as a line in log C, the
 * compute multiplier, the crossing and the verdict.
 */
import type { Convention } from "../compute/compute.ts";
import { judgeClaims } from "./claims.ts";
import { exponentials } from "./law.ts";
import { type Bucket, type SizePair, sameBudget } from "./points.ts";
import {
  differenceOfLines,
  fiellerRatio,
  fiellerSet,
  fitLine,
  intervalAt,
  type Line,
  mean,
  slopeCovariance,
  slopeInterval,
  type UncertainLine,
  valueAt,
  varianceAt,
} from "./regression.ts";
import type { Comparison, Interval, Verdict } from "./types.ts";

/** Pairs a comparison needs: a line through fewer has no interval. */
export const FEWEST_PAIRS = 3;

/** The log ratio as a line in log C, with what relates it to the other attention's law. */
interface RatioFit {
  readonly method: "paired" | "joint";
  readonly ratio: UncertainLine;
  /** The other attention's law, and the covariance of its exponent with the log ratio at x. */
  readonly other: Line;
  readonly covarianceWithExponent: (x: number) => number;
}

function fitRatio(pairs: readonly SizePair[]): RatioFit {
  const logB = pairs.map((pair) => Math.log(pair.baseline.lm_loss));
  const logO = pairs.map((pair) => Math.log(pair.other.lm_loss));
  const xB = pairs.map((pair) => Math.log(pair.baseline.pflops_days));
  const xO = pairs.map((pair) => Math.log(pair.other.pflops_days));
  if (pairs.every((pair) => sameBudget(pair.baseline.pflops_days, pair.other.pflops_days))) {
    const x = xB.map((xi, i) => (xi + xO[i]) / 2);
    const ratio = fitLine(
      x,
      logO.map((o, i) => o - logB[i]),
    );
    const other = fitLine(x, logO);
    const shared = slopeCovariance(ratio, other);
    return { method: "paired", ratio, other, covarianceWithExponent: (at) => shared * (at - ratio.center) };
  }
  const other = fitLine(xO, logO);
  const baseline = fitLine(xB, logB);
  const shared = slopeCovariance(baseline, other);
  return {
    method: "joint",
    ratio: differenceOfLines(other, baseline),
    other,
    covarianceWithExponent: (at) =>
      other.varianceOfSlope * (at - other.center) - shared * (at - baseline.center),
  };
}

/** The logs of the budgets that both attentions cover, or of all budgets when they cover none together. */
function fittedRange(pairs: readonly SizePair[]): [low: number, high: number] {
  const b = pairs.map((pair) => Math.log(pair.baseline.pflops_days));
  const o = pairs.map((pair) => Math.log(pair.other.pflops_days));
  const low = Math.max(Math.min(...b), Math.min(...o));
  const high = Math.min(Math.max(...b), Math.max(...o));
  return low < high ? [low, high] : [Math.min(...b, ...o), Math.max(...b, ...o)];
}

/** The wider stretch of [low, high] where the line differs from zero, or null. */
function whereDifferent(line: UncertainLine, low: number, high: number): [low: number, high: number] | null {
  const set = fiellerSet(line);
  if (set.kind === "all") return null;
  if (set.kind === "none") return [low, high];
  const stretches: [number, number][] =
    set.kind === "interval"
      ? [
          [low, Math.min(high, set.low)],
          [Math.max(low, set.high), high],
        ]
      : [[Math.max(low, set.low), Math.min(high, set.high)]];
  const found = stretches.filter(([from, to]) => from < to).sort((p, q) => q[1] - q[0] - (p[1] - p[0]));
  return found[0] ?? null;
}

function crossingOf(line: UncertainLine, low: number, high: number): Comparison["crossing"] {
  const set = fiellerSet(line);
  if (set.kind !== "interval") return null;
  const at = line.center - line.value / line.slope;
  const interval = exponentials([set.low, set.high]);
  // Lines that never approach each other cross at a budget that no number holds.
  if (!(interval[0] > 0 && Number.isFinite(interval[1]))) return null;
  return { pflops_days: Math.exp(at), interval, inside_data: at >= low && at <= high };
}

export interface ComparisonKey extends Bucket {
  readonly convention: Convention;
  readonly baseline: string;
  readonly other: string;
}

/** Compares at least 3 pairs of different budgets. `margin` is what claims of sameness allow, as a share (0.01: 1 %). */
export function compare(key: ComparisonKey, pairs: readonly SizePair[], margin: number): Comparison {
  const { method, ratio, other, covarianceWithExponent } = fitRatio(pairs);
  const [low, high] = fittedRange(pairs);
  const middle = mean(
    pairs.map((pair) => (Math.log(pair.baseline.pflops_days) + Math.log(pair.other.pflops_days)) / 2),
  );
  const budgets = [low, Math.min(high, Math.max(low, middle)), high];
  if (low < 0 && high > 0) budgets.push(0);

  const multipliers = budgets.map((x) => {
    // At equal loss the budgets differ by the log ratio over minus the other's exponent.
    const value = valueAt(ratio, x);
    const interval = fiellerRatio(
      value,
      -other.slope,
      {
        numerator: varianceAt(ratio, x),
        denominator: other.varianceOfSlope,
        covariance: -covarianceWithExponent(x),
      },
      ratio.degreesOfFreedom,
    );
    return (
      interval && {
        pflops_days: Math.exp(x),
        multiplier: Math.exp(value / -other.slope),
        interval: exponentials(interval),
      }
    );
  });
  const crossing = crossingOf(ratio, low, high);
  const atLow = intervalAt(ratio, low);
  const atHigh = intervalAt(ratio, high);
  // The upper end is convex in log C and the lower end concave: the ends of the range decide for all of it.
  let verdict: Verdict = "not distinguishable over the whole range";
  if (atLow[0] > 0 && atHigh[0] > 0) verdict = "other higher";
  else if (atLow[1] < 0 && atHigh[1] < 0) verdict = "other lower";
  else if (crossing && crossing.interval[0] <= Math.exp(high) && crossing.interval[1] >= Math.exp(low)) {
    verdict = "crossing";
  }
  const different = whereDifferent(ratio, low, high);
  const fitted_range: Interval = [Math.exp(low), Math.exp(high)];
  return {
    convention: key.convention,
    position_start: key.position_start,
    position_end: key.position_end,
    baseline: key.baseline,
    other: key.other,
    ratio_law: {
      ratio: Math.exp(valueAt(ratio, 0)),
      exponent: ratio.slope,
      ratio_interval: exponentials(intervalAt(ratio, 0)),
      exponent_interval: slopeInterval(ratio),
      method,
      pairs: pairs.length,
      degrees_of_freedom: ratio.degreesOfFreedom,
    },
    ratio_at: budgets.map((x) => ({
      pflops_days: Math.exp(x),
      ratio: Math.exp(valueAt(ratio, x)),
      interval: exponentials(intervalAt(ratio, x)),
    })),
    multiplier_at: multipliers.filter((entry) => entry !== null),
    crossing,
    differs_between: different && exponentials(different),
    fitted_range,
    verdict,
    claims: judgeClaims({ ratio, low, high, crossing, verdict, margin }),
  };
}
