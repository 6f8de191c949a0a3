/** What distance alone and the rotary embedding alone would attend to, against the definition written out. */
import { describe, expect, it } from "vitest";
import { parseSchedule } from "../../src/attention/schedule.ts";
import { recallBands, writeAsked } from "../../src/data/recall.ts";
import { ladderModel } from "../../src/model/config.ts";
import { Model } from "../../src/model/model.ts";
import { createCpuBackend } from "../../src/ops/cpu/index.ts";
import {
  finalBlockSize,
  rotaryScores,
  routingOrder,
  withDistance,
} from "../../src/study/routing-expected.ts";
import { evaluateRecall } from "../../src/train/recall.ts";
import type { RecallResult } from "../../src/train/types.ts";
import { randomWindow } from "../train/tiny.ts";

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

describe("what distance alone would attend to", () => {
  const attended = { heads: 0, heads_at_random: 0, any: 0, any_at_random: 0 };

  /** A result whose shares fall with distance, and which was asked as many records as are written. */
  function asked(context: number, vocabulary: number, windows: number, blocks: number): RecallResult {
    const text = new Int32Array(context);
    const distances = Array.from({ length: windows }, (_, window) =>
      writeAsked(text, context, vocabulary, window).map(({ distance }) => distance),
    ).flat();
    return {
      ...{ windows, chance: 1 / vocabulary },
      bands: recallBands(context).map(({ start, end }) => ({
        ...{ distance_start: start, distance_end: end, right: 0, lm_loss: 1, attended },
        answers: distances.filter((distance) => distance >= start && distance < end).length,
      })),
      routing: Array.from({ length: blocks }, (_, i) => ({
        ...{ blocks_back: i + 1, share: 1 / (i + 2), at_random: 0.5 },
      })),
    };
  }

  it("is what heads do that choose by distance alone", () => {
    const backend = createCpuBackend({ threads: 1 });
    try {
      const config = ladderModel(2, { headDim: 8, vocabulary: 256 });
      const windows = [1, 2, 3, 4, 5, 6, 7, 8].map((seed) => randomWindow(0, 256, seed));
      const attention = parseSchedule("window-b32-k3", 2)[0].layers;
      const model = new Model(backend, config, { tokens: 512, maxDocuments: 2, attention, training: false });
      model.initialize(3);
      const result = evaluateRecall(model, windows, 256);
      const { bands } = withDistance(result, {
        ...{ attention: "full+window-b32-k3@0.5", context: 256, shape: { vocabulary: 256 } },
      });
      expect(bands.map(({ attended }) => attended!.by_distance)).toEqual(
        bands.map(({ attended }) => expect.closeTo(attended!.heads, 12)),
      );
      const [nearest, next] = bands.map(({ attended }) => attended!.heads);
      expect(nearest).toBe(1);
      expect(next).toBeGreaterThan(0);
      expect(next).toBeLessThan(1);
    } finally {
      backend.close();
    }
  });

  it("is near the mean over all distances and places that could have been drawn", () => {
    const [context, size] = [512, 32];
    const { bands } = withDistance(asked(context, 300, 400, 15), {
      ...{ attention: "moba-b32-k3", context, shape: { vocabulary: 300 } },
    });
    const block = (token: number) => Math.floor(token / size);
    const expected = recallBands(context).map(({ start, end }) => {
      const distances = Array.from({ length: Math.min(end, context - 2) - start }, (_, i) => start + i);
      return mean(
        distances.map((distance) => {
          const places = Array.from({ length: context - 2 - distance }, (_, first) => first);
          // The query is the second copy's second token, the value the first copy's third.
          return mean(places.map((first) => 1 / (block(first + distance + 1) - block(first + 2) + 1)));
        }),
      );
    });
    for (const [i, { attended }] of bands.entries()) {
      expect(Math.abs(attended!.by_distance! - expected[i]!)).toBeLessThan(0.02);
    }
    expect(expected[0]).toBeGreaterThan(0.4);
    expect(expected[3]).toBeLessThan(0.1);
  });

  it("is not known where other records were asked, or of what was not measured", () => {
    const result = asked(512, 300, 4, 15);
    const config = { attention: "moba-b32-k3", context: 512, shape: { vocabulary: 300 } };
    const known = (result: RecallResult, change: object = {}) =>
      withDistance(result, { ...config, ...change }).bands.map(
        ({ attended }) => attended?.by_distance !== undefined,
      );
    const [first, ...others] = result.bands;
    const none = [false, false, false, false];
    expect(known(result)).toEqual([true, true, true, true]);
    expect(known({ ...result, bands: [{ ...first, answers: 9 }, ...others] })).toEqual([
      false,
      true,
      true,
      true,
    ]);
    expect(known({ ...result, bands: [{ ...first, attended: undefined }, ...others] })[0]).toBe(false);
    expect(known({ ...result, routing: result.routing!.slice(0, 1) })[3]).toBe(false);
    expect(known({ ...result, routing: undefined })).toEqual(none);
    expect(known({ ...result, windows: 3 })).toEqual(none);
    expect(known({ ...result, windows: 1e12 })).toEqual(none);
    for (const change of [
      { attention: "full" },
      { context: undefined },
      { context: 2 ** 40 },
      { shape: {} },
      { shape: undefined },
    ]) {
      expect(known(result, change)).toEqual(none);
    }
  });
});

describe("what the rotary embedding alone would favour", () => {
  it("is the mean score of all queries of a block with all keys of another", () => {
    const [size, headDim, ropeTheta] = [4, 6, 50];
    const expected = [1, 2, 3].map((back) => {
      const scores: number[] = [];
      for (let query = 0; query < size; query++) {
        for (let key = 0; key < size; key++) {
          for (let i = 0; i < headDim / 2; i++) {
            const [a, b] = [query + back * size, key].map(
              (place) => place * ropeTheta ** ((-2 * i) / headDim),
            );
            scores.push(Math.cos(a!) * Math.cos(b!) + Math.sin(a!) * Math.sin(b!));
          }
        }
      }
      return expect.closeTo(mean(scores), 12);
    });
    expect(rotaryScores({ headDim, ropeTheta }, size, 3)).toEqual(expected);
  });

  const shape = { headDim: 64, ropeTheta: 500_000 };
  const blocks = (share: (back: number) => number, count = 31) =>
    Array.from({ length: count }, (_, i) => ({ blocks_back: i + 1, share: share(i + 1), at_random: 0.1 }));

  it("is compared with the shares by ranks, over the nearer half of the blocks", () => {
    const scores = rotaryScores(shape, 512, 31);
    // It favours 5 and 7 blocks back over 4 and 6, whatever lies between.
    expect(scores[4]).toBeGreaterThan(scores[3]!);
    expect(scores[6]).toBeGreaterThan(scores[5]!);
    const config = { attention: "moba-b512-k3", shape };
    const same = routingOrder(
      blocks((back) => (back > 16 ? 0.9 : Math.exp(scores[back - 1]!) / 9)),
      config,
    )!;
    expect(same.rotary).toBeCloseTo(1, 12);
    expect(same.scores).toEqual(scores.slice(0, 16));
    const falling = routingOrder(
      blocks((back) => 1 / back),
      config,
    )!;
    expect(falling.near).toBeCloseTo(1, 12);
    expect(falling.rotary).toBeCloseTo(same.near, 12);
    expect([same.beyond, falling.beyond]).toEqual([expect.closeTo(1, 9), null]);
  });

  it("counts what it tells beyond nearness: what is left of the ranks when a line through those of nearness is taken out", () => {
    const shares = [9, 6, 7, 8, 3, 5, 4, 1, 2, 0.5];
    const routing = blocks((back) => shares[back - 1] ?? 0, 20);
    const { scores, rotary, beyond } = routingOrder(routing, { attention: "moba-b128-k8", shape })!;
    const left = (values: readonly number[]) => {
      const ranks = values.map((value) => values.filter((other) => other < value).length - 4.5);
      const slope = ranks.reduce((sum, rank, i) => sum + rank * (i - 4.5), 0) / 82.5;
      return ranks.map((rank, i) => rank - slope * (i - 4.5));
    };
    const [a, b] = [left(shares), left(scores)];
    const dot = (x: readonly number[], y: readonly number[]) =>
      x.reduce((sum, value, i) => sum + value * y[i]!, 0);
    expect(beyond).toBeCloseTo(dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b)), 10);
    expect(Math.abs(beyond! - rotary)).toBeGreaterThan(0.05);
  });

  it("is left out where there are few blocks, all alike, or no head width or base is known", () => {
    const falling = blocks((back) => 1 / back);
    const config = { attention: "moba-b512-k3", shape };
    expect(routingOrder(falling.slice(0, 15), config)).not.toBeNull();
    expect(routingOrder(falling.slice(0, 14), config)).toBeNull();
    expect(routingOrder(falling.slice(1), config)).toBeNull();
    expect(
      routingOrder(
        blocks(() => 0.5),
        config,
      ),
    ).toBeNull();
    for (const shape of [undefined, {}, { headDim: 64 }, { ropeTheta: 1e4 }]) {
      expect(routingOrder(falling, { ...config, shape })).toBeNull();
    }
    expect(routingOrder(falling, { attention: "moba-b512-k3+full@0.9", shape })).toBeNull();
    expect(routingOrder(falling, { attention: "window-b512-k3", shape })).toBeNull();
  });

  it("takes the block size of the end of training", () => {
    expect(finalBlockSize("moba-b128-k4/full:2")).toBe(128);
    expect(finalBlockSize("moba-b512-k3+window-b64-k2@0.5")).toBe(64);
    expect(finalBlockSize("moba-b512-k3+full@0.9")).toBeNull();
  });
});
