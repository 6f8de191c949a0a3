/** Batches made ahead in a thread: the stream's own, in memory that stays as it is until it is released. */
import { expect, test } from "vitest";
import { Random } from "../../src/data/index.ts";
import { Prefetch } from "../../src/data/prefetch.ts";
import { trainingStream } from "../../src/data/windows.ts";
import { messageOf } from "./folder.ts";

const random = new Random(4);
const documents = Array.from({ length: 50 }, () => ({ tokens: 1 + random.below(60) }));
const tokens = new Uint16Array(new SharedArrayBuffer(2 * documents.reduce((sum, d) => sum + d.tokens, 0)));
tokens.forEach((_, t) => {
  tokens[t] = random.below(1000);
});
const stream = trainingStream(tokens, documents, 16, 3);
const plain = (batch: ReturnType<typeof stream.batch>) => ({
  ...batch,
  tokens: [...batch.tokens],
  targets: [...batch.targets],
});

test("they are those of the stream, from any sequence on, over epochs, and kept until released", async () => {
  const count = 3;
  const [first, end] = [7, 7 + 80 * count];
  expect(end).toBeGreaterThan(2 * stream.sequencesPerEpoch);
  const queue = stream.ahead(first, end, count, 4);
  const held = [];
  for (let n = 0; n < 80; n++) {
    held.push({ n, batch: await queue.next() });
    if (held.length < 4) continue;
    // The thread would have had the time to overwrite them.
    if (n % 10 === 3) await new Promise((resolve) => setTimeout(resolve, 20));
    for (const { n, batch } of held) {
      expect(plain(batch)).toEqual(plain(stream.batch(first + n * count, count)));
    }
    queue.release(held.length - (n % 3));
    held.splice(0, held.length - (n % 3));
  }
  expect(await messageOf(() => queue.next())).toBe("RunError: the thread that makes batches has ended");
  queue.close();
});

test("what is counted is what is in them", () => {
  for (let first = 0; first < 30; first++) {
    const { tokens, targets, counted } = stream.batch(first, 2);
    expect(counted).toEqual({
      predicted: targets.filter((target) => target >= 0).length,
      largest: Math.max(...tokens, ...targets),
    });
  }
});

test("memory holds the places asked for: the thread waits when all are taken", async () => {
  const queue = stream.ahead(0, 1000, 1, 2);
  for (let n = 0; n < 2; n++) await queue.next();
  const third = queue.next();
  const early = await Promise.race([
    third,
    new Promise((resolve) => setTimeout(() => resolve("waits"), 200)),
  ]);
  expect(early).toBe("waits");
  queue.release(1);
  expect((await third).tokens).toEqual(stream.batch(2, 1).tokens);
  queue.close();
});

test("batches that memory does not hold are refused with what was asked for", async () => {
  expect(await messageOf(() => stream.ahead(0, 2 ** 40, 2 ** 40, 4))).toBe(
    "RunError: out of memory on the host: room for 4 batches of 17592186044416 tokens was asked for (562950.0 GB)",
  );
});

test("what goes wrong in the thread is thrown as it was, and closing ends a wait", async () => {
  const parts = { tokens, lengths: Float64Array.of(8), context: 2.5, seed: 1 };
  const order = { first: 0, end: 10, count: 2, places: 3, maxDocuments: 1 };
  const bad = new Prefetch(parts, order);
  expect(await messageOf(() => bad.next())).toMatch(/^RangeError: context is 2\.5/);
  bad.close();
  const queue = stream.ahead(0, 1000, 1, 1);
  await queue.next();
  const waiting = messageOf(() => queue.next());
  queue.close();
  expect(await waiting).toBe("RunError: the thread that makes batches has ended");
});
