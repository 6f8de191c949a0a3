/** Linear layers: three matrix products. */
import type { Backend, Tensor } from "../contract.ts";
import { checkOperation } from "../validate.ts";
import type { Matrix } from "./blas.ts";
import { type Context, pointerOf, types } from "./context.ts";

export type LinearOperations = Pick<Backend, "linearForward" | "linearBackward">;

export function linearOperations(context: Context): LinearOperations {
  return {
    linearForward(out_TN, x_TK, w_NK) {
      const { T, N, K } = checkOperation(types, "linearForward", { out_TN, x_TK, w_NK });
      context.matmul({ out: of(out_TN), a: of(x_TK), b: of(w_NK), m: T, n: N, k: K, transposeB: true });
    },
    linearBackward(dX_TK, dW_NK, dOut_TN, x_TK, w_NK) {
      const tensors = { dX_TK, dW_NK, dOut_TN, x_TK, w_NK };
      const { T, N, K } = checkOperation(types, "linearBackward", tensors);
      const dOut = of(dOut_TN);
      if (dX_TK) context.matmul({ out: of(dX_TK), a: dOut, b: of(w_NK), m: T, n: K, k: N });
      context.matmul({
        ...{ out: of(dW_NK), a: dOut, b: of(x_TK), m: N, n: K, k: T },
        ...{ transposeA: true, accumulate: true },
      });
    },
  };
}

function of(tensor: Tensor): Matrix {
  return { pointer: pointerOf(tensor), dtype: tensor.dtype as Matrix["dtype"] };
}
