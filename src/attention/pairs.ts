/**
 * How much an attention does on a document, counted exactly and in closed form: (query, key) pairs attended, and
 * gate scores computed. Per query head and layer.
 */
import type { Attention } from "./attention.ts";

/** Causal pairs of a document of `length` tokens: `T (T + 1) / 2`. */
export function causalPairs(length: number): number {
  return (length * (length + 1)) / 2;
}

/** Pairs attended by one head in one document of `length` tokens (method 1 and 3). */
export function attendedPairs(attention: Attention, length: number): number {
  if (attention.kind === "full") return causalPairs(length);
  const { blockSize, topK } = attention;
  let pairs = 0;
  for (let start = 0, block = 0; start < length; start += blockSize, block++) {
    const queries = Math.min(blockSize, length - start);
    pairs += causalPairs(queries) + queries * Math.min(topK - 1, block) * blockSize;
  }
  return pairs;
}

/**
 * Gate scores computed for one gating head in one document: one per (query, earlier block of its document).
 * Zero for full attention and static gates, and for `topK = 1`, which never looks at a score.
 */
export function gateScores(attention: Attention, length: number): number {
  if (attention.kind !== "moba" || attention.topK === 1) return 0;
  let scores = 0;
  for (let start = 0, block = 0; start < length; start += attention.blockSize, block++) {
    scores += Math.min(attention.blockSize, length - start) * block;
  }
  return scores;
}

/** Share of causal pairs not attended, over documents of the given lengths. */
export function sparsity(attention: Attention, lengths: readonly number[]): number {
  let attended = 0;
  let causal = 0;
  for (const length of lengths) {
    attended += attendedPairs(attention, length);
    causal += causalPairs(length);
  }
  return causal === 0 ? 0 : 1 - attended / causal;
}
