/**
 * The shared op suite on the card, and attention by FlashAttention's rule. Needs no test runner but node's:
 *
 *   npm run build:gpu && node --test build/gpu/test/gpu/ops.test.js
 *
 * With SHARD=i/n a share of it (test/gpu/run.sh: one per core).
 */
import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { type Attention, attentionLabel } from "../../src/attention/attention.ts";
import { createCudaBackend } from "../../src/ops/cuda/index.ts";
import { Harness, type Numbers } from "../ops/suite/harness.ts";
import { Layer, type LayerShape } from "../ops/suite/layer.ts";
import { opSuite } from "../ops/suite.ts";
import { kernelSets, mine, shapes, skip, tolerance } from "./card.ts";
import { lowPrecisionAttention } from "./low-precision.ts";

// The cases never wait; without this nothing would be written before the last.
afterEach(() => setTimeout(0));

/** Closes the backend, in each process. */
const last = (name: string) => name.startsWith("close");

for (const { kernels, hopper } of kernelSets) {
  describe(`op suite, ${kernels}`, { skip }, () => {
    const report = (line: string) => console.log(`  ${line}`);
    const suite = (options: typeof shapes) =>
      opSuite(() => createCudaBackend({ hopper }), { ...options, tolerance, report });
    for (const { name, run } of suite(shapes)) if (last(name) || mine()) test(name, run);
    // Most cases take the first head dimension; those that name theirs take them all.
    const others = { ...shapes, headDims: shapes.headDims.toReversed() };
    for (const { name, run } of suite(others)) {
      if (!last(name) && !(/^(routing|attention|decode)(?!.* D=)/.test(name) && mine())) continue;
      test(`D=${others.headDims[0]}: ${name}`, run);
    }
  });
}

const B = shapes.blockSizes[0];
const layers: LayerShape[] = shapes.headDims.flatMap((headDim) => {
  const moba = (topK: number, blockSize = B): Attention => ({ kind: "moba", blockSize, topK });
  const packed = { offsets: [0, 1, B + 3, 6 * B + 10], heads: 4, kvHeads: 2, headDim };
  return [
    { ...packed, attention: { kind: "full" } },
    { ...packed, attention: moba(1) },
    { ...packed, attention: moba(3) },
    { ...packed, heads: 4, kvHeads: 1, attention: { ...moba(3), sharedGate: true } },
    { offsets: [0, 5 * B], heads: 2, kvHeads: 2, headDim, attention: moba(2, 32) },
    { offsets: [0, 3 * B, 12 * B + 7], heads: 2, kvHeads: 1, headDim, attention: moba(3, 3 * B) },
    { ...packed, attention: { kind: "window", blockSize: B, topK: 2 } },
    { ...packed, attention: { kind: "sink", blockSize: B, topK: 3 } },
  ];
});

describe("attention: |out - reference| <= 2 |bf16 - reference| + 1e-5", { skip }, () => {
  for (const { shape, kernels, hopper } of layers.flatMap((shape) =>
    kernelSets.map((set) => ({ shape, ...set })),
  )) {
    if (!mine()) continue;
    const { heads, kvHeads, headDim, attention } = shape;
    test(`${attentionLabel(attention)} D=${headDim} H=${heads} G=${kvHeads}, ${kernels}`, (t) => {
      const backend = createCudaBackend({ hopper });
      t.after(() => backend.close());
      const h = new Harness(backend, { ...shapes, tolerance });
      h.seed(headDim + heads);
      const layer = new Layer(h, shape);
      layer.route();
      layer.shareRouting();
      layer.forward();
      const dOut = h.tensor([layer.T, heads, headDim]);
      const { dQ, dK, dV } = layer.backward(dOut);
      const given = Object.fromEntries(
        Object.entries({ q: layer.q, k: layer.k, v: layer.v, dOut }).map(([name, x]) => [
          name,
          h.reference.read(x.reference),
        ]),
      ) as Record<"q" | "k" | "v" | "dOut", Numbers>;
      const low = lowPrecisionAttention({ ...shape, ...given, selected: layer.routing().reference });
      for (const [name, x] of Object.entries({ out: layer.out, dQ, dK, dV })) {
        const reference = h.reference.read(x.reference);
        const ours = deviation(backend.read(x.tested), reference);
        const yardstick = deviation(low[name as keyof typeof low], reference);
        for (const size of ["max", "mean"] as const) {
          const allowed = 2 * yardstick[size] + 1e-5;
          assert.ok(
            ours[size] <= allowed,
            `${name}: ${size} error ${ours[size]}, at most ${allowed} allowed`,
          );
        }
      }
    });
  }
});

function deviation(values: Numbers, reference: Numbers): { max: number; mean: number } {
  let [max, sum] = [0, 0];
  for (let i = 0; i < reference.length; i++) {
    const error = Math.abs(values[i] - reference[i]);
    max = error > max || Number.isNaN(error) ? error : max;
    sum += error;
  }
  return { max, mean: sum / reference.length };
}
