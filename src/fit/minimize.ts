/** Smooth minimisation: BFGS with a weak Wolfe line search, run until no step lowers the value any more. */

export interface Minimum {
  readonly x: number[];
  readonly value: number;
  /** Largest absolute entry of the gradient there. */
  readonly gradient: number;
}

/** Returns the value at x and writes the gradient. */
export type Objective = (x: readonly number[], gradient: number[]) => number;

const dot = (a: readonly number[], b: readonly number[]) => a.reduce((sum, ai, i) => sum + ai * b[i], 0);

/**
 * A step that satisfies the weak Wolfe conditions, by bracketing and bisection; it also settles on functions whose
 * second derivative jumps (Huber). Null when the direction lowers the value no more.
 */
function lineSearch(
  objective: Objective,
  x: readonly number[],
  value: number,
  slope: number,
  direction: readonly number[],
): { x: number[]; value: number; gradient: number[] } | null {
  let low = 0;
  let high = Infinity;
  let step = 1;
  let best: { x: number[]; value: number; gradient: number[] } | null = null;
  for (let i = 0; i < 60; i++) {
    const next = x.map((xi, j) => xi + step * direction[j]);
    const gradient = new Array<number>(x.length).fill(0);
    const nextValue = objective(next, gradient);
    if (!(nextValue <= value + 1e-4 * step * slope)) high = step;
    else {
      best = { x: next, value: nextValue, gradient };
      if (dot(gradient, direction) >= 0.9 * slope) return best;
      low = step;
    }
    step = high === Infinity ? 2 * low : (low + high) / 2;
  }
  return best !== null && best.value < value ? best : null;
}

export function minimize(objective: Objective, start: readonly number[], iterations = 1000): Minimum {
  const n = start.length;
  const identity = (): number[][] =>
    Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => (i === j ? 1 : 0)));
  let x = [...start];
  let gradient = new Array<number>(n).fill(0);
  let value = objective(x, gradient);
  let inverse = identity();
  let fresh = true;
  for (let i = 0; i < iterations; i++) {
    let direction = inverse.map((row) => -dot(row, gradient));
    let slope = dot(direction, gradient);
    if (!(slope < 0)) {
      if (fresh) break;
      inverse = identity();
      fresh = true;
      direction = gradient.map((g) => -g);
      slope = dot(direction, gradient);
    }
    const next = lineSearch(objective, x, value, slope, direction);
    if (next === null) {
      // A stale curvature estimate can hide a descent direction; only the plain gradient's failure is final.
      if (fresh) break;
      inverse = identity();
      fresh = true;
      continue;
    }
    const s = next.x.map((v, j) => v - x[j]);
    const y = next.gradient.map((v, j) => v - gradient[j]);
    ({ x, value, gradient } = next);
    const sy = dot(s, y);
    if (sy > 0) {
      if (fresh) inverse = inverse.map((row) => row.map((v) => (v * sy) / dot(y, y)));
      const hy = inverse.map((row) => dot(row, y));
      const scale = (1 + dot(y, hy) / sy) / sy;
      inverse = inverse.map((row, a) =>
        row.map((v, b) => v + scale * s[a] * s[b] - (hy[a] * s[b] + s[a] * hy[b]) / sy),
      );
      fresh = false;
    }
  }
  return { x, value, gradient: Math.max(...gradient.map(Math.abs)) };
}

export interface MultiStartMinimum extends Minimum {
  /** Whether at least two starts ended at this value, which no start undercut. */
  readonly converged: boolean;
  /** Where each start ended, the lowest first. */
  readonly values: number[];
}

/** The best minimum over all starts. */
export function minimizeFrom(
  objective: Objective,
  starts: readonly (readonly number[])[],
): MultiStartMinimum {
  const minima = starts.map((start) => minimize(objective, start)).filter((m) => Number.isFinite(m.value));
  const best = minima.reduce((a, b) => (b.value < a.value ? b : a));
  const agreeing = minima.filter((m) => m.value - best.value <= 1e-7 * Math.abs(best.value) + 1e-18).length;
  return { ...best, converged: agreeing >= 2, values: minima.map((m) => m.value).sort((a, b) => a - b) };
}

/** Inverse of a small symmetric positive definite matrix by Gauss-Jordan elimination; null when it is singular. */
export function invert(matrix: readonly (readonly number[])[]): number[][] | null {
  const n = matrix.length;
  const rows = matrix.map((row, i) => [...row, ...Array.from({ length: n }, (_, j) => (i === j ? 1 : 0))]);
  for (let i = 0; i < n; i++) {
    let pivot = i;
    for (let r = i + 1; r < n; r++) if (Math.abs(rows[r][i]) > Math.abs(rows[pivot][i])) pivot = r;
    if (!(Math.abs(rows[pivot][i]) > 1e-14 * Math.abs(matrix[i][i]))) return null;
    [rows[i], rows[pivot]] = [rows[pivot], rows[i]];
    const scale = rows[i][i];
    rows[i] = rows[i].map((v) => v / scale);
    for (let r = 0; r < n; r++) {
      if (r === i) continue;
      const factor = rows[r][i];
      rows[r] = rows[r].map((v, c) => v - factor * rows[i][c]);
    }
  }
  return rows.map((row) => row.slice(n));
}
