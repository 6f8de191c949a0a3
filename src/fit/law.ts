/** What every form of law shares: whose it is, what it predicts, its points. */
import type { Convention } from "../compute/compute.ts";
import { InputError } from "../errors.ts";
import { bucketLabel, distinctBudgets } from "./points.ts";
import type { FittedPoint, Interval, LossAt, PowerLaw } from "./types.ts";

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

/** InputError unless the points have `least` distinct budgets, which `thing` (as `a floor`) takes. */
export function needBudgets(
  key: LawKey,
  points: readonly FittedPoint[],
  form: PowerLaw["form"],
  thing: string,
  least: number,
): void {
  const budgets = distinctBudgets(points);
  if (budgets >= least) return;
  throw new InputError(
    `form is ${form}, but ${key.attention} has ${budgets} distinct budgets at ${bucketLabel(key)}; ${thing} needs at` +
      ` least ${least} (use form power)`,
  );
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

/** The parts of a law that belong to its form; the rest follows from its points and its predictions. */
interface FormOfLaw
  extends Omit<
    PowerLaw,
    keyof LawKey | "points" | "loss_at_mean_budget" | "objective" | "holdout" | "projection"
  > {
  readonly predict: (points: readonly FittedPoint[], pflopsDays: number) => Prediction;
  /** Sizes that a refit needs before it can predict another. */
  readonly fewestToPredict: number;
}

/** How far beyond the largest budget a law's projection is stated. */
const PROJECTED = 10;

/** A law with what every form reports: the loss at the mean budget, a projection, and the largest size held out. */
export function lawThrough(key: LawKey, points: FittedPoint[], form: FormOfLaw): PowerLaw {
  const { predict, fewestToPredict, ...own } = form;
  const mean = predict(points, geometricMeanBudget(points));
  const largest = Math.max(...points.map((point) => point.pflops_days));
  const far = predict(points, PROJECTED * largest);
  const held = withoutLargest(points, fewestToPredict);
  const prediction = held && predict(held.rest, held.largest.pflops_days);
  const holdout = held &&
    prediction && {
      model: held.largest.model,
      predicted: prediction.loss,
      observed: held.largest.lm_loss,
      interval: prediction.prediction_interval,
    };
  return {
    ...key,
    ...own,
    loss_at_mean_budget: { pflops_days: mean.pflops_days, loss: mean.loss, interval: mean.interval },
    projection: {
      pflops_days: far.pflops_days,
      loss: far.loss,
      prediction_interval: far.prediction_interval,
    },
    points,
    objective: own.objectives[0],
    ...(holdout ? { holdout } : {}),
  };
}
