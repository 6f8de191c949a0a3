/**
 * The log ratio of two attentions' losses over log C, with all that follows from it: intervals, the compute multiplier,
 * the crossing. Two models: the ratio as a power law (a straight line), and two floored laws fitted jointly.
 */
import { type FlooredFit, flooredAt, flooredSensitivity, searchFloored } from "./floored.ts";
import { invert } from "./minimize.ts";
import { type SizePair, sameBudget } from "./points.ts";
import { quadratic } from "./profile.ts";
import {
  differenceOfLines,
  fiellerRatio,
  fiellerSet,
  fitLine,
  intervalAt,
  type Line,
  slopeCovariance,
  type UncertainLine,
  valueAt,
  varianceAt,
} from "./regression.ts";
import { t95 } from "./student.ts";
import type { Interval } from "./types.ts";

/** Everything in logs: x is log C, values are log ratios. */
export interface RatioModel {
  readonly method: "paired" | "joint";
  /** The straight trend of the log ratio. */
  readonly trend: UncertainLine;
  valueAt(x: number): number;
  intervalAt(x: number): Interval;
  /** log C_other - log C_baseline at the loss the baseline reaches at x; null when its 95 % set is not bounded. */
  multiplierAt(x: number): { readonly value: number; readonly interval: Interval } | null;
  /** Where the ratio is 1; null when its 95 % set is not a bounded interval. */
  crossing(): { readonly at: number; readonly interval: Interval } | null;
  /** The wider stretch of [low, high] where the interval excludes 0, or null. */
  differsBetween(low: number, high: number): Interval | null;
}

interface Logs {
  readonly xB: number[];
  readonly xO: number[];
  readonly yB: number[];
  readonly yO: number[];
}

function logsOf(pairs: readonly SizePair[]): Logs {
  return {
    xB: pairs.map((pair) => Math.log(pair.baseline.pflops_days)),
    xO: pairs.map((pair) => Math.log(pair.other.pflops_days)),
    yB: pairs.map((pair) => Math.log(pair.baseline.lm_loss)),
    yO: pairs.map((pair) => Math.log(pair.other.lm_loss)),
  };
}

interface StraightRatio {
  readonly method: "paired" | "joint";
  readonly trend: UncertainLine;
  /** The other attention's law, and the covariance of its exponent with the log ratio at x. */
  readonly other: Line;
  readonly covarianceWithExponent: (x: number) => number;
}

function straightRatio(pairs: readonly SizePair[]): StraightRatio {
  const { xB, xO, yB, yO } = logsOf(pairs);
  if (pairs.every((pair) => sameBudget(pair.baseline.pflops_days, pair.other.pflops_days))) {
    const x = xB.map((xi, i) => (xi + xO[i]) / 2);
    const trend = fitLine(
      x,
      yO.map((o, i) => o - yB[i]),
    );
    const other = fitLine(x, yO);
    const shared = slopeCovariance(trend, other);
    return { method: "paired", trend, other, covarianceWithExponent: (at) => shared * (at - trend.center) };
  }
  const other = fitLine(xO, yO);
  const baseline = fitLine(xB, yB);
  const shared = slopeCovariance(baseline, other);
  return {
    method: "joint",
    trend: differenceOfLines(other, baseline),
    other,
    covarianceWithExponent: (at) =>
      other.varianceOfSlope * (at - other.center) - shared * (at - baseline.center),
  };
}

function wider(stretches: readonly Interval[]): Interval | null {
  const found = stretches.filter(([from, to]) => from < to).sort((p, q) => q[1] - q[0] - (p[1] - p[0]));
  return found[0] ?? null;
}

/** Both laws straight in log-log: the ratio is a power law too. */
export function powerRatio(pairs: readonly SizePair[]): RatioModel {
  const { method, trend, other, covarianceWithExponent } = straightRatio(pairs);
  return {
    method,
    trend,
    valueAt: (x) => valueAt(trend, x),
    intervalAt: (x) => intervalAt(trend, x),
    multiplierAt(x) {
      // At equal loss the budgets differ by the log ratio over minus the other's exponent.
      const value = valueAt(trend, x);
      const interval = fiellerRatio(
        value,
        -other.slope,
        {
          numerator: varianceAt(trend, x),
          denominator: other.varianceOfSlope,
          covariance: -covarianceWithExponent(x),
        },
        trend.degreesOfFreedom,
      );
      return interval && { value: value / -other.slope, interval };
    },
    crossing() {
      const set = fiellerSet(trend);
      if (set.kind !== "interval") return null;
      return { at: trend.center - trend.value / trend.slope, interval: [set.low, set.high] };
    },
    differsBetween(low, high) {
      const set = fiellerSet(trend);
      if (set.kind === "all") return null;
      if (set.kind === "none") return [low, high];
      if (set.kind === "outside") return wider([[Math.max(low, set.low), Math.min(high, set.high)]]);
      return wider([
        [low, Math.min(high, set.low)],
        [Math.max(low, set.high), high],
      ]);
    },
  };
}

/** How far beyond the data a crossing is looked for, and a multiplier may reach, in log C: 8 decades. */
const FAR = 8 * Math.LN10;
const NODES = 400;

/** The point between `inside` and `outside` where `holds` stops being true. */
function edge(holds: (x: number) => boolean, inside: number, outside: number): number {
  let [a, b] = [inside, outside];
  for (let i = 0; i < 50; i++) {
    const middle = (a + b) / 2;
    if (holds(middle)) a = middle;
    else b = middle;
  }
  return a;
}

/** The stretches of [low, high] where a condition holds, found on a grid and refined. */
function stretchesWhere(holds: (x: number) => boolean, low: number, high: number): Interval[] {
  const found: Interval[] = [];
  let open: number | null = null;
  let last = low;
  for (let i = 0; i <= NODES; i++) {
    const x = low + ((high - low) * i) / NODES;
    if (holds(x)) open ??= i === 0 ? low : edge(holds, x, last);
    else if (open !== null) {
      found.push([open, edge(holds, last, x)]);
      open = null;
    }
    last = x;
  }
  if (open !== null) found.push([open, high]);
  return found;
}

/** Two floored laws, fitted jointly: the errors of a pair may be correlated. */
export function flooredRatio(pairs: readonly SizePair[]): RatioModel {
  const { xB, xO, yB, yO } = logsOf(pairs);
  const { method, trend } = straightRatio(pairs);
  const n = pairs.length;
  const degreesOfFreedom = n - 3;
  const t = t95(degreesOfFreedom);
  const arm = (side: "baseline" | "other", x: readonly number[], y: readonly number[]) => {
    const fit = searchFloored(pairs.map((pair) => pair[side]));
    const rows = x.map((xi) => flooredSensitivity(fit, xi));
    const normal = [0, 1, 2].map((i) =>
      [0, 1, 2].map((j) => rows.reduce((s, row) => s + row[i] * row[j], 0)),
    );
    const residuals = y.map((yi, i) => yi - flooredAt(fit, fit.profile.best, x[i]).value);
    return { fit, rows, residuals, inverse: invert(normal) };
  };
  const baseline = arm("baseline", xB, yB);
  const other = arm("other", xO, yO);
  const covariance = (a: typeof baseline, b: typeof baseline) =>
    a.residuals.reduce((s, residual, i) => s + residual * b.residuals[i], 0) / degreesOfFreedom;
  const at = ({ fit }: { fit: FlooredFit }, x: number) => flooredAt(fit, fit.profile.best, x).value;
  const between = covariance(other, baseline);
  const [ofOther, ofBaseline] = [covariance(other, other), covariance(baseline, baseline)];

  // Covariance of the two laws' parameters over `between`: sandwiched between the inverses, J_other^T J_baseline.
  const product = (p: number[][], q: number[][]) =>
    p.map((row) => q[0].map((_, j) => row.reduce((s, v, k) => s + v * q[k][j], 0)));
  const crossed = [0, 1, 2].map((i) =>
    [0, 1, 2].map((j) => other.rows.reduce((s, row, k) => s + row[i] * baseline.rows[k][j], 0)),
  );
  const shared =
    other.inverse && baseline.inverse && product(product(other.inverse, crossed), baseline.inverse);

  /** Variance of the other's log loss at one budget minus the baseline's at another. */
  const variance = (xOther: number, xBaseline: number): number => {
    if (other.inverse === null || baseline.inverse === null || shared === null) return Infinity;
    const gO = flooredSensitivity(other.fit, xOther);
    const gB = flooredSensitivity(baseline.fit, xBaseline);
    let both = 0;
    for (let i = 0; i < 3; i++) for (let j = 0; j < 3; j++) both += gO[i] * shared[i][j] * gB[j];
    return Math.max(
      0,
      ofOther * quadratic(other.inverse, gO) +
        ofBaseline * quadratic(baseline.inverse, gB) -
        2 * between * both,
    );
  };
  const value = (x: number) => at(other, x) - at(baseline, x);
  const interval = (x: number): Interval => {
    const half = t * Math.sqrt(variance(x, x));
    return [value(x) - half, value(x) + half];
  };
  const mayBeOne = (x: number) => {
    const [low, high] = interval(x);
    return low <= 0 && high >= 0;
  };
  return {
    method,
    trend,
    valueAt: value,
    intervalAt: interval,
    multiplierAt(x) {
      const target = at(baseline, x);
      // The set of budgets of the other at which its loss may be the baseline's (Fieller's idea for curves).
      const mayBe = (m: number) => {
        const difference = at(other, x + m) - target;
        return Math.abs(difference) <= t * Math.sqrt(variance(x + m, x));
      };
      const excess = (m: number) => (at(other, x + m) - target) * -other.fit.sign;
      if (!(excess(-FAR) > 0 && excess(FAR) < 0)) return null;
      const found = edge((m) => excess(m) > 0, -FAR, FAR);
      const sides = [-1, 1].map((direction) => {
        let inside = 0;
        for (let step = 0.01; ; step *= 1.25) {
          if (step > FAR) return null;
          if (!mayBe(found + direction * step))
            return edge(mayBe, found + direction * inside, found + direction * step);
          inside = step;
        }
      });
      return sides[0] === null || sides[1] === null ? null : { value: found, interval: [sides[0], sides[1]] };
    },
    crossing() {
      const [low, high] = [Math.min(...xB, ...xO) - FAR, Math.max(...xB, ...xO) + FAR];
      const sets = stretchesWhere(mayBeOne, low, high);
      if (sets.length !== 1 || sets[0][0] === low || sets[0][1] === high) return null;
      const [from, to] = sets[0];
      const sign = Math.sign(value(from));
      if (Math.sign(value(to)) === sign) return null;
      return { at: edge((x) => Math.sign(value(x)) === sign, from, to), interval: [from, to] };
    },
    differsBetween: (low, high) => wider(stretchesWhere((x) => !mayBeOne(x), low, high)),
  };
}
