/**
 * Attention on the card where the shared suite cannot go: the same bits a thousand times, tensors of more than 2^31
 * elements, every block size against full attention, and kernels compiled at run time.
 *
 *   npm run build:gpu && node --test build/gpu/test/gpu/attention.test.js
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Attention, attentionLabel } from "../../src/attention/attention.ts";
import type { Backend } from "../../src/ops/contract.ts";
import { compiledNow } from "../../src/ops/cuda/compile.ts";
import { createCudaBackend, cudaFacts } from "../../src/ops/cuda/index.ts";
import { uniform } from "../ops/random.ts";
import { relativeError, sameBits } from "../ops/suite/harness.ts";
import { kernelSets, skip } from "./card.ts";

interface LayerShape {
  readonly offsets: readonly number[];
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly attention: Attention;
}

/** A layer's tensors, all zero, with the whole of forward and backward. */
function makeLayer(b: Backend, { offsets, heads: H, kvHeads: G, headDim: D, attention }: LayerShape) {
  const [T, maxDocuments] = [offsets[offsets.length - 1], offsets.length - 1];
  const documents = b.documents(T, maxDocuments);
  b.setDocuments(documents, offsets);
  const state = b.attentionState({ tokens: T, heads: H, kvHeads: G, headDim: D, maxDocuments, attention });
  const wide = () => b.tensor([T, H, D], "activation");
  const narrow = () => b.tensor([T, G, D], "activation");
  const inputs = { q: wide(), k: narrow(), v: narrow(), dOut: wide() };
  const outputs = { out: wide(), dQ: wide(), dK: narrow(), dV: narrow() };
  const { q, k, v, dOut } = inputs;
  const { out, dQ, dK, dV } = outputs;
  return {
    inputs,
    outputs,
    run() {
      b.route(state, q, k, documents);
      b.attentionForward(state, out, q, k, v, documents);
      b.attentionBackward(state, dQ, dK, dV, dOut, out, q, k, v, documents);
    },
    /** Random values for the tokens from `from` on, the same for the same seed. */
    fill(seed: number, from = 0) {
      const next = uniform(seed);
      for (const tensor of Object.values(inputs)) {
        const width = tensor.length / T;
        const values = Float32Array.from({ length: (T - from) * width }, () => 4 * next() - 2);
        b.write(b.view(tensor, from * width, [T - from, width]), values);
      }
    },
    /** The outputs of the tokens from `from` on. */
    read(from = 0) {
      return Object.entries(outputs).map(([name, tensor]) => {
        const width = tensor.length / T;
        return [name, b.read(b.view(tensor, from * width, [T - from, width]))] as const;
      });
    },
  };
}

const moba = (blockSize: number, topK: number): Attention => ({ kind: "moba", blockSize, topK });

for (const { kernels, hopper } of kernelSets)
  describe(`attention, ${kernels}`, { skip }, () => {
    let b: Backend;
    before(() => {
      b = createCudaBackend({ hopper });
    });
    after(() => b?.close());

    test("every kernel file compiles at run time", () => {
      const general = ["forward", "backward", "routing", "lists", "decode"].map(
        (name) => `attention/${name}`,
      );
      for (const file of hopper ? ["hopper/forward", "hopper/backward", "hopper/route"] : general) {
        const start = performance.now();
        compiledNow(file, cudaFacts().cards[0].capability);
        console.log(`  ${file}: ${(performance.now() - start).toFixed(0)} ms`);
      }
    });

    for (const attention of [{ kind: "full" } as const, moba(64, 4), moba(200, 3)]) {
      for (const headDim of [64, 128]) {
        test(`${attentionLabel(attention)} D=${headDim}: scratch full of NaN does not matter`, () => {
          const shape = { heads: 4, kvHeads: 2, headDim, attention };
          const layer = makeLayer(b, { ...shape, offsets: [0, 700, 1500] });
          // Finite queries and keys, so that there are choices; other documents, so that they are others.
          const before = makeLayer(b, { ...shape, offsets: [0, 900, 1500] });
          const runs = [false, true].map((poisoned) => {
            if (poisoned) {
              before.fill(5);
              for (const tensor of [before.inputs.v, before.inputs.dOut]) {
                b.write(tensor, new Float32Array(tensor.length).fill(Number.NaN));
              }
              before.run();
            }
            layer.fill(2);
            layer.run();
            return layer.read();
          });
          runs[1].forEach(([name, values], i) => {
            sameBits(name, values, runs[0][i][1]);
            assert.ok(values.every(Number.isFinite), `${name} is not finite`);
          });
        });

        test(`${attentionLabel(attention)} D=${headDim}: the same bits in 1000 replays`, () => {
          const layer = makeLayer(b, { offsets: [0, 700, 1500], heads: 4, kvHeads: 2, headDim, attention });
          layer.fill(1);
          layer.run();
          const first = layer.read();
          const replay = b.record(layer.run);
          for (let i = 0; i < 1000; i++) {
            replay();
            // Reading takes longer than running: most replays follow one another.
            if (i % 10 !== 9) continue;
            layer.read().forEach(([name, values], at) => {
              sameBits(`${name}, replay ${i}`, values, first[at][1]);
            });
          }
        });
      }
    }

    // With k blocks or fewer, MoBA is full attention: another path through the kernels to the same function.
    for (const headDim of [64, 128]) {
      for (const blockSize of [64, 80, 512, 1000, 4096]) {
        test(`B=${blockSize} D=${headDim} with all blocks chosen is full attention`, () => {
          const T = Math.min(16 * blockSize, 9000);
          const layers = [moba(blockSize, 16), { kind: "full" } as const].map((attention) => {
            const layer = makeLayer(b, { offsets: [0, 77, T], heads: 2, kvHeads: 1, headDim, attention });
            layer.fill(blockSize);
            layer.run();
            return layer.read();
          });
          layers[0].forEach(([name, values], i) => {
            const error = relativeError(values, layers[1][i][1]);
            assert.ok(error < 1e-2, `${name}: relative error ${error}`);
          });
        });
      }
    }

    test("more than 2^31 elements: the last document of many is what it is alone", () => {
      const length = 2 ** 14;
      const count = 260;
      const shape = { heads: 4, kvHeads: 1, headDim: 128, attention: moba(128, 3) };
      const ends = Array.from({ length: count + 1 }, (_, i) => i * length);
      assert.ok(count * length * 4 * 128 > 2 ** 31);
      const alone = makeLayer(b, { ...shape, offsets: [0, length] });
      alone.fill(3);
      alone.run();
      const long = makeLayer(b, { ...shape, offsets: ends });
      long.fill(3, (count - 1) * length);
      long.run();
      const values = alone.read();
      long.read((count - 1) * length).forEach(([name, last], i) => {
        sameBits(name, last, values[i][1]);
        assert.ok(last.every(Number.isFinite), `${name} is not finite`);
      });
    });
  });
