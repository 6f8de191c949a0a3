import { afterAll, describe, expect, it } from "vitest";
import { byteTokenizer } from "../../src/data/index.ts";
import { Threads, threadsFor } from "../../src/data/threads.ts";
import { messageOf, testFolder } from "./folder.ts";

const folder = testFolder();
const several = new Threads(3);
afterAll(() => several.close());

describe.each([
  ["this thread", new Threads(1)],
  ["three threads", several],
])("tasks on %s", (_, threads) => {
  it("give their results in order, however long each takes", async () => {
    const texts = Array.from({ length: 40 }, (_, i) => Buffer.from(`${i}`.repeat(i % 7 === 0 ? 300_000 : 1)));
    const seen: number[] = [];
    for await (const { item, output } of threads.map("encode", texts.keys(), (i) => texts[i])) {
      seen.push(item);
      expect(Buffer.from(byteTokenizer.decode(output)).equals(texts[item])).toBe(true);
    }
    expect(seen).toEqual([...texts.keys()]);
  });

  it("count on every thread, once", async () => {
    const texts = Array.from({ length: 30 }, () => Buffer.from("one two"));
    for await (const _ of threads.map("count", texts, (text) => text));
    const packed = await threads.onAll("takeCounts", undefined);
    const counts = packed.flatMap((one) => [...one.counts]);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(60);
    expect((await threads.onAll("takeCounts", undefined)).every((one) => one.counts.length === 0)).toBe(true);
  });

  it("fail with their sentence, at their turn", async () => {
    folder.write("good.c", "int a;\n");
    const paths = ["good.c", "good.c", "none.c", "good.c"];
    let done = 0;
    const message = await messageOf(async () => {
      for await (const _ of threads.map("inspect", paths, (path) => ({
        root: folder.path("."),
        paths: [path],
      }))) {
        done++;
      }
    });
    expect(message).toMatch(/^InputError: .*none\.c cannot be read: ENOENT/);
    expect(done).toBe(2);
  });
});

describe("threads", () => {
  it("end with a sentence when used after that", async () => {
    const threads = new Threads(2);
    threads.close();
    expect(await messageOf(() => threads.onAll("takeCounts", undefined))).toBe(
      "RunError: the worker threads have ended",
    );
  });

  it("are as many as the text is worth", () => {
    expect([0, 15_000_000, 40_000_000, 1e12].map((bytes) => threadsFor(bytes, 8))).toEqual([1, 1, 2, 8]);
  });
});
