/** Attention forward by Hopper's own kernels (kernels/hopper/forward.cu), host side. */
import type { Tensor } from "../contract.ts";
import { ceil, i32, ptr } from "./attention-routing.ts";
import type { CudaAttentionState } from "./attention-state.ts";
import type { Context, CudaDocuments, KernelArg, Pointer } from "./context.ts";
import { pointerOf } from "./context.ts";

const FORWARD = "hopper/forward";
/** Of the kernels' plans: warpgroups that multiply, 64 rows each; all take KEYS keys, in STAGES stages. */
const CONSUMERS = {
  full: { 64: 3, 128: 2 },
  own: { 64: 2, 128: 2 },
  past: { 64: 2, 128: 2 },
  small: { 64: 3, 128: 3 },
} as const;
/** Places for 64 query rows of each of them. */
const SLOTS = 2;
const KEYS = 128;
const STAGES = 2;
/** Rows of a box of the tensor maps, read and written. */
const LOAD_ROWS = 64;
const STORE_ROWS = 16;
/** Items in a row that a block of threads takes where they may share their keys (small blocks). */
const SMALL_RUN = 4;
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
  const map = (tensor: Tensor, rows: number) => rowsMap(context, tensor, rows);
  const scale: KernelArg = { f32: Math.LOG2E / Math.sqrt(D) };
  const k = map(pass.k_TGD, LOAD_ROWS);
  const v = map(pass.v_TGD, LOAD_ROWS);
  const past = partial !== null;
  const sizes = [heads, kvHeads, past ? selectedCount : 0, blockSize, firstHead, headCount].map(i32);
  const partials = [ptr(partial), ptr(partialLse)];
  if (past) {
    const kind = blockSize <= KEYS ? "small" : "past";
    context.launch(
      `${FORWARD}:hopper_forward_${kind}_d${D}`,
      [Math.min(multiprocessors, items * headCount), 1, 1],
      [threads(CONSUMERS[kind][D]), 1, 1],
      sharedBytes(kind, D),
      [
        ...[...partials, ptr(pass.q_THD), k, v],
        ...(["entries", "items", "itemCounts"] as const).map((name) => ptr(state.list(name))),
        ...[
          { i64: tokens * selectedCount },
          i32(items),
          ...sizes,
          i32(kind === "small" ? SMALL_RUN : 1),
          scale,
        ],
      ],
    );
  }
  const kind = past ? "own" : "full";
  const tiles = ceil(tokens, 64 * CONSUMERS[kind][D]) * headCount;
  const group = heads / kvHeads;
  // Of own blocks all heads in turn: then whole rows of partial results and of the output go by.
  const together =
    blockSize > 0 ? headCount : group * Math.max(1, Math.floor(TOGETHER_BYTES / (4 * D * tokens)));
  context.launch(
    `${FORWARD}:hopper_forward_${kind}_d${D}`,
    [Math.min(multiprocessors, tiles), 1, 1],
    [threads(CONSUMERS[kind][D]), 1, 1],
    sharedBytes(kind, D),
    [
      ...[map(pass.out_THD, STORE_ROWS), ptr(state.lse), map(pass.q_THD, LOAD_ROWS), k, v],
      ...[ptr(state.selected_THS), ...partials, ptr(documents.document_T), ptr(documents.offsets_M)],
      ...[ptr(state.taken), i32(tokens), ...sizes, i32(Math.min(together, headCount)), scale],
    ],
  );
}

/** For TMA: boxes of `rows` tokens by 64 values of a tensor [tokens, heads, head dimension]. */
export function rowsMap(context: Context, tensor: Tensor, rows: number): KernelArg {
  const [tokens, heads, D] = tensor.shape;
  return {
    struct: context.tensorMap({
      pointer: pointerOf(tensor),
      dtype: "bf16",
      sizes: [D, heads, tokens],
      strides: [2 * D, 2 * D * heads],
      box: [64, 1, rows],
      swizzle: 128,
    }),
  };
}

/** A warpgroup more, which loads. */
function threads(consumers: number): number {
  return 128 * (1 + consumers);
}

/** `Plan::SHARED_BYTES`, or of small blocks `SmallPlan::SHARED_BYTES`. */
function sharedBytes(kind: keyof typeof CONSUMERS, D: 64 | 128): number {
  const consumers = CONSUMERS[kind][D];
  const tiles = 2 * D * (SLOTS * 64 * consumers + 2 * STAGES * KEYS);
  return kind === "small"
    ? tiles + 16 * (consumers * SLOTS + STAGES) + 16 * consumers * SLOTS
    : tiles + 16 * (SLOTS + 2 * STAGES) + 32 * SLOTS;
}
