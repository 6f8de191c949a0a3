/** What every form of law shares: whose it is, what it predicts, its points. */
import type { Convention } from "../compute/compute.ts";
import { distinctBudgets } from "./points.ts";
import type { FittedPoint, Interval, LossAt } from "./types.ts";

/** Whose law it is. */
export interface LawKey {
  readonly convention: Convention;
  readonly attention: string;
  readonly position_start: number | null;
  readonly position_end: number | null;
}

/** A law's loss at a budget, the 95 % interval of its mean, and that of one new run. */
export interface Prediction extends LossAt {
  readonly prediction_interval: Interval;
}

/** Back from logs; the largest finite number stands for more, because JSON has no infinity. */
export function exponentials([low, high]: readonly [number, number]): Interval {
  return [Math.exp(low), Math.min(Math.exp(high), Number.MAX_VALUE)];
}

export function geometricMeanBudget(points: readonly FittedPoint[]): number {
  let sum = 0;
  for (const point of points) sum += Math.log(point.pflops_days);
  return Math.exp(sum / points.length);
}

/** The points without the size of the largest budget, and that size's largest point; null when fewer than `atLeast` remain. */
export function withoutLargest(
  points: readonly FittedPoint[],
  atLeast: number,
): { rest: FittedPoint[]; largest: FittedPoint } | null {
  const largest = points.reduce((best, point) => (point.pflops_days > best.pflops_days ? point : best));
  const rest = points.filter((point) => point.model !== largest.model);
  return rest.length >= atLeast && distinctBudgets(rest) >= 2 ? { rest, largest } : null;
}
