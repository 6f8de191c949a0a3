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
