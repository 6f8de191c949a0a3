/**
 * Which earlier blocks a query attends to, decided query by query (docs/method.md, section 1), and the explicit list
 * of keys that follows from it.
 */
import { type Attention, earlierBlocks, staticGate } from "../../attention/attention.ts";
import type { AttentionShape } from "../contract.ts";

type Gated = Exclude<Attention, { kind: "full" }>;

/** Mean of the keys of block `block` of the document starting at `start`, for key/value head `g`. */
export function blockMean(
  k_TGD: Float64Array,
  start: number,
  block: number,
  blockSize: number,
  g: number,
  G: number,
  D: number,
): Float64Array {
  const mean = new Float64Array(D);
  for (let s = start + block * blockSize; s < start + (block + 1) * blockSize; s++) {
    for (let d = 0; d < D; d++) mean[d] += k_TGD[(s * G + g) * D + d];
  }
  return mean.map((sum) => sum / blockSize);
}

/** Indices of the `count` largest scores, ascending; ties to the lower index, NaN never. */
export function largestScores(scores: readonly number[], count: number): number[] {
  return scores
    .map((score, block) => ({ score, block }))
    .filter(({ score }) => !Number.isNaN(score))
    .sort((a, b) => (a.score === b.score ? a.block - b.block : a.score > b.score ? -1 : 1))
    .slice(0, count)
    .map(({ block }) => block)
    .sort((a, b) => a - b);
}

/**
 * The blocks selected by query head `h` of the token at `position` of a document. `q_HD`: the token's queries.
 * `means[g][block]`: mean keys of the document's whole blocks.
 */
export function selectBlocks(
  attention: Gated,
  q_HD: Float64Array,
  h: number,
  means: readonly (readonly Float64Array[])[],
  position: number,
  { heads, headDim }: { heads: number; headDim: number },
): number[] {
  const block = Math.floor(position / attention.blockSize);
  if (attention.kind !== "moba") return staticGate(attention, block);
  const groupSize = heads / means.length;
  const g = Math.floor(h / groupSize);
  const query = new Float64Array(headDim);
  const first = attention.sharedGate ? g * groupSize : h;
  for (let i = first; i < first + (attention.sharedGate ? groupSize : 1); i++) {
    for (let d = 0; d < headDim; d++) query[d] += q_HD[i * headDim + d];
  }
  const scores: number[] = [];
  for (let b = 0; b < block; b++) scores.push(dot(query, 0, means[g][b], 0, headDim));
  return largestScores(scores, earlierBlocks(attention));
}

/** Fills `selected_THS` for every query of every document. */
export function route(
  selected_THS: Int32Array,
  q_THD: Float64Array,
  k_TGD: Float64Array,
  offsets: readonly number[],
  shape: AttentionShape,
): void {
  const { heads: H, kvHeads: G, headDim: D, attention } = shape;
  if (attention.kind === "full") return;
  const S = earlierBlocks(attention);
  selected_THS.fill(-1);
  for (let d = 0; d + 1 < offsets.length; d++) {
    const start = offsets[d];
    const means = documentMeans(k_TGD, start, offsets[d + 1] - start, attention.blockSize, G, D);
    for (let t = start; t < offsets[d + 1]; t++) {
      const q_HD = q_THD.subarray(t * H * D, (t + 1) * H * D);
      for (let h = 0; h < H; h++) {
        selected_THS.set(selectBlocks(attention, q_HD, h, means, t - start, shape), (t * H + h) * S);
      }
    }
  }
}

/** `[g][block]`: the mean keys of the whole blocks of a document. The last, partial block is never gated. */
export function documentMeans(
  k_TGD: Float64Array,
  start: number,
  length: number,
  blockSize: number,
  G: number,
  D: number,
): Float64Array[][] {
  const whole = Math.floor(length / blockSize);
  return Array.from({ length: G }, (_, g) =>
    Array.from({ length: whole }, (_, block) => blockMean(k_TGD, start, block, blockSize, g, G, D)),
  );
}

/** The tokens that a query attends to, ascending: the selected blocks, then its own block up to itself. */
export function attendedTokens(
  attention: Attention,
  start: number,
  t: number,
  selected: ArrayLike<number>,
): number[] {
  const tokens: number[] = [];
  const B = attention.kind === "full" ? Infinity : attention.blockSize;
  for (let i = 0; i < selected.length && selected[i] >= 0; i++) {
    for (let s = start + selected[i] * B; s < start + (selected[i] + 1) * B; s++) tokens.push(s);
  }
  const ownBlock = attention.kind === "full" ? start : start + Math.floor((t - start) / B) * B;
  for (let s = ownBlock; s <= t; s++) tokens.push(s);
  return tokens;
}

/** <a[aAt ..], b[bAt ..]> over `length` elements. */
export function dot(a: Float64Array, aAt: number, b: Float64Array, bAt: number, length: number): number {
  let sum = 0;
  for (let i = 0; i < length; i++) sum += a[aAt + i] * b[bAt + i];
  return sum;
}
