/** Attention forward by Hopper's own kernels (kernels/hopper/forward.cu), host side. */
import type { Tensor } from "../contract.ts";
import { ceil, i32, ptr } from "./attention-routing.ts";
import type { CudaAttentionState } from "./attention-state.ts";
import type { Context, CudaDocuments, KernelArg, Pointer } from "./context.ts";
import { pointerOf } from "./context.ts";

const FORWARD = "hopper/forward";
/** Of the kernels' plans: query rows of a tile, tiles of queries in shared memory; all take KEYS keys, in STAGES stages. */
const PLANS = {
  full: { 64: { rows: 192, slots: 2 }, 128: { rows: 128, slots: 2 } },
  own: { 64: { rows: 128, slots: 2 }, 128: { rows: 128, slots: 2 } },
  past: { 64: { rows: 128, slots: 2 }, 128: { rows: 128, slots: 2 } },
} as const;
const KEYS = 128;
const STAGES = 2;
/** Rows of a box of the tensor maps, read and written. */
const LOAD_ROWS = 64;
const STORE_ROWS = 16;
/**
 * Bytes of keys and values of the heads whose tiles go by in turn: more than the L2 cache holds, but tiles meet their
 * keys at about the same time. On an H200, D = 128, H = 16, with 1, 4 or 16 heads in turn: 0.504, 0.451 or 0.435 ms
 * at 8k (4 MB a head), 6.50, 6.43 or 6.55 ms at 32k (16 MB).
 */
const TOGETHER_BYTES = 2 ** 26;

export interface HopperForward {
  readonly out_THD: Tensor;
  readonly q_THD: Tensor;
  readonly k_TGD: Tensor;
  readonly v_TGD: Tensor;
  readonly documents: CudaDocuments;
  /** Heads of this pass, and their partial results; null where nothing was chosen. */
  readonly firstHead: number;
  readonly headCount: number;
  readonly partial: Pointer | null;
  readonly partialLse: Pointer | null;
}

export function forwardOnHopper(context: Context, state: CudaAttentionState, pass: HopperForward): void {
  const { tokens, heads, kvHeads, headDim } = state.shape;
  const D = headDim as 64 | 128;
  const { selectedCount, blockSize, items } = state;
  const { multiprocessors } = context.card;
  const { firstHead, headCount, partial, partialLse, documents } = pass;
  const map = (tensor: Tensor, count: number, rows: number): KernelArg => ({
    struct: context.tensorMap({
      pointer: pointerOf(tensor),
      dtype: "bf16",
      sizes: [D, count, tokens],
      strides: [2 * D, 2 * D * count],
      box: [64, 1, rows],
      swizzle: 128,
    }),
  });
  const scale: KernelArg = { f32: Math.LOG2E / Math.sqrt(D) };
  const k = map(pass.k_TGD, kvHeads, LOAD_ROWS);
  const v = map(pass.v_TGD, kvHeads, LOAD_ROWS);
  const past = partial !== null;
  const sizes = [heads, kvHeads, past ? selectedCount : 0, blockSize, firstHead, headCount].map(i32);
  const partials = [ptr(partial), ptr(partialLse)];
  if (past) {
    context.launch(
      `${FORWARD}:hopper_forward_past_d${D}`,
      [Math.min(multiprocessors, items * headCount), 1, 1],
      [threads(PLANS.past[D].rows), 1, 1],
      sharedBytes(D, PLANS.past[D]),
      [
        ...[...partials, ptr(pass.q_THD), k, v],
        ...(["entries", "items", "itemCounts"] as const).map((name) => ptr(state.list(name))),
        ...[{ i64: tokens * selectedCount }, i32(items), ...sizes, i32(1), scale],
      ],
    );
  }
  const plan = PLANS[past ? "own" : "full"][D];
  const tiles = ceil(tokens, plan.rows) * headCount;
  const group = heads / kvHeads;
  // Of own blocks all heads in turn: then whole rows of partial results and of the output go by.
  const together =
    blockSize > 0 ? headCount : group * Math.max(1, Math.floor(TOGETHER_BYTES / (4 * D * tokens)));
  context.launch(
    `${FORWARD}:hopper_forward_${past ? "own" : "full"}_d${D}`,
    [Math.min(multiprocessors, tiles), 1, 1],
    [threads(plan.rows), 1, 1],
    sharedBytes(D, plan),
    [
      ...[map(pass.out_THD, heads, STORE_ROWS), ptr(state.lse), map(pass.q_THD, heads, LOAD_ROWS), k, v],
      ...[ptr(state.selected_THS), ...partials, ptr(documents.document_T), ptr(documents.offsets_M)],
      ...[ptr(state.taken), i32(tokens), ...sizes, i32(Math.min(together, headCount)), scale],
    ],
  );
}

/** A warpgroup for each 64 rows, and one that loads. */
function threads(rows: number): number {
  return 128 + 2 * rows;
}

/** `Plan::SHARED_BYTES`. */
function sharedBytes(D: number, { rows, slots }: { readonly rows: number; readonly slots: number }): number {
  return 2 * D * (slots * rows + 2 * STAGES * KEYS) + 16 * (slots + 2 * STAGES) + 32 * slots;
}
