/** The power law `L = a C^b`: least squares in log-log with Student-t intervals. */
import { exponentials, type LawKey, type Prediction, withoutLargest } from "./law.ts";
import { fitLine, intervalAt, type Line, slopeInterval, valueAt, varianceAt } from "./regression.ts";
import { t95 } from "./student.ts";
import type { FittedPoint, PowerLaw } from "./types.ts";

function logLine(points: readonly FittedPoint[]): Line {
  return fitLine(
    points.map((point) => Math.log(point.pflops_days)),
    points.map((point) => Math.log(point.lm_loss)),
  );
}

function predictFromLine(line: Line, pflopsDays: number): Prediction {
  const x = Math.log(pflopsDays);
  const value = valueAt(line, x);
  const half = t95(line.degreesOfFreedom) * Math.sqrt(varianceAt(line, x) + line.residualVariance);
  return {
    pflops_days: pflopsDays,
    loss: Math.exp(value),
    interval: exponentials(intervalAt(line, x)),
    prediction_interval: exponentials([value - half, value + half]),
  };
}

/** As `predict`, for a law of form `power`. */
export function predictPower(law: PowerLaw, pflopsDays: number): Prediction {
  return predictFromLine(logLine(law.points), pflopsDays);
}

/** Fits at least 3 points of at least two different budgets. */
export function fitPower(key: LawKey, points: FittedPoint[]): PowerLaw {
  const line = logLine(points);
  const mean = predictFromLine(line, Math.exp(line.center));
  const held = withoutLargest(points, 3);
  const prediction = held && predictFromLine(logLine(held.rest), held.largest.pflops_days);
  return {
    ...key,
    form: "power",
    coefficient: Math.exp(valueAt(line, 0)),
    exponent: line.slope,
    coefficient_interval: exponentials(intervalAt(line, 0)),
    exponent_interval: slopeInterval(line),
    loss_at_mean_budget: { pflops_days: mean.pflops_days, loss: mean.loss, interval: mean.interval },
    points,
    objective: line.sumOfSquaredResiduals,
    converged: true,
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
}
