/** Gradient norm (float64 sums) and AdamW. */
import { FLAT_TILE } from "../kernel-ids";
import { storeLanes } from "./rows";
import { address, argument, fma, fnma } from "./simd";

/** sums (f64, one per tile), x_P, P. */
export function squaresTile(args: usize, tile: i32): void {
  const start = tile * FLAT_TILE;
  let x = address(args, 1) + (<usize>start << 2);
  const length = min(FLAT_TILE, argument(args, 2) - start);
  let low = f64x2.splat(0.0);
  let high = f64x2.splat(0.0);
  let i = 0;
  for (; i + 4 <= length; i += 4, x += 16) {
    const v = v128.load(x);
    const a = f64x2.promote_low_f32x4(v);
    const b = f64x2.promote_low_f32x4(i64x2.shuffle(v, v, 1, 1));
    low = f64x2.add(low, f64x2.mul(a, a));
    high = f64x2.add(high, f64x2.mul(b, b));
  }
  const pairs = f64x2.add(low, high);
  let sum = f64x2.extract_lane(pairs, 0) + f64x2.extract_lane(pairs, 1);
  for (; i < length; i++, x += 4) sum += <f64>load<f32>(x) * <f64>load<f32>(x);
  store<f64>(address(args, 0) + (<usize>tile << 3), sum);
}

/** norm_1, sums (f64), their number. */
export function rootOfSumTile(args: usize): void {
  let sum: f64 = 0;
  for (let i = 0; i < argument(args, 2); i++) sum += load<f64>(address(args, 1) + (<usize>i << 3));
  store<f32>(address(args, 0), <f32>sqrt<f64>(sum));
}

/** master_P, weights_P (may be master), grads_P, m_P, v_P, P, decayed, hyper (see `Hyper` in ops/contract.ts), norm_1. */
export function adamwTile(args: usize, tile: i32): void {
  const norm = load<f32>(address(args, 8));
  if (!isFinite(norm)) return;
  const start = tile * FLAT_TILE;
  const end = min(start + FLAT_TILE, argument(args, 5));
  const decayed = min(max(argument(args, 6), start), end);
  const maxNorm = load<f32>(address(args, 7), 28);
  const scale: f32 = maxNorm > 0 && norm > maxNorm ? maxNorm / norm : 1;
  adamw(args, start, decayed, scale, load<f32>(address(args, 7), 16));
  adamw(args, decayed, end, scale, 0);
}

/**
 * Elements `start` to `end`. m and v are kept as m += (1 - beta) (x - m), the step is
 * rate * (m / bias1) / (sqrt(v / bias2) + epsilon) + rate * decay * weight.
 */
function adamw(args: usize, start: i32, end: i32, scale: f32, decay: f32): void {
  const hyper = address(args, 7);
  const rate = <f64>load<f32>(hyper);
  const factor = f32x4.splat(scale);
  const fresh1 = f32x4.splat(<f32>(1.0 - <f64>load<f32>(hyper, 4)));
  const fresh2 = f32x4.splat(<f32>(1.0 - <f64>load<f32>(hyper, 8)));
  const epsilon = f32x4.splat(load<f32>(hyper, 12));
  const step = f32x4.splat(<f32>(rate / <f64>load<f32>(hyper, 20)));
  const unbias2 = f32x4.splat(<f32>(1.0 / <f64>load<f32>(hyper, 24)));
  const shrink = f32x4.splat(<f32>(rate * <f64>decay));
  const offset = <usize>start << 2;
  let master = address(args, 0) + offset;
  let weights = address(args, 1) + offset;
  let grads = address(args, 2) + offset;
  let m = address(args, 3) + offset;
  let v = address(args, 4) + offset;
  for (let i = start; i < end; i += 4, master += 16, weights += 16, grads += 16, m += 16, v += 16) {
    const g = f32x4.mul(v128.load(grads), factor);
    const m0 = v128.load(m);
    const v0 = v128.load(v);
    const m1 = fma(fresh1, f32x4.sub(g, m0), m0);
    const v1 = fma(fresh2, f32x4.sub(f32x4.mul(g, g), v0), v0);
    const w = v128.load(master);
    const root = f32x4.add(f32x4.sqrt(f32x4.mul(v1, unbias2)), epsilon);
    const w1 = fnma(step, f32x4.div(m1, root), fnma(shrink, w, w));
    storeLanes(m, m1, end - i);
    storeLanes(v, v1, end - i);
    storeLanes(master, w1, end - i);
    if (weights != master) storeLanes(weights, w1, end - i);
  }
}
