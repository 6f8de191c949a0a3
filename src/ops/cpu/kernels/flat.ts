/** Kernels over flat memory: fill, copy, and the sum of partial sums over tiles. */
import { COLUMN_TILE, FLAT_TILE } from "../kernel-ids";
import { address, argument } from "./simd";

/** to, length. */
export function fillZeroTile(args: usize, tile: i32): void {
  const start = <usize>tile * FLAT_TILE;
  const length = min<usize>(FLAT_TILE, address(args, 1) - start);
  memory.fill(address(args, 0) + (start << 2), 0, length << 2);
}

/** to, from, length. */
export function copyTile(args: usize, tile: i32): void {
  const start = <usize>tile * FLAT_TILE;
  const length = min<usize>(FLAT_TILE, address(args, 2) - start);
  memory.copy(address(args, 0) + (start << 2), address(args, 1) + (start << 2), length << 2);
}

/** to_C (+=), partials_NC, N, C: adds the partials in order, in float64. */
export function sumPartialsTile(args: usize, tile: i32): void {
  const to = address(args, 0);
  const partials = address(args, 1);
  const count = argument(args, 2);
  const C = argument(args, 3);
  const end = min(C, (tile + 1) * COLUMN_TILE);
  for (let c = tile * COLUMN_TILE; c < end; c++) {
    let sum: f64 = 0;
    let from = partials + (<usize>c << 2);
    for (let i = 0; i < count; i++, from += <usize>C << 2) sum += <f64>load<f32>(from);
    const at = to + (<usize>c << 2);
    store<f32>(at, <f32>(<f64>load<f32>(at) + sum));
  }
}
