/**
 * Attention forward: one unit is a chunk of queries of one head. Its queries attend in tiles of rows to tiles of
 * keys with an online softmax: first to their own block up to themselves, then to each earlier block, in ascending
 * order, by the rows gathered that selected it. Full attention is one block per document and no earlier ones. A
 * query's running outputs lie unnormalised in `out` between its blocks.
 */
import { gemmPanels } from "../micro";
import { log } from "../simd";
import { Arguments, Block, KeyTile, QueryUnit, blockAt, documentAt, keyTileAt, nextRows, roundUp, words } from "./layout";
import { panelsOf } from "./pack";
import { gemmPart } from "./part";
import { copyRow, gatherRows, listQueries, scaleRow } from "./rows";
import { LN_2, LOG2_E, softmaxRow } from "./softmax";

/** Rows of scores are this many floats longer than a key tile, so that they do not share cache sets. */
const ROW_GAP: i32 = 16;
/** Rows of a tile on the causal diagonal that share one limit of keys. */
const DIAGONAL_ROWS: i32 = 24;

// The unit's scratch; every worker has an instance, and so globals, of its own.
let rows_M: usize = 0;
let q_MD: usize = 0;
let scores: usize = 0;
let scoreStride: i32 = 0;
let out_MD: usize = 0;
let outStride: i32 = 0;
let maximum_M: usize = 0;
let sum_M: usize = 0;
let maximum_R: usize = 0;
let sum_R: usize = 0;
let ends: usize = 0;
let list: usize = 0;

/** src/ops/cpu/attention.ts reserves what this takes. */
function takeScratch(a: Arguments, at: usize): void {
  const M = a.rowTileSize;
  scoreStride = roundUp(a.keyTileSize, 8) + ROW_GAP;
  outStride = roundUp(a.headDim, 8);
  q_MD = at;
  scores = q_MD + words(roundUp(M * a.headDim, 4));
  out_MD = scores + words(M * scoreStride);
  rows_M = out_MD + words(M * outStride);
  maximum_M = rows_M + words(M);
  sum_M = maximum_M + words(M);
  maximum_R = sum_M + words(M);
  sum_R = maximum_R + words(a.chunkSize);
  ends = sum_R + words(a.chunkSize) + 4;
  list = ends + words(a.maxBlocks);
}

export function forwardUnit(a: Arguments, index: i32, scratch: usize): void {
  takeScratch(a, scratch);
  const unit = changetype<QueryUnit>(a.units + <usize>index * offsetof<QueryUnit>());
  const document = documentAt(a, unit.document);
  const h = unit.head;
  const g = h / (a.heads / a.kvHeads);

  const firstBlock = (unit.start - document.start) / a.blockSize;
  const lastBlock = (unit.end - 1 - document.start) / a.blockSize;
  for (let b = firstBlock; b <= lastBlock; b++) {
    const block = blockAt(a, document.firstBlock + b);
    const end = min(block.end, unit.end);
    let M = 0;
    for (let t = max(block.start, unit.start); t < end; t += M) {
      M = nextRows(end - t, a.rowTileSize);
      for (let r = 0; r < M; r++) store<i32>(rows_M + words(r), t + r);
      startRows(a, M);
      attendRows(a, g, h, M, block, t);
      keepRows(a, h, M, unit.start);
    }
  }

  if (a.selectedCount > 0 && lastBlock > 0) {
    listQueries(a, h, unit.start, unit.end, 0, lastBlock, list, ends);
    for (let b = 0; b < lastBlock; b++) {
      const block = blockAt(a, document.firstBlock + b);
      const end = load<i32>(ends + words(b));
      let M = 0;
      for (let i = load<i32>(ends + words(b - 1)); i < end; i += M) {
        M = nextRows(end - i, a.rowTileSize);
        memory.copy(rows_M, list + words(i), words(M));
        resumeRows(a, h, M, unit.start);
        attendRows(a, g, h, M, block, -1);
        keepRows(a, h, M, unit.start);
      }
    }
  }

  for (let t = unit.start; t < unit.end; t++) {
    const sum = load<f32>(sum_R + words(t - unit.start));
    scaleRow(a.out_THD + words((t * a.heads + h) * a.headDim), 1 / sum, a.headDim);
    const lse = <f64>load<f32>(maximum_R + words(t - unit.start)) * LN_2 + log(sum);
    store<f32>(a.lse_TH + words(t * a.heads + h), <f32>lse);
  }
}

/** An empty online softmax for M rows. */
function startRows(a: Arguments, M: i32): void {
  memory.fill(out_MD, 0, words(M * outStride));
  for (let r = 0; r < M; r++) {
    store<f32>(maximum_M + words(r), -Infinity);
    store<f32>(sum_M + words(r), 0);
  }
}

/** Takes the rows' online softmax from where `keepRows` left it. */
function resumeRows(a: Arguments, h: i32, M: i32, start: i32): void {
  for (let r = 0; r < M; r++) {
    const t = load<i32>(rows_M + words(r));
    copyRow(out_MD + words(r * outStride), a.out_THD + words((t * a.heads + h) * a.headDim), a.headDim);
    store<f32>(maximum_M + words(r), load<f32>(maximum_R + words(t - start)));
    store<f32>(sum_M + words(r), load<f32>(sum_R + words(t - start)));
  }
}

function keepRows(a: Arguments, h: i32, M: i32, start: i32): void {
  for (let r = 0; r < M; r++) {
    const t = load<i32>(rows_M + words(r));
    copyRow(a.out_THD + words((t * a.heads + h) * a.headDim), out_MD + words(r * outStride), a.headDim);
    store<f32>(maximum_R + words(t - start), load<f32>(maximum_M + words(r)));
    store<f32>(sum_R + words(t - start), load<f32>(sum_M + words(r)));
  }
}

/**
 * M rows attend to a block's keys: to all of them, or, when the rows are consecutive queries from `first` on (else
 * -1), each up to its own token.
 */
function attendRows(a: Arguments, g: i32, h: i32, M: i32, block: Block, first: i32): void {
  gatherRows(q_MD, a.q_THD + words(h * a.headDim), a.heads * a.headDim, rows_M, M, a.headDim);
  for (let i = block.firstTile; i < block.endTile; i++) {
    const tile = keyTileAt(a, i);
    if (first >= 0 && tile.start > first + M - 1) break;
    attendTile(a, g, M, tile, first >= 0 && tile.start + tile.count - 1 > first ? first - tile.start + 1 : tile.count);
  }
}

/** `limit`: keys seen by row 0; each row sees one more, up to all. */
function attendTile(a: Arguments, g: i32, M: i32, tile: KeyTile, limit: i32): void {
  const D = a.headDim;
  const count = tile.count;
  const keys = panelsOf(a, a.keysTransposed, g, tile.padded, D);
  const values = panelsOf(a, a.values, g, tile.padded, outStride);
  if (limit >= count) {
    gemmPanels(scores, scoreStride, q_MD, D, 1, keys, M, roundUp(count, 8), D, false);
  } else {
    for (let r = 0; r < M; r += DIAGONAL_ROWS) {
      const height = min(DIAGONAL_ROWS, M - r);
      const width = roundUp(min(count, limit + r + height - 1), 8);
      if (width <= 0) continue;
      gemmPanels(scores + words(r * scoreStride), scoreStride, q_MD + words(r * D), D, 1, keys, height, width, D, false);
    }
  }
  const scaleLog2 = a.scale * LOG2_E;
  for (let r = 0; r < M; r++) {
    softmaxRow(
      scores + words(r * scoreStride),
      max(0, min(count, limit + r)),
      count,
      scaleLog2,
      maximum_M + words(r),
      sum_M + words(r),
      out_MD + words(r * outStride),
      D,
    );
  }
  if (limit >= count) {
    gemmPanels(out_MD, outStride, scores, scoreStride, 1, values, M, outStride, count, true);
  } else {
    for (let r = 0; r < M; r += DIAGONAL_ROWS) {
      const height = min(DIAGONAL_ROWS, M - r);
      const seen = min(count, limit + r + height - 1);
      if (seen <= 0) continue;
      const out = out_MD + words(r * outStride);
      const row = scores + words(r * scoreStride);
      gemmPart(out, outStride, row, scoreStride, 1, values, count, 0, height, outStride, seen, true);
    }
  }
}
