/** Embedding, and the gradient of its table; see kernels/embedding.cu. */
import type { Backend } from "../contract.ts";
import { checkOperation } from "../validate.ts";
import { type Context, type KernelArg, types } from "./context.ts";
import { checkAligned, checkWidth, PER_VECTOR, scratchParts, threadsFor } from "./vectors.ts";

export type EmbeddingOperations = Pick<Backend, "embeddingForward" | "embeddingBackward">;

// As in embedding.cu.
const FORWARD_WARPS = 8;
const TILE = 1024;
const BITS = 9;
const DIGITS = 2 ** BITS;
const RUN = 32;
const COLUMN_THREADS = 128;

export function embeddingOperations(context: Context): EmbeddingOperations {
  return {
    embeddingForward(out_TC, table_VC, tokens_T) {
      const op = "embeddingForward";
      const { T, V, C } = checkOperation(types, op, { out_TC, table_VC, tokens_T });
      checkWidth(op, "the width C", C);
      checkAligned(op, { out_TC, table_VC });
      const tensors = [{ ptr: out_TC }, { ptr: table_VC }, { ptr: tokens_T }];
      const grid = [Math.ceil(T / FORWARD_WARPS), 1, 1] as const;
      const args = [...tensors, { i32: T }, { i32: V }, { i32: C }];
      context.launch("embedding:embedding_forward", grid, [FORWARD_WARPS * 32, 1, 1], 0, args);
    },
    embeddingBackward(dTable_VC, dOut_TC, tokens_T) {
      const op = "embeddingBackward";
      const { T, V, C } = checkOperation(types, op, { dTable_VC, dOut_TC, tokens_T });
      checkWidth(op, "the width C", C);
      checkAligned(op, { dTable_VC, dOut_TC });
      const tiles = Math.ceil(T / TILE);
      const runs = Math.ceil(T / RUN);
      const [counts, even, odd, partials] = scratchParts(context, "embedding", [
        4 * DIGITS * tiles,
        4 * T,
        4 * T,
        4 * runs * 2 * C,
      ]);
      // Places sorted by token, from the lowest digit up.
      const passes = Math.max(1, Math.ceil(Math.log2(V) / BITS));
      const tokens: KernelArg = { ptr: tokens_T };
      let order: KernelArg = { ptr: null };
      for (let pass = 0; pass < passes; pass++) {
        const sorted: KernelArg = { ptr: pass % 2 ? odd : even };
        const [size, shift] = [{ i32: T }, { i32: BITS * pass }];
        const sort = (kernel: string, args: KernelArg[]) =>
          context.launch(`embedding:${kernel}`, [tiles, 1, 1], [TILE, 1, 1], 0, args);
        sort("embedding_histogram", [{ ptr: counts }, tokens, order, size, shift]);
        const scan = [{ ptr: counts }, { i32: DIGITS * tiles }];
        context.launch("embedding:embedding_scan", [1, 1, 1], [1024, 1, 1], 0, scan);
        sort("embedding_scatter", [sorted, tokens, order, { ptr: counts }, size, shift]);
        order = sorted;
      }
      const threads = threadsFor(C / PER_VECTOR, 1, COLUMN_THREADS);
      const grid = [runs, Math.ceil(C / PER_VECTOR / threads), 1] as const;
      const outputs = [{ ptr: dTable_VC }, { ptr: partials }];
      const rest = [tokens, order, { i32: T }, { i32: V }, { i32: C }];
      context.launch("embedding:embedding_runs", grid, [threads, 1, 1], 0, [
        ...outputs,
        { ptr: dOut_TC },
        ...rest,
      ]);
      context.launch("embedding:embedding_crossings", grid, [threads, 1, 1], 0, [...outputs, ...rest]);
    },
  };
}
