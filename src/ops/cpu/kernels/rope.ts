/** Splits fused rows [query heads | key heads | value heads] and rotates queries and keys (RoPE), and back. */
import { ROW_TILE } from "../kernel-ids";
import { storeLanes } from "./rows";
import { address, argument, fma, fnma } from "./simd";

/** q_THD, k_TGD, v_TGD, qkv_TE, positions_T, table (per position D/2 cosines, D/2 sines), T, H, G, D. */
export function splitRopeForwardTile(args: usize, tile: i32): void {
  rotateRows(args, tile, true);
}

/** The same arguments, gradients of q, k and v to the gradient of qkv: the inverse rotation. */
export function splitRopeBackwardTile(args: usize, tile: i32): void {
  rotateRows(args, tile, false);
}

function rotateRows(args: usize, tile: i32, forward: bool): void {
  const H = argument(args, 7);
  const G = argument(args, 8);
  const D = argument(args, 9);
  const head = <usize>D << 2;
  const qRow = <usize>H * head;
  const kRow = <usize>G * head;
  const end = min(argument(args, 6), (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    const position = <usize>load<u32>(address(args, 4) + (<usize>t << 2));
    const table = address(args, 5) + position * head;
    const q = address(args, 0) + <usize>t * qRow;
    const k = address(args, 1) + <usize>t * kRow;
    const v = address(args, 2) + <usize>t * kRow;
    const qkv = address(args, 3) + <usize>t * (qRow + 2 * kRow);
    if (forward) {
      rotateHeads(q, qkv, table, H, D, true);
      rotateHeads(k, qkv + qRow, table, G, D, true);
      memory.copy(v, qkv + qRow + kRow, kRow);
    } else {
      rotateHeads(qkv, q, table, H, D, false);
      rotateHeads(qkv + qRow, k, table, G, D, false);
      memory.copy(qkv + qRow + kRow, v, kRow);
    }
  }
}

function rotateHeads(to: usize, from: usize, table: usize, heads: i32, D: i32, forward: bool): void {
  const pairs = D >> 1;
  const half = <usize>pairs << 2;
  for (let h = 0; h < heads; h++, to += 2 * half, from += 2 * half) {
    for (let i = 0; i < pairs; i += 4) {
      const at = <usize>i << 2;
      const cos = v128.load(table + at);
      const sin = v128.load(table + half + at);
      const a = v128.load(from + at);
      const b = v128.load(from + half + at);
      const x = forward ? fnma(b, sin, f32x4.mul(a, cos)) : fma(b, sin, f32x4.mul(a, cos));
      const y = forward ? fma(a, sin, f32x4.mul(b, cos)) : fnma(a, sin, f32x4.mul(b, cos));
      storeLanes(to + at, x, pairs - i);
      storeLanes(to + half + at, y, pairs - i);
    }
  }
}
