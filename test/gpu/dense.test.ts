/**
 * The dense kernels on the card where the shared suite does not reach: the loss held closely to bf16 logits, rows in
 * every kernel's range, tensors beyond 2^31 elements, tokens out of range, a thousand repeats.
 *
 *   npm run build:gpu && node --test build/gpu/test/gpu/dense.test.js
 */
import assert from "node:assert/strict";
import { test as plain, type TestContext } from "node:test";
import type { Backend, Role, Tensor } from "../../src/ops/contract.ts";
import { createCudaBackend } from "../../src/ops/cuda/index.ts";
import { integers, normals, uniform } from "../ops/random.ts";
import { Harness, relativeError, sameBits } from "../ops/suite/harness.ts";
import { shapes, skip, tolerance } from "./card.ts";
import { bf16 } from "./low-precision.ts";

function test(name: string, run: (backend: Backend, h: Harness) => void): void {
  plain(name, { skip }, (t: TestContext) => {
    const backend = createCudaBackend();
    t.after(() => backend.close());
    run(backend, new Harness(backend, { ...shapes, tolerance }));
  });
}

function near(name: string, values: ArrayLike<number>, expected: ArrayLike<number>, allowed: number): void {
  const error = relativeError(Float64Array.from(values), Float64Array.from(expected));
  console.log(`  ${name}: ${error.toExponential(1)}`);
  assert.ok(error <= allowed, `${name}: relative error ${error}, at most ${allowed} allowed`);
}

const maker =
  (backend: Backend, next: () => number) =>
  (shape: number[], role: Role = "activation", scale = 1): Tensor => {
    const tensor = backend.tensor(shape, role);
    backend.write(
      tensor,
      normals(next, tensor.length).map((x) => scale * x),
    );
    return tensor;
  };

// --- loss -----------------------------------------------------------------------------------------------------------

for (const [T, V, kernel] of [
  [37, 264, "4 vectors"],
  [20, 8192, "4 vectors, full"],
  [9, 8200, "8 vectors"],
  [9, 32_768, "8 vectors, full"],
  [5, 131_072, "long"],
] as const) {
  test(`loss V=${V} (${kernel}) is that of logits and gradients rounded to bf16`, (b) => {
    const C = 64;
    const next = uniform(V);
    const make = maker(b, next);
    const [x, w, dX, dW] = [make([T, C]), make([V, C], "weight"), make([T, C]), b.tensor([V, C], "float")];
    const [losses, targets, scale] = [make([T], "float"), b.tensor([T], "index"), b.tensor([1], "float")];
    const chosen = integers(next, T, V).map((target, t) => (t % 3 === 1 ? -1 : target));
    b.write(targets, chosen);
    b.write(scale, [0.25]);
    b.lossForwardBackward(losses, dX, dW, x, w, targets, scale);
    const expected = roundedLoss(b.read(x), b.read(w), chosen, T, C, V, 0.25);
    near("losses", b.read(losses), expected.losses, 1e-3);
    near("dX", b.read(dX), expected.dX, 3e-3);
    near("dW", b.read(dW), expected.dW, 2e-3);
  });
}

/** Sums in float64, logits and their gradient rounded to bf16. */
function roundedLoss(
  x: ArrayLike<number>,
  w: ArrayLike<number>,
  targets: ArrayLike<number>,
  T: number,
  C: number,
  V: number,
  scale: number,
) {
  const [losses, dX, dW] = [new Float64Array(T), new Float64Array(T * C), new Float64Array(V * C)];
  const logits = new Float64Array(V);
  for (let t = 0; t < T; t++) {
    const target = targets[t];
    if (target < 0) continue;
    for (let v = 0; v < V; v++) {
      let sum = 0;
      for (let c = 0; c < C; c++) sum += x[t * C + c] * w[v * C + c];
      logits[v] = bf16(sum);
    }
    const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
    const lse = most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
    losses[t] = lse - logits[target];
    for (let v = 0; v < V; v++) {
      const gradient = bf16(scale * (Math.exp(logits[v] - lse) - (v === target ? 1 : 0)));
      for (let c = 0; c < C; c++) {
        dX[t * C + c] += gradient * w[v * C + c];
        dW[v * C + c] += gradient * x[t * C + c];
      }
    }
  }
  return { losses, dX, dW };
}

test("loss in two chunks is that of its parts", (b) => {
  const [T, C, V, cut] = [2500, 64, 131_072, 1280];
  const next = uniform(7);
  const make = maker(b, next);
  const [x, w, dX, dW] = [make([T, C]), make([V, C], "weight", 0.1), make([T, C]), b.tensor([V, C], "float")];
  const [losses, targets, scale] = [make([T], "float"), b.tensor([T], "index"), b.tensor([1], "float")];
  b.write(targets, integers(next, T, V));
  b.write(scale, [1]);
  b.lossForwardBackward(losses, dX, dW, x, w, targets, scale);
  const [dX2, dW2, losses2] = [make([T, C]), b.tensor([V, C], "float"), make([T], "float")];
  for (const [from, rows] of [
    [cut, T - cut],
    [0, cut],
  ]) {
    const part = (tensor: Tensor) =>
      tensor.shape.length === 2 ? b.view(tensor, from * C, [rows, C]) : b.view(tensor, from, [rows]);
    b.lossForwardBackward(part(losses2), part(dX2), dW2, part(x), w, part(targets), scale);
  }
  near("losses", b.read(losses), b.read(losses2), 1e-5);
  near("dX", b.read(dX), b.read(dX2), 1e-2);
  near("dW", b.read(dW), b.read(dW2), 1e-3);
  const alone = make([T], "float");
  b.lossForward(alone, x, w, targets);
  near("losses of f32 logits", b.read(losses), b.read(alone), 6e-3);
});

// --- every kernel's range -------------------------------------------------------------------------------------------

for (const C of [192, 384, 640, 1000, 1264, 1536, 1792, 2048, 4096]) {
  test(`norms C=${C}, more rows than warps on the card`, (_, h) => {
    h.seed(C);
    const T = C < 1000 ? 9000 : 1500;
    const [x, gain, delta] = [h.tensor([T, C]), h.tensor([C], "weight"), h.tensor([T, C])];
    const [out, sum, rstd] = [h.poisoned([T, C]), h.poisoned([T, C]), h.poisoned([T], "float")];
    h.both((b, on) => b.addRmsNormForward(on(sum), on(out), on(rstd), on(x), on(delta), on(gain), 1e-5));
    h.same({ sum, out, "rstd of the sum": rstd });
    h.both((b, on) => b.rmsNormForward(on(out), on(rstd), on(x), on(gain), 1e-5));
    h.same({ out, rstd });
    const [dOut, dX, dGain] = [h.tensor([T, C]), h.tensor([T, C]), h.tensor([C], "float")];
    h.both((b, on) => b.rmsNormBackward(on(dX), on(dGain), on(dOut), on(x), on(gain), on(rstd)));
    h.same({ dX, dGain });
  });
}

test("the norm of a stored sum has the bits of the norm behind the add", (b) => {
  const [T, C] = [500, 640];
  const make = maker(b, uniform(3));
  const [x, delta, gain, sum] = [make([T, C]), make([T, C]), make([C], "weight"), make([T, C])];
  const [out, again] = [make([T, C]), make([T, C])];
  const [rstd, rstdAgain] = [make([T], "float"), make([T], "float")];
  b.addRmsNormForward(sum, out, rstd, x, delta, gain, 1e-5);
  b.rmsNormForward(again, rstdAgain, sum, gain, 1e-5);
  sameBits("out", b.read(again), b.read(out));
  sameBits("rstd", b.read(rstdAgain), b.read(rstd));
});

for (const [T, V, C] of [
  [65_536, 131_072, 64],
  [20_000, 300, 1096],
  [40_000, 2, 128],
]) {
  test(`embedding T=${T} V=${V} C=${C}, frequent and rare tokens`, (_, h) => {
    h.seed(V);
    // Zipf's law: a few tokens fill many runs, most are alone.
    const ids = Int32Array.from({ length: T }, () => Math.floor(V ** h.next()) % V);
    const tokens = h.tensor([T], "index", ids);
    const [dTable, dOut] = [h.tensor([V, C], "float"), h.tensor([T, C])];
    h.both((b, on) => b.embeddingBackward(on(dTable), on(dOut), on(tokens)));
    h.same({ dTable });
  });
}

test("key convolution over 5000 tokens in documents of all lengths", (_, h) => {
  h.seed(5);
  const offsets = [0, 1, 33, 64, 65, 257, 1290, 1291, 5000];
  const [T, G, D] = [5000, 3, 64];
  for (const W of [3, 5]) {
    const docs = h.documents(offsets);
    const [qkv, keys, w] = [h.tensor([T, 9 * D]), h.poisoned([T, G, D]), h.tensor([W, G, D], "weight")];
    h.both((b, on) => b.keyConvForward(on(qkv), on(keys), on(w), on(docs), G));
    h.same({ qkv, keys });
    const [dQkv, dW] = [h.tensor([T, 9 * D]), h.tensor([W, G, D], "float")];
    h.both((b, on) => b.keyConvBackward(on(dQkv), on(dW), on(keys), on(w), on(docs), G));
    h.same({ dQkv, dW });
  }
});

test("out of range: a token's row and a target's loss are NaN, nothing else is", (b) => {
  const make = maker(b, uniform(1));
  const [table, out, dTable] = [make([10, 8], "weight"), make([3, 8]), make([10, 8], "float")];
  const tokens = b.tensor([3], "index");
  b.write(tokens, [4, 10, -1]);
  b.embeddingForward(out, table, tokens);
  const nan = (tensor: Tensor) => [...b.read(tensor)].map((x) => Number.isNaN(x));
  assert.deepEqual(nan(out), [...new Array(8).fill(false), ...new Array(16).fill(true)]);
  const row4 = b.read(dTable).slice(32, 40);
  const grad = make([3, 8]);
  const before = b.read(dTable);
  b.embeddingBackward(dTable, grad, tokens);
  const after = b.read(dTable);
  b.read(grad)
    .slice(0, 8)
    .forEach((g, i) => {
      assert.equal(after[32 + i], Math.fround(row4[i] + g));
    });
  const others = (values: ArrayLike<number>) => Float64Array.from(values).filter((_, i) => i < 32 || i >= 40);
  sameBits("other rows", others(after), others(before));
  const [losses, targets, scale] = [make([3], "float"), b.tensor([3], "index"), make([1], "float")];
  b.write(targets, [9, 16, 0]);
  const [x, w, dX, dW] = [make([3, 8]), make([16, 8], "weight"), make([3, 8]), make([16, 8], "float")];
  b.lossForward(losses, x, w, targets);
  assert.deepEqual(nan(losses), [false, true, false]);
  b.lossForwardBackward(losses, dX, dW, x, w, targets, scale);
  assert.deepEqual(nan(losses), [false, true, false]);
});

// --- beyond 2^31 elements: the last rows alone are looked at ------------------------------------------------------------

test("norms of 2.2e9 elements", (b, h) => {
  const [T, C, rows] = [1_210_000, 1792, 3];
  const [x, out, dX] = [0, 1, 2].map(() => b.tensor([T, C], "activation"));
  const rstd = b.tensor([T], "float");
  const small = [h.tensor([rows, C]), h.tensor([rows, C]), h.tensor([C], "weight")];
  const [sx, sd, gain] = small;
  const last = (tensor: Tensor) => b.view(tensor, (T - rows) * C, [rows, C]);
  b.copy(last(x), sx.tested);
  b.copy(last(out), sd.tested);
  const dGain = h.tensor([C], "float");
  const [expected, r] = [h.poisoned([rows, C]), h.poisoned([rows], "float")];
  h.reference.rmsNormForward(expected.reference, r.reference, sx.reference, gain.reference, 1e-5);
  b.rmsNormForward(dX, rstd, x, gain.tested, 1e-5);
  near("out", b.read(last(dX)), h.reference.read(expected.reference), 1e-2);
  b.zero(dX);
  h.reference.write(expected.reference, new Float64Array(rows * C));
  h.reference.rmsNormBackward(
    expected.reference,
    dGain.reference,
    sd.reference,
    sx.reference,
    gain.reference,
    r.reference,
  );
  b.rmsNormBackward(dX, dGain.tested, out, x, gain.tested, rstd);
  near("dX", b.read(last(dX)), h.reference.read(expected.reference), 1e-2);
  near("dGain", b.read(dGain.tested), h.reference.read(dGain.reference), 1e-5);
});

test("SwiGLU of 2.5e9 elements", (b, h) => {
  const [T, F, rows] = [300_000, 4096, 3];
  const [gateUp, dGateUp] = [0, 1].map(() => b.tensor([T, 2 * F], "activation"));
  const out = b.tensor([T, F], "activation");
  const [gu, dO] = [h.tensor([rows, 2 * F]), h.tensor([rows, F])];
  const last = (tensor: Tensor, width: number) => b.view(tensor, (T - rows) * width, [rows, width]);
  b.copy(last(gateUp, 2 * F), gu.tested);
  const [o, dGu] = [h.poisoned([rows, F]), h.poisoned([rows, 2 * F])];
  h.reference.swigluForward(o.reference, gu.reference);
  h.reference.swigluBackward(dGu.reference, dO.reference, gu.reference);
  b.swigluForward(out, gateUp);
  near("out", b.read(last(out, F)), h.reference.read(o.reference), 1e-2);
  b.copy(last(out, F), dO.tested);
  b.swigluBackward(dGateUp, out, gateUp);
  near("dGateUp", b.read(last(dGateUp, 2 * F)), h.reference.read(dGu.reference), 1e-2);
});

test("RoPE of 2.2e9 elements, at position 479999", (b, h) => {
  const [T, H, D] = [480_000, 12, 128];
  const E = 3 * H * D;
  const qkv = b.tensor([T, E], "activation");
  const [q, k, v] = [0, 1, 2].map(() => b.tensor([T, H, D], "activation"));
  const docs = b.documents(T, 1);
  const row = h.tensor([1, E]);
  b.copy(b.view(qkv, (T - 1) * E, [1, E]), row.tested);
  const one = h.documents([0, 1]);
  const split = [0, 1, 2].map(() => h.poisoned([1, H, D]));
  const [rq, rk, rv] = split.map((x) => x.reference);
  h.reference.splitRopeForward(rq, rk, rv, row.reference, one.reference, 10_000, T - 1);
  b.splitRopeForward(q, k, v, qkv, docs, 10_000);
  [q, k, v].forEach((tensor, i) => {
    const last = b.view(tensor, (T - 1) * H * D, [1, H, D]);
    near(["q", "k", "v"][i], b.read(last), h.reference.read(split[i].reference), 4e-3);
  });
  b.zero(qkv);
  b.splitRopeBackward(qkv, q, k, v, docs, 10_000);
  near("there and back", b.read(b.view(qkv, (T - 1) * E, [1, E])), h.reference.read(row.reference), 6e-3);
});

// --- the same bits --------------------------------------------------------------------------------------------------

test("reductions over blocks give the same bits a thousand times", (b) => {
  const next = uniform(21);
  const make = maker(b, next);
  const [T, C, V, G, D, W] = [20_000, 640, 512, 2, 64, 5];
  const [x, dOut, dX, gain] = [make([T, C]), make([T, C]), make([T, C]), make([C], "weight")];
  const [rstd, dGain, dTable] = [make([T], "float"), make([C], "float"), make([V, C], "float")];
  const tokens = b.tensor([T], "index");
  b.write(
    tokens,
    Int32Array.from({ length: T }, () => Math.floor(V ** next()) % V),
  );
  const [keys, w, dW] = [make([T, G, D]), make([W, G, D], "weight"), make([W, G, D], "float")];
  const [dQkv, docs] = [make([T, 3 * G * D]), b.documents(T, 1)];
  const [grads, norm] = [make([1_000_003], "float"), make([1], "float")];
  const outputs = { dGain, dTable, dW, norm };
  const replay = b.record(() => {
    for (const tensor of [dGain, dTable, dW]) b.zero(tensor);
    b.rmsNormBackward(dX, dGain, dOut, x, gain, rstd);
    b.embeddingBackward(dTable, dOut, tokens);
    // Of what the previous call left in dQkv: so the first call of each pair starts from the same.
    b.keyConvBackward(dQkv, dW, keys, w, docs, G);
    b.gradNorm(norm, grads);
  });
  const start = b.tensor([T, 3 * G * D], "activation");
  b.copy(start, dQkv);
  const run = () => {
    b.copy(dQkv, start);
    replay();
    return Object.entries(outputs).map(([name, tensor]) => [name, b.readLater(tensor)] as const);
  };
  const first = run().map(([name, values]) => [name, values()] as const);
  for (let i = 0; i < 1000; i++) {
    run().forEach(([name, values], j) => {
      // The large one now and then.
      if (name !== "dTable" || i % 20 === 0) sameBits(`${name}, launch ${i}`, values(), first[j][1]);
      else values();
    });
  }
});
