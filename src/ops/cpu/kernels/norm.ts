/** RMSNorm, with or without the residual add before it, and its backward pass. */
import { ROW_TILE } from "../kernel-ids";
import { firstLanes, storeLanes } from "./rows";
import { address, argument, floatArgument, fma, sumLanes } from "./simd";

/** sum_TC, out_TC, rstd_T, x_TC, delta_TC (0: no residual, and no sum), gain_C, eps, T, C. */
export function rmsNormForwardTile(args: usize, tile: i32): void {
  const delta = address(args, 4);
  const gain = address(args, 5);
  const eps = <f64>floatArgument(args, 6);
  const C = argument(args, 8);
  const end = min(argument(args, 7), (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    const row = (<usize>t * <usize>C) << 2;
    let x = address(args, 3) + row;
    if (delta != 0) {
      const sum = address(args, 0) + row;
      for (let c = 0; c < C; c += 4) {
        const at = <usize>c << 2;
        storeLanes(sum + at, f32x4.add(v128.load(x + at), v128.load(delta + row + at)), C - c);
      }
      x = sum;
    }
    const rstd = <f32>(1.0 / sqrt<f64>(<f64>sumOfSquares(x, C) / <f64>C + eps));
    store<f32>(address(args, 2) + (<usize>t << 2), rstd);
    const factor = f32x4.splat(rstd);
    const out = address(args, 1) + row;
    for (let c = 0; c < C; c += 4) {
      const at = <usize>c << 2;
      const y = f32x4.mul(f32x4.mul(v128.load(x + at), factor), v128.load(gain + at));
      storeLanes(out + at, y, C - c);
    }
  }
}

function sumOfSquares(x: usize, length: i32): f32 {
  let even = f32x4.splat(0.0);
  let odd = f32x4.splat(0.0);
  let i = 0;
  for (; i + 8 <= length; i += 8, x += 32) {
    const a = v128.load(x);
    const b = v128.load(x, 16);
    even = fma(a, a, even);
    odd = fma(b, b, odd);
  }
  for (; i < length; i += 4, x += 16) {
    const a = firstLanes(v128.load(x), length - i);
    even = fma(a, a, even);
  }
  return sumLanes(f32x4.add(even, odd));
}

/**
 * dX_TC (+=), partials_NC (a tile's sum for dGain), dOut_TC, x_TC, gain_C, rstd_T, T, C.
 * dX = rstd (g - x rstd^2 mean(g x)) with g = gain dOut; dGain = sum over t of dOut x rstd.
 */
export function rmsNormBackwardTile(args: usize, tile: i32): void {
  const gain = address(args, 4);
  const C = argument(args, 7);
  const partial = address(args, 1) + ((<usize>tile * <usize>C) << 2);
  memory.fill(partial, 0, <usize>C << 2);
  const end = min(argument(args, 6), (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    const row = (<usize>t * <usize>C) << 2;
    const dX = address(args, 0) + row;
    const dOut = address(args, 2) + row;
    const x = address(args, 3) + row;
    const rstd = load<f32>(address(args, 5) + (<usize>t << 2));
    let sum = f32x4.splat(0.0);
    let c = 0;
    for (; c + 4 <= C; c += 4) {
      const at = <usize>c << 2;
      sum = fma(f32x4.mul(v128.load(dOut + at), v128.load(gain + at)), v128.load(x + at), sum);
    }
    if (c < C) {
      const at = <usize>c << 2;
      const g = f32x4.mul(v128.load(dOut + at), v128.load(gain + at));
      sum = f32x4.add(sum, firstLanes(f32x4.mul(g, v128.load(x + at)), C - c));
    }
    const factor = f32x4.splat(rstd);
    const pull = f32x4.splat(-(sumLanes(sum) / <f32>C) * rstd * rstd);
    for (c = 0; c < C; c += 4) {
      const at = <usize>c << 2;
      const d = v128.load(dOut + at);
      const v = v128.load(x + at);
      const g = fma(v, pull, f32x4.mul(d, v128.load(gain + at)));
      storeLanes(dX + at, fma(g, factor, v128.load(dX + at)), C - c);
      storeLanes(partial + at, fma(d, f32x4.mul(v, factor), v128.load(partial + at)), C - c);
    }
  }
}
