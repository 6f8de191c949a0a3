/** Embedding, norms, key convolution, RoPE and SwiGLU. */
import type { Backend } from "../contract.ts";
import { checkOperation } from "../validate.ts";
import { type Context, types } from "./context.ts";
import { type EmbeddingOperations, embeddingOperations } from "./embedding.ts";
import { type NormOperations, normOperations } from "./norm.ts";
import { type PositionalOperations, positionalOperations } from "./positional.ts";
import { checkAligned, checkWidth, PER_VECTOR } from "./vectors.ts";

export type SwigluOperations = Pick<Backend, "swigluForward" | "swigluBackward">;
export type DenseOperations = EmbeddingOperations & NormOperations & PositionalOperations & SwigluOperations;

export function denseOperations(context: Context): DenseOperations {
  return {
    ...embeddingOperations(context),
    ...normOperations(context),
    ...positionalOperations(context),
    ...swigluOperations(context),
  };
}

const THREADS = 256;
/** Vectors of a block, as in swiglu.cu. */
const BLOCK_VECTORS = 2 * THREADS;

function swigluOperations(context: Context): SwigluOperations {
  const launch = (kernel: string, tensors: Parameters<typeof checkAligned>[1], T: number, F: number) => {
    const vectors = (T * F) / PER_VECTOR;
    const pointers = Object.values(tensors).map((ptr) => ({ ptr }));
    const grid = [Math.ceil(vectors / BLOCK_VECTORS), 1, 1] as const;
    const args = [...pointers, { i64: vectors }, { i32: F }];
    context.launch(`swiglu:${kernel}`, grid, [THREADS, 1, 1], 0, args);
  };
  return {
    swigluForward(out_TF, gateUp_T2F) {
      const op = "swigluForward";
      const { T, F } = checkOperation(types, op, { out_TF, gateUp_T2F });
      checkWidth(op, "the width F", F);
      checkAligned(op, { out_TF, gateUp_T2F });
      launch("swiglu_forward", { out_TF, gateUp_T2F }, T, F);
    },
    swigluBackward(dGateUp_T2F, dOut_TF, gateUp_T2F) {
      const op = "swigluBackward";
      const { T, F } = checkOperation(types, op, { dGateUp_T2F, dOut_TF, gateUp_T2F });
      checkWidth(op, "the width F", F);
      checkAligned(op, { dGateUp_T2F, dOut_TF, gateUp_T2F });
      launch("swiglu_backward", { dGateUp_T2F, dOut_TF, gateUp_T2F }, T, F);
    },
  };
}
