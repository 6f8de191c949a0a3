/** Attention backward by Hopper's own kernels (kernels/hopper/backward.cu), host side. */
import type { Tensor } from "../contract.ts";
import { at, ceil, i32, ptr } from "./attention-routing.ts";
import type { CudaAttentionState } from "./attention-state.ts";
import type { Context, CudaDocuments, KernelArg, Pointer } from "./context.ts";
import { rowsMap } from "./hopper-forward.ts";

const BACKWARD = "hopper/backward";
/** Of `KeysPass`: keys of a tile and threads; a tile of queries has TILE_VALUES values. */
const KEYS = 128;
const THREADS = 384;
const STAGES = 2;
const TILE_VALUES = 8192;
/** `Unit` in bytes. A unit has UNIT_LISTS times the tiles of an average list, or UNIT_TILES when that is more. */
const UNIT_BYTES = 32;
const UNIT_LISTS = 4;
const UNIT_TILES = 8;
/**
 * Sums of so many key/value heads at once as fit into this, or into what forward had for its partial results when that
 * is more; of one at least.
 */
const SUM_BYTES = 2 ** 30;
/**
 * Full attention: values of q of a document, in the key/value heads whose tiles take turns, at least. More heads wait
 * less for each other's sums, fewer keep their queries in the L2 cache.
 */
const TOGETHER_VALUES = 2 ** 24;

export interface HopperBackward {
  readonly dQ_THD: Tensor;
  readonly dK_TGD: Tensor;
  readonly dV_TGD: Tensor;
  readonly dOut_THD: Tensor;
  readonly out_THD: Tensor;
  readonly q_THD: Tensor;
  readonly k_TGD: Tensor;
  readonly v_TGD: Tensor;
  readonly documents: CudaDocuments;
}

/** The tiles of sums of dQ, and how many key/value heads' at once: what lies in the scratch of forward's partial results. */
function sumsOf(state: CudaAttentionState) {
  const { shape, selectedCount, blockSize, blocks } = state;
  const { tokens, heads, kvHeads, headDim, maxDocuments } = shape;
  const queries = TILE_VALUES / headDim;
  const listTiles = selectedCount === 0 ? 0 : Math.floor((tokens * selectedCount) / queries) + blocks;
  const ownTiles =
    blockSize === 0 ? ceil(tokens, queries) : Math.floor(tokens / queries) + blocks + maxDocuments + 1;
  const tilesPerHead = listTiles + ownTiles;
  const bytesPerHead = (heads / kvHeads) * tilesPerHead * TILE_VALUES * 4;
  const most = Math.max(SUM_BYTES, state.partials().bytes);
  const rounds = ceil(kvHeads, Math.max(1, Math.floor(most / bytesPerHead)));
  const atOnce = ceil(kvHeads, rounds);
  return { listTiles, tilesPerHead, atOnce, bytes: atOnce * bytesPerHead };
}

export function backwardOnHopper(context: Context, state: CudaAttentionState, pass: HopperBackward): void {
  const { dQ_THD, dK_TGD, dV_TGD, dOut_THD, out_THD, q_THD, k_TGD, v_TGD } = pass;
  const { tokens, heads, kvHeads, headDim: D } = state.shape;
  const { selectedCount, blockSize, blocks, first_M, blockStart_B } = state;
  const { document_T, offsets_M, maxDocuments } = pass.documents;
  const group = heads / kvHeads;
  const queries = TILE_VALUES / D;
  const launch = (
    name: string,
    grid: readonly [number, number?],
    threads: number,
    sharedBytes: number,
    args: KernelArg[],
  ) =>
    context.launch(
      `${BACKWARD}:hopper_${name}_d${D}`,
      [grid[0], grid[1] ?? 1, 1],
      [threads, 1, 1],
      sharedBytes,
      args,
    );
  const maps = [
    rowsMap(context, q_THD, queries),
    rowsMap(context, dOut_THD, queries),
    rowsMap(context, k_TGD, KEYS),
    rowsMap(context, v_TGD, KEYS),
  ];
  const gradients = [ptr(dK_TGD), ptr(dV_TGD)];
  const scale: KernelArg = { f32: 1 / Math.sqrt(D) };
  const places = [ptr(document_T), ptr(offsets_M)];
  const shared = sharedBytes(D, queries);

  const paddedTokens = 128 * ceil(tokens, 128);
  const stats = ptr(context.scratch("attention stats", (heads * paddedTokens + 1) * 8));
  launch("backward_stats", [ceil(heads * paddedTokens * D, 8 * 256)], 256, 0, [
    ...[stats, ptr(out_THD), ptr(dOut_THD), ptr(state.lse), i32(tokens), i32(heads)],
  ]);

  const { listTiles, tilesPerHead, atOnce, bytes } = sumsOf(state);
  const sums = ptr(context.scratch("attention partial results", bytes));
  const addedCount = atOnce * group * tilesPerHead;
  /** Calls `run(firstKvHead, kvHeads)` for as many key/value heads at once, with `counters` at zero. */
  const inRounds = (counters: Pointer, count: number, run: (first: number, count: number) => void) => {
    for (let first = 0; first < kvHeads; first += atOnce) {
      context.zeroBytes(counters, count * 4);
      run(first, Math.min(atOnce, kvHeads - first));
    }
  };
  const mergeGrid = (kvCount: number): [number] => [ceil((tokens * kvCount * group * D) / 4, 256)];

  if (blockSize === 0) {
    const added = context.scratch("attention gradient counters", addedCount * 4);
    // By the average length of as many documents as there may be: what there are is known on the card alone.
    const least = Math.max(2, Math.floor((TOGETHER_VALUES * maxDocuments) / (tokens * D)));
    inRounds(added, addedCount, (first, count) => {
      const together = ceil(count, Math.max(1, Math.floor(count / least)));
      launch("backward_full", [together * ceil(tokens, KEYS), ceil(count, together)], THREADS, shared, [
        ...[...gradients, ...maps, stats, sums, ptr(added), ...places],
        ...[...[tokens, heads, kvHeads, first, count, together].map(i32), scale],
      ]);
      launch("query_gradients_full", mergeGrid(count), 256, 0, [
        ...[ptr(dQ_THD), sums, ...[tokens, heads, first * group, count * group].map(i32), scale],
      ]);
    });
    return;
  }

  const entriesPerHead: KernelArg = { i64: tokens * selectedCount };
  const most = Math.max(UNIT_TILES, UNIT_LISTS * ceil(group * listTiles, blocks));
  const cuts = Math.floor((group * listTiles) / most);
  const units = blocks + cuts;
  const keyTiles = ceil(blockSize, KEYS);
  const unitTable = context.scratch("attention units", kvHeads * units * UNIT_BYTES + kvHeads * 4);
  const unitArgs = [ptr(unitTable), ptr(unitTable + BigInt(kvHeads * units * UNIT_BYTES))];
  launch("list_units", [kvHeads], 1024, 0, [
    ...[...unitArgs, ptr(state.list("counts")), ptr(first_M && at(context, first_M, maxDocuments))],
    ...[ptr(blockStart_B), ptr(document_T)],
    ...[blocks, heads, kvHeads, units, most].map(i32),
  ]);
  const place = ptr(
    context.scratch("attention gradient places", tokens * atOnce * group * selectedCount * 4 + 4),
  );
  const cutTiles = atOnce * cuts * keyTiles;
  const keySums = ptr(context.scratch("attention key sums", cutTiles * 2 * KEYS * D * 4 + 4));
  const counters = context.scratch("attention gradient counters", (addedCount + cutTiles) * 4);
  const done = ptr(counters + BigInt(addedCount * 4));
  inRounds(counters, addedCount + cutTiles, (first, count) => {
    launch("backward_blocks", [(units + maxDocuments) * keyTiles, count], THREADS, shared, [
      ...[...gradients, ...maps, ptr(dOut_THD), ptr(q_THD), stats],
      ...(["entries", "starts", "counts"] as const).map((name) => ptr(state.list(name))),
      ...[ptr(blockStart_B), ptr(first_M), ...unitArgs, sums, ptr(counters), place, keySums, done, ...places],
      ...[entriesPerHead, ...[blocks, units, cuts, tilesPerHead].map(i32)],
      ...[...[tokens, heads, kvHeads, blockSize, selectedCount, first].map(i32), scale],
    ]);
    launch("query_gradients_blocks", mergeGrid(count), 256, 0, [
      ...[ptr(dQ_THD), sums, place, ptr(state.selected_THS), ...places, ptr(first_M), entriesPerHead],
      ...[blocks, blockSize, selectedCount, tokens, heads, first * group, count * group, tilesPerHead].map(
        i32,
      ),
      scale,
    ]);
  });
}

/** `KeysPass::SHARED`. */
function sharedBytes(D: number, queries: number): number {
  const keys = 2 * KEYS * 2 * D;
  const stages = STAGES * (2 * queries * 2 * D + queries * 8 + 16 + 2 * 8);
  const gradients = 2 * queries * KEYS * 2 + 2 * 64 * 64 * 4;
  return keys + stages + gradients + 4 * 8;
}
