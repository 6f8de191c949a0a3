/** Embedding: rows of the table by token, and the sum of gradients by token. */
import { COLUMN_TILE, ROW_TILE } from "../kernel-ids";
import { storeLanes } from "./rows";
import { address, argument } from "./simd";

/** out_TC, table_VC, tokens_T, T, C. */
export function embeddingForwardTile(args: usize, tile: i32): void {
  const tokens = address(args, 2);
  const bytes = <usize>argument(args, 4) << 2;
  const end = min(argument(args, 3), (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    const token = <usize>load<u32>(tokens + (<usize>t << 2));
    memory.copy(address(args, 0) + <usize>t * bytes, address(args, 1) + token * bytes, bytes);
  }
}

/** dTable_VC (+=), dOut_TC, tokens_T, T, C. One tile takes a few columns of all tokens, in token order. */
export function embeddingBackwardTile(args: usize, tile: i32): void {
  const tokens = address(args, 2);
  const T = argument(args, 3);
  const C = argument(args, 4);
  const row = <usize>C << 2;
  const start = tile * COLUMN_TILE;
  const end = min(C, start + COLUMN_TILE);
  for (let t = 0; t < T; t++) {
    const from = address(args, 1) + <usize>t * row;
    const to = address(args, 0) + <usize>load<u32>(tokens + (<usize>t << 2)) * row;
    for (let c = start; c < end; c += 4) {
      const at = <usize>c << 2;
      storeLanes(to + at, f32x4.add(v128.load(to + at), v128.load(from + at)), end - c);
    }
  }
}
