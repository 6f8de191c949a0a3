/** Gradient norm and AdamW over flat parameters; see kernels/optimizer.cu. */
import type { Backend } from "../contract.ts";
import { checkAdamw, checkOperation } from "../validate.ts";
import { type Context, types } from "./context.ts";
import { checkAligned, PER_VECTOR } from "./vectors.ts";

export type OptimizerOperations = Pick<Backend, "gradNorm" | "adamw">;

const THREADS = 256;
/** Partial sums of the norm; fixed, so that every card adds in the same order. */
const MOST_BLOCKS = 1024;

export function optimizerOperations(context: Context): OptimizerOperations {
  return {
    gradNorm(norm_1, grads_P) {
      const { P } = checkOperation(types, "gradNorm", { norm_1, grads_P });
      checkAligned("gradNorm", { grads_P });
      const blocks = Math.min(MOST_BLOCKS, Math.ceil(P / 4 / THREADS));
      const sums = { ptr: context.scratch("gradient norm", 8 * MOST_BLOCKS) };
      const squares = [sums, { ptr: grads_P }, { i64: P }];
      context.launch("optimizer:grad_squares", [blocks, 1, 1], [THREADS, 1, 1], 0, squares);
      const root = [{ ptr: norm_1 }, sums, { i32: blocks }];
      context.launch("optimizer:grad_norm", [1, 1, 1], [THREADS, 1, 1], 0, root);
    },
    adamw(master_P, weights_P, grads_P, m_P, v_P, decayed, hyper, norm_1) {
      const tensors = { master_P, weights_P, grads_P, m_P, v_P, norm_1 };
      const { P } = checkAdamw(types, tensors, decayed, hyper);
      checkAligned("adamw", { master_P, weights_P, grads_P, m_P, v_P });
      const blocks = Math.ceil(P / (THREADS * PER_VECTOR));
      const pointers = [master_P, weights_P, grads_P, m_P, v_P, hyper, norm_1].map((ptr) => ({ ptr }));
      const args = [...pointers, { i64: P }, { i64: decayed }];
      context.launch("optimizer:adamw", [blocks, 1, 1], [THREADS, 1, 1], 0, args);
    },
  };
}
