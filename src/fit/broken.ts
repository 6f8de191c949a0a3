/**
 * The broken power law: two straight lines in log-log that meet at a break, rounded over about a factor of two of
 * compute, `L = a C^b (1 + (C / C_break)^(1/w))^(w (b' - b))`, b the exponent before the break and b' after it. Least
 * squares on log loss by variable projection along the break, with profile intervals.
 */
import { exponentials, type LawKey, lawThrough, needBudgets, type Prediction } from "./law.ts";
import { type Profile, profile, profileInterval, type Slice, searchAlong } from "./profile.ts";
import { mean } from "./regression.ts";
import type { FittedPoint, PowerLaw } from "./types.ts";

/** Four parameters, and enough beside them that a break is more than one stray size. */
export const DISTINCT_BUDGETS_FOR_A_BREAK = 7;
/** w: half the turn happens within a factor of e^(2 w). */
const ROUNDING = 0.2;
const NODES = 64;

interface BrokenFit {
  readonly center: number;
  /** A slice's parameters are (level at the center, exponent before, change of exponent). */
  readonly profile: Profile;
}

type Points = readonly Pick<FittedPoint, "pflops_days" | "lm_loss">[];

/** 0 well before the break, the distance to it in log C well after it. */
function beyond(x: number, at: number): number {
  const u = (x - at) / ROUNDING;
  return ROUNDING * (u > 30 ? u : Math.log1p(Math.exp(u)));
}

function problem(points: Points) {
  const x = points.map((point) => Math.log(point.pflops_days));
  const y = points.map((point) => Math.log(point.lm_loss));
  const center = mean(x);
  const n = x.length;
  const h = new Float64Array(n);
  const d = x.map((xi) => xi - center);
  const meanY = mean(y);
  let dd = 0;
  let dy = 0;
  for (let i = 0; i < n; i++) {
    dd += d[i] * d[i];
    dy += d[i] * (y[i] - meanY);
  }
  /** Least squares on (1, d, h): h's part that the line does not explain carries the change (Frisch-Waugh). */
  const solve = (at: number): Slice => {
    let meanH = 0;
    for (let i = 0; i < n; i++) meanH += h[i] = beyond(x[i], at);
    meanH /= n;
    let dh = 0;
    for (let i = 0; i < n; i++) dh += d[i] * h[i];
    let hh = 0;
    let hy = 0;
    for (let i = 0; i < n; i++) {
      const rest = h[i] - meanH - (dh / dd) * d[i];
      hh += rest * rest;
      hy += rest * y[i];
    }
    // A resample may leave a side of the break empty; the break then fits nothing.
    const change = hh > 1e-12 * dd ? hy / hh : 0;
    const slope = (dy - change * dh) / dd;
    const level = meanY - change * meanH;
    let sumOfSquares = 0;
    for (let i = 0; i < n; i++) sumOfSquares += (y[i] - level - slope * d[i] - change * h[i]) ** 2;
    const [u, v, w] = [meanH, dh / dd, 1 / hh];
    return {
      at,
      sumOfSquares,
      parameters: [level, slope, change],
      inverse: [
        [1 / n + u * u * w, u * v * w, -u * w],
        [u * v * w, 1 / dd + v * v * w, -v * w],
        [-u * w, -v * w, w],
      ],
    };
  };
  const budgets = [...new Set(x)].sort((a, b) => a - b);
  // At least two budgets lie on either side, up to rounding of the break.
  const [from, to] = [budgets[1], budgets.at(-2)!];
  const nodes = Array.from({ length: NODES + 1 }, (_, i) => from + ((to - from) * i) / NODES);
  return { center, solve, nodes };
}

function search(points: Points): BrokenFit {
  const { center, solve, nodes } = problem(points);
  return { center, profile: profile(solve, nodes, points.length - 4) };
}

/** Log loss at `x = log C` by a slice, with its gradient in the slice's parameters. */
function brokenAt(center: number, { at, parameters }: Slice, x: number) {
  const gradient = [1, x - center, beyond(x, at)];
  return { value: gradient.reduce((s, g, i) => s + g * parameters[i], 0), gradient };
}

/** Different budgets that the search needs to have a break to look for. */
const FEWEST_TO_SEARCH = 5;

/**
 * The best fit without its region: the exponent before the break and losses, for resampling and for the choice between
 * forms; null for fewer than 5 different budgets.
 */
export function bestBroken(
  points: Points,
): { exponent: number; lossAt: (pflopsDays: number) => number } | null {
  if (new Set(points.map((point) => point.pflops_days)).size < FEWEST_TO_SEARCH) return null;
  const { center, solve, nodes } = problem(points);
  const { best } = searchAlong(solve, nodes);
  return {
    exponent: best.parameters[1],
    lossAt: (pflopsDays) => Math.exp(brokenAt(center, best, Math.log(pflopsDays)).value),
  };
}

const searched = new WeakMap<readonly FittedPoint[], BrokenFit>();

/** As `predict`, for a law of form `broken`. */
export function predictBroken(points: readonly FittedPoint[], pflopsDays: number): Prediction {
  let fit = searched.get(points);
  if (fit === undefined) searched.set(points, (fit = search(points)));
  const { center, profile: found } = fit;
  const x = Math.log(pflopsDays);
  const at = (slice: Slice) => brokenAt(center, slice, x);
  return {
    pflops_days: pflopsDays,
    loss: Math.exp(at(found.best).value),
    interval: exponentials(profileInterval(found, at)),
    prediction_interval: exponentials(profileInterval(found, at, 1)),
  };
}

/** Fits at least 7 distinct budgets (else InputError: fewer cannot carry a break). */
export function fitBroken(key: LawKey, points: FittedPoint[]): PowerLaw {
  needBudgets(key, points, "broken", "a break", DISTINCT_BUDGETS_FOR_A_BREAK);
  const fit = search(points);
  searched.set(points, fit);
  const { center, profile: found } = fit;
  const { best, slices, closed } = found;
  const [level, before, change] = best.parameters;
  const breaks = slices.map((slice) => slice.at);
  return lawThrough(key, points, {
    form: "broken",
    coefficient: Math.exp(level - before * center),
    exponent: before,
    coefficient_interval: exponentials(
      profileInterval(found, ({ parameters }) => ({
        value: parameters[0] - parameters[1] * center,
        gradient: [1, -center, 0],
      })),
    ),
    exponent_interval: profileInterval(found, ({ parameters }) => ({
      value: parameters[1],
      gradient: [0, 1, 0],
    })),
    break: {
      pflops_days: Math.exp(best.at),
      interval: exponentials([Math.min(...breaks), Math.max(...breaks)]),
      located: closed[0] && closed[1],
      exponent_after: before + change,
      exponent_after_interval: profileInterval(found, ({ parameters }) => ({
        value: parameters[1] + parameters[2],
        gradient: [0, 1, 1],
      })),
    },
    objectives: found.objectives,
    converged: true,
    predict: predictBroken,
    fewestToPredict: FEWEST_TO_SEARCH,
  });
}
