/**
 * Attention on the card, host side: checks arguments and launches the kernels of kernels/attention/. Grids depend on
 * shapes alone; what depends on documents or on the routing is decided on the card.
 */
import { type Attention, earlierBlocks } from "../../attention/attention.ts";
import type { AttentionShape, AttentionState, Backend, Documents, Tensor } from "../contract.ts";
import { checkAttentionCall, checkDecode, checkRouting, sameNumbers } from "../validate.ts";
import { at, ceil, choose, findBlocks, i32, makeLists, meansBytes, ptr } from "./attention-routing.ts";
import { CudaAttentionState, checkKernels, ITEM_ROWS } from "./attention-state.ts";
import { type Context, documentsOf, type KernelArg, type Pointer, types } from "./context.ts";
import { backwardOnHopper } from "./hopper-backward.ts";
import { forwardOnHopper } from "./hopper-forward.ts";

export type AttentionOperations = Pick<
  Backend,
  | "attentionState"
  | "route"
  | "readRouting"
  | "writeRouting"
  | "attentionForward"
  | "attentionBackward"
  | "attentionDecode"
>;

const FORWARD = "attention/forward";
const BACKWARD = "attention/backward";
const LOG2E = Math.LOG2E;
type HeadDim = 64 | 128;
/** Threads of a query tile (QueryTile::THREADS), and keys it takes at once in either direction. */
const TILE_THREADS = 128;
const FORWARD_KEYS = 64;
const BACKWARD_KEYS = 32;
/** Tiles of keys (KeyTile): how many keys, and for each head dimension the queries taken at once and the threads. */
const KEY_TILES = {
  64: { 64: { queries: 64, threads: 128 }, 128: { queries: 64, threads: 128 } },
  128: { 64: { queries: 32, threads: 128 }, 128: { queries: 64, threads: 256 } },
} as const;

export function attentionOperations(context: Context): AttentionOperations {
  const own = (state: AttentionState): CudaAttentionState => {
    if (state instanceof CudaAttentionState && state.context === context) return state;
    throw new RangeError("the attention state belongs to another backend");
  };

  /** The routing must fit the documents; one that was made for them does. */
  const checkRouted = (op: string, state: CudaAttentionState, documents: Documents) => {
    const { routedFor, selected_THS } = state;
    if (!routedFor || !selected_THS || sameNumbers(routedFor, documents.offsets)) return;
    checkRouting(op, state.shape, context.read(selected_THS) as Int32Array, documents);
    state.routedFor = documents.offsets;
  };

  /** Runs `pass(firstHead, heads, partials)` over groups of heads, with scratch for their partial results. */
  const inPasses = (
    state: CudaAttentionState,
    pass: (firstHead: number, heads: number, partial: Pointer | null, partialLse: Pointer | null) => void,
  ) => {
    const { tokens, heads } = state.shape;
    const { atOnce, bytes } = state.partials();
    if (bytes === 0) return pass(0, heads, null, null);
    const partial = context.scratch("attention partial results", bytes);
    const partialLse = context.scratch(
      "attention partial log-sum-exp",
      atOnce * tokens * state.selectedCount * 4,
    );
    for (let first = 0; first < heads; first += atOnce) {
      pass(first, Math.min(atOnce, heads - first), partial, partialLse);
    }
  };

  return {
    attentionState(shape: AttentionShape): AttentionState {
      const state = new CudaAttentionState(context, shape);
      const { selected_THS } = state;
      if (selected_THS) {
        context.launch(
          "attention/routing:attention_unselect",
          [ceil(selected_THS.length, 256), 1, 1],
          [256, 1, 1],
          0,
          [ptr(selected_THS), { i64: selected_THS.length }],
        );
      }
      return state;
    },

    route(given: AttentionState, q_THD: Tensor, k_TGD: Tensor, documents: Documents): void {
      const state = own(given);
      checkAttentionCall(types, "route", state, { q_THD, k_TGD }, documents);
      const { shape, selected_THS, selectedCount, blockSize, blocks, first_M, blockStart_B } = state;
      const { attention, tokens, heads, kvHeads, headDim } = shape;
      if (attention.kind === "full" || !selected_THS) return;
      const onCard = documentsOf(documents);
      findBlocks(context, state, onCard);
      choose(context, {
        ...{ attention, selected_THS, q_THD, k_TGD, heads, kvHeads, headDim, selectedCount, blockSize },
        ...{ tokens, firstToken: 0, blocks, documents: onCard, first_M, blockStart_B },
        means: context.scratch("attention means", meansBytes(kvHeads, blocks, headDim)),
      });
      state.routedFor = documents.offsets;
    },

    readRouting(given: AttentionState): Int32Array {
      const { selected_THS } = own(given);
      return selected_THS ? (context.read(selected_THS) as Int32Array) : new Int32Array(0);
    },

    writeRouting(given: AttentionState, selected_THS: Int32Array, documents: Documents): void {
      const state = own(given);
      checkRouting("writeRouting", state.shape, selected_THS, documents);
      if (state.selected_THS) context.write(state.selected_THS, selected_THS);
      state.routedFor = documents.offsets;
    },

    attentionForward(
      given: AttentionState,
      out_THD: Tensor,
      q_THD: Tensor,
      k_TGD: Tensor,
      v_TGD: Tensor,
      documents: Documents,
    ): void {
      const op = "attentionForward";
      const state = own(given);
      checkAttentionCall(types, op, state, { out_THD, q_THD, k_TGD, v_TGD }, documents);
      checkRouted(op, state, documents);
      const { selectedCount: S, blockSize, blocks, items, selected_THS, lse } = state;
      const { tokens, heads, kvHeads, headDim: D } = state.shape;
      const { document_T, offsets_M } = documentsOf(documents);
      if (blockSize > 0) findBlocks(context, state, documentsOf(documents));
      const past = S > 0 && blocks > 0;
      if (past) makeLists(context, state, documentsOf(documents));
      const scale: KernelArg = { f32: LOG2E / Math.sqrt(D) };
      const inputs = [q_THD, k_TGD, v_TGD].map(ptr);
      const shared = queryTileBytes(D, FORWARD_KEYS, 1);
      inPasses(state, (firstHead, headCount, partial, partialLse) => {
        if (context.hopper) {
          const tensors = { out_THD, q_THD, k_TGD, v_TGD };
          const part = { firstHead, headCount, partial, partialLse };
          forwardOnHopper(context, state, { ...tensors, documents: documentsOf(documents), ...part });
          return;
        }
        const sizes = [heads, kvHeads, past ? S : 0, blockSize, firstHead].map(i32);
        const partials = [ptr(partial), ptr(partialLse)];
        if (past) {
          context.launch(
            `${FORWARD}:attention_forward_past_d${D}`,
            [items, headCount, 1],
            [TILE_THREADS, 1, 1],
            shared,
            [...partials, ...inputs, ...state.lists(), ...sizes, scale],
          );
        }
        context.launch(
          `${FORWARD}:attention_forward_own_d${D}`,
          [ceil(tokens, ITEM_ROWS), headCount, 1],
          [TILE_THREADS, 1, 1],
          shared,
          [
            ...[ptr(out_THD), ptr(lse), ...inputs, ptr(selected_THS), ...partials],
            ...[ptr(document_T), ptr(offsets_M), i32(tokens), ...sizes, scale],
          ],
        );
      });
    },

    attentionBackward(
      given: AttentionState,
      dQ_THD: Tensor,
      dK_TGD: Tensor,
      dV_TGD: Tensor,
      dOut_THD: Tensor,
      out_THD: Tensor,
      q_THD: Tensor,
      k_TGD: Tensor,
      v_TGD: Tensor,
      documents: Documents,
    ): void {
      const op = "attentionBackward";
      const state = own(given);
      const tensors = { dQ_THD, dK_TGD, dV_TGD, dOut_THD, out_THD, q_THD, k_TGD, v_TGD };
      checkAttentionCall(types, op, state, tensors, documents);
      if (context.hopper) {
        backwardOnHopper(context, state, { ...tensors, documents: documentsOf(documents) });
        return;
      }
      const { selectedCount: S, blockSize, blocks, items, first_M, selected_THS, lse } = state;
      const { tokens, heads, kvHeads, headDim: D } = state.shape;
      const { document_T, offsets_M, maxDocuments } = documentsOf(documents);
      const stats = context.scratch("attention stats", tokens * heads * 8);
      context.launch(
        `${BACKWARD}:attention_delta_d${D}`,
        [ceil((tokens * heads * D) / 8, 256), 1, 1],
        [256, 1, 1],
        0,
        [ptr(stats), ptr(out_THD), ptr(dOut_THD), ptr(lse), { i64: tokens * heads }],
      );
      const scale: KernelArg = { f32: 1 / Math.sqrt(D) };
      const inputs = [ptr(dOut_THD), ptr(q_THD), ptr(k_TGD), ptr(v_TGD), ptr(stats)];

      const small = blockSize > 0 && blockSize <= 64;
      const keys = small || keyTileBytes(128, D) > context.card.sharedBytes ? 64 : 128;
      const keyTiles = blockSize === 0 ? ceil(tokens, keys) : (blocks + maxDocuments) * ceil(blockSize, keys);
      context.launch(
        `${BACKWARD}:attention_backward_keys${keys}_d${D}`,
        [keyTiles, kvHeads, 1],
        [KEY_TILES[keys][D as HeadDim].threads, 1, 1],
        keyTileBytes(keys, D),
        [
          ...[ptr(dK_TGD), ptr(dV_TGD), ...inputs, ...state.lists()],
          ...[ptr(first_M && at(context, first_M, maxDocuments)), ptr(document_T), ptr(offsets_M)],
          ...[...[tokens, heads, kvHeads, blockSize].map(i32), scale],
        ],
      );

      const past = S > 0 && blocks > 0;
      const shared = queryTileBytes(D, BACKWARD_KEYS, 2);
      inPasses(state, (first, count, partial) => {
        const sizes = [heads, kvHeads, past ? S : 0, blockSize, first].map(i32);
        if (past) {
          context.launch(
            `${BACKWARD}:attention_backward_past_d${D}`,
            [items, count, 1],
            [TILE_THREADS, 1, 1],
            shared,
            [ptr(partial), ...inputs, ...state.lists(), ...sizes, scale],
          );
        }
        context.launch(
          `${BACKWARD}:attention_backward_own_d${D}`,
          [ceil(tokens, ITEM_ROWS), count, 1],
          [TILE_THREADS, 1, 1],
          shared,
          [
            ...[ptr(dQ_THD), ...inputs, ptr(selected_THS), ptr(partial)],
            ...[ptr(document_T), ptr(offsets_M), i32(tokens), ...sizes, scale],
          ],
        );
      });
    },

    attentionDecode(
      out_HD: Tensor,
      q_HD: Tensor,
      kCache_TGD: Tensor,
      vCache_TGD: Tensor,
      length: number,
      attention: Attention,
    ): void {
      const { H, G, D, T } = checkDecode(types, { out_HD, q_HD, kCache_TGD, vCache_TGD }, length, attention);
      const S = earlierBlocks(attention);
      checkKernels("attentionDecode", D, S, T);
      const blockSize = attention.kind === "full" ? 0 : Math.min(attention.blockSize, T);
      const selected = S > 0 ? context.scratch("attention decode choice", H * S * 4) : null;
      if (attention.kind !== "full" && selected !== null) {
        const blocks = Math.floor((length - 1) / blockSize);
        choose(context, {
          ...{ attention, selected_THS: selected, q_THD: q_HD, k_TGD: kCache_TGD },
          ...{ heads: H, kvHeads: G, headDim: D, selectedCount: S, blockSize },
          ...{
            tokens: 1,
            firstToken: length - 1,
            blocks,
            documents: null,
            first_M: null,
            blockStart_B: null,
          },
          means: context.scratch("attention means", meansBytes(G, Math.floor(T / blockSize), D)),
        });
      }
      context.launch(`attention/decode:attention_decode_d${D}`, [H, 1, 1], [256, 1, 1], 0, [
        ...[ptr(out_HD), ptr(q_HD), ptr(kCache_TGD), ptr(vCache_TGD), ptr(selected)],
        ...[...[length, H, G, S, blockSize].map(i32), { f32: LOG2E / Math.sqrt(D) }],
      ]);
    },
  };
}

/** Shared memory of a QueryTile: `tiles` tiles of queries, two stages of keys and values. */
function queryTileBytes(D: number, keys: number, tiles: number): number {
  return 2 * D * (tiles * ITEM_ROWS + 2 * 2 * keys);
}

/** Shared memory of a KeyTile: keys and values, two stages of queries and gradients with stats and bounds. */
function keyTileBytes(keys: 64 | 128, D: number): number {
  const { queries } = KEY_TILES[keys][D as HeadDim];
  return 2 * D * (2 * keys + 2 * 2 * queries) + 2 * queries * 16;
}
