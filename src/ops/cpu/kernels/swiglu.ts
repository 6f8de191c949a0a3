/** SwiGLU, out = SiLU(gate) * up, and its backward pass. Rows [gate | up]. */
import { ROW_TILE } from "../kernel-ids";
import { storeLanes } from "./rows";
import { address, argument, fma, fnma, sigmoid } from "./simd";

/** out_TF, gateUp_T2F, T, F. */
export function swigluForwardTile(args: usize, tile: i32): void {
  const F = argument(args, 3);
  const width = <usize>F << 2;
  const end = min(argument(args, 2), (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    let out = address(args, 0) + <usize>t * width;
    let from = address(args, 1) + 2 * <usize>t * width;
    for (let f = 0; f < F; f += 4, out += 16, from += 16) {
      const gate = v128.load(from);
      storeLanes(out, f32x4.mul(f32x4.mul(gate, sigmoid(gate)), v128.load(from + width)), F - f);
    }
  }
}

/** dGateUp_T2F, dOut_TF, gateUp_T2F, T, F. With s = sigmoid(gate), SiLU' = s (1 + gate (1 - s)). */
export function swigluBackwardTile(args: usize, tile: i32): void {
  const F = argument(args, 4);
  const width = <usize>F << 2;
  const one = f32x4.splat(1.0);
  const end = min(argument(args, 3), (tile + 1) * ROW_TILE);
  for (let t = tile * ROW_TILE; t < end; t++) {
    let to = address(args, 0) + 2 * <usize>t * width;
    let dOut = address(args, 1) + <usize>t * width;
    let from = address(args, 2) + 2 * <usize>t * width;
    for (let f = 0; f < F; f += 4, to += 16, dOut += 16, from += 16) {
      const gate = v128.load(from);
      const d = v128.load(dOut);
      const s = sigmoid(gate);
      const dGate = f32x4.mul(f32x4.mul(d, v128.load(from + width)), f32x4.mul(s, fma(gate, fnma(one, s, one), one)));
      storeLanes(to, dGate, F - f);
      storeLanes(to + width, f32x4.mul(d, f32x4.mul(gate, s)), F - f);
    }
  }
}
