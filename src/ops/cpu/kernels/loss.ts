/** Cross-entropy of rows of logits: the loss, and the gradient in place of the logits. */
import { ROW_TILE } from "../kernel-ids";
import { firstLanes, storeLanes } from "./rows";
import { address, argument, exp, log, maxLanes, sumLanes } from "./simd";

/** losses_T, logits_TV (with a scale: overwritten by scale * (softmax - target)), targets_T, scale_1 or 0, T, V. */
export function lossRowsTile(args: usize, tile: i32): void {
  const scale = address(args, 3);
  const V = argument(args, 5);
  const end = min(argument(args, 4), (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    const row = address(args, 1) + ((<usize>t * <usize>V) << 2);
    const target = load<i32>(address(args, 2) + (<usize>t << 2));
    let loss: f64 = 0;
    if (target >= 0) {
      const at = row + (<usize>target << 2);
      const top = largest(row, V);
      const logit = <f64>load<f32>(at);
      const sum = scale != 0 ? exponentials(row, V, top, true) : exponentials(row, V, top, false);
      loss = log(<f64>sum) + (<f64>top - logit);
      if (scale != 0) {
        const factor = load<f32>(scale);
        multiplyRow(row, V, factor / sum);
        store<f32>(at, load<f32>(at) - factor);
      }
    } else if (scale != 0) {
      memory.fill(row, 0, <usize>V << 2);
    }
    store<f32>(address(args, 0) + (<usize>t << 2), <f32>loss);
  }
}

/** The largest; a NaN may be passed over, and comes back as NaN from `exponentials`. */
function largest(x: usize, length: i32): f32 {
  let top = f32x4.splat(load<f32>(x));
  let i = 0;
  for (; i + 4 <= length; i += 4) top = f32x4.pmax(top, v128.load(x + (<usize>i << 2)));
  for (; i < length; i++) top = f32x4.pmax(top, f32x4.splat(load<f32>(x + (<usize>i << 2))));
  return maxLanes(top);
}

/** Sum of exp(x - top); `keep` stores the terms in place of x. */
// @ts-ignore: decorator
@inline
function exponentials(x: usize, length: i32, top: f32, keep: bool): f32 {
  const shift = f32x4.splat(top);
  let even = f32x4.splat(0.0);
  let odd = f32x4.splat(0.0);
  let i = 0;
  for (; i + 8 <= length; i += 8, x += 32) {
    const a = exp(f32x4.sub(v128.load(x), shift));
    const b = exp(f32x4.sub(v128.load(x, 16), shift));
    if (keep) {
      v128.store(x, a);
      v128.store(x, b, 16);
    }
    even = f32x4.add(even, a);
    odd = f32x4.add(odd, b);
  }
  for (; i < length; i += 4, x += 16) {
    const a = exp(f32x4.sub(v128.load(x), shift));
    if (keep) storeLanes(x, a, length - i);
    even = f32x4.add(even, firstLanes(a, length - i));
  }
  return sumLanes(f32x4.add(even, odd));
}

function multiplyRow(x: usize, length: i32, factor: f32): void {
  const f = f32x4.splat(factor);
  for (let i = 0; i < length; i += 4, x += 16) storeLanes(x, f32x4.mul(v128.load(x), f), length - i);
}
