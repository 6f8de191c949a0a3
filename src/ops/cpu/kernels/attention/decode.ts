/**
 * One query per head against a cache of keys and values, for generation. Gate scores are computed by the same
 * functions as in `route`, so the same blocks are selected, bit for bit.
 */
import { gemmPanels } from "../micro";
import { Arguments, GATE_MOBA, GATE_NONE, GATE_SINK, words } from "./layout";
import { meansPanel, sortBlocks, staticBlocks, sumQueries, takeLargest } from "./route";
import { addScaledRow, dot, scaleRow } from "./rows";
import { LOG2_E, softmaxRow } from "./softmax";

/** Keys attended to at a time. */
const KEYS: i32 = 128;

/** Tile index: key/value head. `tokens` is the length of the cache, its last token the query's own. */
export function decodeTile(a: Arguments, g: i32, scratch: usize): void {
  const D = a.headDim;
  const S = a.selectedCount;
  const group = a.heads / a.kvHeads;
  const own = (a.tokens - 1) / a.blockSize;
  const scores = scratch;
  const maximum = scores + words(KEYS + 8);
  const sum = maximum + 4;
  const taken = sum + 4;
  const best = taken + 8;
  const blocks = best + words(S);
  const gating = blocks + words(S);
  for (let h = g * group; h < (g + 1) * group; h++) {
    if (a.gate == GATE_MOBA) {
      if (!a.sharedGate || h == g * group) selectBlocks(a, g, h, own, scores, taken, best, blocks, gating);
    } else if (a.gate != GATE_NONE) {
      staticBlocks(blocks, own, S, a.gate == GATE_SINK);
    }
    const out = a.out_THD + words(h * D);
    memory.fill(out, 0, words(D));
    store<f32>(maximum, -Infinity);
    store<f32>(sum, 0);
    for (let i = 0; i < S; i++) {
      const block = load<i32>(blocks + words(i));
      if (block < 0) break;
      attendKeys(a, g, h, block * a.blockSize, (block + 1) * a.blockSize, scores, maximum, sum);
    }
    attendKeys(a, g, h, own * a.blockSize, a.tokens, scores, maximum, sum);
    scaleRow(out, 1 / load<f32>(sum), D);
  }
}

/** Bytes after `gating`: the gating query, a panel of means, and the scratch of the means. */
function selectBlocks(
  a: Arguments,
  g: i32,
  h: i32,
  own: i32,
  scores: usize,
  taken: usize,
  best: usize,
  blocks: usize,
  gating: usize,
): void {
  const D = a.headDim;
  const S = a.selectedCount;
  const stride = a.kvHeads * D;
  const panel = gating + words(D);
  store<i32>(taken, 0);
  if (S == 0) return;
  sumQueries(gating, a.q_THD, h, a.sharedGate ? a.heads / a.kvHeads : 1, D);
  for (let b = 0; b < own; b += 8) {
    const count = min(8, own - b);
    const keys = a.k_TGD + words(b * a.blockSize * stride + g * D);
    meansPanel(panel, keys, stride, a.blockSize, count, D, panel + words(8 * D));
    gemmPanels(scores, 8, gating, D, 1, panel, 1, 8, D, false);
    takeLargest(scores, b, count, S, taken, best, blocks);
  }
  sortBlocks(blocks, load<i32>(taken), S);
}

function attendKeys(
  a: Arguments,
  g: i32,
  h: i32,
  from: i32,
  to: i32,
  scores: usize,
  maximum: usize,
  sum: usize,
): void {
  const D = a.headDim;
  const stride = a.kvHeads * D;
  const q = a.q_THD + words(h * D);
  const out = a.out_THD + words(h * D);
  for (let t = from; t < to; t += KEYS) {
    const count = min(KEYS, to - t);
    const at = words(t * stride + g * D);
    for (let i = 0; i < count; i++) {
      store<f32>(scores + words(i), dot(q, a.k_TGD + at + words(i * stride), D));
    }
    softmaxRow(scores, count, count, a.scale * LOG2_E, maximum, sum, out, D);
    for (let i = 0; i < count; i++) {
      addScaledRow(out, load<f32>(scores + words(i)), a.v_TGD + at + words(i * stride), D);
    }
  }
}
