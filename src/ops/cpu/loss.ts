/** Output matrix and cross-entropy, a chunk of tokens at a time: never more than a chunk of logits in memory. */
import type { Backend, Tensor } from "../contract.ts";
import { checkOperation, checkTokens } from "../validate.ts";
import { at, type Context, dtype, valuesOf } from "./context.ts";
import { addTransposedProduct, multiply, pack, panelBytes, transposedProductBytes } from "./gemm.ts";
import { LOSS_ROWS } from "./kernel-ids.ts";
import { rowTiles } from "./rowwise.ts";

export type LossOperations = Pick<Backend, "lossForward" | "lossForwardBackward">;

const types = { dtype };

/** Tokens whose logits are held at once: 256 to 2048 (whole K_BLOCKs of the dW product), 16 MiB where that allows. */
function chunkTokens(V: number): number {
  return Math.min(2048, Math.max(256, Math.floor(2 ** 22 / V / 256) * 256));
}

interface Gradients {
  readonly dX: number;
  readonly dW: number;
  readonly scale: number;
}

export function lossOperations(context: Context): LossOperations {
  const { pool, scratch } = context;

  function run(
    losses_T: Tensor,
    x_TC: Tensor,
    w_VC: Tensor,
    targets_T: Tensor,
    dims: { T: number; C: number; V: number },
    gradients: Gradients | null,
  ): void {
    const { T, C, V } = dims;
    const most = Math.min(T, chunkTokens(V));
    const sizes = [4 * most * V, panelBytes(C, V)];
    if (gradients) sizes.push(panelBytes(V, C), transposedProductBytes(most, C));
    const aligned = sizes.map((bytes) => Math.ceil(bytes / 64) * 64);
    const logits = scratch.need(aligned.reduce((sum, bytes) => sum + bytes, 0));
    const forwardPanels = logits + aligned[0];
    const backwardPanels = forwardPanels + aligned[1];
    const xPanels = backwardPanels + aligned[2];
    const w = at(context, w_VC);
    pack(context, forwardPanels, { address: w, row: 1, col: C }, C, V);
    if (gradients) pack(context, backwardPanels, { address: w, row: C, col: 1 }, V, C);
    for (let t = 0; t < T; t += most) {
      const rows = Math.min(most, T - t);
      const x = at(context, x_TC) + 4 * t * C;
      multiply(context, logits, V, { address: x, row: C, col: 1 }, forwardPanels, rows, V, C, false);
      const losses = at(context, losses_T) + 4 * t;
      const targets = at(context, targets_T) + 4 * t;
      pool.run(LOSS_ROWS, [losses, logits, targets, gradients?.scale ?? 0, rows, V], rowTiles(rows));
      if (!gradients) continue;
      const dLogits = { address: logits, row: V, col: 1 };
      multiply(context, gradients.dX + 4 * t * C, C, dLogits, backwardPanels, rows, C, V, false);
      addTransposedProduct(context, gradients.dW, logits, x, xPanels, rows, V, C);
    }
  }

  return {
    lossForward(losses_T, x_TC, w_VC, targets_T) {
      const op = "lossForward";
      const { T, C, V } = checkOperation(types, op, { losses_T, x_TC, w_VC, targets_T });
      checkTokens(op, "targets_T", valuesOf(context, targets_T), V, true);
      run(losses_T, x_TC, w_VC, targets_T, { T, C, V }, null);
    },
    lossForwardBackward(losses_T, dX_TC, dW_VC, x_TC, w_VC, targets_T, scale_1) {
      const op = "lossForwardBackward";
      const tensors = { losses_T, dX_TC, dW_VC, x_TC, w_VC, targets_T, scale_1 };
      const { T, C, V } = checkOperation(types, op, tensors);
      checkTokens(op, "targets_T", valuesOf(context, targets_T), V, true);
      const [dX, dW, scale] = [dX_TC, dW_VC, scale_1].map((tensor) => at(context, tensor));
      run(losses_T, x_TC, w_VC, targets_T, { T, C, V }, { dX, dW, scale });
    },
  };
}
