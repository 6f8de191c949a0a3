/** Rows of attention scores to probabilities: the online softmax of the forward and its gradient. */
import { fma, sumLanes } from "../simd";
import { words } from "./layout";
import { scaleRow } from "./rows";

export const LOG2_E: f32 = 1.44269504088896340736;
export const LN_2: f64 = 0.693147180559945309417;

/**
 * 2^x to 1e-7, for x <= 126. Below -100 the result stays at 2^-100, which no sum of probabilities sees and which
 * keeps products out of the subnormal range. NaN stays NaN.
 */
// @ts-ignore: decorator
@inline
export function exp2(x: v128): v128 {
  const clamped = f32x4.pmax(x, f32x4.splat(-100));
  // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
  const magic = f32x4.splat(12582912);
  const rounded = f32x4.add(clamped, magic);
  const f = f32x4.sub(clamped, f32x4.sub(rounded, magic));
  // Minimax polynomial of 2^f on [-1/2, 1/2], relative error 2e-9 before rounding.
  let p = fma(f32x4.splat(1.53458109e-4), f, f32x4.splat(1.339993122e-3));
  p = fma(p, f, f32x4.splat(9.618488957e-3));
  p = fma(p, f, f32x4.splat(5.5503287770e-2));
  p = fma(p, f, f32x4.splat(0.24022646891));
  p = fma(p, f, f32x4.splat(0.69314720574));
  p = fma(p, f, f32x4.splat(1));
  return i32x4.add(p, i32x4.shl(rounded, 23));
}

/** All ones in the first `n` lanes, n = 1, 2 or 3. */
// @ts-ignore: decorator
@inline
function laneMask(n: i32): v128 {
  return i32x4.lt_s(i32x4(0, 1, 2, 3), i32x4.splat(n));
}

/** Zeros row[from .. to). */
// @ts-ignore: decorator
@inline
function zeroRow(row: usize, from: i32, to: i32): void {
  for (let i = from; i < to; i++) store<f32>(row + words(i), 0);
}

/**
 * One row of the online softmax. `row` holds `limit` scores and is as wide as `count` keys; scores become weights
 * relative to the row's new maximum, those from `limit` on become 0. `maximum` (in units of log2) and `sum` are the
 * row's state, `out` its D unnormalised outputs, which are rescaled when the maximum grows.
 */
export function softmaxRow(
  row: usize,
  limit: i32,
  count: i32,
  scaleLog2: f32,
  maximum: usize,
  sum: usize,
  out: usize,
  D: i32,
): void {
  const whole = limit & ~3;
  const mask = laneMask(limit & 3);
  const lowest = f32x4.splat(-Infinity);
  let max0 = lowest;
  let max1 = lowest;
  let i = 0;
  for (; i + 8 <= whole; i += 8) {
    max0 = f32x4.pmax(max0, v128.load(row + words(i)));
    max1 = f32x4.pmax(max1, v128.load(row + words(i), 16));
  }
  if (i < whole) max0 = f32x4.pmax(max0, v128.load(row + words(i)));
  if (whole < limit) max1 = f32x4.pmax(max1, v128.bitselect(v128.load(row + words(whole)), lowest, mask));
  max0 = f32x4.pmax(max0, max1);
  max0 = f32x4.pmax(max0, v128.shuffle<f32>(max0, max0, 2, 3, 0, 1));
  const rowMax = max(f32x4.extract_lane(max0, 0), f32x4.extract_lane(max0, 1)) * scaleLog2;

  const before = load<f32>(maximum);
  let shift = before;
  let total = load<f32>(sum);
  if (rowMax > before) {
    shift = rowMax;
    store<f32>(maximum, rowMax);
    if (total != 0) {
      const factor = f32x4.extract_lane(exp2(f32x4.splat(before - rowMax)), 0);
      total *= factor;
      scaleRow(out, factor, D);
    }
  }
  // No score above -inf so far: any finite shift gives every weight its limit, 0.
  if (shift == -Infinity) shift = 0;

  const scale = f32x4.splat(scaleLog2);
  const negative = f32x4.splat(-shift);
  let sum0 = f32x4.splat(0);
  let sum1 = f32x4.splat(0);
  i = 0;
  for (; i + 8 <= whole; i += 8) {
    const p0 = exp2(fma(v128.load(row + words(i)), scale, negative));
    const p1 = exp2(fma(v128.load(row + words(i), 16), scale, negative));
    sum0 = f32x4.add(sum0, p0);
    sum1 = f32x4.add(sum1, p1);
    v128.store(row + words(i), p0);
    v128.store(row + words(i), p1, 16);
  }
  if (i < whole) {
    const p = exp2(fma(v128.load(row + words(i)), scale, negative));
    sum0 = f32x4.add(sum0, p);
    v128.store(row + words(i), p);
  }
  if (whole < limit) {
    const p = v128.and(exp2(fma(v128.load(row + words(whole)), scale, negative)), mask);
    sum1 = f32x4.add(sum1, p);
    v128.store(row + words(whole), p);
    i = whole + 4;
  } else {
    i = whole;
  }
  zeroRow(row, i, count);
  store<f32>(sum, total + sumLanes(f32x4.add(sum0, sum1)));
}

/**
 * One key's row of the backward: scores against M queries become probabilities P = 2^(score * scaleLog2 - lseLog2),
 * and `gradient`, which holds dP, becomes dS = P (dP - delta) scale. The queries before `from` do not see the key:
 * both are 0 there. Rows are worked on up to the next whole vector behind M.
 */
export function gradientRow(
  row: usize,
  gradient: usize,
  from: i32,
  M: i32,
  scaleLog2: f32,
  lseLog2_M: usize,
  delta_M: usize,
  scale: f32,
): void {
  const factor = f32x4.splat(scaleLog2);
  const scales = f32x4.splat(scale);
  const first = from & ~3;
  const zero = f32x4.splat(0);
  let i = 0;
  for (; i < first; i += 4) {
    v128.store(row + words(i), zero);
    v128.store(gradient + words(i), zero);
  }
  if (first < from) {
    const mask = laneMask(from & 3);
    const p = exp2(f32x4.sub(f32x4.mul(v128.load(row + words(i)), factor), v128.load(lseLog2_M + words(i))));
    const d = f32x4.sub(v128.load(gradient + words(i)), v128.load(delta_M + words(i)));
    v128.store(row + words(i), v128.andnot(p, mask));
    v128.store(gradient + words(i), v128.andnot(f32x4.mul(f32x4.mul(p, scales), d), mask));
    i += 4;
  }
  for (; i < M; i += 4) {
    const p = exp2(f32x4.sub(f32x4.mul(v128.load(row + words(i)), factor), v128.load(lseLog2_M + words(i))));
    const d = f32x4.sub(v128.load(gradient + words(i)), v128.load(delta_M + words(i)));
    v128.store(row + words(i), p);
    v128.store(gradient + words(i), f32x4.mul(f32x4.mul(p, scales), d));
  }
}
