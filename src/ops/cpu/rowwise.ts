/** Operations on rows (tokens): embedding, RMSNorm, SwiGLU. */
import type { Backend } from "../contract.ts";
import { checkOperation, checkPositive, checkTokens } from "../validate.ts";
import { at, type Context, dtype, valuesOf } from "./context.ts";
import * as id from "./kernel-ids.ts";
import { floatBits } from "./pool.ts";

export type RowwiseOperations = Pick<
  Backend,
  | "embeddingForward"
  | "embeddingBackward"
  | "rmsNormForward"
  | "addRmsNormForward"
  | "rmsNormBackward"
  | "swigluForward"
  | "swigluBackward"
>;

/** Tiles of the row-wise kernels for `rows` rows. */
export function rowTiles(rows: number): number {
  return Math.ceil(rows / id.ROW_TILE);
}

/** to_C += the sum of `count` partial sums of C floats each. */
export function addPartials(context: Context, to: number, partials: number, count: number, C: number): void {
  context.pool.run(id.SUM_PARTIALS, [to, partials, count, C], Math.ceil(C / id.COLUMN_TILE));
}

const types = { dtype };

export function rowwiseOperations(context: Context): RowwiseOperations {
  const { pool, scratch } = context;
  return {
    embeddingForward(out_TC, table_VC, tokens_T) {
      const op = "embeddingForward";
      const { T, C, V } = checkOperation(types, op, { out_TC, table_VC, tokens_T });
      checkTokens(op, "tokens_T", valuesOf(context, tokens_T), V, false);
      const args = [at(context, out_TC), at(context, table_VC), at(context, tokens_T), T, C];
      pool.run(id.EMBEDDING_FORWARD, args, rowTiles(T));
    },
    embeddingBackward(dTable_VC, dOut_TC, tokens_T) {
      const op = "embeddingBackward";
      const { T, C, V } = checkOperation(types, op, { dTable_VC, dOut_TC, tokens_T });
      checkTokens(op, "tokens_T", valuesOf(context, tokens_T), V, false);
      const args = [at(context, dTable_VC), at(context, dOut_TC), at(context, tokens_T), T, C];
      pool.run(id.EMBEDDING_BACKWARD, args, Math.ceil(C / id.COLUMN_TILE));
    },
    rmsNormForward(out_TC, rstd_T, x_TC, gain_C, eps) {
      const op = "rmsNormForward";
      const { T, C } = checkOperation(types, op, { out_TC, rstd_T, x_TC, gain_C });
      checkPositive(op, "eps", eps);
      const [out, rstd, x, gain] = [out_TC, rstd_T, x_TC, gain_C].map((tensor) => at(context, tensor));
      pool.run(id.RMS_NORM_FORWARD, [0, out, rstd, x, 0, gain, floatBits(eps), T, C], rowTiles(T));
    },
    addRmsNormForward(sum_TC, out_TC, rstd_T, x_TC, delta_TC, gain_C, eps) {
      const op = "addRmsNormForward";
      const tensors = { sum_TC, out_TC, rstd_T, x_TC, delta_TC, gain_C };
      const { T, C } = checkOperation(types, op, tensors);
      checkPositive(op, "eps", eps);
      const addresses = [sum_TC, out_TC, rstd_T, x_TC, delta_TC, gain_C].map((tensor) => at(context, tensor));
      pool.run(id.RMS_NORM_FORWARD, [...addresses, floatBits(eps), T, C], rowTiles(T));
    },
    rmsNormBackward(dX_TC, dGain_C, dOut_TC, x_TC, gain_C, rstd_T) {
      const tensors = { dX_TC, dGain_C, dOut_TC, x_TC, gain_C, rstd_T };
      const { T, C } = checkOperation(types, "rmsNormBackward", tensors);
      const partials = scratch.need(4 * rowTiles(T) * C);
      const [dOut, x, gain, rstd] = [dOut_TC, x_TC, gain_C, rstd_T].map((tensor) => at(context, tensor));
      const args = [at(context, dX_TC), partials, dOut, x, gain, rstd, T, C];
      pool.run(id.RMS_NORM_BACKWARD, args, rowTiles(T));
      addPartials(context, at(context, dGain_C), partials, rowTiles(T), C);
    },
    swigluForward(out_TF, gateUp_T2F) {
      const { T, F } = checkOperation(types, "swigluForward", { out_TF, gateUp_T2F });
      pool.run(id.SWIGLU_FORWARD, [at(context, out_TF), at(context, gateUp_T2F), T, F], rowTiles(T));
    },
    swigluBackward(dGateUp_T2F, dOut_TF, gateUp_T2F) {
      const { T, F } = checkOperation(types, "swigluBackward", { dGateUp_T2F, dOut_TF, gateUp_T2F });
      const args = [at(context, dGateUp_T2F), at(context, dOut_TF), at(context, gateUp_T2F), T, F];
      pool.run(id.SWIGLU_BACKWARD, args, rowTiles(T));
    },
  };
}
