/** bf16, the upper half of an f32: rounding to it (to nearest, ties to even) and widening from it. */

const one = new Float32Array(1);
const oneBits = new Uint32Array(one.buffer);

/** Rounds `values[from + i]` into `out[i]`. NaN stays NaN. */
export function roundToBf16(out: Uint16Array, values: ArrayLike<number>, from: number): void {
  for (let i = 0; i < out.length; i++) {
    one[0] = values[from + i];
    const bits = oneBits[0];
    out[i] = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
  }
}

/** Widens `values[i]` into `out[from + i]`. */
export function widenBf16(out: Float32Array, from: number, values: Uint16Array): void {
  const bits = new Uint32Array(out.buffer, out.byteOffset, out.length);
  for (let i = 0; i < values.length; i++) bits[from + i] = values[i] << 16;
}
