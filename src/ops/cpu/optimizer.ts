/** Gradient norm and AdamW over flat parameters. */
import type { Backend } from "../contract.ts";
import { checkAdamw, checkOperation } from "../validate.ts";
import { at, type Context, dtype } from "./context.ts";
import { ADAMW, FLAT_TILE, ROOT_OF_SUM, SQUARES } from "./kernel-ids.ts";

export type OptimizerOperations = Pick<Backend, "gradNorm" | "adamw">;

const types = { dtype };

export function optimizerOperations(context: Context): OptimizerOperations {
  const { pool, scratch } = context;
  return {
    gradNorm(norm_1, grads_P) {
      const { P } = checkOperation(types, "gradNorm", { norm_1, grads_P });
      const tiles = Math.ceil(P / FLAT_TILE);
      const sums = scratch.need(8 * tiles);
      pool.run(SQUARES, [sums, at(context, grads_P), P], tiles);
      pool.run(ROOT_OF_SUM, [at(context, norm_1), sums, tiles], 1);
    },
    adamw(master_P, weights_P, grads_P, m_P, v_P, decayed, hyper, norm_1) {
      const tensors = { master_P, weights_P, grads_P, m_P, v_P, norm_1 };
      const { P } = checkAdamw(types, tensors, decayed, hyper);
      const addresses = [master_P, weights_P, grads_P, m_P, v_P].map((tensor) => at(context, tensor));
      const args = [...addresses, P, decayed, at(context, hyper), at(context, norm_1)];
      pool.run(ADAMW, args, Math.ceil(P / FLAT_TILE));
    },
  };
}
