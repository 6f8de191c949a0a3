/**
 * Key convolution: key += SiLU(z), z[t] = sum over j of w[j] key[t - j] within the document, on the key columns of
 * fused rows of E floats. `C` = G D key columns, `W` taps. (FlashMoBA, arXiv 2511.11571.)
 */
import { ROW_TILE } from "../kernel-ids";
import { storeLanes } from "./rows";
import { address, argument, fma, fnma, sigmoid } from "./simd";

/** keys_TC, qkv columns, T, E, C: keeps the unconvolved keys. */
export function keyConvCopyTile(args: usize, tile: i32): void {
  const width = <usize>argument(args, 4) << 2;
  const end = min(argument(args, 2), (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    const from = address(args, 1) + ((<usize>t * <usize>argument(args, 3)) << 2);
    memory.copy(address(args, 0) + <usize>t * width, from, width);
  }
}

/** z at four columns: taps reach back as far as the document does. */
// @ts-ignore: decorator
@inline
function convolve(keys: usize, w: usize, width: usize, taps: i32): v128 {
  let z = f32x4.splat(0.0);
  for (let j = 0; j < taps; j++) z = fma(v128.load(w + <usize>j * width), v128.load(keys - <usize>j * width), z);
  return z;
}

/** qkv columns, keys_TC, w_WC, positions_T, T, E, C, W. */
export function keyConvForwardTile(args: usize, tile: i32): void {
  const w = address(args, 2);
  const C = argument(args, 6);
  const width = <usize>C << 2;
  const end = min(argument(args, 4), (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    const taps = min(argument(args, 7), load<i32>(address(args, 3) + (<usize>t << 2)) + 1);
    const to = address(args, 0) + ((<usize>t * <usize>argument(args, 5)) << 2);
    const keys = address(args, 1) + <usize>t * width;
    for (let c = 0; c < C; c += 4) {
      const at = <usize>c << 2;
      const z = convolve(keys + at, w + at, width, taps);
      storeLanes(to + at, fma(z, sigmoid(z), v128.load(keys + at)), C - c);
    }
  }
}

/** dZ_TC, partials_NWC (a tile's sum for dW), dQkv columns, keys_TC, w_WC, positions_T, T, E, C, W. */
export function keyConvBackwardTile(args: usize, tile: i32): void {
  const w = address(args, 4);
  const C = argument(args, 8);
  const W = argument(args, 9);
  const width = <usize>C << 2;
  const partial = address(args, 1) + <usize>tile * <usize>W * width;
  const one = f32x4.splat(1.0);
  memory.fill(partial, 0, <usize>W * width);
  const end = min(argument(args, 6), (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    const taps = min(W, load<i32>(address(args, 5) + (<usize>t << 2)) + 1);
    const dZ = address(args, 0) + <usize>t * width;
    const dKey = address(args, 2) + ((<usize>t * <usize>argument(args, 7)) << 2);
    const keys = address(args, 3) + <usize>t * width;
    for (let c = 0; c < C; c += 4) {
      const at = <usize>c << 2;
      const z = convolve(keys + at, w + at, width, taps);
      const s = sigmoid(z);
      const d = f32x4.mul(v128.load(dKey + at), f32x4.mul(s, fma(z, fnma(one, s, one), one)));
      storeLanes(dZ + at, d, C - c);
      for (let j = 0; j < taps; j++) {
        const sum = partial + <usize>j * width + at;
        storeLanes(sum, fma(d, v128.load(keys + at - <usize>j * width), v128.load(sum)), C - c);
      }
    }
  }
}

/** dQkv columns (+=), dZ_TC, w_WC, positions_T, T, E, C, W: dKey[t] += sum over j of w[j] dZ[t + j]. */
export function keyConvBackwardKeysTile(args: usize, tile: i32): void {
  const w = address(args, 2);
  const positions = address(args, 3);
  const T = argument(args, 4);
  const C = argument(args, 6);
  const width = <usize>C << 2;
  const end = min(T, (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    const position = load<i32>(positions + (<usize>t << 2));
    let taps = 1;
    while (taps < argument(args, 7) && t + taps < T && load<i32>(positions + (<usize>(t + taps) << 2)) == position + taps) {
      taps++;
    }
    const to = address(args, 0) + ((<usize>t * <usize>argument(args, 5)) << 2);
    const dZ = address(args, 1) + <usize>t * width;
    for (let c = 0; c < C; c += 4) {
      const at = <usize>c << 2;
      let sum = v128.load(to + at);
      for (let j = 0; j < taps; j++) {
        sum = fma(v128.load(w + at + <usize>j * width), v128.load(dZ + at + <usize>j * width), sum);
      }
      storeLanes(to + at, sum, C - c);
    }
  }
}
