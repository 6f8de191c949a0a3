/** What depends on a token's position in its document: RoPE and key convolution; see kernels/rope.cu, keyconv.cu. */
import type { Backend, Documents, Tensor } from "../contract.ts";
import { checkKeyConv, checkSplitRope, type Dims } from "../validate.ts";
import { type Context, documentsOf, type KernelArg, type Pointer, pointerOf, types } from "./context.ts";
import { addPartials, checkAligned, checkWidth, scratchParts, WARP } from "./vectors.ts";

export type PositionalOperations = Pick<
  Backend,
  "splitRopeForward" | "splitRopeBackward" | "keyConvForward" | "keyConvBackward"
>;

/** Warps of a block, one token each. */
const WARPS = 8;
const HEAD_DIMS = [64, 128];
// As in keyconv.cu: tokens of a thread, threads of a block along the tokens, columns of a block.
const RUN = 32;
const RUNS = 8;
const BLOCK_COLUMNS = 128;

export function positionalOperations(context: Context): PositionalOperations {
  /** `heads`: q, k, v or their gradients. */
  function splitRope(
    op: "splitRopeForward" | "splitRopeBackward",
    heads: readonly Tensor[],
    fused_TE: Tensor,
    { T, H, G, D }: Dims,
    documents: Documents,
    theta: number,
    firstPosition: number,
  ): void {
    if (!HEAD_DIMS.includes(D)) {
      throw new RangeError(
        `${op}: the head dimension D is ${D}, expected ${HEAD_DIMS.join(" or ")} on a CUDA card`,
      );
    }
    checkAligned(op, { q: heads[0], k: heads[1], v: heads[2], qkv: fused_TE });
    const { offsets_M, document_T } = documentsOf(documents);
    const tensors = [...heads, fused_TE, offsets_M, document_T].map((ptr) => ({ ptr }));
    const direction = op === "splitRopeForward" ? "forward" : "backward";
    const kernel = `rope:split_rope_${direction}_d${D}`;
    context.launch(kernel, [Math.ceil(T / WARPS), 1, 1], [WARPS * WARP, 1, 1], 0, [
      ...tensors,
      { f64: theta ** (-2 / D) },
      ...[T, H, G, firstPosition].map((i32) => ({ i32 })),
    ]);
  }

  function copyColumns(out: Pointer, columns: Pointer, T: number, E: number, K: number): void {
    const sizes = [{ i32: T }, { i32: E }, { i32: K }];
    const grid = [Math.ceil(T / WARPS), 1, 1] as const;
    const args = [{ ptr: out }, { ptr: columns }, ...sizes];
    context.launch("keyconv:key_columns_copy", grid, [WARPS * WARP, 1, 1], 0, args);
  }

  function convolve(kernel: string, args: readonly KernelArg[], { T, E }: Dims, K: number): void {
    const grid = [Math.ceil(T / (RUN * RUNS)), Math.ceil(K / BLOCK_COLUMNS), 1] as const;
    const sizes = [{ i32: T }, { i32: E }, { i32: K }];
    context.launch(`keyconv:${kernel}`, grid, [WARP, RUNS, 1], 0, [...args, ...sizes]);
  }

  /** The address of the key columns, with what the kernels need checked. */
  function keyColumns(op: string, fused_TE: Tensor, others: Record<string, Tensor>, dims: Dims): Pointer {
    checkWidth(op, "the head dimension D", dims.D);
    checkAligned(op, { "the fused tensor": fused_TE, ...others });
    return pointerOf(fused_TE) + BigInt(2 * dims.H * dims.D);
  }

  return {
    splitRopeForward(q_THD, k_TGD, v_TGD, qkv_TE, documents, theta, firstPosition = 0) {
      const op = "splitRopeForward";
      const tensors = { q_THD, k_TGD, v_TGD, qkv_TE };
      const dims = checkSplitRope(types, op, tensors, documents, theta, firstPosition);
      splitRope(op, [q_THD, k_TGD, v_TGD], qkv_TE, dims, documents, theta, firstPosition);
    },
    splitRopeBackward(dQkv_TE, dQ_THD, dK_TGD, dV_TGD, documents, theta) {
      const op = "splitRopeBackward";
      const dims = checkSplitRope(types, op, { dQkv_TE, dQ_THD, dK_TGD, dV_TGD }, documents, theta);
      splitRope(op, [dQ_THD, dK_TGD, dV_TGD], dQkv_TE, dims, documents, theta, 0);
    },
    keyConvForward(qkv_TE, keys_TGD, w_WGD, documents, kvHeads) {
      const op = "keyConvForward";
      const dims = checkKeyConv(types, op, { qkv_TE, keys_TGD, w_WGD }, documents, kvHeads);
      const columns = keyColumns(op, qkv_TE, { keys_TGD, w_WGD }, dims);
      const { T, E, W, G, D } = dims;
      const { offsets_M, document_T } = documentsOf(documents);
      copyColumns(pointerOf(keys_TGD), columns, T, E, G * D);
      const args = [columns, keys_TGD, w_WGD, offsets_M, document_T].map((ptr) => ({ ptr }));
      convolve(`key_conv_forward_w${W}`, args, dims, G * D);
    },
    keyConvBackward(dQkv_TE, dW_WGD, keys_TGD, w_WGD, documents, kvHeads) {
      const op = "keyConvBackward";
      const dims = checkKeyConv(types, op, { dQkv_TE, dW_WGD, keys_TGD, w_WGD }, documents, kvHeads);
      const columns = keyColumns(op, dQkv_TE, { keys_TGD, w_WGD }, dims);
      const { T, E, W, G, D } = dims;
      const { offsets_M, document_T } = documentsOf(documents);
      const blocks = Math.ceil(T / (RUN * RUNS));
      const [dOut, partials] = scratchParts(context, "key convolution", [
        2 * T * G * D,
        4 * blocks * W * G * D,
      ]);
      copyColumns(dOut, columns, T, E, G * D);
      const args = [columns, partials, dOut, keys_TGD, w_WGD, offsets_M, document_T].map((ptr) => ({ ptr }));
      convolve(`key_conv_backward_w${W}`, args, dims, G * D);
      addPartials(context, dW_WGD, partials, blocks, W * G * D);
    },
  };
}
