/** Rows of D floats: gather, scatter, scale, dot product, and the lists of queries that selected a block. */
import { fma, fma1, sumLanes } from "../simd";
import { Arguments, words } from "./layout";

/** to[0 .. n) = from[0 .. n), n even. */
// @ts-ignore: decorator
@inline
export function copyRow(to: usize, from: usize, n: i32): void {
  let i = 0;
  for (; i + 4 <= n; i += 4) v128.store(to + words(i), v128.load(from + words(i)));
  if (i < n) store<u64>(to + words(i), load<u64>(from + words(i)));
}

/** to[0 .. n) += from[0 .. n), n even. */
// @ts-ignore: decorator
@inline
export function addRow(to: usize, from: usize, n: i32): void {
  let i = 0;
  for (; i + 4 <= n; i += 4) {
    v128.store(to + words(i), f32x4.add(v128.load(to + words(i)), v128.load(from + words(i))));
  }
  for (; i < n; i++) store<f32>(to + words(i), load<f32>(to + words(i)) + load<f32>(from + words(i)));
}

/** row[0 .. n) *= factor, n even. */
// @ts-ignore: decorator
@inline
export function scaleRow(row: usize, factor: f32, n: i32): void {
  const splat = f32x4.splat(factor);
  let i = 0;
  for (; i + 4 <= n; i += 4) v128.store(row + words(i), f32x4.mul(v128.load(row + words(i)), splat));
  for (; i < n; i++) store<f32>(row + words(i), load<f32>(row + words(i)) * factor);
}

/** to[0 .. n) += factor * from[0 .. n), n even. */
// @ts-ignore: decorator
@inline
export function addScaledRow(to: usize, factor: f32, from: usize, n: i32): void {
  const splat = f32x4.splat(factor);
  let i = 0;
  for (; i + 4 <= n; i += 4) {
    v128.store(to + words(i), fma(splat, v128.load(from + words(i)), v128.load(to + words(i))));
  }
  for (; i < n; i++) store<f32>(to + words(i), fma1(factor, load<f32>(from + words(i)), load<f32>(to + words(i))));
}

/** <x, y> over n floats, n even. */
export function dot(x: usize, y: usize, n: i32): f32 {
  let sum0 = f32x4.splat(0);
  let sum1 = f32x4.splat(0);
  let i = 0;
  for (; i + 8 <= n; i += 8) {
    sum0 = fma(v128.load(x + words(i)), v128.load(y + words(i)), sum0);
    sum1 = fma(v128.load(x + words(i), 16), v128.load(y + words(i), 16), sum1);
  }
  let sum = sumLanes(f32x4.add(sum0, sum1));
  for (; i < n; i++) sum += load<f32>(x + words(i)) * load<f32>(y + words(i));
  return sum;
}

/** to_MD[r] = from[rows[r]], rows `stride` floats apart. */
export function gatherRows(to: usize, from: usize, stride: i32, rows: usize, count: i32, n: i32): void {
  for (let r = 0; r < count; r++) {
    copyRow(to + words(r * n), from + words(load<i32>(rows + words(r)) * stride), n);
  }
}

/**
 * Lists the queries start .. end of one head by the block that they selected, each list in query order, for the
 * document's blocks from .. to: list of block b is `list[ends[b - from - 1] .. ends[b - from]]` after the call, with
 * `ends[-1]` = 0. `ends` points at the second word of to - from + 1.
 */
export function listQueries(
  a: Arguments,
  head: i32,
  start: i32,
  end: i32,
  from: i32,
  to: i32,
  list: usize,
  ends: usize,
): void {
  const S = a.selectedCount;
  const stride = a.heads * S;
  const first = ends - 4;
  const selected = a.selected_THS + words(head * S);
  for (let b = 0; b <= to - from; b++) store<i32>(first + words(b), 0);
  for (let t = start; t < end; t++) {
    const row = selected + words(t * stride);
    for (let i = 0; i < S; i++) {
      const b = load<i32>(row + words(i));
      if (b < from || b >= to) continue;
      const count = ends + words(b - from);
      store<i32>(count, load<i32>(count) + 1);
    }
  }
  // Counts to starts, one place late: filling then moves each start to its end.
  let sum = 0;
  for (let b = 0; b < to - from; b++) {
    const count = load<i32>(ends + words(b));
    store<i32>(ends + words(b), sum);
    sum += count;
  }
  for (let t = start; t < end; t++) {
    const row = selected + words(t * stride);
    for (let i = 0; i < S; i++) {
      const b = load<i32>(row + words(i));
      if (b < from || b >= to) continue;
      const place = ends + words(b - from);
      const position = load<i32>(place);
      store<i32>(list + words(position), t);
      store<i32>(place, position + 1);
    }
  }
}
