/** Every backward of the reference against central differences of its forward, in float64. */
import { expect, test } from "vitest";
import type { Attention } from "../../src/attention/attention.ts";
import type { Backend, Documents, Role, Tensor } from "../../src/ops/contract.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { integers, normals, uniform } from "./random.ts";

const STEP = 1e-5;
const TOLERANCE = 1e-6;

/** A backend with random tensors, and the check itself. */
function bench(seed: number) {
  const b = createReferenceBackend();
  const next = uniform(seed);
  const tensor = (shape: number[], role: Role = "activation") => {
    const made = b.tensor(shape, role);
    b.write(made, normals(next, made.length));
    return made;
  };
  const documents = (offsets: number[]): Documents => {
    const made = b.documents(offsets[offsets.length - 1], offsets.length - 1);
    b.setDocuments(made, offsets);
    return made;
  };
  return { b, next, tensor, documents };
}

/**
 * `loss()` runs the forward and returns sum(out * weight). `pairs`: an input and its gradient. The gradients must
 * already hold what the backward gave, less what they held before.
 */
function compare(
  b: Backend,
  loss: () => number,
  pairs: Readonly<Record<string, readonly [input: Tensor, gradient: ArrayLike<number>]>>,
) {
  for (const [name, [input, gradient]] of Object.entries(pairs)) {
    const values = b.read(input);
    let difference = 0;
    let size = 0;
    for (let i = 0; i < values.length; i++) {
      const at = (x: number) => {
        const changed = values.slice();
        changed[i] = x;
        b.write(input, changed);
        return loss();
      };
      const numeric = (at(values[i] + STEP) - at(values[i] - STEP)) / (2 * STEP);
      difference += (numeric - gradient[i]) ** 2;
      size += numeric ** 2;
    }
    b.write(input, values);
    expect(size, name).toBeGreaterThan(0);
    expect(Math.sqrt(difference / size), name).toBeLessThan(TOLERANCE);
  }
}

/** What `run` adds to `tensor`. */
function added(b: Backend, tensor: Tensor, run: () => void): Float64Array {
  const before = b.read(tensor);
  run();
  return (b.read(tensor) as Float64Array).map((x, i) => x - before[i]);
}

const weighted = (b: Backend, out: Tensor, weight: Tensor) => {
  const w = b.read(weight);
  return Float64Array.from(b.read(out)).reduce((sum, x, i) => sum + x * w[i], 0);
};

test("embedding", () => {
  const { b, next, tensor } = bench(1);
  const [table, dTable, out, dOut] = [
    tensor([5, 3], "weight"),
    tensor([5, 3], "float"),
    tensor([7, 3]),
    tensor([7, 3]),
  ];
  const tokens = b.tensor([7], "index");
  b.write(tokens, integers(next, 7, 5));
  const grad = added(b, dTable, () => b.embeddingBackward(dTable, dOut, tokens));
  const loss = () => {
    b.embeddingForward(out, table, tokens);
    return weighted(b, out, dOut);
  };
  compare(b, loss, { table: [table, grad] });
});

test("rmsNorm", () => {
  const { b, tensor } = bench(2);
  const [x, out, dOut, dX] = [tensor([4, 6]), tensor([4, 6]), tensor([4, 6]), tensor([4, 6])];
  const [gain, dGain, rstd] = [tensor([6], "weight"), tensor([6], "float"), tensor([4], "float")];
  const loss = () => {
    b.rmsNormForward(out, rstd, x, gain, 1e-2);
    return weighted(b, out, dOut);
  };
  loss();
  const dGainBefore = b.read(dGain);
  const dx = added(b, dX, () => b.rmsNormBackward(dX, dGain, dOut, x, gain, rstd));
  const dgain = (b.read(dGain) as Float64Array).map((g, i) => g - dGainBefore[i]);
  compare(b, loss, { x: [x, dx], gain: [gain, dgain] });
});

test("linear", () => {
  const { b, tensor } = bench(3);
  const [x, w, out] = [tensor([4, 3]), tensor([5, 3], "weight"), tensor([4, 5])];
  const [dX, dW, dOut] = [tensor([4, 3]), tensor([5, 3], "float"), tensor([4, 5])];
  const dw = added(b, dW, () => b.linearBackward(dX, dW, dOut, x, w));
  const loss = () => {
    b.linearForward(out, x, w);
    return weighted(b, out, dOut);
  };
  compare(b, loss, { x: [x, b.read(dX)], w: [w, dw] });
  expect(
    added(b, dW, () => b.linearBackward(null, dW, dOut, x, w)).every((g, i) => Math.abs(g - dw[i]) < 1e-12),
  ).toBe(true);
});

test("swiglu", () => {
  const { b, tensor } = bench(4);
  const [gateUp, out, dOut, dGateUp] = [tensor([3, 8]), tensor([3, 4]), tensor([3, 4]), tensor([3, 8])];
  b.swigluBackward(dGateUp, dOut, gateUp);
  const loss = () => {
    b.swigluForward(out, gateUp);
    return weighted(b, out, dOut);
  };
  compare(b, loss, { gateUp: [gateUp, b.read(dGateUp)] });
});

test.each([3, 5])("key convolution of width %i over packed documents", (W) => {
  const { b, tensor, documents } = bench(5 + W);
  const [T, H, G, D] = [9, 4, 2, 2];
  const docs = documents([0, 1, 3, 9]);
  const E = (H + 2 * G) * D;
  const [input, w, keys] = [tensor([T, E]), tensor([W, G, D], "weight"), tensor([T, G, D])];
  const [qkv, dOut, dQkv, dW] = [tensor([T, E]), tensor([T, E]), tensor([T, E]), tensor([W, G, D], "float")];
  const loss = () => {
    b.copy(qkv, input);
    b.keyConvForward(qkv, keys, w, docs, G);
    return weighted(b, qkv, dOut);
  };
  loss();
  b.copy(dQkv, dOut);
  const dw = added(b, dW, () => b.keyConvBackward(dQkv, dW, keys, w, docs, G));
  compare(b, loss, { qkv: [input, b.read(dQkv)], w: [w, dw] });
});

test("split and RoPE over packed documents", () => {
  const { b, tensor, documents } = bench(11);
  const [T, H, G, D] = [7, 4, 2, 6];
  const docs = documents([0, 3, 7]);
  const qkv = tensor([T, (H + 2 * G) * D]);
  const dQkv = tensor([T, (H + 2 * G) * D]);
  const [q, k, v] = [tensor([T, H, D]), tensor([T, G, D]), tensor([T, G, D])];
  const [dQ, dK, dV] = [tensor([T, H, D]), tensor([T, G, D]), tensor([T, G, D])];
  b.splitRopeBackward(dQkv, dQ, dK, dV, docs, 100);
  const loss = () => {
    b.splitRopeForward(q, k, v, qkv, docs, 100);
    return weighted(b, q, dQ) + weighted(b, k, dK) + weighted(b, v, dV);
  };
  compare(b, loss, { qkv: [qkv, b.read(dQkv)] });
});

const attentions: Attention[] = [
  { kind: "full" },
  { kind: "moba", blockSize: 4, topK: 2 },
  { kind: "moba", blockSize: 3, topK: 3, sharedGate: true },
  { kind: "moba", blockSize: 4, topK: 1 },
  { kind: "window", blockSize: 4, topK: 2 },
  { kind: "sink", blockSize: 2, topK: 3 },
];
test.each(attentions)("attention %o, grouped heads, packed documents", (attention) => {
  const { b, tensor, documents } = bench(12);
  const [T, H, G, D] = [21, 4, 2, 4];
  const docs = documents([0, 1, 6, 21]);
  const state = b.attentionState({ tokens: T, heads: H, kvHeads: G, headDim: D, maxDocuments: 3, attention });
  const [q, k, v, out] = [tensor([T, H, D]), tensor([T, G, D]), tensor([T, G, D]), tensor([T, H, D])];
  const [dQ, dK, dV, dOut] = [tensor([T, H, D]), tensor([T, G, D]), tensor([T, G, D]), tensor([T, H, D])];
  b.route(state, q, k, docs); // Once: the selection is a constant of the backward pass.
  const loss = () => {
    b.attentionForward(state, out, q, k, v, docs);
    return weighted(b, out, dOut);
  };
  loss();
  b.attentionBackward(state, dQ, dK, dV, dOut, out, q, k, v, docs);
  compare(b, loss, { q: [q, b.read(dQ)], k: [k, b.read(dK)], v: [v, b.read(dV)] });
});

test("output matrix and cross-entropy", () => {
  const { b, tensor } = bench(13);
  const [T, C, V] = [5, 4, 7];
  const [x, w, losses] = [tensor([T, C]), tensor([V, C], "weight"), tensor([T], "float")];
  const [dX, dW, scale] = [tensor([T, C]), tensor([V, C], "float"), tensor([1], "float")];
  const targets = b.tensor([T], "index");
  b.write(targets, [3, -1, 0, 6, 3]);
  b.write(scale, [0.25]);
  const dw = added(b, dW, () => b.lossForwardBackward(losses, dX, dW, x, w, targets, scale));
  const loss = () => {
    b.lossForward(losses, x, w, targets);
    return 0.25 * Float64Array.from(b.read(losses)).reduce((sum, l) => sum + l, 0);
  };
  compare(b, loss, { x: [x, b.read(dX)], w: [w, dw] });
});
