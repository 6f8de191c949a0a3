import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { Batch, EvaluationWindow } from "../../src/data/types.ts";
import { Model } from "../../src/model/model.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { evaluate } from "../../src/train/evaluate.ts";
import { evaluateTruncated, isComparable, readTruncated } from "../../src/train/truncated.ts";
import { randomWindow, tinyConfig } from "./tiny.ts";

const heldOut = ["one", "none", "two"].map((name) => ({ name, tokens: 0, bytes: 0 }));
const data = { heldOut, tokenBytes: null };

/** The loss of a token is its id over the tokens that stand before it and with it. */
function counter(perPass: number, context: number): Model {
  let batch: Batch;
  return {
    tokens: perPass * context,
    backend: { read: (losses: unknown) => losses },
    loadBatch: (next: Batch) => {
      batch = next;
    },
    forward: () => Float64Array.from(batch.targets, (id, i) => id / ((i % context) + 1)),
  } as unknown as Model;
}

it("predicts the same tokens with a sixteenth to all of the window, by hand", () => {
  const context = 33;
  const window = (document: number, id: number): EvaluationWindow => ({
    document,
    tokens: new Int32Array(context + 1).fill(1000).fill(id, context - 1),
  });
  for (const perPass of [1, 2]) {
    const chosen = [window(2, 4), window(0, 6), window(2, 8)];
    // A quarter of all: these stand in the middle of each four.
    const windows = chosen.flatMap((one) => [window(1, 99), window(1, 99), one, window(1, 99)]);
    const result = evaluateTruncated(counter(perPass, context), data, windows, context)!;
    expect(result.contexts).toEqual([2, 4, 8, 16, 32]);
    expect(result.windows).toBe(3);
    expect(result.predicted_tokens).toBe(6);
    // The two last places of the kept tokens: 1 and 2 of 2, 3 and 4 of 4 and so on.
    const share = [2, 4, 8, 16, 32].map((kept) => (1 / (kept - 1) + 1 / kept) / 2);
    const close = (id: number) => share.map((value) => expect.closeTo(id * value, 12));
    expect(result.lm_loss).toEqual(close(6));
    expect(result.documents).toEqual([
      { document: "one", lm_loss: close(6), predicted_tokens: 2 },
      { document: "two", lm_loss: close(6), predicted_tokens: 4 },
    ]);
  }
});

it("does not cut a window that is too short", () => {
  expect(evaluateTruncated(counter(1, 15), data, [randomWindow(0, 15, 1)], 15)).toBeNull();
});

it("is what a model sees whose windows are that long", () => {
  const { shape } = tinyConfig();
  const context = 64;
  const windows = [1, 2, 3].map((seed) => randomWindow(0, context, seed));
  const withContext = (tokens: number) => {
    const model = new Model(createReferenceBackend(), shape, {
      tokens,
      maxDocuments: tokens / context,
      training: false,
      attention: new Array(shape.layers).fill({ kind: "moba", blockSize: 8, topK: 2 }),
    });
    model.initialize(3);
    return model;
  };
  const four = windows.flatMap((one) => [one, one, one, one]);
  const { contexts, lm_loss } = evaluateTruncated(withContext(2 * context), data, four, context)!;
  expect(contexts).toEqual([4, 8, 16, 32, 64]);
  for (const [i, kept] of contexts.entries()) {
    const model = new Model(createReferenceBackend(), shape, {
      tokens: kept,
      maxDocuments: 1,
      training: false,
      attention: new Array(shape.layers).fill({ kind: "moba", blockSize: 8, topK: 2 }),
    });
    model.initialize(3);
    const ends = windows.map(({ document, tokens }) => ({ document, tokens: tokens.slice(context - kept) }));
    const { buckets } = evaluate(model, data, ends, kept, kept / 4, "here");
    expect(lm_loss[i]).toBeCloseTo(buckets.at(-1)!.lm_loss, 12);
  }
});

it("is read again where a document repeats itself and has no loss, and not kept where none has one", () => {
  const context = 32;
  const window = (document: number, id: number): EvaluationWindow => ({
    document,
    tokens: new Int32Array(context + 1).fill(id),
  });
  const measured = (ids: readonly number[]) =>
    evaluateTruncated(
      counter(1, context),
      data,
      ids.flatMap((id, i) => new Array(4).fill(window(2 * i, id))),
      context,
    )!;
  const folder = mkdtempSync(join(tmpdir(), "mobalab-truncated-"));
  try {
    const result = measured([0, 5]);
    expect(result.documents[0].lm_loss).toEqual([0, 0, 0, 0, 0]);
    writeFileSync(join(folder, "truncated.json"), JSON.stringify(result));
    expect(readTruncated(folder)).toEqual(result);
  } finally {
    rmSync(folder, { recursive: true });
  }
  expect(isComparable(measured([0, 5]))).toBe(true);
  expect(isComparable(measured([0, 0]))).toBe(false);
});
