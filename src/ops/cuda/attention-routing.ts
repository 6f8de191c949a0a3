/** Routing on the card: block means, choice, static gates, and the lists of queries per block. */
import type { Attention } from "../../attention/attention.ts";
import type { Tensor } from "../contract.ts";
import { type CudaAttentionState, ITEM_ROWS } from "./attention-state.ts";
import type { Context, CudaDocuments, KernelArg, Pointer } from "./context.ts";

const ROUTING = "attention/routing";
const LISTS = "attention/lists";
/** Of kernels/attention/routing.cu and lists.cu. */
const ROUTE_ROWS = 128;
const ROUTE_BLOCKS = 32;
const LIST_RANGE = 8192;
const MEAN_COLUMNS = 128;
/** Warps that fill lists together, and the shared memory for their counters. */
const LIST_WARPS = 8;
const LIST_BYTES = 65_536;
/** Of kernels/hopper/route.cu: columns and rows of a box of means, stages, and the warpgroups that choose. */
const HOPPER_BOX = 64;
const HOPPER_STAGES = 4;
const hopperGroups = (places: number) => (places > 7 ? 2 : 4);
/** The instances of the routing kernel: places for the choice. */
const PLACES = [3, 7, 15];
/** Most of a grid's second dimension. */
const GRID_Y = 65_535;

export const i32 = (n: number): KernelArg => ({ i32: n });
export const ptr = (pointer: Tensor | Pointer | null): KernelArg => ({ ptr: pointer });
export const ceil = (n: number, per: number) => Math.ceil(n / per);

/** What choosing needs, for whole batches and for one token alike. */
export interface Choosing {
  readonly attention: Exclude<Attention, { kind: "full" }>;
  readonly selected_THS: Tensor | Pointer;
  readonly q_THD: Tensor;
  readonly k_TGD: Tensor;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly selectedCount: number;
  readonly blockSize: number;
  /** Queries, and the token of the first. */
  readonly tokens: number;
  readonly firstToken: number;
  /** Whole blocks at most. */
  readonly blocks: number;
  /** Null: one document, and `blocks` is the number of blocks. */
  readonly documents: CudaDocuments | null;
  readonly first_M: Tensor | null;
  readonly blockStart_B: Tensor | null;
  /** bf16 [3, G, blocks, D] of scratch. */
  readonly means: Pointer;
}

/** Bytes of the means of `blocks` blocks. */
export function meansBytes(kvHeads: number, blocks: number, headDim: number): number {
  return 3 * kvHeads * blocks * headDim * 2;
}

/** Finds the whole blocks of the documents. */
export function findBlocks(context: Context, state: CudaAttentionState, documents: CudaDocuments): void {
  context.launch(`${ROUTING}:attention_blocks`, [1, 1, 1], [1024, 1, 1], 0, [
    ptr(state.first_M),
    ptr(state.blockStart_B),
    ptr(documents.offsets_M),
    i32(documents.maxDocuments),
    i32(state.blockSize),
  ]);
}

/** Fills `selected_THS`. */
export function choose(context: Context, c: Choosing): void {
  const { attention, documents, heads, kvHeads, headDim, tokens, blocks, blockSize, selectedCount } = c;
  const places = [ptr(documents?.document_T ?? null), ptr(documents?.offsets_M ?? null)];
  const sizes = [i32(tokens), i32(c.firstToken), i32(heads)];
  if (attention.kind !== "moba") {
    context.launch(
      `${ROUTING}:attention_static_gate`,
      [ceil(tokens * heads * selectedCount, 256), 1, 1],
      [256, 1, 1],
      0,
      [
        ...[ptr(c.selected_THS), ...places, ...sizes],
        ...[i32(selectedCount), i32(blockSize), i32(attention.kind === "sink" ? 1 : 0)],
      ],
    );
    return;
  }
  if (blocks > 0) {
    const wholeBlocks = c.first_M && documents ? at(context, c.first_M, documents.maxDocuments) : null;
    const y = Math.min(blocks, GRID_Y);
    context.launch(
      `${ROUTING}:attention_means`,
      [ceil(kvHeads * headDim, MEAN_COLUMNS), y, ceil(blocks, y)],
      [256, 1, 1],
      0,
      [
        ...[ptr(c.means), ptr(c.k_TGD), ptr(c.blockStart_B), ptr(wholeBlocks)],
        ...[i32(kvHeads), i32(headDim), i32(blockSize), i32(blocks)],
      ],
    );
  }
  const shared = attention.sharedGate === true;
  const size = PLACES.find((places) => places >= selectedCount)!;
  if (context.hopper && !shared && c.first_M && blocks > 0) {
    const groups = hopperGroups(size);
    const means = context.tensorMap({
      pointer: c.means,
      dtype: "bf16",
      sizes: [headDim, blocks, 3 * kvHeads],
      strides: [2 * headDim, 2 * headDim * blocks],
      box: [HOPPER_BOX, HOPPER_BOX, 1],
      swizzle: 128,
    });
    context.launch(
      `hopper/route:hopper_route_d${headDim}_s${size}`,
      [Math.min(context.card.multiprocessors, ceil(tokens, 64 * groups) * heads), 1, 1],
      [128 * (groups + 1), 1, 1],
      HOPPER_STAGES * (3 * HOPPER_BOX * 2 * headDim + 16),
      [
        ...[ptr(c.selected_THS), ptr(c.q_THD), { struct: means }, ...places, ptr(c.first_M)],
        ...[tokens, heads, kvHeads, selectedCount, blockSize].map(i32),
      ],
    );
    return;
  }
  context.launch(
    `${ROUTING}:attention_route${shared ? "_shared" : ""}_d${headDim}_s${size}`,
    [ceil(tokens, ROUTE_ROWS), shared ? kvHeads : heads, 1],
    [256, 1, 1],
    2 * 3 * ROUTE_BLOCKS * 2 * headDim,
    [
      ...[ptr(c.selected_THS), ptr(c.q_THD), ptr(c.means), ...places, ptr(c.first_M), ...sizes],
      ...[i32(kvHeads), i32(blocks), i32(selectedCount), i32(blockSize)],
    ],
  );
}

/** Element `offset` of an index tensor. */
export function at(context: Context, tensor: Tensor, offset: number): Tensor {
  return context.view(tensor, offset, [1]);
}

/** Makes the lists and work items of the current choice. */
export function makeLists(context: Context, state: CudaAttentionState, documents: CudaDocuments): void {
  const { selectedCount, blocks, chunks, chunk, items } = state;
  const { tokens, heads } = state.shape;
  const counts_HCB = ptr(context.scratch("attention list counts", heads * chunks * blocks * 4));
  const choice = [ptr(state.selected_THS), ptr(documents.document_T), ptr(state.first_M)];
  const sizes = [tokens, heads, selectedCount, chunk, blocks].map(i32);
  const grid = [chunks, heads, ceil(blocks, LIST_RANGE)] as const;
  const counterBytes = Math.min(blocks, LIST_RANGE) * 4;
  const warps = Math.min(LIST_WARPS, Math.floor(LIST_BYTES / counterBytes));
  const starts = ptr(state.list("starts"));
  context.launch(`${LISTS}:attention_lists_count`, grid, [256, 1, 1], counterBytes, [
    counts_HCB,
    ...choice,
    ...sizes,
  ]);
  context.launch(`${LISTS}:attention_lists_scan`, [heads, 1, 1], [1024, 1, 1], 0, [
    ...[starts, ptr(state.list("counts")), ptr(state.list("items")), ptr(state.list("itemCounts"))],
    ...[counts_HCB, ptr(state.blockStart_B), ...[chunks, blocks, ITEM_ROWS, items].map(i32)],
  ]);
  context.launch(`${LISTS}:attention_lists_fill`, grid, [32 * warps, 1, 1], warps * counterBytes, [
    ...[ptr(state.list("entries")), counts_HCB, starts, ...choice, ...sizes],
    { i64: tokens * selectedCount },
  ]);
}
