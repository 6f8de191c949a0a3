/**
 * What the host hands to the attention kernels: one argument block, and tables of 32-bit numbers that cut the packed
 * batch into documents, blocks, key tiles and units of work. src/ops/cpu/attention.ts writes them.
 *
 * Shapes: T tokens, H query heads, G key/value heads, D head dimension, S selected earlier blocks per query.
 */

export const GATE_NONE: i32 = 0;
export const GATE_MOBA: i32 = 1;
export const GATE_WINDOW: i32 = 2;
export const GATE_SINK: i32 = 3;

/** Field order is the host's order; every field is 32 bits. */
@unmanaged
export class Arguments {
  q_THD: usize;
  k_TGD: usize;
  v_TGD: usize;
  out_THD: usize;
  lse_TH: usize;
  selected_THS: usize;
  /** Gate scores of earlier blocks [T, gating heads, maxBlocks]; 0: not kept. */
  scores_TZB: usize;
  dOut_THD: usize;
  dQ_THD: usize;
  dK_TGD: usize;
  dV_TGD: usize;
  /** Row sums of dOut * out. */
  delta_TH: usize;
  documents: usize;
  blocks: usize;
  keyTiles: usize;
  units: usize;
  /** Forward, panels per key/value head and key tile: keys transposed [D][keys], values [keys][D]. */
  keysTransposed: usize;
  values: usize;
  /** Backward: panels of keys [keys][D], rows of keys and of values. */
  keys: usize;
  keyRows: usize;
  valueRows: usize;
  /** Panels of block means per key/value head and document. */
  means: usize;
  meanGroups: usize;
  meanGroupCount: i32;
  tokens: i32;
  heads: i32;
  kvHeads: i32;
  headDim: i32;
  blockSize: i32;
  selectedCount: i32;
  /** Largest number of keys of a tile and of query rows worked on together. */
  keyTileSize: i32;
  rowTileSize: i32;
  /** Most tokens of a unit's query chunk, and most blocks of a document. */
  chunkSize: i32;
  maxBlocks: i32;
  keyTileCount: i32;
  /** Keys of all tiles, each tile rounded up to whole panels. */
  paddedKeys: i32;
  /** Block means of all documents, each document rounded up to whole panels. */
  paddedMeans: i32;
  /** 1: gates are shared in a key/value group. */
  sharedGate: i32;
  /** One of the GATE_ numbers. */
  gate: i32;
  scale: f32;
  /** Worker w's scratch starts at scratch + w * scratchStride. */
  scratch: usize;
  scratchStride: i32;
}

@unmanaged
export class Document {
  start: i32;
  end: i32;
  firstBlock: i32;
  blockCount: i32;
  /** Where its block means start, in means. */
  firstMean: i32;
}

@unmanaged
export class Block {
  start: i32;
  end: i32;
  firstTile: i32;
  endTile: i32;
}

@unmanaged
export class KeyTile {
  start: i32;
  count: i32;
  /** Where its panels start, in keys. */
  padded: i32;
}

/** Forward: queries start .. end of one head. Route and static gate: of one gating head (head or key/value head). */
@unmanaged
export class QueryUnit {
  head: i32;
  document: i32;
  start: i32;
  end: i32;
}

/** Backward: queries start .. end of all heads of a group against the keys of tiles firstTile .. endTile. */
@unmanaged
export class PairUnit {
  kvHead: i32;
  document: i32;
  start: i32;
  end: i32;
  firstTile: i32;
  endTile: i32;
}

/** Up to 8 consecutive whole blocks of one document. */
@unmanaged
export class MeanGroup {
  /** First token of the first block. */
  start: i32;
  count: i32;
  /** Where its means start, in means. */
  padded: i32;
}

// @ts-ignore: decorator
@inline
export function documentAt(a: Arguments, index: i32): Document {
  return changetype<Document>(a.documents + <usize>index * offsetof<Document>());
}

// @ts-ignore: decorator
@inline
export function blockAt(a: Arguments, index: i32): Block {
  return changetype<Block>(a.blocks + <usize>index * offsetof<Block>());
}

// @ts-ignore: decorator
@inline
export function keyTileAt(a: Arguments, index: i32): KeyTile {
  return changetype<KeyTile>(a.keyTiles + <usize>index * offsetof<KeyTile>());
}

// @ts-ignore: decorator
@inline
export function roundUp(n: i32, multiple: i32): i32 {
  return ((n + multiple - 1) / multiple) * multiple;
}

/** Bytes of `count` 32-bit numbers, as a pointer offset. */
// @ts-ignore: decorator
@inline
export function words(count: i32): usize {
  return (<usize>count) << 2;
}

/**
 * Rows to take next of `left` rows: equal tiles of at most `most`, whole numbers of 6 (the height of the matrix
 * kernel) but for the last.
 */
export function nextRows(left: i32, most: i32): i32 {
  const tiles = (left + most - 1) / most;
  const rows = roundUp((left + tiles - 1) / tiles, 6);
  return rows < left ? rows : left;
}
