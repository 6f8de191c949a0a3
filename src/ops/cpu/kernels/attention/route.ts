/** Which earlier blocks each query attends to: block means, and a running top-k of gate scores per query. */
import { gemmPanels, packB } from "../micro";
import { Arguments, GATE_SINK, MeanGroup, QueryUnit, documentAt, roundUp, words } from "./layout";
import { addRow } from "./rows";

/** Gate scores per query that are in memory at a time. */
const SCORE_BLOCKS: i32 = 128;

/**
 * Means of `count` whole blocks (up to 8) of one key/value head, as one panel [D][8]. Sums in f64, in token order.
 * `keys` points at the first block's first key, keys are `stride` floats apart. Scratch: 2 D + 8 D floats.
 */
export function meansPanel(
  panel: usize,
  keys: usize,
  stride: i32,
  blockSize: i32,
  count: i32,
  D: i32,
  scratch: usize,
): void {
  const means = scratch + words(2 * D);
  for (let b = 0; b < count; b++) {
    memory.fill(scratch, 0, words(2 * D));
    for (let t = 0; t < blockSize; t++) {
      const key = keys + words((b * blockSize + t) * stride);
      for (let d = 0; d < D; d += 2) {
        const sum = scratch + words(2 * d);
        const pair = f64x2.promote_low_f32x4(v128.load64_zero(key + words(d)));
        v128.store(sum, f64x2.add(v128.load(sum), pair));
      }
    }
    for (let d = 0; d < D; d++) {
      store<f32>(means + words(b * D + d), <f32>(load<f64>(scratch + words(2 * d)) / <f64>blockSize));
    }
  }
  packB(panel, means, 1, D, D, count);
}

/** Tile index: key/value head * groups + group. */
export function meansTile(a: Arguments, index: i32, scratch: usize): void {
  const g = index / a.meanGroupCount;
  const group = changetype<MeanGroup>(a.meanGroups + <usize>(index % a.meanGroupCount) * offsetof<MeanGroup>());
  const D = a.headDim;
  const stride = a.kvHeads * D;
  meansPanel(
    meansOf(a, g, group.padded),
    a.k_TGD + words(group.start * stride + g * D),
    stride,
    a.blockSize,
    group.count,
    D,
    scratch,
  );
}

// @ts-ignore: decorator
@inline
function meansOf(a: Arguments, g: i32, padded: i32): usize {
  return a.means + words((g * a.paddedMeans + padded) * a.headDim);
}

/** One unit: a tile of queries of one gating head. */
export function routeUnit(a: Arguments, index: i32, scratch: usize): void {
  const unit = changetype<QueryUnit>(a.units + <usize>index * offsetof<QueryUnit>());
  const document = documentAt(a, unit.document);
  const D = a.headDim;
  const S = a.selectedCount;
  const M = unit.end - unit.start;
  const group = a.heads / a.kvHeads;
  const g = a.sharedGate ? unit.head : unit.head / group;
  const firstHead = a.sharedGate ? unit.head * group : unit.head;
  const gatingHeads = a.sharedGate ? group : 1;

  const q_MD = scratch;
  const scores = q_MD + words(M * D);
  const counts = scores + words(M * SCORE_BLOCKS);
  const best = counts + words(M);
  const blocks = best + words(M * S);
  memory.fill(counts, 0, words(M));
  for (let r = 0; r < M; r++) sumQueries(q_MD + words(r * D), a.q_THD + words((unit.start + r) * a.heads * D), firstHead, gatingHeads, D);

  const earlier = (unit.end - 1 - document.start) / a.blockSize;
  for (let b = 0; b < earlier; b += SCORE_BLOCKS) {
    const N = roundUp(min(SCORE_BLOCKS, earlier - b), 8);
    gemmPanels(scores, SCORE_BLOCKS, q_MD, D, 1, meansOf(a, g, document.firstMean + b), M, N, D, false);
    for (let r = 0; r < M; r++) {
      const own = (unit.start + r - document.start) / a.blockSize;
      const count = min(SCORE_BLOCKS, own - b);
      if (count <= 0) continue;
      if (a.scores_TZB != 0) {
        const row = (unit.start + r) * (a.heads / gatingHeads) + unit.head;
        memory.copy(a.scores_TZB + words(row * a.maxBlocks + b), scores + words(r * SCORE_BLOCKS), words(count));
      }
      takeLargest(scores + words(r * SCORE_BLOCKS), b, count, S, counts + words(r), best + words(r * S), blocks + words(r * S));
    }
  }
  for (let r = 0; r < M; r++) {
    const count = load<i32>(counts + words(r));
    sortBlocks(blocks + words(r * S), count, S);
    for (let h = firstHead; h < firstHead + gatingHeads; h++) {
      const to = a.selected_THS + words(((unit.start + r) * a.heads + h) * S);
      memory.copy(to, blocks + words(r * S), words(S));
    }
  }
}

/** The gating query: the head's, or the sum of its group's in head order. */
export function sumQueries(to: usize, q_HD: usize, firstHead: i32, heads: i32, D: i32): void {
  memory.copy(to, q_HD + words(firstHead * D), words(D));
  for (let h = firstHead + 1; h < firstHead + heads; h++) addRow(to, q_HD + words(h * D), D);
}

/**
 * Takes `count` scores of blocks first, first + 1, ... into the S largest so far: `best` descending with `blocks`
 * beside it, `taken` of them. A later block must be strictly larger to go before an earlier one; NaN is never taken.
 */
export function takeLargest(
  scores: usize,
  first: i32,
  count: i32,
  S: i32,
  taken: usize,
  best: usize,
  blocks: usize,
): void {
  let n = load<i32>(taken);
  let i = 0;
  for (; i < count; i++) {
    if (n == S) {
      // Most blocks fall short: four at a time.
      const least = v128.load32_splat(best + words(S - 1));
      while (i + 4 <= count && !v128.any_true(f32x4.gt(v128.load(scores + words(i)), least))) i += 4;
      if (i >= count) break;
      if (!(load<f32>(scores + words(i)) > load<f32>(best + words(S - 1)))) continue;
    }
    const score = load<f32>(scores + words(i));
    if (score != score) continue;
    let place = n < S ? n++ : S - 1;
    for (; place > 0 && load<f32>(best + words(place - 1)) < score; place--) {
      store<f32>(best + words(place), load<f32>(best + words(place - 1)));
      store<i32>(blocks + words(place), load<i32>(blocks + words(place - 1)));
    }
    store<f32>(best + words(place), score);
    store<i32>(blocks + words(place), first + i);
  }
  store<i32>(taken, n);
}

/** Sorts the first `count` ascending and fills up to S with -1. */
export function sortBlocks(blocks: usize, count: i32, S: i32): void {
  for (let i = 1; i < count; i++) {
    const block = load<i32>(blocks + words(i));
    let place = i;
    for (; place > 0 && load<i32>(blocks + words(place - 1)) > block; place--) {
      store<i32>(blocks + words(place), load<i32>(blocks + words(place - 1)));
    }
    store<i32>(blocks + words(place), block);
  }
  for (let i = count; i < S; i++) store<i32>(blocks + words(i), -1);
}

/** The choice of a static gate for a query in block `own`: most recent blocks, with `sink` block 0 first. */
export function staticBlocks(to: usize, own: i32, S: i32, sink: bool): void {
  const count = min(S, own);
  for (let i = 0; i < count; i++) store<i32>(to + words(i), sink && i == 0 ? 0 : own - count + i);
  for (let i = count; i < S; i++) store<i32>(to + words(i), -1);
}

/** One unit: a tile of queries, all heads. */
export function staticGateUnit(a: Arguments, index: i32): void {
  const unit = changetype<QueryUnit>(a.units + <usize>index * offsetof<QueryUnit>());
  const document = documentAt(a, unit.document);
  const S = a.selectedCount;
  for (let t = unit.start; t < unit.end; t++) {
    const own = (t - document.start) / a.blockSize;
    for (let h = 0; h < a.heads; h++) {
      staticBlocks(a.selected_THS + words((t * a.heads + h) * S), own, S, a.gate == GATE_SINK);
    }
  }
}
