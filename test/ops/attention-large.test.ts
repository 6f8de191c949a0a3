/**
 * Attention on the CPU at sizes where its work is cut into several chunks, rounds and tiles (the shared suite is
 * smaller): against the reference, across thread counts, its memory, and routing over many blocks.
 */
import { existsSync } from "node:fs";
import { afterAll, describe, expect, test } from "vitest";
import { type Attention, attentionLabel, parseAttention } from "../../src/attention/attention.ts";
import type { Backend } from "../../src/ops/contract.ts";
import { normals, uniform } from "./random.ts";
import { Harness, sameBits } from "./suite/harness.ts";
import { Layer } from "./suite/layer.ts";

const built = existsSync(new URL("../../build/cpu.wasm", import.meta.url));
if (!built) test.skip("build/cpu.wasm is not there: npm run build:wasm", () => {});

describe.runIf(built)("large attention on the CPU", async () => {
  const { createCpuBackend } = await import("../../src/ops/cpu/index.ts");
  const shared = createCpuBackend({ threads: 2 });
  const h = new Harness(shared, {});
  afterAll(() => shared.close());

  const labels = [
    ...["full", "moba-b16-k1", "moba-b32-k4", "moba-b64-k3-shared", "moba-b128-k3", "moba-b200-k2"],
    ...["window-b48-k3", "sink-b48-k4"],
  ];
  for (const label of labels) {
    test(`${label}: output, gradients and routing of documents of 40 and 1310 tokens, H=4 G=2`, () => {
      h.seed(label.length);
      const attention = parseAttention(label);
      new Layer(h, { offsets: [0, 40, 1350], heads: 4, kvHeads: 2, headDim: 8, attention }).check();
    });
  }

  test("head dimensions that are no multiple of 8", () => {
    for (const headDim of [2, 6, 10, 100]) {
      h.seed(headDim);
      const attention = parseAttention("moba-b32-k3");
      new Layer(h, { offsets: [0, 300], heads: 2, kvHeads: 1, headDim, attention }).check();
    }
  });

  test("top-k over 300 blocks", () => {
    h.seed(9);
    const layer = new Layer(h, {
      offsets: [0, 601],
      heads: 2,
      kvHeads: 1,
      headDim: 16,
      attention: parseAttention("moba-b2-k6"),
    });
    layer.route();
    layer.sameRouting();
  });

  test("decoding selects the blocks that route selects", () => {
    for (const label of ["moba-b4-k3", "moba-b4-k5-shared", "window-b4-k3", "sink-b4-k3", "full"]) {
      const attention = parseAttention(label);
      const [T, H, G, D] = [333, 4, 2, 16];
      const run = runLayer(shared, attention, [0, T], { H, G, D });
      const [q, out] = [shared.tensor([H, D], "activation"), shared.tensor([H, D], "activation")];
      for (const t of [0, 3, 4, 100, 201, 332]) {
        shared.write(q, run.values.q.subarray(t * H * D, (t + 1) * H * D));
        shared.attentionDecode(out, q, run.tensors.k, run.tensors.v, t + 1, attention);
        const decoded = shared.read(out);
        const expected = run.out.subarray(t * H * D, (t + 1) * H * D);
        for (let i = 0; i < H * D; i++) expect(Math.abs(decoded[i] - expected[i])).toBeLessThan(2e-6);
      }
    }
  });

  test("one, two and three threads give the same bits", () => {
    for (const label of ["full", "moba-b64-k4"]) {
      const runs = [1, 2, 3].map((threads) => {
        const backend = createCpuBackend({ threads });
        const { out, lse, dQ, dK, dV } = runLayer(backend, parseAttention(label), [0, 900, 2100], {
          H: 3,
          G: 1,
          D: 32,
        });
        backend.close();
        return { out, lse, dQ, dK, dV };
      });
      for (const other of runs.slice(1)) {
        for (const [name, values] of Object.entries(runs[0])) {
          sameBits(`${label} ${name}`, other[name as "out"], values);
        }
      }
    }
  });

  test("memory is linear in T, and a repeated step needs no more", () => {
    for (const label of ["full", "moba-b64-k3"]) {
      const scratch = [4096, 8192].map((T) => {
        const backend = createCpuBackend({ threads: 1 });
        const before = backend.memory();
        runLayer(backend, parseAttention(label), [0, T], { H: 1, G: 1, D: 16 });
        const bytes = backend.memory() - before;
        backend.close();
        return bytes;
      });
      expect(scratch[1] / scratch[0]).toBeLessThan(2.3);
      // Tensors included, a sixteenth of what T x T numbers would take.
      expect(scratch[1]).toBeLessThan((4 * 8192 ** 2) / 16);
    }
    const backend = createCpuBackend({ threads: 1 });
    const layer = runLayer(backend, parseAttention("moba-b64-k3"), [0, 2048], { H: 2, G: 1, D: 16 });
    const before = backend.memory();
    layer.step();
    expect(backend.memory()).toBe(before);
    backend.close();
  });

  test("a routing that does not fit changed documents is refused", () => {
    const attention = parseAttention("moba-b16-k2");
    const state = shared.attentionState({
      tokens: 64,
      heads: 1,
      kvHeads: 1,
      headDim: 8,
      maxDocuments: 2,
      attention,
    });
    const tensors = Array.from({ length: 4 }, () => shared.tensor([64, 1, 8], "activation"));
    const documents = shared.documents(64, 2);
    shared.route(state, tensors[1], tensors[2], documents);
    shared.setDocuments(documents, [0, 32, 64]);
    expect(() =>
      shared.attentionForward(state, tensors[0], tensors[1], tensors[2], tensors[3], documents),
    ).toThrow(/attentionForward: selected_THS/);
  });
});

/** Routes, forward and backward of random values on one backend. */
function runLayer(
  backend: Backend,
  attention: Attention,
  offsets: readonly number[],
  { H, G, D }: { H: number; G: number; D: number },
) {
  const T = offsets[offsets.length - 1];
  const next = uniform(attentionLabel(attention).length + T);
  const values = { q: normals(next, T * H * D), k: normals(next, T * G * D), v: normals(next, T * G * D) };
  const dOutValues = normals(next, T * H * D);
  const tensor = (heads: number, data?: Float64Array) => {
    const made = backend.tensor([T, heads, D], "activation");
    if (data) backend.write(made, data);
    return made;
  };
  const tensors = { q: tensor(H, values.q), k: tensor(G, values.k), v: tensor(G, values.v) };
  const [out, dQ, dK, dV, dOut] = [tensor(H), tensor(H), tensor(G), tensor(G), tensor(H, dOutValues)];
  const documents = backend.documents(T, offsets.length - 1);
  backend.setDocuments(documents, offsets);
  const state = backend.attentionState({
    tokens: T,
    heads: H,
    kvHeads: G,
    headDim: D,
    maxDocuments: offsets.length - 1,
    attention,
  });
  const step = () => {
    const { q, k, v } = tensors;
    backend.route(state, q, k, documents);
    backend.attentionForward(state, out, q, k, v, documents);
    backend.attentionBackward(state, dQ, dK, dV, dOut, out, q, k, v, documents);
  };
  step();
  const read = (x: typeof out) => Float32Array.from(backend.read(x));
  return {
    values,
    tensors,
    step,
    out: read(out),
    lse: read(state.lse),
    dQ: read(dQ),
    dK: read(dK),
    dV: read(dV),
  };
}
