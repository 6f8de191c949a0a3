/** RMSNorm; see kernels/norm.cu. */
import type { Backend } from "../contract.ts";
import { checkOperation, checkPositive } from "../validate.ts";
import { type Context, type Extent, types } from "./context.ts";
import { addPartials, checkAligned, checkWidth, PER_VECTOR, WARP } from "./vectors.ts";

export type NormOperations = Pick<Backend, "rmsNormForward" | "addRmsNormForward" | "rmsNormBackward">;

const THREADS = 256;
const BLOCK: Extent = [THREADS, 1, 1];
/** Vectors per lane of the widest rows that a warp, and that a block, holds. */
const MOST_VECTORS = 8;
const MOST_WIDTH = MOST_VECTORS * THREADS * PER_VECTOR;

/** How rows of a width are spread over lanes. */
interface Kind {
  /** The end of the kernels' names. */
  readonly name: string;
  readonly rowsPerBlock: number;
  /** Blocks of the backward kernel that a multiprocessor holds, as its launch bounds say. */
  readonly blocks: number;
}

function kindOf(op: string, C: number): Kind {
  checkWidth(op, "the width C", C);
  if (C > MOST_WIDTH) {
    throw new RangeError(`${op}: the width C is ${C}, expected at most ${MOST_WIDTH} on a CUDA card`);
  }
  const vectors = Math.ceil(C / (WARP * PER_VECTOR));
  if (vectors > MOST_VECTORS) return { name: "wide", rowsPerBlock: 1, blocks: 1 };
  const blocks = vectors === 1 ? 4 : vectors <= 3 ? 2 : 1;
  return { name: `v${vectors}`, rowsPerBlock: THREADS / WARP, blocks };
}

export function normOperations(context: Context): NormOperations {
  const { multiprocessors } = context.card;
  return {
    rmsNormForward(out_TC, rstd_T, x_TC, gain_C, eps) {
      const op = "rmsNormForward";
      const { T, C } = checkOperation(types, op, { out_TC, rstd_T, x_TC, gain_C });
      checkPositive(op, "eps", eps);
      const { name, rowsPerBlock } = kindOf(op, C);
      checkAligned(op, { out_TC, x_TC, gain_C });
      const tensors = [{ ptr: out_TC }, { ptr: rstd_T }, { ptr: x_TC }, { ptr: gain_C }];
      const grid = [Math.ceil(T / rowsPerBlock), 1, 1] as const;
      const args = [...tensors, { i32: T }, { i32: C }, { f32: eps }];
      context.launch(`norm:norm_forward_${name}`, grid, BLOCK, 0, args);
    },
    addRmsNormForward(sum_TC, out_TC, rstd_T, x_TC, delta_TC, gain_C, eps) {
      const op = "addRmsNormForward";
      const tensors = { sum_TC, out_TC, rstd_T, x_TC, delta_TC, gain_C };
      const { T, C } = checkOperation(types, op, tensors);
      checkPositive(op, "eps", eps);
      const { name, rowsPerBlock } = kindOf(op, C);
      checkAligned(op, { sum_TC, out_TC, x_TC, delta_TC, gain_C });
      const pointers = [sum_TC, out_TC, rstd_T, x_TC, delta_TC, gain_C].map((ptr) => ({ ptr }));
      const grid = [Math.ceil(T / rowsPerBlock), 1, 1] as const;
      const args = [...pointers, { i32: T }, { i32: C }, { f32: eps }];
      context.launch(`norm:add_norm_forward_${name}`, grid, BLOCK, 0, args);
    },
    rmsNormBackward(dX_TC, dGain_C, dOut_TC, x_TC, gain_C, rstd_T) {
      const op = "rmsNormBackward";
      const { T, C } = checkOperation(types, op, { dX_TC, dGain_C, dOut_TC, x_TC, gain_C, rstd_T });
      const { name, rowsPerBlock, blocks } = kindOf(op, C);
      checkAligned(op, { dX_TC, dOut_TC, x_TC, gain_C });
      const count = Math.min(blocks * multiprocessors, Math.ceil(T / rowsPerBlock));
      const partials = context.scratch("norm", 4 * count * C);
      const tensors = [{ ptr: dX_TC }, { ptr: partials }, { ptr: dOut_TC }, { ptr: x_TC }, { ptr: gain_C }];
      const args = [...tensors, { ptr: rstd_T }, { i32: T }, { i32: C }];
      const sharedBytes = rowsPerBlock > 1 ? 4 * C : 0;
      context.launch(`norm:norm_backward_${name}`, [count, 1, 1], BLOCK, sharedBytes, args);
      addPartials(context, dGain_C, partials, count, C);
    },
  };
}
