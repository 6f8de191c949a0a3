/** What happens between the fused projection and attention: key convolution, split into heads, RoPE. */
import { silu, siluDerivative } from "./dense.ts";

type Dims = { [letter: string]: number };

/** For every token: the start of its document. */
export function documentStarts(offsets: readonly number[]): Int32Array {
  const starts = new Int32Array(offsets[offsets.length - 1]);
  for (let d = 0; d + 1 < offsets.length; d++) starts.fill(offsets[d], offsets[d], offsets[d + 1]);
  return starts;
}

/** sum_j w[j] * key[t - j] over the keys of t's document, for element `i` of the G * D key elements. */
function convolved(
  keys_TGD: Float64Array,
  w_WGD: Float64Array,
  t: number,
  start: number,
  i: number,
  { W, G, D }: Dims,
): number {
  let sum = 0;
  for (let j = 0; j < W && t - j >= start; j++) sum += w_WGD[j * G * D + i] * keys_TGD[(t - j) * G * D + i];
  return sum;
}

export function keyConvForward(
  qkv_TE: Float64Array,
  keys_TGD: Float64Array,
  w_WGD: Float64Array,
  offsets: readonly number[],
  dims: Dims,
): void {
  const { T, E, H, G, D } = dims;
  const starts = documentStarts(offsets);
  for (let t = 0; t < T; t++) {
    for (let i = 0; i < G * D; i++) keys_TGD[t * G * D + i] = qkv_TE[t * E + H * D + i];
  }
  for (let t = 0; t < T; t++) {
    for (let i = 0; i < G * D; i++) {
      qkv_TE[t * E + H * D + i] += silu(convolved(keys_TGD, w_WGD, t, starts[t], i, dims));
    }
  }
}

export function keyConvBackward(
  dQkv_TE: Float64Array,
  dW_WGD: Float64Array,
  keys_TGD: Float64Array,
  w_WGD: Float64Array,
  offsets: readonly number[],
  dims: Dims,
): void {
  const { T, E, W, H, G, D } = dims;
  const starts = documentStarts(offsets);
  const dOut_TGD = new Float64Array(T * G * D);
  for (let t = 0; t < T; t++) {
    for (let i = 0; i < G * D; i++) dOut_TGD[t * G * D + i] = dQkv_TE[t * E + H * D + i];
  }
  // The residual's gradient is already in place; add what flows through the convolution.
  for (let t = 0; t < T; t++) {
    for (let i = 0; i < G * D; i++) {
      const sum = convolved(keys_TGD, w_WGD, t, starts[t], i, dims);
      const dSum = dOut_TGD[t * G * D + i] * siluDerivative(sum);
      for (let j = 0; j < W && t - j >= starts[t]; j++) {
        dQkv_TE[(t - j) * E + H * D + i] += dSum * w_WGD[j * G * D + i];
        dW_WGD[j * G * D + i] += dSum * keys_TGD[(t - j) * G * D + i];
      }
    }
  }
}

/** Rotates `out` = one head's vector `x` by `sign` times the angles of `position`. */
function rotate(
  out: Float64Array,
  outAt: number,
  x: Float64Array,
  xAt: number,
  D: number,
  position: number,
  theta: number,
  sign: number,
): void {
  for (let i = 0; i < D / 2; i++) {
    const angle = position * theta ** ((-2 * i) / D);
    const cos = Math.cos(angle);
    const sin = sign * Math.sin(angle);
    const a = x[xAt + i];
    const b = x[xAt + i + D / 2];
    out[outAt + i] = a * cos - b * sin;
    out[outAt + i + D / 2] = b * cos + a * sin;
  }
}

export function splitRopeForward(
  q_THD: Float64Array,
  k_TGD: Float64Array,
  v_TGD: Float64Array,
  qkv_TE: Float64Array,
  offsets: readonly number[],
  theta: number,
  firstPosition: number,
  { T, E, H, G, D }: Dims,
): void {
  const starts = documentStarts(offsets);
  for (let t = 0; t < T; t++) {
    const position = firstPosition + t - starts[t];
    for (let h = 0; h < H; h++) rotate(q_THD, (t * H + h) * D, qkv_TE, t * E + h * D, D, position, theta, 1);
    for (let g = 0; g < G; g++) {
      rotate(k_TGD, (t * G + g) * D, qkv_TE, t * E + (H + g) * D, D, position, theta, 1);
    }
    for (let i = 0; i < G * D; i++) v_TGD[t * G * D + i] = qkv_TE[t * E + (H + G) * D + i];
  }
}

/** A rotation's transpose is the rotation back. */
export function splitRopeBackward(
  dQkv_TE: Float64Array,
  dQ_THD: Float64Array,
  dK_TGD: Float64Array,
  dV_TGD: Float64Array,
  offsets: readonly number[],
  theta: number,
  { T, E, H, G, D }: Dims,
): void {
  const starts = documentStarts(offsets);
  for (let t = 0; t < T; t++) {
    const position = t - starts[t];
    for (let h = 0; h < H; h++)
      rotate(dQkv_TE, t * E + h * D, dQ_THD, (t * H + h) * D, D, position, theta, -1);
    for (let g = 0; g < G; g++) {
      rotate(dQkv_TE, t * E + (H + g) * D, dK_TGD, (t * G + g) * D, D, position, theta, -1);
    }
    for (let i = 0; i < G * D; i++) dQkv_TE[t * E + (H + G) * D + i] = dV_TGD[t * G * D + i];
  }
}
