/**
 * What an attention layer keeps on the card between forward and backward: the routing, and for each head and whole
 * block the list of the queries that chose it, with the table of work items cut from the lists (kernels/attention/).
 */
import { earlierBlocks } from "../../attention/attention.ts";
import type { AttentionShape, AttentionState, Tensor } from "../contract.ts";
import { checkAttentionShape } from "../validate.ts";
import type { Context, KernelArg } from "./context.ts";

/** Head dimensions with kernels. */
const HEAD_DIMS = [64, 128];
/** Entries of lists are 16 * token + rank. */
const MOST_BLOCKS = 16;
const MOST_TOKENS = 2 ** 27;
/** Partial results of so many heads at once as fit into this; of one at least. */
const PARTIAL_BYTES = 2 ** 31;
/** Queries of a work item (QueryTile::ROWS of both directions). */
export const ITEM_ROWS = 128;

/** Throws a `RangeError` that names what there is no kernel for. */
export function checkKernels(op: string, headDim: number, selectedCount: number, tokens: number): void {
  if (!HEAD_DIMS.includes(headDim)) {
    throw new RangeError(`${op}: headDim is ${headDim}, expected ${HEAD_DIMS.join(" or ")}`);
  }
  if (selectedCount + 1 > MOST_BLOCKS) {
    throw new RangeError(`${op}: topK is ${selectedCount + 1}, expected at most ${MOST_BLOCKS}`);
  }
  if (tokens >= MOST_TOKENS) {
    throw new RangeError(`${op}: tokens is ${tokens}, expected fewer than ${MOST_TOKENS}`);
  }
}

export class CudaAttentionState implements AttentionState {
  readonly shape: AttentionShape;
  readonly lse: Tensor;
  /** The context it was made by. */
  readonly context: Context;
  /** S */
  readonly selectedCount: number;
  /** 0 for full attention, else at most the number of tokens. */
  readonly blockSize: number;
  /** The most whole blocks that the tokens can hold. */
  readonly blocks: number;
  /** Of a head, at most: every list but its last tile is full. */
  readonly items: number;
  /** Chunks of tokens that lists are made from, and their length. */
  readonly chunks: number;
  readonly chunk: number;
  /** Whole blocks in front of each document, their number last; where each starts. Null for full attention. */
  readonly first_M: Tensor | null = null;
  readonly blockStart_B: Tensor | null = null;
  /** Null where nothing is ever chosen. */
  readonly selected_THS: Tensor | null = null;
  readonly #lists:
    | { readonly [name in "entries" | "starts" | "counts" | "items" | "itemCounts"]: Tensor }
    | null = null;
  /** i32 [1], zero between launches: a counter of Hopper's kernels. */
  readonly taken: Tensor;
  /** The offsets that the routing was made for; null when nothing has been chosen yet. */
  routedFor: readonly number[] | null = null;

  constructor(context: Context, shape: AttentionShape) {
    checkAttentionShape(shape);
    const { tokens, heads, maxDocuments, attention } = shape;
    const S = earlierBlocks(attention);
    checkKernels("attentionState", shape.headDim, S, tokens);
    const index = (...dims: number[]) =>
      context.tensor(
        dims.map((n) => Math.max(n, 1)),
        "index",
      );
    this.shape = { ...shape };
    this.context = context;
    this.lse = context.tensor([tokens, heads], "float");
    this.taken = index(1);
    this.selectedCount = S;
    this.blockSize = attention.kind === "full" ? 0 : Math.min(attention.blockSize, tokens);
    this.blocks = this.blockSize === 0 ? 0 : Math.floor(tokens / this.blockSize);
    this.items = Math.floor((tokens * S) / ITEM_ROWS) + this.blocks;
    // So many that all multiprocessors have work; the table of counts is at most as large as the lists.
    const chunks = Math.min(64, Math.max(1, S * this.blockSize), Math.ceil(tokens / 1024));
    this.chunk = Math.ceil(tokens / chunks);
    this.chunks = Math.ceil(tokens / this.chunk);
    if (attention.kind === "full") return;
    this.first_M = index(maxDocuments + 1);
    this.blockStart_B = index(this.blocks);
    if (S === 0) return;
    this.selected_THS = index(tokens, heads, S);
    this.#lists = {
      entries: index(heads, tokens * S),
      starts: index(heads, this.blocks),
      counts: index(heads, this.blocks),
      items: index(heads, this.items, 4),
      itemCounts: index(heads),
    };
  }

  /** The tensor of a part of the lists; null where there are none. */
  list(name: "entries" | "starts" | "counts" | "items" | "itemCounts"): Tensor | null {
    return this.#lists?.[name] ?? null;
  }

  /** Partial results [heads, T S, D] in bf16: of how many heads at once, and their bytes. */
  partials(): { readonly atOnce: number; readonly bytes: number } {
    const { tokens, heads, headDim } = this.shape;
    if (this.selectedCount === 0 || this.blocks === 0) return { atOnce: heads, bytes: 0 };
    const perHead = tokens * this.selectedCount * headDim * 2;
    const atOnce = Math.max(1, Math.min(heads, Math.floor(PARTIAL_BYTES / perHead)));
    return { atOnce, bytes: atOnce * perHead };
  }

  /** The kernel arguments that make up `Lists`. */
  lists(): KernelArg[] {
    return [
      ...(["entries", "starts", "counts", "items", "itemCounts"] as const).map((name) => ({
        ptr: this.list(name),
      })),
      { ptr: this.blockStart_B },
      { i64: this.shape.tokens * this.selectedCount },
      { i32: this.blocks },
      { i32: this.items },
    ];
  }
}
