import { describe, expect, test } from "vitest";
import type { Dataset } from "../../src/data/types.ts";
import { InputError } from "../../src/errors.ts";
import { Model } from "../../src/model/model.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { evaluate, LossByPosition, packWindows, spreadWindows } from "../../src/train/evaluate.ts";
import { randomWindow, tinyConfig } from "./tiny.ts";

const heldOut = ["one", "none", "two"].map((name) => ({ name, tokens: 0, bytes: 0 }));
const byteData = { heldOut, tokenBytes: new Float64Array(256).fill(1) };

test("some of the windows are spread evenly over all", () => {
  const windows = Array.from({ length: 10 }, (_, document) => ({ document, tokens: new Int32Array(0) }));
  const chosen = (count?: number) => spreadWindows(windows, count).map(({ document }) => document);
  expect(chosen(5)).toEqual([1, 3, 5, 7, 9]);
  expect(chosen(3)).toEqual([1, 5, 8]);
  expect(chosen(10)).toEqual(chosen());
  expect(chosen(99)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

describe("loss by position", () => {
  const window = (document: number) => ({ document, tokens: Int32Array.of(5, 6, 7, 8, 9) });

  test("buckets, documents and totals by hand", () => {
    const sums = new LossByPosition({ heldOut, tokenBytes: null }, 4, 2);
    sums.add(window(2), [1, 2, 3, 4], 0);
    sums.add(window(0), [99, 5, 6, 7, 8], 1);
    sums.add(window(2), [3, 2, 1, 0], 0);
    expect(sums.result()).toEqual({
      lm_loss: 42 / 12,
      predicted_tokens: 12,
      buckets: [
        { position_start: 0, position_end: 2, lm_loss: 19 / 6, predicted_tokens: 6 },
        { position_start: 2, position_end: 4, lm_loss: 23 / 6, predicted_tokens: 6 },
      ],
      documents: [
        {
          document: "one",
          buckets: [
            { position_start: 0, position_end: 2, lm_loss: 11 / 2, predicted_tokens: 2 },
            { position_start: 2, position_end: 4, lm_loss: 15 / 2, predicted_tokens: 2 },
          ],
        },
        {
          document: "two",
          buckets: [
            { position_start: 0, position_end: 2, lm_loss: 2, predicted_tokens: 4 },
            { position_start: 2, position_end: 4, lm_loss: 2, predicted_tokens: 4 },
          ],
        },
      ],
    });
  });

  test("bits per byte: bits of the predicted tokens over their bytes, the first token's not counted", () => {
    const tokenBytes = new Float64Array(256);
    for (const [token, bytes] of [5, 6, 7, 8, 9].map((token, i) => [token, [100, 1, 2, 3, 4][i]])) {
      tokenBytes[token] = bytes;
    }
    const sums = new LossByPosition({ heldOut, tokenBytes }, 4, 1);
    sums.add(
      window(0),
      [1, 1, 1, 1].map((bits) => 5 * bits * Math.LN2),
      0,
    );
    expect(sums.result().bits_per_byte).toBeCloseTo(20 / 10, 12);
  });

  test("the published buckets of 2,048 stand beside narrower ones that make them up", () => {
    const context = 16_384;
    const long = { document: 0, tokens: new Int32Array(context + 1) };
    const losses = Float64Array.from({ length: context }, (_, i) => 4 - i / context);
    const of = (buckets: number) => {
      const sums = new LossByPosition({ heldOut, tokenBytes: null }, context, buckets);
      sums.add(long, losses, 0);
      return sums.result().buckets;
    };
    expect(of(16)).toHaveLength(16 + 8);
    const headline = of(16).find((b) => b.position_start === 10_240 && b.position_end === 12_288);
    expect(headline).toEqual({ ...of(8)[5], lm_loss: expect.closeTo(of(8)[5].lm_loss, 12) });
    expect(of(8)).toHaveLength(8);
    expect(of(128)).toHaveLength(128 + 8);
  });

  test("buckets that do not divide the context are refused", () => {
    expect(() => new LossByPosition(byteData, 4, 3)).toThrow(InputError);
    expect(() => new LossByPosition(byteData, 4, 0)).toThrow(
      "buckets is 0, expected a divisor of the context 4",
    );
  });
});

test("windows that do not fill the last pass leave no trace of what fills it", () => {
  const packed = packWindows([randomWindow(0, 4, 1)], 3, 4);
  expect(packed.offsets).toEqual([0, 4, 8, 12]);
  expect([...packed.targets.subarray(4)].every((target) => target === -1)).toBe(true);
});

test("packing more windows into a pass changes nothing but rounding", () => {
  const { shape, context } = tinyConfig();
  const windows = Array.from({ length: 5 }, (_, i) => randomWindow(i < 3 ? 0 : 2, context, i + 1));
  const data: Pick<Dataset, "heldOut" | "tokenBytes"> = byteData;
  const [one, three] = [1, 3].map((perPass) => {
    const model = new Model(createReferenceBackend(), shape, {
      tokens: perPass * context,
      maxDocuments: perPass,
      training: false,
      attention: new Array(shape.layers).fill({ kind: "moba", blockSize: 8, topK: 2 }),
    });
    model.initialize(3);
    return evaluate(model, data, windows, context, 4, "here");
  });
  expect(three.predicted_tokens).toBe(5 * context);
  expect(three.lm_loss).toBeCloseTo(one.lm_loss, 12);
  for (const [i, bucket] of one.buckets.entries()) {
    expect(three.buckets[i].lm_loss).toBeCloseTo(bucket.lm_loss, 12);
  }
  expect(three.documents.map(({ document }) => document)).toEqual(["one", "two"]);
});
