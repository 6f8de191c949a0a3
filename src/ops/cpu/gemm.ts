/** Matrix products on the worker pool: packs B once, then computes C in blocks. */
import type { Context } from "./context.ts";
import { GEMM, PACK_B } from "./kernel-ids.ts";

/** A matrix in memory: byte address and strides in floats. */
export interface Matrix {
  readonly address: number;
  readonly row: number;
  readonly col: number;
}

/** Bytes of a packed K x N matrix. */
export function panelBytes(K: number, N: number): number {
  return Math.ceil(N / 8) * K * 32;
}

/** Packs B, K x N, at `panels` (see kernels/micro.ts). */
export function pack(context: Context, panels: number, b: Matrix, K: number, N: number): void {
  context.pool.run(PACK_B, [panels, b.address, b.row, b.col, K, N], Math.ceil(N / 64));
}

/** C (+)= A B for A of M x K and B packed at `panels`; rows of C lie `ldc` floats apart. */
export function multiply(
  context: Context,
  c: number,
  ldc: number,
  a: Matrix,
  panels: number,
  M: number,
  N: number,
  K: number,
  accumulate: boolean,
): void {
  const { tileM, tileN, tiles } = blocks(M, N, context.pool.threads);
  context.pool.run(
    GEMM,
    [c, ldc, a.address, a.row, a.col, panels, M, N, K, accumulate ? 1 : 0, tileM, tileN],
    tiles,
  );
}

const BLOCKS = [
  [96, 256],
  [48, 256],
  [48, 128],
  [24, 64],
] as const;

/** The largest blocks that still keep all workers busy. The result does not depend on the choice. */
function blocks(M: number, N: number, threads: number): { tileM: number; tileN: number; tiles: number } {
  let chosen = { tileM: 0, tileN: 0, tiles: 0 };
  for (const [tileM, tileN] of BLOCKS) {
    chosen = { tileM, tileN, tiles: Math.ceil(M / tileM) * Math.ceil(N / tileN) };
    if (threads === 1 || chosen.tiles >= 8 * threads) break;
  }
  return chosen;
}

/** Rows of both factors that `addTransposedProduct` takes at a time (a multiple of the kernels' K_BLOCK). */
const ROWS_AT_ONCE = 2048;

/** Scratch bytes of `addTransposedProduct`. */
export function transposedProductBytes(T: number, K: number): number {
  return panelBytes(Math.min(T, ROWS_AT_ONCE), K);
}

/** c_NK += a_TN^T b_TK, the sum over T in order. `panels` is scratch. */
export function addTransposedProduct(
  context: Context,
  c: number,
  a: number,
  b: number,
  panels: number,
  T: number,
  N: number,
  K: number,
): void {
  for (let t = 0; t < T; t += ROWS_AT_ONCE) {
    const rows = Math.min(ROWS_AT_ONCE, T - t);
    pack(context, panels, { address: b + 4 * t * K, row: K, col: 1 }, rows, K);
    const columns = { address: a + 4 * t * N, row: 1, col: N };
    multiply(context, c, K, columns, panels, N, K, rows, true);
  }
}
