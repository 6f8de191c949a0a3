/**
 * Output matrix and cross-entropy, a chunk of tokens at a time, never more than a chunk of logits in memory. Losses
 * alone: f32 logits by a matrix product, then one kernel (kernels/loss.cu). With the gradient: bf16 logits, one kernel
 * that turns them into losses and their gradient, and two products for dX and dW.
 */
import type { Backend, Tensor } from "../contract.ts";
import { checkOperation, checkSum, type Dims } from "../validate.ts";
import type { Matrix } from "./blas.ts";
import { type Context, elementBytes, type Pointer, pointerOf, types } from "./context.ts";
import { checkAligned, checkWidth, PER_VECTOR, threadsFor } from "./vectors.ts";

export type LossOperations = Pick<Backend, "lossForward" | "lossForwardBackward" | "sumLater">;

/** Fewer chunks mean fewer passes over dW, and products long enough to run at full rate. */
const CHUNK_BYTES = 512 << 20;
const LEAST_ROWS = 1024;
/** Chunks are whole tiles of every matrix product's algorithm. */
const ROW_MULTIPLE = 256;
/** The longest rows of loss_gradient_4 and _8: their threads times 4 or 8 vectors. */
const MOST_4 = 256 * 4 * PER_VECTOR;
const MOST_8 = 512 * 8 * PER_VECTOR;
const MOST_THREADS = 1024;

/** Tokens of a chunk: as equal as can be. */
function chunkRows(T: number, V: number, logitBytes: number): number {
  const most = Math.max(LEAST_ROWS, Math.floor(CHUNK_BYTES / logitBytes / V));
  const chunks = Math.ceil(T / most);
  return Math.min(T, Math.ceil(T / chunks / ROW_MULTIPLE) * ROW_MULTIPLE);
}

function gradientKernel(V: number): { kernel: string; threads: number } {
  const vectors = V / PER_VECTOR;
  if (V <= MOST_4) return { kernel: "loss_gradient_4", threads: threadsFor(vectors, 4, MOST_THREADS) };
  if (V <= MOST_8) return { kernel: "loss_gradient_8", threads: threadsFor(vectors, 8, MOST_THREADS) };
  return { kernel: "loss_gradient_long", threads: MOST_THREADS };
}

export function lossOperations(context: Context): LossOperations {
  /** Calls `each` with the logits and operands of every chunk of rows. */
  function forChunks(
    x_TC: Tensor,
    w_VC: Tensor,
    { T, C, V }: Dims,
    dtype: Matrix["dtype"],
    each: (chunk: { t: number; rows: number; logits: Matrix; x: Matrix; w: Matrix }) => void,
  ): void {
    const logitBytes = elementBytes(dtype);
    const most = chunkRows(T, V, logitBytes);
    const logits = { pointer: context.scratch("logits", logitBytes * most * V), dtype };
    const w = matrix(w_VC, 0);
    for (let t = 0; t < T; t += most) {
      const rows = Math.min(most, T - t);
      const x = matrix(x_TC, t * C);
      context.matmul({ out: logits, a: x, b: w, m: rows, n: V, k: C, transposeB: true });
      each({ t, rows, logits, x, w });
    }
  }

  return {
    sumLater(values) {
      checkSum(values);
      const sum = context.scratch("sum", 8);
      const args = [{ ptr: sum }, { ptr: values }, { i64: values.length }];
      context.launch("loss:loss_sum", [1, 1, 1], [MOST_THREADS, 1, 1], 0, args);
      return context.numberLater(sum);
    },
    lossForward(losses_T, x_TC, w_VC, targets_T) {
      const op = "lossForward";
      const dims = checkOperation(types, op, { losses_T, x_TC, w_VC, targets_T });
      checkWidth(op, "the vocabulary V", dims.V);
      checkWidth(op, "the width C", dims.C);
      checkAligned(op, { x_TC, w_VC });
      const { V } = dims;
      const threads = threadsFor(V, 16, MOST_THREADS);
      forChunks(x_TC, w_VC, dims, "f32", ({ t, rows, logits }) => {
        const row = [{ ptr: from(losses_T, t) }, { ptr: logits.pointer }, { ptr: from(targets_T, t) }];
        context.launch("loss:loss_rows", [rows, 1, 1], [threads, 1, 1], 0, [...row, { i32: V }]);
      });
    },
    lossForwardBackward(losses_T, dX_TC, dW_VC, x_TC, w_VC, targets_T, scale_1) {
      const op = "lossForwardBackward";
      const tensors = { losses_T, dX_TC, dW_VC, x_TC, w_VC, targets_T, scale_1 };
      const dims = checkOperation(types, op, tensors);
      checkWidth(op, "the vocabulary V", dims.V);
      checkWidth(op, "the width C", dims.C);
      checkAligned(op, { x_TC, w_VC, dX_TC, dW_VC });
      const { C, V } = dims;
      const { kernel, threads } = gradientKernel(V);
      const dW = matrix(dW_VC, 0);
      forChunks(x_TC, w_VC, dims, "bf16", ({ t, rows, logits, x, w }) => {
        const row = [{ ptr: from(losses_T, t) }, { ptr: logits.pointer }, { ptr: from(targets_T, t) }];
        const args = [...row, { ptr: scale_1 }, { i32: V }];
        context.launch(`loss:${kernel}`, [rows, 1, 1], [threads, 1, 1], 0, args);
        context.matmul({ out: matrix(dX_TC, t * C), a: logits, b: w, m: rows, n: C, k: V });
        const product = { m: V, n: C, k: rows, transposeA: true, accumulate: true };
        context.matmul({ out: dW, a: logits, b: x, ...product });
      });
    },
  };
}

/** The address of an element. */
function from(tensor: Tensor, offset: number): Pointer {
  return pointerOf(tensor) + BigInt(offset * elementBytes(tensor.dtype));
}

function matrix(tensor: Tensor, offset: number): Matrix {
  return { pointer: from(tensor, offset), dtype: tensor.dtype as Matrix["dtype"] };
}
