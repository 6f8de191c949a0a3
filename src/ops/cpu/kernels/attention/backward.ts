/**
 * Attention backward: one unit is a chunk of queries against a chunk of keys of one document, for all heads of a
 * key/value group in turn. Units of one round share neither queries nor keys, and rounds follow each other, so
 * gradients are added in place in a fixed order. The first round of a document, each chunk against itself, starts
 * its gradients.
 *
 * Scores are held transposed, keys x queries [n][M], so that the gradients of keys and values read them along rows.
 * Per tile: S = K Q^T, dP = V dO^T, then P and dS in place, dV += P dO, dK += dS Q, dQ += dS^T K.
 */
import { gemmPanels, packB } from "../micro";
import { Arguments, Block, KeyTile, PairUnit, blockAt, documentAt, keyTileAt, nextRows, roundUp, words } from "./layout";
import { panelsOf } from "./pack";
import { gemmPart } from "./part";
import { addRow, copyRow, dot, gatherRows, listQueries } from "./rows";
import { LOG2_E, gradientRow } from "./softmax";

const ROW_GAP: i32 = 16;
/** Keys, and queries, of a tile on the causal diagonal that share one limit. */
const DIAGONAL_ROWS: i32 = 24;

let rows_M: usize = 0;
/** Gathered rows, then their panels: queries and dOut transposed [D][M], and as they are [M][D]. */
let gathered_MD: usize = 0;
let qTransposed: usize = 0;
let dOutTransposed: usize = 0;
let q: usize = 0;
let dOut: usize = 0;
let scores: usize = 0;
let gradients: usize = 0;
let scoreStride: i32 = 0;
let dQ_MD: usize = 0;
let width: i32 = 0;
let lseLog2_M: usize = 0;
let delta_M: usize = 0;
let ends: usize = 0;
let list: usize = 0;

/** src/ops/cpu/attention.ts reserves what this takes. */
function takeScratch(a: Arguments, at: usize): void {
  const M = roundUp(a.rowTileSize, 8);
  const D = a.headDim;
  scoreStride = M + ROW_GAP;
  width = roundUp(D, 8);
  gathered_MD = at;
  qTransposed = gathered_MD + words(M * D);
  dOutTransposed = qTransposed + words(M * D);
  q = dOutTransposed + words(M * D);
  dOut = q + words(M * width);
  scores = dOut + words(M * width);
  gradients = scores + words(a.keyTileSize * scoreStride);
  dQ_MD = gradients + words(a.keyTileSize * scoreStride);
  lseLog2_M = dQ_MD + words(M * width);
  delta_M = lseLog2_M + words(M);
  rows_M = delta_M + words(M);
  ends = rows_M + words(M) + 4;
  list = ends + words(a.maxBlocks);
}

export function backwardUnit(a: Arguments, index: i32, scratch: usize): void {
  takeScratch(a, scratch);
  const unit = changetype<PairUnit>(a.units + <usize>index * offsetof<PairUnit>());
  const document = documentAt(a, unit.document);
  const group = a.heads / a.kvHeads;
  const g = unit.kvHead;
  const keysStart = keyTileAt(a, unit.firstTile).start;
  const lastTile = keyTileAt(a, unit.endTile - 1);
  const keysEnd = lastTile.start + lastTile.count;
  if (keysStart == unit.start) startGradients(a, unit);

  const firstBlock = (keysStart - document.start) / a.blockSize;
  const endBlock = (keysEnd - 1 - document.start) / a.blockSize + 1;
  for (let h = g * group; h < (g + 1) * group; h++) {
    if (a.selectedCount > 0) listQueries(a, h, unit.start, unit.end, firstBlock, endBlock, list, ends);
    for (let b = firstBlock; b < endBlock; b++) {
      const block = blockAt(a, document.firstBlock + b);
      const firstTile = max(block.firstTile, unit.firstTile);
      const endTile = min(block.endTile, unit.endTile);

      let M = 0;
      const ownEnd = min(block.end, unit.end);
      for (let t = max(max(block.start, keyTileAt(a, firstTile).start), unit.start); t < ownEnd; t += M) {
        M = nextRows(ownEnd - t, a.rowTileSize);
        for (let r = 0; r < M; r++) store<i32>(rows_M + words(r), t + r);
        pullRows(a, g, h, M, firstTile, endTile, t);
      }

      if (a.selectedCount == 0) continue;
      const end = load<i32>(ends + words(b - firstBlock));
      for (let i = load<i32>(ends + words(b - firstBlock - 1)); i < end; i += M) {
        M = nextRows(end - i, a.rowTileSize);
        memory.copy(rows_M, list + words(i), words(M));
        pullRows(a, g, h, M, firstTile, endTile, -1);
      }
    }
  }
}

/** Zero gradients, and delta = <dOut, out>, of a chunk's tokens. */
function startGradients(a: Arguments, unit: PairUnit): void {
  const D = a.headDim;
  const group = a.heads / a.kvHeads;
  const bytes = words(D);
  for (let t = unit.start; t < unit.end; t++) {
    const kv = words((t * a.kvHeads + unit.kvHead) * D);
    memory.fill(a.dK_TGD + kv, 0, bytes);
    memory.fill(a.dV_TGD + kv, 0, bytes);
    for (let i = 0; i < group; i++) {
      const row = t * a.heads + unit.kvHead * group + i;
      memory.fill(a.dQ_THD + words(row * D), 0, bytes);
      store<f32>(a.delta_TH + words(row), dot(a.dOut_THD + words(row * D), a.out_THD + words(row * D), D));
    }
  }
}

/**
 * Gradients of M rows of queries and of the keys of tiles firstTile .. endTile of one block: every row sees all keys
 * or, when the rows are consecutive queries from `first` on (else -1), the keys up to its own token.
 */
function pullRows(a: Arguments, g: i32, h: i32, M: i32, firstTile: i32, endTile: i32, first: i32): void {
  const D = a.headDim;
  const stride = a.heads * D;
  gatherRows(gathered_MD, a.q_THD + words(h * D), stride, rows_M, M, D);
  packB(qTransposed, gathered_MD, 1, D, D, M);
  packB(q, gathered_MD, D, 1, M, D);
  gatherRows(gathered_MD, a.dOut_THD + words(h * D), stride, rows_M, M, D);
  packB(dOutTransposed, gathered_MD, 1, D, D, M);
  packB(dOut, gathered_MD, D, 1, M, D);
  for (let r = 0; r < M; r++) {
    const row = words(load<i32>(rows_M + words(r)) * a.heads + h);
    store<f32>(lseLog2_M + words(r), load<f32>(a.lse_TH + row) * LOG2_E);
    store<f32>(delta_M + words(r), load<f32>(a.delta_TH + row));
  }

  let started = false;
  for (let i = firstTile; i < endTile; i++) {
    const tile = keyTileAt(a, i);
    if (first >= 0 && tile.start > first + M - 1) break;
    pullTile(a, g, M, tile, first >= 0 ? tile.start - first : -tile.count, started);
    started = true;
  }
  for (let r = 0; r < M; r++) {
    const row = load<i32>(rows_M + words(r)) * a.heads + h;
    addRow(a.dQ_THD + words(row * D), dQ_MD + words(r * width), D);
  }
}

/** `from`: the first row that sees key 0; each further key is seen from one row later on. */
function pullTile(a: Arguments, g: i32, M: i32, tile: KeyTile, from: i32, started: bool): void {
  const D = a.headDim;
  const n = tile.count;
  const keyRows = panelsOf(a, a.keyRows, g, tile.padded, D);
  const valueRows = panelsOf(a, a.valueRows, g, tile.padded, D);
  const columns = roundUp(M, 8);
  const diagonal = from + n - 1 > 0;
  if (!diagonal) {
    gemmPanels(scores, scoreStride, keyRows, D, 1, qTransposed, n, columns, D, false);
    gemmPanels(gradients, scoreStride, valueRows, D, 1, dOutTransposed, n, columns, D, false);
  } else {
    for (let j = 0; j < n; j += DIAGONAL_ROWS) {
      const skip = max(0, from + j) & ~7;
      if (skip >= columns) break;
      const height = min(DIAGONAL_ROWS, n - j);
      const at = words(j * scoreStride + skip);
      const panels = words(skip * D);
      gemmPanels(scores + at, scoreStride, keyRows + words(j * D), D, 1, qTransposed + panels, height, columns - skip, D, false);
      gemmPanels(gradients + at, scoreStride, valueRows + words(j * D), D, 1, dOutTransposed + panels, height, columns - skip, D, false);
    }
  }
  const scaleLog2 = a.scale * LOG2_E;
  for (let j = 0; j < n; j++) {
    gradientRow(
      scores + words(j * scoreStride),
      gradients + words(j * scoreStride),
      min(max(0, from + j), columns),
      columns,
      scaleLog2,
      lseLog2_M,
      delta_M,
      a.scale,
    );
  }
  const stride = a.kvHeads * D;
  const dK = a.dK_TGD + words(tile.start * stride + g * D);
  const dV = a.dV_TGD + words(tile.start * stride + g * D);
  const keys = panelsOf(a, a.keys, g, tile.padded, width);
  if (!diagonal) {
    gemmPanels(dV, stride, scores, scoreStride, 1, dOut, n, D, M, true);
    gemmPanels(dK, stride, gradients, scoreStride, 1, q, n, D, M, true);
    gemmPanels(dQ_MD, width, gradients, 1, scoreStride, keys, M, width, n, started);
    return;
  }
  for (let j = 0; j < n; j += DIAGONAL_ROWS) {
    const skip = max(0, from + j) & ~7;
    if (skip >= M) break;
    const height = min(DIAGONAL_ROWS, n - j);
    const at = words(j * scoreStride + skip);
    const to = words(j * stride);
    gemmPart(dV + to, stride, scores + at, scoreStride, 1, dOut, M, skip, height, D, M - skip, true);
    gemmPart(dK + to, stride, gradients + at, scoreStride, 1, q, M, skip, height, D, M - skip, true);
  }
  for (let r = 0; r < M; r += DIAGONAL_ROWS) {
    const height = min(DIAGONAL_ROWS, M - r);
    const seen = max(0, min(n, r + height - from));
    const dQ = dQ_MD + words(r * width);
    gemmPart(dQ, width, gradients + words(r), 1, scoreStride, keys, n, 0, height, width, seen, started);
  }
}
