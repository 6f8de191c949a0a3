/** Routing by itself: which blocks are selected. */
import assert from "node:assert/strict";
import type { Attention } from "../../../src/attention/attention.ts";
import {
  blockSizes,
  type Harness,
  headDims,
  type SuiteCase,
  type SuiteOptions,
  sameBits,
} from "./harness.ts";
import { Layer } from "./layer.ts";

/** The selected blocks of one query and head, on the tested backend. */
function selection(layer: Layer, t: number, head: number): number[] {
  const { tested } = layer.routing();
  const S = tested.length / (layer.T * layer.shape.heads);
  const row = (t * layer.shape.heads + head) * S;
  return [...tested.subarray(row, row + S)].filter((b) => b >= 0);
}

/** Requires the very routing of the reference. */
function sameExactly(layer: Layer): void {
  const { tested, reference } = layer.routing();
  sameBits("routing", tested, reference);
}

export function routingCases(options: SuiteOptions): SuiteCase[] {
  const D = headDims(options)[0];
  const cases: SuiteCase[] = [];
  const add = (name: string, run: (h: Harness) => void) => cases.push({ name, run });

  for (const B of blockSizes(options)) {
    for (const topK of [2, 3, 8]) {
      for (const sharedGate of [false, true]) {
        add(`random B=${B} k=${topK}${sharedGate ? " shared gate" : ""}, packed, H=8 G=2`, (h) => {
          h.seed(B + topK);
          const offsets = [0, 1, 3 * B, 3 * B + 2, 9 * B + 5, 23 * B + 7];
          const attention: Attention = { kind: "moba", blockSize: B, topK, sharedGate };
          const layer = new Layer(h, { offsets, heads: 8, kvHeads: 2, headDim: D, attention });
          layer.route();
          layer.sameRouting();
        });
      }
    }
    for (const kind of ["window", "sink"] as const) {
      for (const topK of [1, 2, 4]) {
        add(`${kind} B=${B} k=${topK}, packed`, (h) => {
          const attention = { kind, blockSize: B, topK };
          const offsets = [0, 2, B + 2, 2 * B + 3, 9 * B + 4];
          const layer = new Layer(h, { offsets, heads: 2, kvHeads: 1, headDim: D, attention });
          layer.route();
          sameExactly(layer);
        });
      }
    }
    add(`exact ties go to the lower block B=${B}`, (h) => {
      h.seed(B);
      // Every block holds the same keys, so all scores of a query are equal.
      const [blocks, G] = [7, 2];
      const pattern = h.normals(B * G * D);
      const k = new Float64Array(blocks * B * G * D).map((_, i) => pattern[i % pattern.length]);
      const attention: Attention = { kind: "moba", blockSize: B, topK: 3 };
      const layer = new Layer(
        h,
        { offsets: [0, blocks * B], heads: 4, kvHeads: G, headDim: D, attention },
        { k },
      );
      layer.route();
      sameExactly(layer);
      for (let head = 0; head < 4; head++) assert.deepEqual(selection(layer, 6 * B, head), [0, 1]);
    });
  }

  const B = blockSizes(options)[0];
  const moba = (topK: number, sharedGate = false): Attention => ({
    kind: "moba",
    blockSize: B,
    topK,
    sharedGate,
  });

  add("one better block, the others tied", (h) => {
    const blocks = 6;
    const k = new Float64Array(blocks * B * D).map((_, i) => (Math.floor(i / (B * D)) === 3 ? 2 : 1));
    const q = new Float64Array(blocks * B * D).fill(1);
    const shape = { offsets: [0, blocks * B], heads: 1, kvHeads: 1, headDim: D, attention: moba(3) };
    const layer = new Layer(h, shape, { q, k });
    layer.route();
    sameExactly(layer);
    assert.deepEqual(selection(layer, 5 * B, 0), [0, 3]);
  });

  add("a query of zeros, of either sign: all scores equal", (h) => {
    h.seed(4);
    const T = 6 * B;
    for (const zero of [0, -0]) {
      const q = new Float64Array(T * D).fill(zero);
      const shape = { offsets: [0, T], heads: 1, kvHeads: 1, headDim: D, attention: moba(3) };
      const layer = new Layer(h, shape, { q });
      layer.route();
      sameExactly(layer);
      assert.deepEqual(selection(layer, 5 * B, 0), [0, 1]);
    }
  });

  add("all scores negative", (h) => {
    h.seed(5);
    const T = 7 * B;
    const k = h.normals(T * D).map((x) => -Math.abs(x));
    const q = h.normals(T * D).map((x) => Math.abs(x));
    const shape = { offsets: [0, T], heads: 1, kvHeads: 1, headDim: D, attention: moba(4) };
    const layer = new Layer(h, shape, { q, k });
    layer.route();
    layer.sameRouting();
    assert.equal(selection(layer, 6 * B, 0).length, 3);
  });

  for (const topK of [2, 3, 9]) {
    add(`a block with a NaN key is never selected, k=${topK}`, (h) => {
      h.seed(6);
      const T = 6 * B;
      const k = h.normals(T * D);
      k[(2 * B + 1) * D] = Number.NaN;
      const shape = { offsets: [0, T], heads: 2, kvHeads: 1, headDim: D, attention: moba(topK) };
      const layer = new Layer(h, shape, { k });
      layer.route();
      layer.sameRouting();
      const { tested } = layer.routing();
      assert.ok(!tested.includes(2), "block 2 is selected");
    });
  }

  add("a NaN query selects nothing", (h) => {
    h.seed(7);
    const T = 4 * B;
    const q = h.normals(T * D);
    q[(T - 1) * D] = Number.NaN;
    const shape = { offsets: [0, T], heads: 1, kvHeads: 1, headDim: D, attention: moba(3) };
    const layer = new Layer(h, shape, { q });
    layer.route();
    assert.deepEqual(selection(layer, T - 1, 0), []);
    layer.sameRouting();
  });

  add("one hot block is selected by all", (h) => {
    h.seed(8);
    const layer = hotBlock(h, D, B);
    layer.route();
    layer.sameRouting();
    const { tested } = layer.routing();
    for (let t = B; t < layer.T; t++) {
      for (let head = 0; head < 4; head++) assert.deepEqual(selection(layer, t, head), [0]);
    }
    assert.ok(!tested.includes(1), "block 1, with an empty query list, is selected");
  });

  add("a new route and new documents leave nothing behind", (h) => {
    h.seed(9);
    const T = 8 * B + 3;
    const shape = { offsets: [0, B, T], heads: 2, kvHeads: 1, headDim: D, attention: moba(4) };
    const layer = new Layer(h, shape);
    layer.route();
    h.both((b, on) => b.setDocuments(on(layer.docs), [0, 4 * B + 1, T]));
    h.write(layer.q, h.normals(T * 2 * D));
    layer.route();
    const fresh = new Layer(
      h,
      { ...shape, offsets: [0, 4 * B + 1, T] },
      {
        q: Float64Array.from(h.tested.read(layer.q.tested)),
        k: Float64Array.from(h.tested.read(layer.k.tested)),
      },
    );
    fresh.route();
    sameBits("routing", layer.routing().tested, fresh.routing().tested);
    fresh.sameRouting();
  });

  add("routing written is routing read", (h) => {
    h.seed(10);
    const T = 5 * B + 1;
    const shape = { offsets: [0, 2 * B + 1, T], heads: 4, kvHeads: 2, headDim: D, attention: moba(3) };
    const layer = new Layer(h, shape);
    layer.route();
    layer.shareRouting();
    sameExactly(layer);
  });

  add("many blocks: 65, and several hundred", (h) => {
    h.seed(11);
    const smallest = Math.min(...blockSizes(options));
    for (const [blocks, topK] of [
      [65, 3],
      [300, options.largestTopK ?? 20],
    ]) {
      const attention: Attention = { kind: "moba", blockSize: smallest, topK };
      const offsets = [0, 3, blocks * smallest + 4];
      const layer = new Layer(h, { offsets, heads: 2, kvHeads: 1, headDim: D, attention });
      layer.route();
      layer.sameRouting();
    }
  });

  add("full attention has no routing", (h) => {
    const shape = {
      offsets: [0, 20],
      heads: 1,
      kvHeads: 1,
      headDim: D,
      attention: { kind: "full" } as const,
    };
    const layer = new Layer(h, shape);
    layer.route();
    assert.equal(layer.routing().tested.length, 0);
  });
  return cases;
}

/** A layer in which every query of 9 blocks selects block 0 (k = 2) and nobody any other. */
export function hotBlock(h: Harness, D: number, B: number): Layer {
  const [T, H, G] = [9 * B, 4, 2];
  const k = h.normals(T * G * D).map((x, i) => (i < B * G * D ? 1 : 0) + 0.1 * x);
  const q = h.normals(T * H * D).map((x) => 1 + 0.1 * x);
  const attention: Attention = { kind: "moba", blockSize: B, topK: 2 };
  return new Layer(h, { offsets: [0, T], heads: H, kvHeads: G, headDim: D, attention }, { q, k });
}
