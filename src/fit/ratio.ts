/**
 * The log ratio of two attentions' losses over log C, with all that follows from it: intervals, the compute multiplier,
 * the crossing. Two models: the ratio as a power law (a straight line through the pairs), and two laws fitted jointly.
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

interface Trend {
  readonly method: "paired" | "joint";
  readonly trend: UncertainLine;
}

/** Of the pairs' log ratios, where their budgets agree. */
function pairedTrend({ xB, xO, yB, yO }: Logs) {
  return fitLine(
    xB.map((xi, i) => (xi + xO[i]) / 2),
    yO.map((o, i) => o - yB[i]),
  );
}

/** The straight trend of the log ratio: of the pairs where their budgets agree, else of two lines. */
function trendOf(logs: Logs, paired: boolean): Trend {
  if (paired) return { method: "paired", trend: pairedTrend(logs) };
  const { xB, xO, yB, yO } = logs;
  return { method: "joint", trend: differenceOfLines(fitLine(xO, yO), fitLine(xB, yB)) };
}

function budgetsAgree(pairs: readonly SizePair[]): boolean {
  return pairs.every((pair) => sameBudget(pair.baseline.pflops_days, pair.other.pflops_days));
}

function wider(stretches: readonly Interval[]): Interval | null {
  const found = stretches.filter(([from, to]) => from < to).sort((p, q) => q[1] - q[0] - (p[1] - p[0]));
  return found[0] ?? null;
}

/** Both laws straight in log-log: the ratio is a power law too. */
export function powerRatio(pairs: readonly SizePair[]): RatioModel {
  const logs = logsOf(pairs);
  if (!budgetsAgree(pairs)) {
    return jointRatio(logs, lineArm(logs.xB, logs.yB), lineArm(logs.xO, logs.yO), trendOf(logs, false));
  }
  const trend = pairedTrend(logs);
  const other = fitLine(
    logs.xB.map((xi, i) => (xi + logs.xO[i]) / 2),
    logs.yO,
  );
  const shared = slopeCovariance(trend, other);
  return {
    method: "paired",
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
          covariance: -shared * (x - trend.center),
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

/** Two floored laws, fitted jointly. */
export function flooredRatio(pairs: readonly SizePair[]): RatioModel {
  const logs = logsOf(pairs);
  const arm = (side: "baseline" | "other", x: readonly number[], y: readonly number[]) =>
    flooredArm(searchFloored(pairs.map((pair) => pair[side])), x, y);
  return jointRatio(
    logs,
    arm("baseline", logs.xB, logs.yB),
    arm("other", logs.xO, logs.yO),
    trendOf(logs, budgetsAgree(pairs)),
  );
}

/** One attention's law as the joint fit needs it. */
interface Arm {
  /** Whether the loss rises (1) or falls (-1) with compute. */
  readonly sign: number;
  valueAt(x: number): number;
  /** Derivatives of the log loss by the law's parameters. */
  gradientAt(x: number): number[];
  /** Gradients at the fitted points, residuals there, and the inverse of the normal matrix. */
  readonly rows: readonly (readonly number[])[];
  readonly residuals: readonly number[];
  readonly inverse: readonly (readonly number[])[] | null;
}

function lineArm(x: readonly number[], y: readonly number[]): Arm {
  const line = fitLine(x, y);
  return {
    sign: line.slope > 0 ? 1 : -1,
    valueAt: (at) => valueAt(line, at),
    gradientAt: (at) => [1, at - line.center],
    rows: line.deviations.map((d) => [1, d]),
    residuals: line.residuals,
    inverse: [
      [1 / x.length, 0],
      [0, 1 / line.sumOfSquaresX],
    ],
  };
}

function flooredArm(fit: FlooredFit, x: readonly number[], y: readonly number[]): Arm {
  const value = (at: number) => flooredAt(fit, fit.profile.best, at).value;
  const rows = x.map((xi) => flooredSensitivity(fit, xi));
  return {
    sign: fit.sign,
    valueAt: value,
    gradientAt: (at) => flooredSensitivity(fit, at),
    rows,
    residuals: y.map((yi, i) => yi - value(x[i])),
    inverse: invert(product(transposed(rows), rows)),
  };
}

type Matrix = readonly (readonly number[])[];

function product(p: Matrix, q: Matrix): number[][] {
  return p.map((row) => q[0].map((_, j) => row.reduce((sum, v, k) => sum + v * q[k][j], 0)));
}

function transposed(p: Matrix): number[][] {
  return p[0].map((_, j) => p.map((row) => row[j]));
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

/**
 * Two laws fitted to the same pairs, whose errors may be correlated: variances and covariance come from the residuals.
 * What is left of them in a difference can rest on more than one of their combinations, and then on more degrees of
 * freedom than one arm has (Satterthwaite); ignoring that, intervals of correlated arms cover 98 %.
 */
function jointRatio({ xB, xO }: Logs, baseline: Arm, other: Arm, { method, trend }: Trend): RatioModel {
  const degreesOfFreedom = xB.length - baseline.rows[0].length;
  const covariance = (a: Arm, b: Arm) =>
    a.residuals.reduce((sum, residual, i) => sum + residual * b.residuals[i], 0) / degreesOfFreedom;
  const between = covariance(other, baseline);
  const [ofOther, ofBaseline] = [covariance(other, other), covariance(baseline, baseline)];
  // The covariance of the two laws' parameters over `between`.
  const shared =
    other.inverse &&
    baseline.inverse &&
    product(product(other.inverse, product(transposed(other.rows), baseline.rows)), baseline.inverse);

  /** Half the 95 % interval of the other's log loss at one budget minus the baseline's at another. */
  const halfAt = (xOther: number, xBaseline: number): number => {
    if (other.inverse === null || baseline.inverse === null || shared === null) return Infinity;
    const gO = other.gradientAt(xOther);
    const gB = baseline.gradientAt(xBaseline);
    const wO = quadratic(other.inverse, gO);
    const wB = quadratic(baseline.inverse, gB);
    const w = -product([gO], product(shared, transposed([gB])))[0][0];
    // The variance is the trace of weights times covariances; its square over that of the product counts freedoms.
    const oo = wO * ofOther + w * between;
    const bb = w * between + wB * ofBaseline;
    const ob = wO * between + w * ofBaseline;
    const bo = w * ofOther + wB * between;
    const variance = Math.max(0, oo + bb);
    const freedoms = (degreesOfFreedom * variance ** 2) / (oo * oo + 2 * ob * bo + bb * bb);
    // To a hundredth, so that quantiles are looked up, not computed.
    const rounded = Math.floor(100 * Math.min(2 * degreesOfFreedom, freedoms)) / 100;
    return t95(Math.max(degreesOfFreedom, Number.isFinite(rounded) ? rounded : 0)) * Math.sqrt(variance);
  };
  const value = (x: number) => other.valueAt(x) - baseline.valueAt(x);
  const interval = (x: number): Interval => {
    const half = halfAt(x, x);
    return [value(x) - half, value(x) + half];
  };
  const mayBeOne = (x: number) => Math.abs(value(x)) <= halfAt(x, x);
  return {
    method,
    trend,
    valueAt: value,
    intervalAt: interval,
    multiplierAt(x) {
      const target = baseline.valueAt(x);
      // The set of budgets of the other at which its loss may be the baseline's (Fieller's idea for curves).
      const mayBe = (m: number) => Math.abs(other.valueAt(x + m) - target) <= halfAt(x + m, x);
      const excess = (m: number) => (other.valueAt(x + m) - target) * -other.sign;
      if (!(excess(-FAR) > 0 && excess(FAR) < 0)) return null;
      const found = edge((m) => excess(m) > 0, -FAR, FAR);
      const sides = [-1, 1].map((direction) => {
        let inside = 0;
        for (let step = 0.01; ; step *= 1.25) {
          if (step > FAR) return null;
          if (!mayBe(found + direction * step)) {
            return edge(mayBe, found + direction * inside, found + direction * step);
          }
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
