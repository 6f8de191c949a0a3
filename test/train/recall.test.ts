/** Recall is asked of a model whose answers are known: it copies what followed the same two tokens in its reach. */
import { describe, expect, it } from "vitest";
import type { Batch } from "../../src/data/types.ts";
import type { Model } from "../../src/model/model.ts";
import { evaluateRecall } from "../../src/train/recall.ts";
import { randomWindow } from "./tiny.ts";

const VOCABULARY = 300;
const CONTEXT = 512;

/** A model that gives logit 3 to the token after the last occurrence of the pair before, 0 to all others. */
function copier(reach: number, windows: number): Model {
  let batch: Batch;
  let logits = new Float32Array(0);
  const model = {
    config: { vocabulary: VOCABULARY },
    tokens: windows * CONTEXT,
    backend: {
      tensor: () => null,
      view: (_: unknown, offset: number, [length]: [number]) => [offset, length],
      read: ([offset, length]: [number, number]) => logits.subarray(offset, offset + length),
    },
    loadBatch: (next: Batch) => {
      batch = next;
    },
    logits: () => {
      const { tokens } = batch;
      logits = new Float32Array(tokens.length * VOCABULARY);
      for (let t = 1; t < tokens.length; t++) {
        const start = Math.floor(t / CONTEXT) * CONTEXT;
        for (let s = t - 1; s > Math.max(start, t - reach); s--) {
          if (tokens[s] !== tokens[t] || tokens[s - 1] !== tokens[t - 1]) continue;
          logits[t * VOCABULARY + tokens[s + 1]] = 3;
          break;
        }
      }
    },
  };
  return model as unknown as Model;
}

describe("recall by distance", () => {
  const windows = [1, 2, 3, 4].map((seed) => randomWindow(0, CONTEXT, seed));

  it("is whole within the reach of a model that copies, and chance beyond", () => {
    const { bands, chance, windows: count } = evaluateRecall(copier(130, 2), windows, CONTEXT);
    expect(chance).toBe(1 / VOCABULARY);
    expect(count).toBe(4);
    expect(bands.map(({ distance_start }) => distance_start)).toEqual([32, 64, 128, 256]);
    const share = bands.map(({ right, answers }) => right / answers);
    expect(share[0]).toBe(1);
    expect(share[1]).toBe(1);
    expect(share[3]).toBeLessThan(0.2);
    // Softmax of one logit 3 among 300, and of 300 equal ones.
    expect(bands[0].lm_loss).toBeCloseTo(Math.log(Math.exp(3) + 299) - 3, 5);
    expect(bands[3].lm_loss).toBeCloseTo(Math.log(300), 0);
  });

  it("is the same however many windows a pass holds", () => {
    const bandsOf = (perPass: number) => evaluateRecall(copier(200, perPass), windows, CONTEXT).bands;
    expect(bandsOf(1)).toEqual(bandsOf(4));
  });
});
