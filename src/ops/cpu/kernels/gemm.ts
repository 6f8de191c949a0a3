/** The tiles of a matrix product for the worker pool: packing B by groups of panels, and C by blocks. */
import { gemmPanels, packB } from "./micro";
import { address, argument } from "./simd";

/** Panels packed by one tile. */
const PACK_PANELS: i32 = 8;

/** panels, b, rowStride, colStride, K, N. One tile: 64 columns. */
export function packTile(args: usize, tile: i32): void {
  const colStride = argument(args, 3);
  const K = argument(args, 4);
  const N = argument(args, 5);
  const n = tile * PACK_PANELS * 8;
  packB(
    address(args, 0) + (<usize>(n * 4) * <usize>K),
    address(args, 1) + ((<usize>n * <usize>colStride) << 2),
    argument(args, 2),
    colStride,
    K,
    min(PACK_PANELS * 8, N - n),
  );
}

/**
 * c, ldc, a, aRowStride, aColStride, panels, M, N, K, accumulate, tileM, tileN (a multiple of 8). Tiles of one group
 * of columns follow each other, so that its panels stay in the second-level cache.
 */
export function gemmTile(args: usize, tile: i32): void {
  const ldc = argument(args, 1);
  const aRowStride = argument(args, 3);
  const M = argument(args, 6);
  const N = argument(args, 7);
  const K = argument(args, 8);
  const tileM = argument(args, 10);
  const tileN = argument(args, 11);
  const rowTiles = (M + tileM - 1) / tileM;
  const m = (tile % rowTiles) * tileM;
  const n = (tile / rowTiles) * tileN;
  gemmPanels(
    address(args, 0) + ((<usize>m * <usize>ldc + <usize>n) << 2),
    ldc,
    address(args, 2) + ((<usize>m * <usize>aRowStride) << 2),
    aRowStride,
    argument(args, 4),
    address(args, 5) + (<usize>(n * 4) * <usize>K),
    min(tileM, M - m),
    min(tileN, N - n),
    K,
    argument(args, 9) != 0,
  );
}
