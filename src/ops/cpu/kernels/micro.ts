/**
 * The product of two matrices on one thread: C (+)= A B in register tiles of 6 x 8.
 *
 * B is packed into panels of 8 columns, [ceil(N / 8)][K][8], zero padded. Each element of C is a chain of fused
 * multiply-adds over k in blocks of K_BLOCK; the blocks' sums are added in order. So an element's bits depend on its
 * row of A and its column of B alone: not on M, N, on where a tile starts or on who computes it.
 */
import { fma } from "./simd";

/** A panel's part of this length (8 KiB) and a strip of A stay in the first-level cache. */
export const K_BLOCK: i32 = 256;
/** Rows of A that are packed at once when its elements do not lie side by side along k. */
const M_BLOCK: i32 = 96;
/** Rows of a register tile. Without fused multiply-add the products need registers of their own. */
const ROWS: i32 = ASC_FEATURE_RELAXED_SIMD ? 6 : 4;

/** Bytes of scratch each worker needs for `gemmPanels`: packed rows of A, and a tile of C at the right edge. */
const EDGE_BYTES: usize = 6 * 8 * 4;
export const MICRO_SCRATCH_BYTES: usize = EDGE_BYTES + <usize>(M_BLOCK * K_BLOCK * 4);

/** This worker's scratch (every worker has an instance, and so globals, of its own). */
let scratch: usize = 0;
export function setMicroScratch(at: usize): void {
  scratch = at;
}

/** Bytes of a packed K x N matrix. */
export function panelBytes(K: i32, N: i32): usize {
  return <usize>((N + 7) >> 3) * <usize>K * 32;
}

/** Packs a K x N matrix with any strides (in floats) into panels of 8 columns. */
export function packB(panels: usize, b: usize, rowStride: i32, colStride: i32, K: i32, N: i32): void {
  const row = <usize>rowStride << 2;
  const col = <usize>colStride << 2;
  for (let n = 0; n < N; n += 8) {
    let from = b + <usize>n * col;
    if (n + 8 > N) {
      packEdge(panels, from, row, col, K, N - n);
    } else if (colStride == 1) {
      for (let k = 0, to = panels; k < K; k++, to += 32, from += row) {
        v128.store(to, v128.load(from));
        v128.store(to, v128.load(from, 16), 16);
      }
    } else if (rowStride == 1) {
      let k = 0;
      let to = panels;
      for (; k + 4 <= K; k += 4, to += 128, from += 16) {
        transpose4(to, from, col, 32);
        transpose4(to + 16, from + 4 * col, col, 32);
      }
      for (; k < K; k++, to += 32, from += 4) {
        for (let j: usize = 0; j < 8; j++) store<f32>(to + (j << 2), load<f32>(from + j * col));
      }
    } else {
      for (let k = 0, to = panels; k < K; k++, to += 32, from += row) {
        for (let j: usize = 0; j < 8; j++) store<f32>(to + (j << 2), load<f32>(from + j * col));
      }
    }
    panels += <usize>K << 5;
  }
}

function packEdge(to: usize, from: usize, row: usize, col: usize, K: i32, columns: i32): void {
  for (let k = 0; k < K; k++, to += 32, from += row) {
    v128.store(to, i32x4.splat(0));
    v128.store(to, i32x4.splat(0), 16);
    for (let j = 0; j < columns; j++) store<f32>(to + (<usize>j << 2), load<f32>(from + <usize>j * col));
  }
}

/** Four rows of four floats (`fromRow` bytes apart) to four columns (`toRow` bytes apart). */
// @ts-ignore: decorator
@inline
function transpose4(to: usize, from: usize, fromRow: usize, toRow: usize): void {
  const a = v128.load(from);
  const b = v128.load(from + fromRow);
  const c = v128.load(from + 2 * fromRow);
  const d = v128.load(from + 3 * fromRow);
  const ab0 = i32x4.shuffle(a, b, 0, 4, 1, 5);
  const ab1 = i32x4.shuffle(a, b, 2, 6, 3, 7);
  const cd0 = i32x4.shuffle(c, d, 0, 4, 1, 5);
  const cd1 = i32x4.shuffle(c, d, 2, 6, 3, 7);
  v128.store(to, i64x2.shuffle(ab0, cd0, 0, 2));
  v128.store(to + toRow, i64x2.shuffle(ab0, cd0, 1, 3));
  v128.store(to + 2 * toRow, i64x2.shuffle(ab1, cd1, 0, 2));
  v128.store(to + 3 * toRow, i64x2.shuffle(ab1, cd1, 1, 3));
}

/** Copies `rows` x `K` of A to rows of `toRow` bytes with elements side by side. Strides in bytes. */
function packA(to: usize, toRow: usize, a: usize, row: usize, col: usize, rows: i32, K: i32): void {
  let m = 0;
  if (row == 4) {
    for (; m + 4 <= rows; m += 4) {
      const target = to + <usize>m * toRow;
      const source = a + (<usize>m << 2);
      let k = 0;
      for (; k + 4 <= K; k += 4) transpose4(target + (<usize>k << 2), source + <usize>k * col, col, toRow);
      for (; k < K; k++) {
        for (let i: usize = 0; i < 4; i++) {
          store<f32>(target + i * toRow + (<usize>k << 2), load<f32>(source + (i << 2) + <usize>k * col));
        }
      }
    }
  }
  for (; m < rows; m++) {
    const target = to + <usize>m * toRow;
    const source = a + <usize>m * row;
    for (let k = 0; k < K; k++) store<f32>(target + (<usize>k << 2), load<f32>(source + <usize>k * col));
  }
}

/**
 * C (+)= A B for A of M x K with any strides (in floats), B packed by `packB`, and C of M x N with rows `ldc` floats
 * apart. Any M, N and K; K = 0 gives 0.
 */
export function gemmPanels(
  c: usize,
  ldc: i32,
  a: usize,
  aRowStride: i32,
  aColStride: i32,
  panels: usize,
  M: i32,
  N: i32,
  K: i32,
  accumulate: bool,
): void {
  const cRow = <usize>ldc << 2;
  const packed = aColStride != 1;
  const panel = <usize>K << 5;
  const aRow = packed ? <usize>K_BLOCK << 2 : <usize>aRowStride << 2;
  for (let k = 0; k < K || k == 0; k += K_BLOCK) {
    const kc = min(K_BLOCK, K - k);
    const add = accumulate || k > 0;
    for (let m = 0; m < M; m += M_BLOCK) {
      const mc = min(M_BLOCK, M - m);
      let from = a + ((<usize>m * <usize>aRowStride + <usize>k * <usize>aColStride) << 2);
      if (packed) {
        packA(scratch + EDGE_BYTES, aRow, from, <usize>aRowStride << 2, <usize>aColStride << 2, mc, kc);
        from = scratch + EDGE_BYTES;
      }
      const into = c + <usize>m * cRow;
      for (let n = 0; n < N; n += 8) {
        const b = panels + <usize>(n >> 3) * panel + (<usize>k << 5);
        if (n + 8 <= N) {
          column(into + (<usize>n << 2), cRow, from, aRow, b, mc, kc, add);
        } else {
          edgeColumn(into + (<usize>n << 2), cRow, from, aRow, b, mc, N - n, kc, add);
        }
      }
    }
  }
}

/** One panel times all rows of a block. */
function column(c: usize, cRow: usize, a: usize, aRow: usize, b: usize, rows: i32, K: i32, add: bool): void {
  for (let m = rows; m > 0; m -= ROWS, a += ROWS * aRow, c += ROWS * cRow) {
    const height = min(ROWS, m);
    if (!add) {
      tile(c, cRow, a, aRow, b, height, K);
    } else {
      tile(scratch, 32, a, aRow, b, height, K);
      for (let i = 0, to = c, from = scratch; i < height; i++, to += cRow, from += 32) {
        v128.store(to, f32x4.add(v128.load(to), v128.load(from)));
        v128.store(to, f32x4.add(v128.load(to, 16), v128.load(from, 16)), 16);
      }
    }
  }
}

/** The last panel when N is not a multiple of 8. */
function edgeColumn(
  c: usize,
  cRow: usize,
  a: usize,
  aRow: usize,
  b: usize,
  rows: i32,
  columns: i32,
  K: i32,
  add: bool,
): void {
  for (let m = rows; m > 0; m -= ROWS, a += ROWS * aRow, c += ROWS * cRow) {
    const height = min(ROWS, m);
    tile(scratch, 32, a, aRow, b, height, K);
    for (let i = 0; i < height; i++) {
      for (let j = 0; j < columns; j++) {
        const to = c + <usize>i * cRow + (<usize>j << 2);
        const value = load<f32>(scratch + (<usize>i << 5) + (<usize>j << 2));
        store<f32>(to, add ? load<f32>(to) + value : value);
      }
    }
  }
}

/** Up to 6 rows of A times one panel, rows of the result `cRow` bytes apart. */
// @ts-ignore: decorator
@inline
function tile(c: usize, cRow: usize, a: usize, aRow: usize, b: usize, rows: i32, K: i32): void {
  if (rows == 6) return tile6(c, cRow, a, aRow, b, K);
  if (rows >= 4) {
    tile4(c, cRow, a, aRow, b, K);
    a += 4 * aRow;
    c += 4 * cRow;
    rows -= 4;
  }
  if (rows >= 2) {
    tile2(c, cRow, a, aRow, b, K);
    a += 2 * aRow;
    c += 2 * cRow;
    rows -= 2;
  }
  if (rows == 1) tile1(c, cRow, a, aRow, b, K);
}

// The register tiles: R rows of A times one panel. Kept this plain for V8's sake: it orders the loads of a basic block
// before the arithmetic that uses them as soon as the loop is unrolled by hand, or when anything but a store follows
// it, and then 12 sums no longer fit into the registers (measured: 65 GFLOP/s as it is, 30 with an addition to C).
function tile6(c: usize, cRow: usize, a: usize, aRow: usize, b: usize, K: i32): void {
  let a1 = a + aRow;
  let a2 = a1 + aRow;
  let a3 = a2 + aRow;
  let a4 = a3 + aRow;
  let a5 = a4 + aRow;
  let c00 = f32x4.splat(0.0);
  let c01 = f32x4.splat(0.0);
  let c10 = f32x4.splat(0.0);
  let c11 = f32x4.splat(0.0);
  let c20 = f32x4.splat(0.0);
  let c21 = f32x4.splat(0.0);
  let c30 = f32x4.splat(0.0);
  let c31 = f32x4.splat(0.0);
  let c40 = f32x4.splat(0.0);
  let c41 = f32x4.splat(0.0);
  let c50 = f32x4.splat(0.0);
  let c51 = f32x4.splat(0.0);
  let b0: v128, b1: v128, x: v128;
  for (let k = K; k > 0; k--) {
    b0 = v128.load(b);
    b1 = v128.load(b, 16);
    x = v128.load32_splat(a);
    c00 = fma(x, b0, c00);
    c01 = fma(x, b1, c01);
    x = v128.load32_splat(a1);
    c10 = fma(x, b0, c10);
    c11 = fma(x, b1, c11);
    x = v128.load32_splat(a2);
    c20 = fma(x, b0, c20);
    c21 = fma(x, b1, c21);
    x = v128.load32_splat(a3);
    c30 = fma(x, b0, c30);
    c31 = fma(x, b1, c31);
    x = v128.load32_splat(a4);
    c40 = fma(x, b0, c40);
    c41 = fma(x, b1, c41);
    x = v128.load32_splat(a5);
    c50 = fma(x, b0, c50);
    c51 = fma(x, b1, c51);
    b += 32;
    a += 4;
    a1 += 4;
    a2 += 4;
    a3 += 4;
    a4 += 4;
    a5 += 4;
  }
  v128.store(c, c00);
  v128.store(c, c01, 16);
  v128.store(c + cRow, c10);
  v128.store(c + cRow, c11, 16);
  v128.store(c + 2 * cRow, c20);
  v128.store(c + 2 * cRow, c21, 16);
  v128.store(c + 3 * cRow, c30);
  v128.store(c + 3 * cRow, c31, 16);
  v128.store(c + 4 * cRow, c40);
  v128.store(c + 4 * cRow, c41, 16);
  v128.store(c + 5 * cRow, c50);
  v128.store(c + 5 * cRow, c51, 16);
}

function tile4(c: usize, cRow: usize, a: usize, aRow: usize, b: usize, K: i32): void {
  let a1 = a + aRow;
  let a2 = a1 + aRow;
  let a3 = a2 + aRow;
  let c00 = f32x4.splat(0.0);
  let c01 = f32x4.splat(0.0);
  let c10 = f32x4.splat(0.0);
  let c11 = f32x4.splat(0.0);
  let c20 = f32x4.splat(0.0);
  let c21 = f32x4.splat(0.0);
  let c30 = f32x4.splat(0.0);
  let c31 = f32x4.splat(0.0);
  let b0: v128, b1: v128, x: v128;
  for (let k = K; k > 0; k--) {
    b0 = v128.load(b);
    b1 = v128.load(b, 16);
    x = v128.load32_splat(a);
    c00 = fma(x, b0, c00);
    c01 = fma(x, b1, c01);
    x = v128.load32_splat(a1);
    c10 = fma(x, b0, c10);
    c11 = fma(x, b1, c11);
    x = v128.load32_splat(a2);
    c20 = fma(x, b0, c20);
    c21 = fma(x, b1, c21);
    x = v128.load32_splat(a3);
    c30 = fma(x, b0, c30);
    c31 = fma(x, b1, c31);
    b += 32;
    a += 4;
    a1 += 4;
    a2 += 4;
    a3 += 4;
  }
  v128.store(c, c00);
  v128.store(c, c01, 16);
  v128.store(c + cRow, c10);
  v128.store(c + cRow, c11, 16);
  v128.store(c + 2 * cRow, c20);
  v128.store(c + 2 * cRow, c21, 16);
  v128.store(c + 3 * cRow, c30);
  v128.store(c + 3 * cRow, c31, 16);
}

function tile2(c: usize, cRow: usize, a: usize, aRow: usize, b: usize, K: i32): void {
  let a1 = a + aRow;
  let c00 = f32x4.splat(0.0);
  let c01 = f32x4.splat(0.0);
  let c10 = f32x4.splat(0.0);
  let c11 = f32x4.splat(0.0);
  let b0: v128, b1: v128, x: v128;
  for (let k = K; k > 0; k--) {
    b0 = v128.load(b);
    b1 = v128.load(b, 16);
    x = v128.load32_splat(a);
    c00 = fma(x, b0, c00);
    c01 = fma(x, b1, c01);
    x = v128.load32_splat(a1);
    c10 = fma(x, b0, c10);
    c11 = fma(x, b1, c11);
    b += 32;
    a += 4;
    a1 += 4;
  }
  v128.store(c, c00);
  v128.store(c, c01, 16);
  v128.store(c + cRow, c10);
  v128.store(c + cRow, c11, 16);
}

function tile1(c: usize, cRow: usize, a: usize, aRow: usize, b: usize, K: i32): void {
  let c00 = f32x4.splat(0.0);
  let c01 = f32x4.splat(0.0);
  let b0: v128, b1: v128, x: v128;
  for (let k = K; k > 0; k--) {
    b0 = v128.load(b);
    b1 = v128.load(b, 16);
    x = v128.load32_splat(a);
    c00 = fma(x, b0, c00);
    c01 = fma(x, b1, c01);
    b += 32;
    a += 4;
  }
  v128.store(c, c00);
  v128.store(c, c01, 16);
}
