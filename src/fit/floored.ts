/** The floored power law `L = E + a C^b`: least squares on log loss, multi-start to convergence. */
import { InputError } from "../errors.ts";
import { exponentials, geometricMeanBudget, type LawKey, type Prediction, withoutLargest } from "./law.ts";
import { invert, minimizeFrom } from "./minimize.ts";
import { bucketLabel, distinctBudgets } from "./points.ts";
import { fitLine } from "./regression.ts";
import { t95 } from "./student.ts";
import type { FittedPoint, Interval, PowerLaw } from "./types.ts";

/** Fewer distinct budgets than this carry no claim about a floor or a bend. */
export const DISTINCT_BUDGETS_FOR_A_FLOOR = 6;

/** `L = floor + exp(level + exponent (x - center))` at `x = log C`. */
interface FlooredFit {
  readonly floor: number;
  readonly level: number;
  readonly exponent: number;
  readonly center: number;
  readonly objective: number;
  readonly converged: boolean;
  /** Of (floor, level, exponent), from the linearised regression; null when the points do not determine all three. */
  readonly covariance: number[][] | null;
  readonly residualVariance: number;
  readonly degreesOfFreedom: number;
}

/** Derivatives of log L with respect to (floor, level, exponent). */
function sensitivity(fit: Pick<FlooredFit, "floor" | "level" | "exponent" | "center">, x: number): number[] {
  const power = Math.exp(fit.level + fit.exponent * (x - fit.center));
  const loss = fit.floor + power;
  return [1 / loss, power / loss, (power * (x - fit.center)) / loss];
}

function search(points: readonly FittedPoint[]): FlooredFit {
  const x = points.map((point) => Math.log(point.pflops_days));
  const y = points.map((point) => Math.log(point.lm_loss));
  const lowest = Math.min(...points.map((point) => point.lm_loss));
  const center = Math.log(geometricMeanBudget(points));
  const objective = ([logFloor, level, exponent]: readonly number[], gradient: number[]) => {
    const floor = Math.exp(logFloor);
    let sum = 0;
    for (let i = 0; i < x.length; i++) {
      const power = Math.exp(level + exponent * (x[i] - center));
      const loss = floor + power;
      const residual = Math.log(loss) - y[i];
      sum += residual * residual;
      const scale = (2 * residual) / loss;
      gradient[0] += scale * floor;
      gradient[1] += scale * power;
      gradient[2] += scale * power * (x[i] - center);
    }
    return sum;
  };
  // For a given floor the power part is nearly a straight line, which gives a start close to its best.
  const starts = [0.02, 0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99].map((share) => {
    const line = fitLine(
      x,
      points.map((point) => Math.log(point.lm_loss - share * lowest)),
    );
    return [Math.log(share * lowest), line.value, line.slope];
  });
  const best = minimizeFrom(objective, starts);
  const straight = fitLine(x, y);
  const bounded =
    straight.sumOfSquaredResiduals <= best.value * (1 + 1e-6) || Math.exp(best.x[0]) < 1e-6 * lowest;
  const parameters = bounded
    ? { floor: 0, level: straight.value, exponent: straight.slope, center }
    : { floor: Math.exp(best.x[0]), level: best.x[1], exponent: best.x[2], center };
  const value = bounded ? straight.sumOfSquaredResiduals : best.value;
  const degreesOfFreedom = points.length - 3;
  const residualVariance = value / degreesOfFreedom;
  const rows = x.map((xi) => sensitivity(parameters, xi));
  const normal = [0, 1, 2].map((i) =>
    [0, 1, 2].map((j) => rows.reduce((sum, row) => sum + row[i] * row[j], 0)),
  );
  const covariance = invert(normal)?.map((row) => row.map((v) => v * residualVariance)) ?? null;
  return {
    ...parameters,
    objective: value,
    converged: bounded || best.converged,
    covariance,
    residualVariance,
    degreesOfFreedom,
  };
}

function quadratic(covariance: readonly (readonly number[])[], g: readonly number[]): number {
  let sum = 0;
  for (let i = 0; i < g.length; i++) for (let j = 0; j < g.length; j++) sum += g[i] * covariance[i][j] * g[j];
  return Math.max(0, sum);
}

function predictFrom(fit: FlooredFit, pflopsDays: number): Prediction {
  const x = Math.log(pflopsDays);
  const value = Math.log(fit.floor + Math.exp(fit.level + fit.exponent * (x - fit.center)));
  const variance = fit.covariance ? quadratic(fit.covariance, sensitivity(fit, x)) : Infinity;
  const t = t95(fit.degreesOfFreedom);
  const band = (v: number): Interval => exponentials([value - t * Math.sqrt(v), value + t * Math.sqrt(v)]);
  return {
    pflops_days: pflopsDays,
    loss: Math.exp(value),
    interval: band(variance),
    prediction_interval: band(variance + fit.residualVariance),
  };
}

const searched = new WeakMap<PowerLaw, FlooredFit>();

/** As `predict`, for a law of form `floored`. */
export function predictFloored(law: PowerLaw, pflopsDays: number): Prediction {
  let fit = searched.get(law);
  if (fit === undefined) searched.set(law, (fit = search(law.points)));
  return predictFrom(fit, pflopsDays);
}

/** Fits at least 6 distinct budgets (else InputError: fewer carry no claim about a floor). */
export function fitFloored(key: LawKey, points: FittedPoint[]): PowerLaw {
  const budgets = distinctBudgets(points);
  if (budgets < DISTINCT_BUDGETS_FOR_A_FLOOR) {
    throw new InputError(
      `form is floored, but ${key.attention} has ${budgets} distinct budgets at ${bucketLabel(key)}; a floor needs at` +
        ` least ${DISTINCT_BUDGETS_FOR_A_FLOOR} (use form power)`,
    );
  }
  const fit = search(points);
  const { covariance } = fit;
  const t = t95(fit.degreesOfFreedom);
  const half = (g: readonly number[]) =>
    covariance ? t * Math.sqrt(quadratic(covariance, g)) : Number.MAX_VALUE;
  // The coefficient is exp(level - exponent center).
  const logCoefficient = fit.level - fit.exponent * fit.center;
  const coefficientHalf = half([0, 1, -fit.center]);
  const mean = predictFrom(fit, Math.exp(fit.center));
  const held = withoutLargest(points, 4);
  const prediction = held && predictFrom(search(held.rest), held.largest.pflops_days);
  const law: PowerLaw = {
    ...key,
    form: "floored",
    coefficient: Math.exp(logCoefficient),
    exponent: fit.exponent,
    floor: fit.floor,
    floor_interval: [Math.max(0, fit.floor - half([1, 0, 0])), fit.floor + half([1, 0, 0])],
    coefficient_interval: exponentials([logCoefficient - coefficientHalf, logCoefficient + coefficientHalf]),
    exponent_interval: [fit.exponent - half([0, 0, 1]), fit.exponent + half([0, 0, 1])],
    loss_at_mean_budget: { pflops_days: mean.pflops_days, loss: mean.loss, interval: mean.interval },
    points,
    objective: fit.objective,
    converged: fit.converged && covariance !== null,
    ...(held && prediction
      ? {
          holdout: {
            model: held.largest.model,
            predicted: prediction.loss,
            observed: held.largest.lm_loss,
            interval: prediction.prediction_interval,
          },
        }
      : {}),
  };
  searched.set(law, fit);
  return law;
}
