/** Linear layers: three matrix products. */
import type { Backend } from "../contract.ts";
import { checkOperation } from "../validate.ts";
import { at, type Context, dtype } from "./context.ts";
import { addTransposedProduct, multiply, pack, panelBytes, transposedProductBytes } from "./gemm.ts";

export type LinearOperations = Pick<Backend, "linearForward" | "linearBackward">;

const types = { dtype };

export function linearOperations(context: Context): LinearOperations {
  const { scratch } = context;
  return {
    linearForward(out_TN, x_TK, w_NK) {
      const { T, N, K } = checkOperation(types, "linearForward", { out_TN, x_TK, w_NK });
      const panels = scratch.need(panelBytes(K, N));
      pack(context, panels, { address: at(context, w_NK), row: 1, col: K }, K, N);
      const x = { address: at(context, x_TK), row: K, col: 1 };
      multiply(context, at(context, out_TN), N, x, panels, T, N, K, false);
    },
    linearBackward(dX_TK, dW_NK, dOut_TN, x_TK, w_NK) {
      const tensors = { dX_TK, dW_NK, dOut_TN, x_TK, w_NK };
      const { T, N, K } = checkOperation(types, "linearBackward", tensors);
      const panels = scratch.need(Math.max(panelBytes(N, K), transposedProductBytes(T, K)));
      const dOut = at(context, dOut_TN);
      if (dX_TK) {
        pack(context, panels, { address: at(context, w_NK), row: K, col: 1 }, N, K);
        const a = { address: dOut, row: N, col: 1 };
        multiply(context, at(context, dX_TK), K, a, panels, T, K, N, false);
      }
      addTransposedProduct(context, at(context, dW_NK), dOut, at(context, x_TK), panels, T, N, K);
    },
  };
}
