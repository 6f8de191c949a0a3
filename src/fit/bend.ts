/** What a reader of the chart asks beside the lines: whether they bend, and how far runs spread. */
import { DISTINCT_BUDGETS_FOR_A_FLOOR } from "./floored.ts";
import { bySize, distinctBudgets, type FinalPoint, type RunCurve, sameBudget } from "./points.ts";
import { fitLine, mean } from "./regression.ts";
import { t95 } from "./student.ts";
import type { FittedPoint, Interval } from "./types.ts";

/**
 * The curvature of log loss in log C (coefficient of the square) with its 95 % interval, which supports a bend when it
 * excludes 0; null for fewer than 6 distinct budgets.
 */
export function bend(
  points: readonly FittedPoint[],
): { curvature: number; interval: Interval; supported: boolean } | null {
  if (distinctBudgets(points) < DISTINCT_BUDGETS_FOR_A_FLOOR) return null;
  const x = points.map((point) => Math.log(point.pflops_days));
  const y = points.map((point) => Math.log(point.lm_loss));
  const line = fitLine(x, y);
  // The square's part that no line explains carries the curvature (Frisch-Waugh).
  const square = fitLine(
    x,
    line.deviations.map((d) => d * d),
  ).residuals;
  let products = 0;
  let squares = 0;
  for (const [i, q] of square.entries()) {
    products += q * y[i];
    squares += q * q;
  }
  const curvature = products / squares;
  const degreesOfFreedom = points.length - 3;
  const left = Math.max(0, line.sumOfSquaredResiduals - curvature * products);
  const half = t95(degreesOfFreedom) * Math.sqrt(left / degreesOfFreedom / squares);
  const interval: Interval = [curvature - half, curvature + half];
  return { curvature, interval, supported: interval[0] > 0 || interval[1] < 0 };
}

/** The losses at a budget of the runs that pass it or end there (linear between evaluations, in logs). */
export function lossesAt(curves: readonly RunCurve[], pflopsDays: number): number[] {
  const losses: number[] = [];
  for (const { points } of curves) {
    const budget = (i: number) => points[i].pflops_days ?? 0;
    const i = points.findIndex((_, k) => budget(k) >= pflopsDays * (1 - 1e-9));
    if (i < 0 || (i === 0 && !sameBudget(budget(0), pflopsDays))) {
      const end = points.length - 1;
      if (i < 0 && sameBudget(budget(end), pflopsDays)) losses.push(points[end].lm_loss);
      continue;
    }
    if (i === 0 || !(budget(i - 1) > 0)) {
      losses.push(points[i].lm_loss);
      continue;
    }
    const share = Math.log(pflopsDays / budget(i - 1)) / Math.log(budget(i) / budget(i - 1));
    const [a, b] = [Math.log(points[i - 1].lm_loss), Math.log(points[i].lm_loss)];
    losses.push(Math.exp(a + share * (b - a)));
  }
  return losses;
}

/** The largest distance between seeds of one size, as a share of their mean loss; null when no size has two seeds. */
export function seedSpread(
  finals: readonly FinalPoint[],
): { share: number; model: string; attention: string } | null {
  let most: { share: number; model: string; attention: string } | null = null;
  for (const first of finals) {
    const same = finals.filter(
      (final) =>
        final.attention === first.attention &&
        final.model === first.model &&
        sameBudget(final.pflops_days, first.pflops_days),
    );
    if (same.length < 2) continue;
    const losses = same.map((final) => final.lm_loss);
    const share = (Math.max(...losses) - Math.min(...losses)) / mean(losses);
    if (most === null || share > most.share) most = { share, model: first.model, attention: first.attention };
  }
  return most;
}

/**
 * Standard deviation of log loss between the seeds of one size and attention, pooled over these, in one bucket; null when
 * no size has two seeds. No law can fit better than this.
 */
export function seedScatter(
  finals: readonly FinalPoint[],
): { noise: number; degreesOfFreedom: number } | null {
  let squares = 0;
  let degreesOfFreedom = 0;
  for (const group of bySize(
    finals,
    ({ attention, model }) => JSON.stringify([attention, model]),
    (final) => final.pflops_days,
  )) {
    const logs = group.map((final) => Math.log(final.lm_loss));
    const center = mean(logs);
    for (const value of logs) squares += (value - center) ** 2;
    degreesOfFreedom += logs.length - 1;
  }
  return degreesOfFreedom > 0 ? { noise: Math.sqrt(squares / degreesOfFreedom), degreesOfFreedom } : null;
}
