/** The power law `L = a C^b`: least squares in log-log with Student-t intervals. */
import { exponentials, type LawKey, lawThrough, type Prediction } from "./law.ts";
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

/** As `predict`, for a straight line in log-log (forms `power`, `envelope` and `isoflop`). */
export function predictPower(points: readonly FittedPoint[], pflopsDays: number): Prediction {
  return predictFromLine(logLine(points), pflopsDays);
}

/** Fits at least 3 points of at least two different budgets. */
export function fitPower(
  key: LawKey,
  points: FittedPoint[],
  form: "power" | "envelope" | "isoflop" = "power",
): PowerLaw {
  const line = logLine(points);
  return lawThrough(key, points, {
    form,
    coefficient: Math.exp(valueAt(line, 0)),
    exponent: line.slope,
    coefficient_interval: exponentials(intervalAt(line, 0)),
    exponent_interval: slopeInterval(line),
    objectives: [line.sumOfSquaredResiduals],
    converged: true,
    predict: predictPower,
    fewestToPredict: 3,
  });
}
