/** Attention forward and backward, given the reference's routing. */
import { type Attention, attentionLabel } from "../../../src/attention/attention.ts";
import {
  blockSizes,
  type Harness,
  headDims,
  norm,
  type SuiteCase,
  type SuiteOptions,
  sameBits,
} from "./harness.ts";
import { Layer, type LayerShape } from "./layer.ts";
import { hotBlock } from "./routing.ts";

export function attentionCases(options: SuiteOptions): SuiteCase[] {
  const cases: SuiteCase[] = [];
  const add = (name: string, run: (h: Harness) => void) => cases.push({ name, run });
  const D = headDims(options)[0];
  const B = blockSizes(options)[0];
  const moba = (blockSize: number, topK: number, sharedGate?: boolean): Attention => ({
    kind: "moba",
    blockSize,
    topK,
    sharedGate,
  });
  const every: Attention[] = [
    { kind: "full" },
    moba(B, 1),
    moba(B, 3),
    moba(B, 3, true),
    moba(B, options.largestTopK ?? 99),
    { kind: "window", blockSize: B, topK: 2 },
    { kind: "sink", blockSize: B, topK: 3 },
  ];

  for (const attention of every) {
    const label = attentionLabel(attention);
    add(`${label}, documents of 1, 2, B-1, B, B+1, 7B+3 tokens, H=8 G=2`, (h) => {
      h.seed(1);
      const offsets = [0];
      for (const length of [1, 2, B - 1, B, B + 1, 7 * B + 3]) offsets.push(offsets.at(-1)! + length);
      new Layer(h, { offsets, heads: 8, kvHeads: 2, headDim: D, attention }).check();
    });
    for (const length of [1, B - 1, B, B + 1, 4 * B, 5 * B + 7]) {
      add(`${label}, one document of ${length} tokens`, (h) => {
        h.seed(length);
        const layer = new Layer(h, { offsets: [0, length], heads: 2, kvHeads: 2, headDim: D, attention });
        // A query with one key has no gradient but rounding: there the error is measured by |dOut|.
        layer.check(length === 1 ? Math.sqrt(2 * D) : 0);
      });
    }
  }
  for (const headDim of headDims(options)) {
    for (const blockSize of blockSizes(options)) {
      add(`moba B=${blockSize} k=3 D=${headDim}, H=8 G=2`, (h) => {
        h.seed(headDim + blockSize);
        const offsets = [0, 2 * blockSize + 1, 8 * blockSize + 3];
        new Layer(h, { offsets, heads: 8, kvHeads: 2, headDim, attention: moba(blockSize, 3) }).check();
      });
    }
    add(`full D=${headDim}, H=8 G=2`, (h) => {
      h.seed(headDim);
      const offsets = [0, 37, 150];
      new Layer(h, { offsets, heads: 8, kvHeads: 2, headDim, attention: { kind: "full" } }).check();
    });
  }
  add("one query head per document of one token each", (h) => {
    h.seed(2);
    const offsets = Array.from({ length: 10 }, (_, i) => i);
    const layer = new Layer(h, { offsets, heads: 2, kvHeads: 1, headDim: D, attention: moba(B, 2) });
    layer.check(Math.sqrt(9 * 2 * D));
  });
  add("one hot block, empty query lists", (h) => {
    h.seed(3);
    // Its keys are almost equal, so dQ is a small difference of large terms: errors are measured by |dOut|.
    const layer = hotBlock(h, D, B);
    layer.check(Math.sqrt(layer.T * 4 * D));
  });
  add("any routing written by hand: rows with none, some and all of their places used", (h) => {
    h.seed(12);
    const offsets = [0, 3 * B + 2, 12 * B + 5];
    const layer = new Layer(h, { offsets, heads: 4, kvHeads: 2, headDim: D, attention: moba(B, 4) });
    const [H, S] = [4, 3];
    const selected = new Int32Array(layer.T * H * S).fill(-1);
    for (let row = 0; row < layer.T * H; row++) {
      const t = Math.floor(row / H);
      const own = Math.floor((t - offsets.findLast((offset) => offset <= t)!) / B);
      const blocks = Array.from({ length: own }, (_, block) => block).filter(() => h.next() < 0.4);
      selected.set(blocks.slice(0, Math.floor(h.next() * (S + 1))), row * S);
    }
    h.both((b, on) => b.writeRouting(on(layer.state), selected, on(layer.docs)));
    layer.forward();
    h.same({ out: layer.out, ...layer.backward() });
  });
  for (const attention of [{ kind: "full" } as const, moba(4 * Math.max(...blockSizes(options)), 3)]) {
    add(`${attentionLabel(attention)}, documents of 1 and 1029 tokens`, (h) => {
      h.seed(13);
      new Layer(h, { offsets: [0, 1, 1030], heads: 2, kvHeads: 1, headDim: D, attention }).check();
    });
  }
  add("65 blocks and one token", (h) => {
    h.seed(14);
    const smallest = Math.min(...blockSizes(options));
    const attention = moba(smallest, 3);
    new Layer(h, { offsets: [0, 65 * smallest + 1], heads: 2, kvHeads: 1, headDim: D, attention }).check();
  });
  add("large scores (softmax close to one key)", (h) => {
    h.seed(4);
    const T = 4 * B + 5;
    const q = h.normals(T * 2 * D, 30);
    const shape: LayerShape = { offsets: [0, T], heads: 2, kvHeads: 1, headDim: D, attention: moba(B, 3) };
    const layer = new Layer(h, shape, { q });
    layer.route();
    layer.shareRouting();
    layer.forward();
    h.same({ out: layer.out });
  });
  add("a NaN key harms only its document's block and its successors there", (h) => {
    h.seed(5);
    const T = 6 * B;
    const k = h.normals(T * D);
    k[(2 * B + 1) * D] = Number.NaN;
    const shape: LayerShape = { offsets: [0, T], heads: 2, kvHeads: 1, headDim: D, attention: moba(B, 9) };
    const layer = new Layer(h, shape, { k });
    layer.route();
    layer.shareRouting();
    layer.forward();
    h.same({ out: layer.out });
  });

  add("k = 1 is full attention within each block", (h) => {
    h.seed(6);
    const T = 5 * B + 3;
    const cuts = Array.from({ length: 6 }, (_, i) => i * B);
    equal(
      h,
      { attention: moba(B, 1), offsets: [0, T] },
      { attention: { kind: "full" }, offsets: [...cuts, T] },
    );
  });
  for (const kind of ["moba", "window", "sink"] as const) {
    add(`${kind} with k >= blocks is full attention`, (h) => {
      h.seed(7);
      const offsets = [0, B + 1, 5 * B + 3];
      const attention: Attention = { kind, blockSize: B, topK: 5 };
      equal(h, { attention, offsets }, { attention: { kind: "full" }, offsets });
    });
  }

  for (const attention of every) {
    add(`${attentionLabel(attention)}: the future and other documents do not matter`, (h) => {
      h.seed(8);
      const [from, T] = [2 * B + 3, 9 * B];
      const [q, k, v] = [h.normals(T * 4 * D), h.normals(T * 2 * D), h.normals(T * 2 * D)];
      const shape: LayerShape = { offsets: [0, from, T], heads: 4, kvHeads: 2, headDim: D, attention };
      for (const last of [from, from + B - 1, from + 3 * B + 5, from + 5 * B]) {
        const run = (outside: number | null) => {
          // Tokens outside the document, or behind `last`, set to `outside`.
          const set = (values: Float64Array) =>
            values.map((x, i) => {
              const t = Math.floor((i * T) / values.length);
              return outside !== null && (t < from || t > last) ? outside : x;
            });
          const layer = new Layer(h, shape, { q: set(q), k: set(k), v: set(v) });
          h.tested.route(layer.state.tested, layer.q.tested, layer.k.tested, layer.docs.tested);
          h.tested.attentionForward(
            layer.state.tested,
            layer.out.tested,
            layer.q.tested,
            layer.k.tested,
            layer.v.tested,
            layer.docs.tested,
          );
          return layer.rows(layer.out, from, last + 1);
        };
        sameBits(`outputs up to token ${last}`, run(null), run(1e6));
      }
    });
  }
  return cases;
}

/** Two attentions that are the same function: outputs and gradients on the tested backend agree. */
function equal(
  h: Harness,
  one: Pick<LayerShape, "attention" | "offsets">,
  other: Pick<LayerShape, "attention" | "offsets">,
): void {
  const D = headDims(h.options)[0];
  const T = one.offsets.at(-1)!;
  const values = { q: h.normals(T * 4 * D), k: h.normals(T * 2 * D), v: h.normals(T * 2 * D) };
  const dOut = h.tensor([T, 4, D]);
  const [a, b] = [one, other].map((options) => {
    const layer = new Layer(h, { ...options, heads: 4, kvHeads: 2, headDim: D }, values);
    layer.route();
    layer.forward();
    const gradients = layer.backward(dOut);
    return [layer.out, gradients.dQ, gradients.dK, gradients.dV].map((x) => h.tested.read(x.tested));
  });
  const size = norm(h.tested.read(dOut.tested));
  a.forEach((values, i) => {
    h.near(["out", "dQ", "dK", "dV"][i], values, b[i], i > 0 ? size : 0);
  });
}
