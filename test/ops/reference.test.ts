/** The reference's forward operations against hand-worked cases and against other formulations of the same thing. */
import { expect, test } from "vitest";
import type { Attention } from "../../src/attention/attention.ts";
import { type Backend, HYPER_LENGTH, Hyper, type Role } from "../../src/ops/contract.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { normals, uniform } from "./random.ts";

const b = createReferenceBackend();
const tensor = (shape: number[], values?: ArrayLike<number>, role: Role = "activation") => {
  const made = b.tensor(shape, role);
  if (values) b.write(made, values);
  return made;
};
const documents = (offsets: number[]) => {
  const made = b.documents(offsets[offsets.length - 1], offsets.length - 1);
  b.setDocuments(made, offsets);
  return made;
};
const closeTo = (values: ArrayLike<number>, expected: readonly number[], digits = 12) => {
  expect(values.length).toBe(expected.length);
  expected.forEach((x, i) => {
    expect(values[i]).toBeCloseTo(x, digits);
  });
};

test("rmsNorm of (3, 4) is (3, 4) / sqrt(12.5)", () => {
  const [out, rstd, sum] = [tensor([1, 2]), tensor([1], [0], "float"), tensor([1, 2])];
  b.rmsNormForward(out, rstd, tensor([1, 2], [3, 4]), tensor([2], [1, 10], "weight"), 1e-300);
  closeTo(b.read(out), [3 / Math.sqrt(12.5), 40 / Math.sqrt(12.5)]);
  closeTo(b.read(rstd), [1 / Math.sqrt(12.5)]);
  const gain = tensor([2], [1, 10], "weight");
  b.addRmsNormForward(sum, out, rstd, tensor([1, 2], [1, 5]), tensor([1, 2], [2, -1]), gain, 1e-300);
  closeTo(b.read(sum), [3, 4]);
  closeTo(b.read(out), [3 / Math.sqrt(12.5), 40 / Math.sqrt(12.5)]);
});

test("swiglu: SiLU(ln 3) = 3/4 ln 3", () => {
  const out = tensor([1, 2]);
  b.swigluForward(out, tensor([1, 4], [Math.log(3), 0, 2, 5]));
  closeTo(b.read(out), [1.5 * Math.log(3), 0]);
});

test("linear keeps weights as [out, in]", () => {
  const out = tensor([1, 2]);
  b.linearForward(out, tensor([1, 3], [1, 10, 100]), tensor([2, 3], [1, 2, 3, 4, 5, 6], "weight"));
  closeTo(b.read(out), [321, 654]);
});

test("key convolution: w[j] multiplies the key j tokens back, and stops at document starts", () => {
  const [G, D, T] = [1, 2, 4];
  const rows = [1, 2, 3, 4].flatMap((key) => [9, 9, key, -key, 7, 7]);
  const qkv = tensor([T, 6], rows);
  const w = tensor([3, G, D], [1, 0, 0.5, 0, 0.25, 1], "weight");
  b.keyConvForward(qkv, tensor([T, G, D]), w, documents([0, 3, 4]), G);
  const silu = (x: number) => x / (1 + Math.exp(-x));
  const first = [1, 2 + 0.5 * 1, 3 + 0.5 * 2 + 0.25 * 1, 4];
  const second = [0, 0, -1, 0];
  closeTo(
    b.read(qkv),
    [1, 2, 3, 4].flatMap((key, t) => [9, 9, key + silu(first[t]), -key + silu(second[t]), 7, 7]),
  );
});

test("RoPE turns the pair (i, i + D/2) by position * theta^(-2i/D), from 0 in every document", () => {
  const T = 5;
  const qkv = tensor([T, 12], new Array(T).fill([1, 1, 0, 0, 1, 1, 0, 0, 3, 4, 5, 6]).flat());
  const [q, k, v] = [tensor([T, 1, 4]), tensor([T, 1, 4]), tensor([T, 1, 4])];
  b.splitRopeForward(q, k, v, qkv, documents([0, 2, 5]), 100);
  const rotated = [0, 1, 0, 1, 2].flatMap((p) => [
    Math.cos(p),
    Math.cos(p / 10),
    Math.sin(p),
    Math.sin(p / 10),
  ]);
  closeTo(b.read(q), rotated);
  closeTo(b.read(k), rotated);
  closeTo(b.read(v), new Array(T).fill([3, 4, 5, 6]).flat());
});

test("loss: ln V for equal logits; ln(1 + e^-1) for logits 1 and 0; 0 without a target", () => {
  const losses = tensor([2], [9, 9], "float");
  const targets = tensor([2], [1, -1], "index");
  b.lossForward(losses, tensor([2, 2], [1, 2, 3, 4]), tensor([8, 2], undefined, "weight"), targets);
  closeTo(b.read(losses), [Math.log(8), 0]);
  b.lossForward(losses, tensor([2, 1], [1, 1]), tensor([2, 1], [0, 1], "weight"), targets);
  closeTo(b.read(losses), [Math.log1p(Math.exp(-1)), 0]);
});

test("adamw: the first two steps, worked by hand", () => {
  const float = (values: number[]) => tensor([values.length], values, "float");
  const [master, grads, m, v] = [float([1, 1]), float([3, -4]), float([0, 0]), float([0, 0])];
  const norm = float([0]);
  b.gradNorm(norm, grads);
  closeTo(b.read(norm), [5]);
  const hyper = new Float64Array(HYPER_LENGTH);
  hyper[Hyper.learningRate] = 0.1;
  hyper[Hyper.beta1] = 0.5;
  hyper[Hyper.beta2] = 0.75;
  hyper[Hyper.weightDecay] = 0.5;
  hyper[Hyper.bias1] = 0.5;
  hyper[Hyper.bias2] = 0.25;
  hyper[Hyper.maxNorm] = 2.5; // Halves the gradients: (1.5, -2).
  b.adamw(master, master, grads, m, v, 1, float([...hyper]), norm);
  // m^ / sqrt(v^) is the sign at the first step; the first parameter also decays by 0.1 * 0.5 * 1.
  closeTo(b.read(m), [0.75, -1]);
  closeTo(b.read(v), [0.5625, 1]);
  closeTo(b.read(master), [1 - 0.1 - 0.05, 1 + 0.1]);
  hyper[Hyper.bias1] = 0.75;
  hyper[Hyper.bias2] = 0.4375;
  hyper[Hyper.maxNorm] = 0;
  b.adamw(master, master, grads, m, v, 1, float([...hyper]), norm);
  const [m1, v1] = [0.5 * 0.75 + 0.5 * 3, 0.75 * 0.5625 + 0.25 * 9];
  const [m2, v2] = [0.5 * -1 + 0.5 * -4, 0.75 * 1 + 0.25 * 16];
  closeTo(b.read(m), [m1, m2]);
  closeTo(b.read(v), [v1, v2]);
  const step = (a: number, s: number) => (0.1 * (a / 0.75)) / Math.sqrt(s / 0.4375);
  closeTo(b.read(master), [0.85 - step(m1, v1) - 0.05 * 0.85, 1.1 - step(m2, v2)]);
});

/**
 * MoBA as one T x T mask: key s is open to query t when both lie in one document, s <= t, and s's block is t's or
 * fewer than k - 1 earlier whole blocks beat it (a larger score, or an equal one at a lower index).
 */
function denseAttention(
  attention: Attention,
  offsets: number[],
  [H, G, D]: number[],
  [q, k, v]: Float64Array[],
): number[] {
  const T = offsets[offsets.length - 1];
  const dot = (a: ArrayLike<number>, c: ArrayLike<number>) =>
    Array.from(a).reduce((sum, x, i) => sum + x * c[i], 0);
  const row = (x: Float64Array, heads: number, t: number, h: number) =>
    x.subarray((t * heads + h) * D, (t * heads + h + 1) * D);
  const document = (t: number) => offsets.findLastIndex((offset) => offset <= t);
  const output: number[] = [];
  for (let t = 0; t < T; t++) {
    for (let h = 0; h < H; h++) {
      const g = Math.floor((h * G) / H);
      const start = offsets[document(t)];
      const weights = Array.from({ length: T }, (_, s) => {
        const open = s <= t && document(s) === document(t) && isOpen(s);
        return open ? Math.exp(dot(row(q, H, t, h), row(k, G, s, g)) / Math.sqrt(D)) : 0;
      });
      const total = weights.reduce((a, c) => a + c, 0);
      for (let d = 0; d < D; d++) {
        output.push(weights.reduce((sum, w, s) => sum + (w / total) * row(v, G, s, g)[d], 0));
      }

      function isOpen(s: number): boolean {
        if (attention.kind === "full") return true;
        const B = attention.blockSize;
        const [own, block] = [Math.floor((t - start) / B), Math.floor((s - start) / B)];
        if (own === block) return true;
        if (attention.kind === "window") return own - block < attention.topK;
        if (attention.kind === "sink") {
          return attention.topK > 1 && (block === 0 || own - block < attention.topK - 1);
        }
        const heads = attention.sharedGate ? Array.from({ length: H / G }, (_, i) => (g * H) / G + i) : [h];
        const score = (other: number) => {
          let sum = 0;
          for (const head of heads) {
            for (let i = 0; i < B; i++)
              sum += dot(row(q, H, t, head), row(k, G, start + other * B + i, g)) / B;
          }
          return sum;
        };
        let better = 0;
        for (let other = 0; other < own; other++) {
          if (score(other) > score(block) || (score(other) === score(block) && other < block)) better++;
        }
        return better < attention.topK - 1;
      }
    }
  }
  return output;
}

const attentions: Attention[] = [
  { kind: "full" },
  { kind: "moba", blockSize: 4, topK: 1 },
  { kind: "moba", blockSize: 4, topK: 2 },
  { kind: "moba", blockSize: 3, topK: 4 },
  { kind: "moba", blockSize: 4, topK: 3, sharedGate: true },
  { kind: "moba", blockSize: 64, topK: 3 },
  { kind: "window", blockSize: 4, topK: 2 },
  { kind: "sink", blockSize: 3, topK: 1 },
  { kind: "sink", blockSize: 3, topK: 2 },
  { kind: "sink", blockSize: 3, topK: 4 },
];
test.each(attentions)("attention %o is a masked softmax", (attention) => {
  const [H, G, D] = [4, 2, 6];
  const offsets = [0, 1, 9, 13, 40];
  const T = 40;
  const next = uniform(7);
  const values = [normals(next, T * H * D), normals(next, T * G * D), normals(next, T * G * D)];
  const [q, k, v] = [
    tensor([T, H, D], values[0]),
    tensor([T, G, D], values[1]),
    tensor([T, G, D], values[2]),
  ];
  const out = tensor([T, H, D]);
  const docs = documents(offsets);
  const state = b.attentionState({ tokens: T, heads: H, kvHeads: G, headDim: D, maxDocuments: 4, attention });
  b.route(state, q, k, docs);
  b.attentionForward(state, out, q, k, v, docs);
  closeTo(b.read(out), denseAttention(attention, offsets, [H, G, D], values));
});

test("overlapping tensors, tokens out of range and foreign tensors are refused", () => {
  const x = tensor([4, 4]);
  const w = tensor([4, 4], undefined, "weight");
  expect(() => b.linearForward(x, x, w)).toThrow(/linearForward: out_TN overlaps x_TK/);
  expect(() => b.linearForward(b.view(x, 8, [2, 4]), b.view(x, 0, [2, 4]), w)).not.toThrow();
  expect(() => b.linearForward(b.view(x, 4, [2, 4]), b.view(x, 0, [2, 4]), w)).toThrow(/overlaps/);
  const tokens = tensor([4], [0, 1, 4, 2], "index");
  expect(() => b.embeddingForward(x, w, tokens)).toThrow(/tokens_T\[2\] is 4, expected 0 to 3/);
  const targets = tensor([4], [0, -1, -2, 2], "index");
  const losses = tensor([4], undefined, "float");
  expect(() => b.lossForward(losses, x, w, targets)).toThrow(/targets_T\[2\] is -2/);
  const foreign = { ...x, shape: [4, 4], length: 16, role: "activation", dtype: "f64" } as const;
  expect(() => b.linearForward(foreign, x, w)).toThrow(/not of the reference backend/);
});

test("a routing that does not fit the documents is refused in the forward pass", () => {
  const attention: Attention = { kind: "moba", blockSize: 2, topK: 2 };
  const shape = { tokens: 8, heads: 1, kvHeads: 1, headDim: 2, maxDocuments: 2, attention };
  const state = b.attentionState(shape);
  const docs = b.documents(8, 2);
  const next = uniform(1);
  const [q, k, v, out] = [0, 1, 2, 3].map(() => tensor([8, 1, 2], normals(next, 16)));
  b.route(state, q, k, docs);
  b.setDocuments(docs, [0, 5, 8]);
  expect(() => b.attentionForward(state, out, q, k, v, docs)).toThrow(/attentionForward: selected_THS/);
});

test("running out of memory says what was asked", () => {
  const backend: Backend = createReferenceBackend();
  expect(() => backend.tensor([2 ** 40], "float")).toThrow(/out of memory: .* 8796093022208 bytes/);
});
