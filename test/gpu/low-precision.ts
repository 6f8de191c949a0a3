/**
 * Attention as a plain bf16 implementation computes it: every intermediate matrix (scores, weights, their gradients)
 * is rounded to bf16, sums are exact. Its error against the float64 reference is the yardstick for a kernel's:
 * |out - reference| <= 2 |this - reference| + 1e-5, FlashAttention's rule.
 */
import type { Attention } from "../../src/attention/attention.ts";

export interface LowPrecisionInput {
  readonly offsets: readonly number[];
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly attention: Attention;
  /** `selected_THS` of the contract. */
  readonly selected: Int32Array;
  readonly q: ArrayLike<number>;
  readonly k: ArrayLike<number>;
  readonly v: ArrayLike<number>;
  readonly dOut: ArrayLike<number>;
}

export interface LowPrecisionOutput {
  readonly out: Float64Array;
  readonly dQ: Float64Array;
  readonly dK: Float64Array;
  readonly dV: Float64Array;
}

const one = new Float32Array(1);
const bits = new Uint32Array(one.buffer);

/** To nearest, ties to even. */
export function bf16(x: number): number {
  one[0] = x;
  bits[0] = (bits[0] + 0x7fff + ((bits[0] >>> 16) & 1)) & 0xffff0000;
  return one[0];
}

export function lowPrecisionAttention(input: LowPrecisionInput): LowPrecisionOutput {
  const { heads: H, kvHeads: G, headDim: D, q, k, v, dOut } = input;
  const T = input.offsets[input.offsets.length - 1];
  const out = new Float64Array(T * H * D);
  const dQ = new Float64Array(T * H * D);
  const dK = new Float64Array(T * G * D);
  const dV = new Float64Array(T * G * D);
  const scale = D ** -0.5;
  for (let h = 0; h < H; h++) {
    const g = Math.floor(h / (H / G));
    // One head's share, rounded before the heads of a group are added.
    const [dKeys, dValues] = [new Float64Array(T * D), new Float64Array(T * D)];
    for (let t = 0; t < T; t++) {
      const row = (t * H + h) * D;
      const query = Array.from({ length: D }, (_, d) => bf16(q[row + d] * scale));
      const keys = attendedKeys(input, t, h);
      const dot = (values: ArrayLike<number>, at: number, other: ArrayLike<number>, from: number) => {
        let sum = 0;
        for (let d = 0; d < D; d++) sum += values[at + d] * other[from + d];
        return bf16(sum);
      };
      const scores = keys.map((s) => dot(query, 0, k, (s * G + g) * D));
      const most = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - most));
      const total = weights.reduce((sum, w) => sum + w, 0);
      const p = weights.map((w) => bf16(w / total));
      const dP = keys.map((s) => dot(dOut, row, v, (s * G + g) * D));
      const inner = p.reduce((sum, w, i) => sum + w * dP[i], 0);
      const dS = p.map((w, i) => bf16(w * (dP[i] - inner)));
      keys.forEach((s, i) => {
        const at = (s * G + g) * D;
        for (let d = 0; d < D; d++) {
          out[row + d] += p[i] * v[at + d];
          dQ[row + d] += dS[i] * k[at + d];
          dKeys[s * D + d] += dS[i] * query[d];
          dValues[s * D + d] += p[i] * dOut[row + d];
        }
      });
      for (let d = 0; d < D; d++) {
        out[row + d] = bf16(out[row + d]);
        dQ[row + d] = bf16(bf16(dQ[row + d]) * scale);
      }
    }
    for (let s = 0; s < T; s++) {
      for (let d = 0; d < D; d++) {
        dK[(s * G + g) * D + d] += bf16(dKeys[s * D + d]);
        dV[(s * G + g) * D + d] += bf16(dValues[s * D + d]);
      }
    }
  }
  return { out, dQ, dK: dK.map(bf16), dV: dV.map(bf16) };
}

/** The keys that query `t` of head `h` attends to: its document's selected blocks and its own block up to itself. */
function attendedKeys(
  { offsets, heads, attention, selected }: LowPrecisionInput,
  t: number,
  h: number,
): number[] {
  const start = offsets.findLast((offset) => offset <= t)!;
  const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);
  if (attention.kind === "full") return range(start, t + 1);
  const { blockSize } = attention;
  const S = selected.length / (offsets[offsets.length - 1] * heads);
  const row = (t * heads + h) * S;
  const earlier = [...selected.subarray(row, row + S)].filter((block) => block >= 0);
  const own = start + Math.floor((t - start) / blockSize) * blockSize;
  return [
    ...earlier.flatMap((block) => range(start + block * blockSize, start + (block + 1) * blockSize)),
    ...range(own, t + 1),
  ];
}
