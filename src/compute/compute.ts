/**
 * Training compute from shapes, by the two conventions of docs/method.md, section 3. One PFLOP/s-day is 8.64e19
 * operations.
 */
import type { Attention } from "../attention/attention.ts";
import { attendedPairs, gateScores } from "../attention/pairs.ts";

export const OPERATIONS_PER_PFLOPS_DAY = 8.64e19;

/** `6ND` is blind to attention; `attended` adds the output matrix, attention as done and the gate. */
export type Convention = "6ND" | "attended";
export const CONVENTIONS: readonly Convention[] = ["6ND", "attended"];

export interface ComputeShape {
  /** Parameters without the embedding and output matrices, N. */
  readonly nonEmbeddingParameters: number;
  readonly modelDim: number;
  readonly vocabulary: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** One per layer. */
  readonly attention: readonly Attention[];
}

/** Operations of one forward and backward pass over documents of the given lengths (tokens). */
export function trainingOperations(
  shape: ComputeShape,
  documentLengths: readonly number[],
  convention: Convention,
): number {
  let tokens = 0;
  for (const length of documentLengths) tokens += length;
  let operations = 6 * shape.nonEmbeddingParameters * tokens;
  if (convention === "6ND") return operations;
  operations += 6 * shape.vocabulary * shape.modelDim * tokens;
  const { heads, kvHeads, headDim } = shape;
  for (const attention of shape.attention) {
    const gatingHeads = attention.kind === "moba" && attention.sharedGate ? kvHeads : heads;
    for (const length of documentLengths) {
      operations += 12 * headDim * heads * attendedPairs(attention, length);
      operations += 2 * headDim * gatingHeads * gateScores(attention, length);
    }
  }
  return operations;
}

export function pflopsDays(operations: number): number {
  return operations / OPERATIONS_PER_PFLOPS_DAY;
}
