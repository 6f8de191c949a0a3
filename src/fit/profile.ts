/**
 * Fits that are linear, or nearly so, in all parameters but one: the search along that one (variable projection) and
 * the profile intervals of anything the fit says.
 *
 * With the searched parameter fixed, the rest is a small least-squares problem: a slice. A value of some quantity lies
 * in its 95 % interval when some slice can reach it with a sum of squares below `best (1 + t^2 / degrees of freedom)`.
 * For a straight line that is the Student-t interval; for a floor or a break it follows the likelihood where the
 * linearised interval does not.
 */
import { t95 } from "./student.ts";
import type { Interval } from "./types.ts";

/** The best fit for one value of the searched parameter. */
export interface Slice {
  readonly at: number;
  readonly sumOfSquares: number;
  /** The other parameters, and the inverse of their normal matrix (covariance over the residual variance). */
  readonly parameters: readonly number[];
  readonly inverse: readonly (readonly number[])[];
}

export interface Profile {
  readonly best: Slice;
  /** The sums of squares at all local minima of the search, the lowest first. */
  readonly objectives: number[];
  readonly degreesOfFreedom: number;
  readonly residualVariance: number;
  /** Slices over the whole 95 % region, and the sum of squares that bounds it. */
  readonly slices: readonly Slice[];
  readonly limit: number;
  /** Whether the region ends inside the searched range, on either side. */
  readonly closed: readonly [low: boolean, high: boolean];
}

type Solve = (at: number) => Slice;

const GOLDEN = (3 - Math.sqrt(5)) / 2;
const REGION_SLICES = 32;

/** The lowest sum of squares on [low, high] by Brent's method: parabolas, golden sections where they fail. */
function lowest(solve: Solve, low: number, high: number): Slice {
  let [a, b] = [low, high];
  let best = solve(a + GOLDEN * (b - a));
  let [second, third] = [best, best];
  let step = 0;
  let before = 0;
  for (let i = 0; i < 100; i++) {
    const x = best.at;
    const middle = (a + b) / 2;
    // Sums of squares are flat to rounding within 1e-8 of a minimum.
    const tolerance = 1e-8 * Math.max(1, Math.abs(x));
    if (Math.abs(x - middle) <= 2 * tolerance - (b - a) / 2) break;
    const r = (x - second.at) * (best.sumOfSquares - third.sumOfSquares);
    const q = (x - third.at) * (best.sumOfSquares - second.sumOfSquares);
    const p = (x - third.at) * q - (x - second.at) * r;
    const parabola = -p / (2 * (q - r));
    const usable = Math.abs(parabola) < Math.abs(before) / 2 && x + parabola > a && x + parabola < b;
    before = usable ? step : (x < middle ? b : a) - x;
    step = usable ? parabola : GOLDEN * before;
    const next = solve(x + (Math.abs(step) >= tolerance ? step : Math.sign(step || middle - x) * tolerance));
    if (next.sumOfSquares <= best.sumOfSquares) {
      if (next.at < x) b = x;
      else a = x;
      [best, second, third] = [next, best, second];
    } else {
      if (next.at < x) a = next.at;
      else b = next.at;
      if (next.sumOfSquares <= second.sumOfSquares || second === best) [second, third] = [next, second];
      else if (next.sumOfSquares <= third.sumOfSquares || third === best || third === second) third = next;
    }
  }
  return best;
}

/** The best slice over the nodes (ascending) and between them, and every local minimum's objective, lowest first. */
export function searchAlong(
  solve: Solve,
  nodes: readonly number[],
): { best: Slice; objectives: number[]; coarse: Slice[] } {
  const coarse = nodes.map(solve);
  const minima: Slice[] = [];
  for (let i = 0; i < coarse.length; i++) {
    const value = coarse[i].sumOfSquares;
    if (i > 0 && coarse[i - 1].sumOfSquares < value) continue;
    if (i + 1 < coarse.length && coarse[i + 1].sumOfSquares <= value) continue;
    const found = lowest(solve, nodes[Math.max(0, i - 1)], nodes[Math.min(nodes.length - 1, i + 1)]);
    minima.push(found.sumOfSquares <= value ? found : coarse[i]);
  }
  minima.sort((a, b) => a.sumOfSquares - b.sumOfSquares);
  return { best: minima[0], objectives: minima.map((slice) => slice.sumOfSquares), coarse };
}

/** Where the sum of squares passes `limit` between a slice inside it and one outside: false position (Illinois). */
function boundary(solve: Solve, inside: Slice, outside: Slice, limit: number): Slice {
  let [a, b] = [inside, outside];
  let [excessA, excessB] = [a.sumOfSquares - limit, b.sumOfSquares - limit];
  for (let i = 0; i < 100 && Math.abs(b.at - a.at) > 1e-7 * Math.max(1, Math.abs(a.at)); i++) {
    const share = excessA / (excessA - excessB);
    const middle = solve(a.at + (share > 0.001 && share < 0.999 ? share : 0.5) * (b.at - a.at));
    const excess = middle.sumOfSquares - limit;
    // Close enough in the sum of squares is close enough.
    if (Math.abs(excess) <= 1e-7 * limit) return middle;
    if (excess <= 0) {
      [a, excessA] = [middle, excess];
      excessB /= 2;
    } else {
      [b, excessB] = [middle, excess];
      excessA /= 2;
    }
  }
  return a;
}

/** The search and its 95 % region; `nodes` ascend over all values the searched parameter may take. */
export function profile(solve: Solve, nodes: readonly number[], degreesOfFreedom: number): Profile {
  const { best, objectives, coarse } = searchAlong(solve, nodes);
  const limit = best.sumOfSquares * (1 + t95(degreesOfFreedom) ** 2 / degreesOfFreedom);
  const inside = (slice: Slice) => slice.sumOfSquares <= limit;
  const known = [...coarse, best].sort((a, b) => a.at - b.at);
  const first = known.findIndex(inside);
  const last = known.findLastIndex(inside);
  const low = first > 0 ? boundary(solve, known[first], known[first - 1], limit) : known[first];
  const high = last + 1 < known.length ? boundary(solve, known[last], known[last + 1], limit) : known[last];
  const slices = [low, best, high];
  for (let i = 1; i < REGION_SLICES; i++) {
    const slice = solve(low.at + ((high.at - low.at) * i) / REGION_SLICES);
    if (inside(slice)) slices.push(slice);
  }
  return {
    best,
    objectives,
    degreesOfFreedom,
    residualVariance: best.sumOfSquares / degreesOfFreedom,
    slices,
    limit,
    closed: [first > 0, last + 1 < known.length],
  };
}

export function quadratic(matrix: readonly (readonly number[])[], g: readonly number[]): number {
  let sum = 0;
  for (let i = 0; i < g.length; i++) for (let j = 0; j < g.length; j++) sum += g[i] * matrix[i][j] * g[j];
  return Math.max(0, sum);
}

/**
 * The 95 % interval of a quantity: `value` says what a slice makes of it, with the gradient in the slice's parameters.
 * `noise` is 1 for one new observation of the quantity (a prediction interval), else 0.
 */
export function profileInterval(
  { slices, limit }: Profile,
  value: (slice: Slice) => { readonly value: number; readonly gradient: readonly number[] },
  noise: 0 | 1 = 0,
): Interval {
  let low = Infinity;
  let high = -Infinity;
  for (const slice of slices) {
    const at = value(slice);
    const reach = Math.sqrt(
      Math.max(0, limit - slice.sumOfSquares) * (noise + quadratic(slice.inverse, at.gradient)),
    );
    low = Math.min(low, at.value - reach);
    high = Math.max(high, at.value + reach);
  }
  return [low, high];
}
