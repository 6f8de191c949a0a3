import { describe, expect, it } from "vitest";
import { Random } from "../../src/data/random.ts";
import { recallBands, withRecall, writeRecords } from "../../src/data/recall.ts";
import { trainingStream } from "../../src/data/windows.ts";

const VOCABULARY = 5000;
/** A token that no record has, so that what was written over shows. */
const TEXT = VOCABULARY;

function written(length: number, seed: number) {
  const tokens = new Int32Array(length + 20).fill(TEXT);
  const answers = writeRecords(tokens, 10, length, VOCABULARY, new Random(seed));
  return { tokens, answers };
}

describe("records over a text", () => {
  it("stand twice, at the distance they say, and nowhere over each other", () => {
    for (const length of [67, 200, 1024, 16_384]) {
      const { tokens, answers } = written(length, length);
      expect(tokens.filter((token) => token !== TEXT)).toHaveLength(6 * answers.length);
      for (const { first, place, answer, distance } of answers) {
        expect(place - 1 - first).toBe(distance);
        expect(tokens[place + 1]).toBe(answer);
        expect(tokens.slice(first, first + 3)).toEqual(tokens.slice(place - 1, place + 2));
        expect(first).toBeGreaterThanOrEqual(10);
        expect(place + 1).toBeLessThan(10 + length);
      }
    }
  });

  it("fill every band of distances alike, with under a tenth of the text", () => {
    const { answers } = written(16_384, 1);
    const bands = recallBands(16_384);
    expect(bands.map(({ start }) => start)).toEqual([32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]);
    for (const { start, end } of bands) {
      const inside = answers.filter(({ distance }) => distance >= start && distance < end);
      expect(inside.length).toBeGreaterThanOrEqual(13);
      expect(inside.length).toBeLessThanOrEqual(15);
    }
    expect((6 * answers.length) / 16_384).toBeLessThan(0.1);
  });

  it("leave a text too short for any as it is", () => {
    expect(written(34, 1).answers).toEqual([]);
  });
});

describe("a stream with records in some sequences", () => {
  const context = 256;
  const lengths = [1500, 700, 90, 60, 2000];
  const length = lengths.reduce((a, b) => a + b);
  const text = new Uint16Array(new SharedArrayBuffer(2 * length)).map((_, i) => i % VOCABULARY);
  const documents = lengths.map((tokens) => ({ tokens }));
  const plain = trainingStream(text, documents, context, 3);
  const mixed = (share: number) => withRecall(plain, { share, vocabulary: VOCABULARY, seed: 3 });
  const copyOf = ({ tokens, targets, offsets }: ReturnType<typeof plain.batch>) => ({
    tokens: [...tokens],
    targets: [...targets],
    offsets: [...offsets],
  });

  it("is the stream itself with a share of 0", () => {
    expect(mixed(0)).toBe(plain);
  });

  it("gives a sequence the same records however many are asked for at once", () => {
    const stream = mixed(0.5);
    const together = copyOf(stream.batch(0, 20));
    for (let i = 0; i < 20; i++) {
      const alone = copyOf(stream.batch(i, 1));
      expect(alone.tokens).toEqual(together.tokens.slice(i * context, (i + 1) * context));
      expect(alone.targets).toEqual(together.targets.slice(i * context, (i + 1) * context));
    }
  });

  it("gives the same batches when they are made ahead", async () => {
    const stream = mixed(0.5);
    const queue = stream.ahead(4, 16, 2, 3);
    try {
      for (let first = 4; first < 16; first += 2) {
        expect(copyOf(await queue.next())).toEqual(copyOf(stream.batch(first, 2)));
        queue.release(1);
      }
    } finally {
      queue.close();
    }
  });

  it("changes about that share of the sequences", () => {
    const before = plain.batch(0, 200);
    const after = mixed(0.3).batch(0, 200);
    let changed = 0;
    for (let i = 0; i < 200; i++) {
      const [from, to] = [i * context, (i + 1) * context];
      if (before.tokens.subarray(from, to).some((token, t) => token !== after.tokens[from + t])) changed++;
    }
    expect(changed).toBeGreaterThan(40);
    expect(changed).toBeLessThan(80);
  });

  it("asks for the next token everywhere but inside records, where only the second value is asked for", () => {
    const before = plain.batch(0, 40);
    const { tokens, targets, offsets } = mixed(1).batch(0, 40);
    let answers = 0;
    for (let d = 0; d + 1 < offsets.length; d++) {
      for (let t = offsets[d]; t < offsets[d + 1]; t++) {
        const next = t + 1 < offsets[d + 1] ? tokens[t + 1] : before.targets[t];
        if (targets[t] !== -1) expect(targets[t]).toBe(next);
        const overwritten = t + 1 < offsets[d + 1] && tokens[t + 1] !== before.tokens[t + 1];
        if (overwritten && targets[t] !== -1) {
          answers++;
          const key = [tokens[t - 1], tokens[t], tokens[t + 1]];
          let copies = 0;
          for (let s = offsets[d]; s < t - 1; s++) {
            if (key.every((token, i) => tokens[s + i] === token)) copies++;
          }
          expect(copies).toBe(1);
        }
      }
    }
    expect(answers).toBeGreaterThan(100);
  });
});
