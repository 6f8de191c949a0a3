import { describe, expect, it } from "vitest";
import { Random } from "../../src/data/index.ts";
import type { Batch, DocumentInfo } from "../../src/data/types.ts";
import { fullWindows, trainingStream } from "../../src/data/windows.ts";

/** Documents of these lengths; token = place in the whole text, so that every token is known by its value. */
function corpus(lengths: number[]): { tokens: Uint32Array; documents: DocumentInfo[] } {
  const total = lengths.reduce((a, b) => a + b, 0);
  return {
    tokens: Uint32Array.from({ length: total }, (_, i) => i + 1),
    documents: lengths.map((tokens, i) => ({ name: `d${i}`, tokens, bytes: tokens })),
  };
}

/** The windows of a batch as [inputs, targets]. */
function windowsOf(batch: Batch): [number[], number[]][] {
  return batch.offsets.slice(1).map((end, i) => {
    const start = batch.offsets[i];
    return [[...batch.tokens.subarray(start, end)], [...batch.targets.subarray(start, end)]];
  });
}

describe("training stream", () => {
  it("cuts and packs as worked by hand", () => {
    // context 4. d0, 10 tokens 1..10: windows 1-4 and 5-8 (target 9 is the next input), rest 9 -> 10.
    // d1, 5 tokens 11..15: one full window. d2, 3 tokens 16..18: rest 16, 17 -> 18. d3, 1 token: nothing.
    // Rests of 2 and 1 inputs share a sequence, with one place left over.
    const { tokens, documents } = corpus([10, 5, 3, 1]);
    const stream = trainingStream(tokens, documents, 4, 0);
    expect(stream.sequencesPerEpoch).toBe(4);
    expect(stream.predictedTokensPerEpoch).toBe(9 + 4 + 2);
    expect(stream.maxDocuments).toBe(3);
    const all = windowsOf(stream.batch(0, 4)).sort((a, b) => a[0][0] - b[0][0]);
    expect(all).toEqual([
      [[0], [-1]],
      [
        [1, 2, 3, 4],
        [2, 3, 4, 5],
      ],
      [
        [5, 6, 7, 8],
        [6, 7, 8, 9],
      ],
      [[9], [10]],
      [
        [11, 12, 13, 14],
        [12, 13, 14, 15],
      ],
      [
        [16, 17],
        [17, 18],
      ],
    ]);
  });

  it("predicts every token but each document's first exactly once per epoch, in its own document", () => {
    const random = new Random(5);
    for (let trial = 0; trial < 30; trial++) {
      const lengths = Array.from({ length: 1 + random.below(40) }, () => random.below(60));
      const context = 1 + random.below(20);
      const { tokens, documents } = corpus([...lengths, context + 1]);
      const stream = trainingStream(tokens, documents, context, trial);
      const firsts = new Set<number>();
      let at = 1;
      for (const { tokens: length } of documents) {
        firsts.add(at);
        at += length;
      }
      for (const epoch of [0, 1]) {
        const seen: number[] = [];
        const batch = stream.batch(epoch * stream.sequencesPerEpoch, stream.sequencesPerEpoch);
        expect(batch.tokens.length).toBe(stream.sequencesPerEpoch * context);
        expect(batch.offsets[0]).toBe(0);
        expect(batch.offsets[batch.offsets.length - 1]).toBe(batch.tokens.length);
        for (const [inputs, targets] of windowsOf(batch)) {
          expect(inputs.length).toBeGreaterThan(0);
          expect(inputs.length).toBeLessThanOrEqual(context);
          if (targets[0] === -1) {
            expect(targets.every((target) => target === -1)).toBe(true);
            continue;
          }
          // tokens count up: a window is a stretch of one text, and no target is another document's first token
          expect(inputs).toEqual(inputs.map((_, i) => inputs[0] + i));
          expect(targets).toEqual(inputs.map((token) => token + 1));
          seen.push(...targets);
        }
        const wanted = [...tokens].filter((token) => !firsts.has(token));
        expect(seen.sort((a, b) => a - b)).toEqual(wanted);
        expect(seen.length).toBe(stream.predictedTokensPerEpoch);
      }
    }
  });

  it("is a pure function of the sequence's number: batch size, order and resume change nothing", () => {
    const { tokens, documents } = corpus([100, 7, 33, 2, 64]);
    const whole = trainingStream(tokens, documents, 8, 3).batch(0, 60);
    const other = trainingStream(tokens, documents, 8, 3);
    const random = new Random(1);
    for (let trial = 0; trial < 50; trial++) {
      const first = random.below(55);
      const count = 1 + random.below(5);
      const part = other.batch(first, count);
      expect(part.tokens).toEqual(whole.tokens.slice(first * 8, (first + count) * 8));
      expect(part.targets).toEqual(whole.targets.slice(first * 8, (first + count) * 8));
      const offsets = whole.offsets.filter((o) => o >= first * 8 && o <= (first + count) * 8);
      expect(part.offsets).toEqual(offsets.map((o) => o - first * 8));
    }
  });

  it("takes another order with another seed and in another epoch", () => {
    const { tokens, documents } = corpus([1000]);
    const stream = trainingStream(tokens, documents, 8, 0);
    const n = stream.sequencesPerEpoch;
    const first = stream.batch(0, n).tokens.join();
    expect(stream.batch(n, n).tokens.join()).not.toBe(first);
    expect(trainingStream(tokens, documents, 8, 1).batch(0, n).tokens.join()).not.toBe(first);
  });

  it("packs short documents with little space left over", () => {
    const random = new Random(2);
    const { tokens, documents } = corpus(Array.from({ length: 5000 }, () => 2 + random.below(120)));
    const stream = trainingStream(tokens, documents, 128, 0);
    expect(stream.predictedTokensPerEpoch / (stream.sequencesPerEpoch * 128)).toBeGreaterThan(0.99);
  });
});

describe("evaluation windows", () => {
  it("are the full ones, stride the context, and partial ones are counted", () => {
    const { tokens, documents } = corpus([9, 8, 4, 5, 1]);
    const { windows, leftOut } = fullWindows(tokens, documents, 4);
    expect(windows.map((window) => [window.document, ...window.tokens])).toEqual([
      [0, 1, 2, 3, 4, 5],
      [0, 5, 6, 7, 8, 9],
      [1, 10, 11, 12, 13, 14],
      [3, 22, 23, 24, 25, 26],
    ]);
    // d1 leaves 14 -> 15, 16, 17; d2 is shorter than a window; d0, d3 and d4 leave no target
    expect(leftOut).toBe(2);
  });

  it("refuse a context that is no whole number", () => {
    const { tokens, documents } = corpus([9]);
    expect(() => fullWindows(tokens, documents, 0)).toThrow("context is 0");
    expect(() => trainingStream(tokens, documents, 2.5, 0)).toThrow("context is 2.5");
  });
});
