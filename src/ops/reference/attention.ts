/** Softmax attention over explicit lists of keys, query by query: forward, backward and one step of decoding. */
import { type Attention, earlierBlocks } from "../../attention/attention.ts";
import type { AttentionShape } from "../contract.ts";
import { attendedTokens, documentMeans, dot, selectBlocks } from "./routing.ts";

/** Calls `visit(t, h, tokens)` for every query with the tokens it attends to. */
function forEachQuery(
  shape: AttentionShape,
  selected_THS: Int32Array,
  offsets: readonly number[],
  visit: (t: number, h: number, tokens: number[]) => void,
): void {
  const S = earlierBlocks(shape.attention);
  for (let d = 0; d + 1 < offsets.length; d++) {
    for (let t = offsets[d]; t < offsets[d + 1]; t++) {
      for (let h = 0; h < shape.heads; h++) {
        const row = (t * shape.heads + h) * S;
        visit(t, h, attendedTokens(shape.attention, offsets[d], t, selected_THS.subarray(row, row + S)));
      }
    }
  }
}

/** Writes one query's output and returns its log-sum-exp. `outAt` and `qAt` point at the head's D elements. */
function attendOne(
  out: Float64Array,
  outAt: number,
  q: Float64Array,
  qAt: number,
  k_TGD: Float64Array,
  v_TGD: Float64Array,
  tokens: readonly number[],
  g: number,
  G: number,
  D: number,
): number {
  const scores = tokens.map((s) => dot(q, qAt, k_TGD, (s * G + g) * D, D) / Math.sqrt(D));
  const largest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const lse = largest + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - largest), 0));
  out.fill(0, outAt, outAt + D);
  tokens.forEach((s, i) => {
    const p = Math.exp(scores[i] - lse);
    for (let d = 0; d < D; d++) out[outAt + d] += p * v_TGD[(s * G + g) * D + d];
  });
  return lse;
}

export function attentionForward(
  shape: AttentionShape,
  selected_THS: Int32Array,
  lse_TH: Float64Array,
  out_THD: Float64Array,
  q_THD: Float64Array,
  k_TGD: Float64Array,
  v_TGD: Float64Array,
  offsets: readonly number[],
): void {
  const { heads: H, kvHeads: G, headDim: D } = shape;
  forEachQuery(shape, selected_THS, offsets, (t, h, tokens) => {
    const g = Math.floor(h / (H / G));
    const at = (t * H + h) * D;
    lse_TH[t * H + h] = attendOne(out_THD, at, q_THD, at, k_TGD, v_TGD, tokens, g, G, D);
  });
}

export function attentionBackward(
  shape: AttentionShape,
  selected_THS: Int32Array,
  lse_TH: Float64Array,
  dQ_THD: Float64Array,
  dK_TGD: Float64Array,
  dV_TGD: Float64Array,
  dOut_THD: Float64Array,
  out_THD: Float64Array,
  q_THD: Float64Array,
  k_TGD: Float64Array,
  v_TGD: Float64Array,
  offsets: readonly number[],
): void {
  const { heads: H, kvHeads: G, headDim: D } = shape;
  const scale = 1 / Math.sqrt(D);
  for (const gradient of [dQ_THD, dK_TGD, dV_TGD]) gradient.fill(0);
  forEachQuery(shape, selected_THS, offsets, (t, h, tokens) => {
    const g = Math.floor(h / (H / G));
    const qAt = (t * H + h) * D;
    // sum_s p_s dP_s, the softmax's own share, is <dOut, out>.
    const delta = dot(dOut_THD, qAt, out_THD, qAt, D);
    for (const s of tokens) {
      const kAt = (s * G + g) * D;
      const p = Math.exp(scale * dot(q_THD, qAt, k_TGD, kAt, D) - lse_TH[t * H + h]);
      const dScore = p * (dot(dOut_THD, qAt, v_TGD, kAt, D) - delta);
      for (let d = 0; d < D; d++) {
        dV_TGD[kAt + d] += p * dOut_THD[qAt + d];
        dQ_THD[qAt + d] += scale * dScore * k_TGD[kAt + d];
        dK_TGD[kAt + d] += scale * dScore * q_THD[qAt + d];
      }
    }
  });
}

/** The query of token `length - 1` of one document against the cache's first `length` rows. */
export function attentionDecode(
  out_HD: Float64Array,
  q_HD: Float64Array,
  kCache_TGD: Float64Array,
  vCache_TGD: Float64Array,
  length: number,
  attention: Attention,
  { H, G, D }: { [letter: string]: number },
): void {
  const t = length - 1;
  const means =
    attention.kind === "full" ? [] : documentMeans(kCache_TGD, 0, length, attention.blockSize, G, D);
  for (let h = 0; h < H; h++) {
    const selected =
      attention.kind === "full" ? [] : selectBlocks(attention, q_HD, h, means, t, { heads: H, headDim: D });
    const tokens = attendedTokens(attention, 0, t, selected);
    attendOne(out_HD, h * D, q_HD, h * D, kCache_TGD, vCache_TGD, tokens, Math.floor(h / (H / G)), G, D);
  }
}
