/**
 * The floored power law `L = E + a C^b`, `E >= 0`: least squares on log loss by variable projection along the exponent,
 * with profile intervals.
 */
import { exponentials, type LawKey, lawThrough, needBudgets, type Prediction } from "./law.ts";
import { type Profile, profile, profileInterval, type Slice, searchAlong } from "./profile.ts";
import { fitLine } from "./regression.ts";
import type { FittedPoint, Interval, PowerLaw } from "./types.ts";

/** Fewer distinct budgets than this carry no claim about a floor or a bend. */
export const DISTINCT_BUDGETS_FOR_A_FLOOR = 6;

/** Exponents from a quarter of the straight line's (a floor only steepens it) to far beyond any law's. */
const STEEPEST = 8;
const NODES = 24;

/** `L = floor + scale exp(exponent (x - center))` at `x = log C`; a slice's parameters are (floor, scale). */
export interface FlooredFit {
  readonly center: number;
  /** The sign of the exponent: losses that rise with compute get a law that rises. */
  readonly sign: number;
  readonly profile: Profile;
}

type Points = readonly Pick<FittedPoint, "pflops_days" | "lm_loss">[];

const exponentOf = (fit: Pick<FlooredFit, "sign">, slice: Slice) => fit.sign * Math.exp(slice.at);

/** The problem along the log of the exponent's size: `solve` and the nodes to start from. */
function problem(points: Points) {
  const x = points.map((point) => Math.log(point.pflops_days));
  const loss = points.map((point) => point.lm_loss);
  const y = loss.map(Math.log);
  const line = fitLine(x, y);
  const { center, deviations } = line;
  const sign = line.slope > 0 ? 1 : -1;
  const n = x.length;
  const z = new Float64Array(n);

  /** Gauss-Newton on (floor, scale) for one exponent; a floor that would be negative is 0. */
  const solve = (at: number): Slice => {
    const exponent = sign * Math.exp(at);
    for (let i = 0; i < n; i++) z[i] = Math.exp(exponent * deviations[i]);
    let floor = 0;
    let scale = 0;
    let sums = { aa: 0, ab: 0, bb: 0, ra: 0, rb: 0, squares: 0 };
    const accumulate = (first: boolean) => {
      sums = { aa: 0, ab: 0, bb: 0, ra: 0, rb: 0, squares: 0 };
      for (let i = 0; i < n; i++) {
        // The first step is linear least squares on the relative error, close to the error of the log.
        const value = first ? loss[i] : floor + scale * z[i];
        const residual = first ? 1 : y[i] - Math.log(value);
        const a = 1 / value;
        const b = z[i] / value;
        sums.aa += a * a;
        sums.ab += a * b;
        sums.bb += b * b;
        sums.ra += a * residual;
        sums.rb += b * residual;
        sums.squares += residual * residual;
      }
    };
    const pinned = (): Slice => {
      // Without a floor the log of the scale is a mean.
      let mean = 0;
      for (let i = 0; i < n; i++) mean += y[i] - exponent * deviations[i];
      mean /= n;
      let squares = 0;
      for (let i = 0; i < n; i++) squares += (y[i] - exponent * deviations[i] - mean) ** 2;
      const value = Math.exp(mean);
      return {
        at,
        sumOfSquares: squares,
        parameters: [0, value],
        inverse: [
          [0, 0],
          [0, (value * value) / n],
        ],
      };
    };
    accumulate(true);
    for (let iteration = 0; iteration < 30; iteration++) {
      const determinant = sums.aa * sums.bb - sums.ab * sums.ab;
      if (!(determinant > 1e-13 * sums.aa * sums.bb)) return pinned();
      const stepFloor = (sums.bb * sums.ra - sums.ab * sums.rb) / determinant;
      const stepScale = (sums.aa * sums.rb - sums.ab * sums.ra) / determinant;
      floor += stepFloor;
      scale += stepScale;
      if (!(floor > 0 && scale > 0)) return pinned();
      accumulate(false);
      if (Math.abs(stepFloor) + Math.abs(stepScale) <= 1e-11 * (floor + scale) && iteration > 0) break;
    }
    const determinant = sums.aa * sums.bb - sums.ab * sums.ab;
    return {
      at,
      sumOfSquares: sums.squares,
      parameters: [floor, scale],
      inverse: [
        [sums.bb / determinant, -sums.ab / determinant],
        [-sums.ab / determinant, sums.aa / determinant],
      ],
    };
  };
  const from = Math.log(Math.max(1e-4, Math.abs(line.slope)) / 4);
  const to = Math.max(from + 1, Math.log(STEEPEST));
  const nodes = Array.from({ length: NODES + 1 }, (_, i) => from + ((to - from) * i) / NODES);
  return { center, sign, solve, nodes };
}

export function searchFloored(points: Points): FlooredFit {
  const { center, sign, solve, nodes } = problem(points);
  return { center, sign, profile: profile(solve, nodes, points.length - 3) };
}

/** The best fit without its region: exponent and losses, for resampling and for the choice between forms. */
export function bestFloored(points: Points): { exponent: number; lossAt: (pflopsDays: number) => number } {
  const { center, sign, solve, nodes } = problem(points);
  const { best } = searchAlong(solve, nodes);
  return {
    exponent: exponentOf({ sign }, best),
    lossAt: (pflopsDays) => Math.exp(flooredAt({ center, sign }, best, Math.log(pflopsDays)).value),
  };
}

/** Log loss at `x = log C` by a slice, with its gradient in the slice's parameters. */
export function flooredAt(fit: Pick<FlooredFit, "center" | "sign">, slice: Slice, x: number) {
  const [floor, scale] = slice.parameters;
  const z = Math.exp(exponentOf(fit, slice) * (x - fit.center));
  const loss = floor + scale * z;
  return { value: Math.log(loss), gradient: [1 / loss, z / loss] };
}

/** Derivatives of log loss at `x = log C` by (floor, scale, exponent), at the best fit. */
export function flooredSensitivity(fit: FlooredFit, x: number): number[] {
  const { best } = fit.profile;
  const d = x - fit.center;
  const power = best.parameters[1] * Math.exp(exponentOf(fit, best) * d);
  const loss = best.parameters[0] + power;
  return [1 / loss, power / best.parameters[1] / loss, (power * d) / loss];
}

function predictFrom(fit: FlooredFit, pflopsDays: number): Prediction {
  const x = Math.log(pflopsDays);
  const at = (slice: Slice) => flooredAt(fit, slice, x);
  return {
    pflops_days: pflopsDays,
    loss: Math.exp(at(fit.profile.best).value),
    interval: exponentials(profileInterval(fit.profile, at)),
    prediction_interval: exponentials(profileInterval(fit.profile, at, 1)),
  };
}

const searched = new WeakMap<readonly FittedPoint[], FlooredFit>();

/** As `predict`, for a law of form `floored`. */
export function predictFloored(points: readonly FittedPoint[], pflopsDays: number): Prediction {
  let fit = searched.get(points);
  if (fit === undefined) searched.set(points, (fit = searchFloored(points)));
  return predictFrom(fit, pflopsDays);
}

/** Fits at least 6 distinct budgets (else InputError: fewer carry no claim about a floor). */
export function fitFloored(key: LawKey, points: FittedPoint[]): PowerLaw {
  needBudgets(key, points, "floored", "a floor", DISTINCT_BUDGETS_FOR_A_FLOOR);
  const fit = searchFloored(points);
  searched.set(points, fit);
  const { best, closed, slices } = fit.profile;
  // The coefficient is scale exp(-exponent center).
  const logCoefficient = (slice: Slice) => ({
    value: Math.log(slice.parameters[1]) - exponentOf(fit, slice) * fit.center,
    gradient: [0, 1 / slice.parameters[1]],
  });
  const floor = profileInterval(fit.profile, (slice) => ({ value: slice.parameters[0], gradient: [1, 0] }));
  const exponents = slices.map((slice) => exponentOf(fit, slice));
  const interval: Interval = [Math.min(...exponents), Math.max(...exponents)];
  // Sums of squares that never leave the region leave the exponent's size open.
  if (!closed[1]) interval[fit.sign < 0 ? 0 : 1] = fit.sign * Number.MAX_VALUE;
  if (!closed[0]) interval[fit.sign < 0 ? 1 : 0] = 0;
  return lawThrough(key, points, {
    form: "floored",
    coefficient: Math.exp(logCoefficient(best).value),
    exponent: exponentOf(fit, best),
    floor: best.parameters[0],
    floor_interval: [Math.max(0, floor[0]), floor[1]],
    coefficient_interval: exponentials(profileInterval(fit.profile, logCoefficient)),
    exponent_interval: interval,
    objectives: fit.profile.objectives,
    converged: closed[1],
    // Three parameters through three points predict nothing.
    predict: predictFloored,
    fewestToPredict: 4,
  });
}
