/**
 * How an attention over packed documents is cut into blocks, key tiles and units of work, as the tables of 32-bit
 * numbers that the kernels read (kernels/attention/layout.ts). The cut depends on shapes and documents alone, never
 * on the number of workers, and so do the results' bits.
 */
import type { AttentionShape } from "../contract.ts";

/** Most keys of a block that is one tile; longer ones are cut into tiles of at most KEY_TILE. */
const WHOLE_TILE = 128;
const KEY_TILE = 96;
/** Query rows worked on together. */
export const ROW_TILE = 48;
/** Chunks of a long document: units of routed attention, and the sides of the backward's square of units. */
const CHUNKS = 8;
const SMALLEST_CHUNK = 256;
/** Queries of a unit when there are no earlier blocks to gather rows for. */
const PLAIN_CHUNK = 4 * ROW_TILE;
/** Queries of a unit of routing. */
export const ROUTE_ROWS = 96;

export interface Table {
  readonly words: number[];
  count: number;
}

export interface Plan {
  readonly blockSize: number;
  readonly keyTileSize: number;
  readonly maxBlocks: number;
  /** Sum over tiles of their keys, rounded up to whole panels of 8. */
  readonly paddedKeys: number;
  readonly paddedMeans: number;
  readonly documents: Table;
  readonly blocks: Table;
  readonly keyTiles: Table;
  /** Chunks of each document: first token, end, first key tile, end. */
  readonly chunks: readonly (readonly Chunk[])[];
  readonly chunkSize: number;
}

interface Chunk {
  readonly start: number;
  readonly end: number;
  readonly firstTile: number;
  readonly endTile: number;
}

const table = (): Table => ({ words: [], count: 0 });

function add(to: Table, ...words: number[]): void {
  to.words.push(...words);
  to.count++;
}

const up = (n: number, multiple: number) => Math.ceil(n / multiple) * multiple;

export function planAttention(shape: AttentionShape, offsets: readonly number[]): Plan {
  const { attention } = shape;
  // Full attention: one block per document.
  const blockSize = attention.kind === "full" ? 0x7fffffff : Math.min(attention.blockSize, 0x7fffffff);
  const tilesPerBlock = blockSize <= WHOLE_TILE ? 1 : Math.ceil(blockSize / KEY_TILE);
  const keyTileSize = up(Math.ceil(blockSize / tilesPerBlock), 8);
  const documents = table();
  const blocks = table();
  const keyTiles = table();
  const chunks: Chunk[][] = [];
  let paddedKeys = 0;
  let paddedMeans = 0;
  let maxBlocks = 0;
  let chunkSize = 0;
  for (let d = 0; d + 1 < offsets.length; d++) {
    const [start, end] = [offsets[d], offsets[d + 1]];
    const firstTile = keyTiles.count;
    const tileStarts: number[] = [];
    add(documents, start, end, blocks.count, Math.ceil((end - start) / blockSize), paddedMeans);
    maxBlocks = Math.max(maxBlocks, Math.ceil((end - start) / blockSize));
    paddedMeans += up(Math.floor((end - start) / blockSize), 8);
    for (let block = start; block < end; block += blockSize) {
      const blockEnd = Math.min(block + blockSize, end);
      const first = keyTiles.count;
      for (let tile = block; tile < blockEnd; tile += keyTileSize) {
        const count = Math.min(keyTileSize, blockEnd - tile);
        tileStarts.push(tile);
        add(keyTiles, tile, count, paddedKeys);
        paddedKeys += up(count, 8);
      }
      add(blocks, block, blockEnd, first, keyTiles.count);
    }

    const size = Math.max(SMALLEST_CHUNK, Math.ceil((end - start) / CHUNKS));
    const own: Chunk[] = [];
    for (let i = 0; i < tileStarts.length; ) {
      let next = i + 1;
      while (next < tileStarts.length && (tileStarts[next + 1] ?? end) - tileStarts[i] <= size) next++;
      const chunkEnd = tileStarts[next] ?? end;
      own.push({ start: tileStarts[i], end: chunkEnd, firstTile: firstTile + i, endTile: firstTile + next });
      chunkSize = Math.max(chunkSize, chunkEnd - tileStarts[i]);
      i = next;
    }
    chunks.push(own);
  }
  return {
    blockSize,
    keyTileSize,
    maxBlocks,
    paddedKeys,
    paddedMeans,
    documents,
    blocks,
    keyTiles,
    chunks,
    chunkSize: Math.max(chunkSize, PLAIN_CHUNK),
  };
}

/** Units of the forward: head, document, first query, end. The longest work first. */
export function forwardUnits(plan: Plan, heads: number, routed: boolean): Table {
  const units = table();
  for (let d = 0; d < plan.chunks.length; d++) {
    const chunks = plan.chunks[d];
    const [start, end] = [chunks[0].start, chunks[chunks.length - 1].end];
    if (routed) {
      for (let i = chunks.length - 1; i >= 0; i--) {
        for (let h = 0; h < heads; h++) add(units, h, d, chunks[i].start, chunks[i].end);
      }
    } else {
      for (let i = Math.ceil((end - start) / PLAIN_CHUNK) - 1; i >= 0; i--) {
        const first = start + i * PLAIN_CHUNK;
        for (let h = 0; h < heads; h++) add(units, h, d, first, Math.min(first + PLAIN_CHUNK, end));
      }
    }
  }
  return units;
}

/** Units of routing: gating head, document, first query, end. */
export function routeUnits(offsets: readonly number[], gatingHeads: number): Table {
  const units = table();
  for (let d = 0; d + 1 < offsets.length; d++) {
    for (let t = offsets[d]; t < offsets[d + 1]; t += ROUTE_ROWS) {
      for (let h = 0; h < gatingHeads; h++) add(units, h, d, t, Math.min(t + ROUTE_ROWS, offsets[d + 1]));
    }
  }
  return units;
}

/** Groups of up to 8 whole blocks of one document: first token, blocks, first mean. */
export function meanGroups(plan: Plan, offsets: readonly number[]): Table {
  const groups = table();
  let padded = 0;
  for (let d = 0; d + 1 < offsets.length; d++) {
    const whole = Math.floor((offsets[d + 1] - offsets[d]) / plan.blockSize);
    for (let b = 0; b < whole; b += 8, padded += 8) {
      add(groups, offsets[d] + b * plan.blockSize, Math.min(8, whole - b), padded);
    }
  }
  return groups;
}

/**
 * Units of the backward, by rounds: key/value head, document, first query, end, first key tile, end. In round r the
 * queries of chunk i meet the keys of chunk i - r.
 */
export function backwardRounds(plan: Plan, kvHeads: number): { units: Table; rounds: number[] } {
  const units = table();
  const rounds: number[] = [];
  const most = plan.chunks.reduce((count, chunks) => Math.max(count, chunks.length), 0);
  for (let r = 0; r < most; r++) {
    const before = units.count;
    for (let d = 0; d < plan.chunks.length; d++) {
      const chunks = plan.chunks[d];
      for (let i = r; i < chunks.length; i++) {
        const { firstTile, endTile } = chunks[i - r];
        for (let g = 0; g < kvHeads; g++)
          add(units, g, d, chunks[i].start, chunks[i].end, firstTile, endTile);
      }
    }
    rounds.push(units.count - before);
  }
  return { units, rounds };
}
