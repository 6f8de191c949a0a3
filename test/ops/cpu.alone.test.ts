/** The CPU backend without threads and shared memory, and the gate scores that it shows. */
import { existsSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { attentionLabel, parseAttention } from "../../src/attention/attention.ts";
import { createLoneCpuBackend } from "../../src/ops/cpu/alone.ts";
import { type CpuBackend, createCpuBackend } from "../../src/ops/cpu/index.ts";
import { integers, normals, uniform } from "./random.ts";

const KERNELS = new URL("../../build/cpu-alone.wasm", import.meta.url);
const [T, H, G, D] = [330, 4, 2, 16];
const OFFSETS = [0, 70, T];
const q = normals(uniform(1), T * H * D);
const k = normals(uniform(2), T * G * D);

function routed(backend: CpuBackend, label: string) {
  const shape = { tokens: T, heads: H, kvHeads: G, headDim: D, maxDocuments: 2 };
  const state = backend.attentionState({ ...shape, attention: parseAttention(label) });
  const documents = backend.documents(T, 2);
  backend.setDocuments(documents, OFFSETS);
  const [q_THD, k_TGD] = [backend.tensor([T, H, D], "activation"), backend.tensor([T, G, D], "activation")];
  const [v_TGD, out_THD] = [backend.tensor([T, G, D], "activation"), backend.tensor([T, H, D], "activation")];
  backend.write(q_THD, q);
  backend.write(k_TGD, k);
  backend.write(v_TGD, normals(uniform(3), T * G * D));
  const scores = backend.routeWithScores(state, q_THD, k_TGD, documents);
  backend.attentionForward(state, out_THD, q_THD, k_TGD, v_TGD, documents);
  const routing = backend.readRouting(state);
  backend.route(state, q_THD, k_TGD, documents);
  expect(backend.readRouting(state)).toEqual(routing);
  return { scores, routing, out: backend.read(out_THD), lse: backend.read(state.lse) };
}

describe.skipIf(!existsSync(KERNELS))("alone", () => {
  const alone = () => createLoneCpuBackend(readFileSync(KERNELS));

  test.each(["full", "moba-b16-k3", "moba-b16-k3-shared", "window-b16-k3", "moba-b150-k2"])(
    "%s has the bits of three threads",
    async (label) => {
      const [one, three] = [await alone(), createCpuBackend({ threads: 3, variant: "plain" })];
      expect(routed(one, label)).toEqual(routed(three, label));
      one.close();
      three.close();
    },
  );

  test("products and losses have the bits of three threads, also when the memory grew in between", async () => {
    const results = [await alone(), createCpuBackend({ threads: 3, variant: "plain" })].map((backend) => {
      const x = backend.tensor([T, 72], "activation");
      const w = backend.tensor([500, 72], "weight");
      const [targets, losses] = [backend.tensor([T], "index"), backend.tensor([T], "float")];
      backend.write(x, normals(uniform(4), x.length));
      backend.write(w, normals(uniform(5), w.length));
      backend.write(targets, integers(uniform(6), T, 500));
      const out = backend.tensor([T, 500], "activation");
      backend.linearForward(out, x, w);
      backend.tensor([4 << 20], "float");
      backend.lossForward(losses, x, w, targets);
      const values = [backend.read(out), backend.read(losses)];
      backend.close();
      return values;
    });
    expect(results[0]).toEqual(results[1]);
  });

  test.each([
    ["moba-b16-k3", H],
    ["moba-b16-k3-shared", G],
    ["moba-b7-k4", H],
  ])("%s: gate scores are inner products with means of keys, and decide the choice", async (label, Z) => {
    const backend = await alone();
    const { scores, routing } = routed(backend, label);
    backend.close();
    const attention = parseAttention(label);
    if (attention.kind === "full") throw new Error(attentionLabel(attention));
    const { blockSize, topK } = attention;
    const maxBlocks = Math.ceil((T - 70) / blockSize);
    expect(scores.length).toBe(T * Z * maxBlocks);
    for (let t = 0; t < T; t++) {
      const start = t < OFFSETS[1] ? 0 : OFFSETS[1];
      const own = Math.floor((t - start) / blockSize);
      for (let z = 0; z < Z; z++) {
        const row = [...scores.subarray((t * Z + z) * maxBlocks, (t * Z + z + 1) * maxBlocks)];
        const heads = Array.from({ length: H / Z }, (_, i) => (z * H) / Z + i);
        const g = Math.floor((z * G) / Z);
        for (let b = 0; b < own; b++) {
          let score = 0;
          for (let d = 0; d < D; d++) {
            let mean = 0;
            for (let i = 0; i < blockSize; i++) mean += k[((start + b * blockSize + i) * G + g) * D + d];
            for (const h of heads) score += (q[(t * H + h) * D + d] * mean) / blockSize;
          }
          expect(Math.abs(row[b] - score)).toBeLessThan(1e-5);
        }
        expect(row.slice(own).every(Number.isNaN)).toBe(true);
        const best = row
          .slice(0, own)
          .map((score, block) => ({ score, block }))
          .sort((a, b) => b.score - a.score || a.block - b.block)
          .slice(0, topK - 1)
          .map(({ block }) => block)
          .sort((a, b) => a - b);
        for (const h of heads) {
          const S = topK - 1;
          const chosen = [...routing.subarray((t * H + h) * S, (t * H + h + 1) * S)];
          expect(chosen.filter((block) => block >= 0)).toEqual(best);
        }
      }
    }
  });

  test("there are no scores where nothing is scored", async () => {
    const backend = await alone();
    for (const label of ["full", "moba-b16-k1", "sink-b16-k3"]) {
      expect(routed(backend, label).scores.length, label).toBe(0);
    }
    backend.close();
  });
});
