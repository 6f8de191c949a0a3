/** Recall is asked of a model whose answers are known: it copies what followed the same two tokens in its reach. */
import { describe, expect, it } from "vitest";
import { parseSchedule } from "../../src/attention/schedule.ts";
import type { Batch } from "../../src/data/types.ts";
import { ladderModel } from "../../src/model/config.ts";
import { Model } from "../../src/model/model.ts";
import { createCpuBackend } from "../../src/ops/cpu/index.ts";
import { evaluateRecall } from "../../src/train/recall.ts";
import { isRecall } from "../../src/train/recall-result.ts";
import { RoutingTally } from "../../src/train/routing-tally.ts";
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

describe("what is kept of it", () => {
  const attended = { heads: 1, heads_at_random: 0.5, any: 1 + 1e-12, any_at_random: 0 };
  const band = { distance_start: 32, distance_end: 64, answers: 4, right: 4, lm_loss: 1, attended };
  const routing = [{ blocks_back: 1, share: 1, at_random: 0.5 }];
  const whole = { windows: 1, chance: 0.1, bands: [band], routing };

  it("is sound with counts and shares that can be", () => {
    expect(isRecall(whole)).toBe(true);
    expect(isRecall({ ...whole, routing: undefined, bands: [] })).toBe(true);
    for (const change of [
      { chance: undefined },
      { windows: -1 },
      { bands: undefined },
      { bands: [null] },
      { bands: [{ ...band, right: 5 }] },
      { bands: [{ ...band, answers: 4.5 }] },
      { bands: [{ ...band, attended: { ...attended, heads: 1.5 } }] },
      { bands: [{ ...band, attended: { heads: 1 } }] },
      { routing: [{ ...routing[0], share: 1e300 }] },
      { routing: [{ ...routing[0], share: null }] },
      { routing: [{ ...routing[0], blocks_back: -4 }] },
    ]) {
      expect(isRecall({ ...whole, ...change }), JSON.stringify(change)).toBe(false);
    }
  });
});

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

describe("whether the block with the value is attended to", () => {
  const shape = { tokens: 8, heads: 2, kvHeads: 2, headDim: 8, maxDocuments: 1 };
  const moba = { kind: "moba", blockSize: 2, topK: 2 } as const;

  it("counts heads, answers and blocks back, each beside drawing at random", () => {
    const tally = new RoutingTally(8, 2);
    // One earlier block for each query and head: the one before, but for the last query, which takes 0 and 2.
    const chosen = [-1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 0, 2];
    const asked = [
      { row: 7, band: 0, value: 1 },
      { row: 6, band: 0, value: 0 },
      { row: 6, band: 1, value: 6 },
    ];
    const other = Int32Array.from(chosen, (block, i) => (i === 12 ? 0 : block));
    tally.addLayer({ ...shape, attention: moba }, Int32Array.from(chosen), 1, asked);
    tally.addLayer({ ...shape, attention: { kind: "full" } }, new Int32Array(0), 1, asked);
    tally.addLayer({ ...shape, attention: moba }, other, 1, asked);
    tally.endPass(asked);
    // Row 7: 1 of 2 heads in both layers; row 6: none, then 1 of 2. One block of three at random.
    expect(tally.attended(0)).toEqual({
      heads: expect.closeTo((0.5 + 0.5 + 0 + 0.5) / 4, 12),
      heads_at_random: expect.closeTo(1 / 3, 12),
      any: 1,
      any_at_random: expect.closeTo(1 - (2 / 3) ** 4, 12),
    });
    // The query's own block.
    expect(tally.attended(1)).toEqual({ heads: 1, heads_at_random: 1, any: 1, any_at_random: 1 });
    expect(tally.blocksBack()).toEqual([
      // 12 queries with a block before their own, by layers and heads 24 - 1 - 2 choose it; at random 1, 1/2 and 1/3.
      {
        blocks_back: 1,
        share: expect.closeTo(21 / 24, 12),
        at_random: expect.closeTo((1 + 1 / 2 + 1 / 3) / 3, 12),
      },
      { blocks_back: 2, share: 0, at_random: expect.closeTo((1 / 2 + 1 / 3) / 2, 12) },
      { blocks_back: 3, share: expect.closeTo(3 / 8, 12), at_random: expect.closeTo(1 / 3, 12) },
    ]);
  });

  it("is told of layers that leave blocks out, of the window as it is defined, and of the same routing with shared states", () => {
    const backend = createCpuBackend({ threads: 1 });
    try {
      const config = ladderModel(2, { headDim: 8, vocabulary: 256 });
      const windows = [1, 2, 3, 4].map((seed) => randomWindow(0, 128, seed));
      const recall = (label: string, training: boolean) => {
        const attention = parseSchedule(label, 2)[0].layers;
        const model = new Model(backend, config, { tokens: 256, maxDocuments: 2, attention, training });
        model.initialize(3);
        return evaluateRecall(model, windows, 128);
      };
      const full = recall("full", true);
      expect(full.routing).toBeUndefined();
      expect(full.bands.every(({ attended }) => attended === undefined)).toBe(true);
      const window = recall("window-b16-k3", true);
      expect(window.routing!.map(({ share }) => share)).toEqual([1, 1, 0, 0, 0, 0, 0]);
      expect(window.routing![0].at_random).toBeCloseTo(
        (1 + 1 + 2 / 3 + 2 / 4 + 2 / 5 + 2 / 6 + 2 / 7) / 7,
        12,
      );
      const moba = recall("moba-b16-k3/full:1", true);
      // Of 7 possible blocks 1 + 2 + ... + 2 are chosen, whichever they are.
      const possible = moba.routing!.map(({ share, blocks_back }) => share * (8 - blocks_back));
      expect(possible.reduce((sum, chosen) => sum + chosen, 0)).toBeCloseTo(1 + 6 * 2, 12);
      expect(recall("moba-b16-k3/full:1", false)).toEqual(moba);
    } finally {
      backend.close();
    }
  });
});
