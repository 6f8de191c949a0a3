import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  demoCorpusPaths,
  demoHeldOut,
  openDataset,
  openTokenizer,
  type PrepareOptions,
  prepareDataset,
} from "../../src/data/index.ts";
import { RunError } from "../../src/errors.ts";
import { messageOf, testFolder } from "./folder.ts";

const folder = testFolder();
let made = 0;

/** A folder of documents of these many bytes, `d00.txt` ..., each of a letter of its own. */
function documents(lengths: number[]): string {
  const name = `text${made++}`;
  for (const [i, length] of lengths.entries()) {
    const letter = String.fromCharCode(97 + (i % 26));
    folder.write(`${name}/d${String(i).padStart(2, "0")}.txt`, letter.repeat(length));
  }
  return folder.path(name);
}

function prepare(sources: string[], options: Partial<PrepareOptions> = {}) {
  return prepareDataset({
    folder: folder.path(`set${made++}`),
    sources,
    tokenizer: "byte",
    context: 16,
    ...options,
  });
}

describe("a prepared dataset", () => {
  it("has each document whole, in order, in one of the two parts", async () => {
    const lengths = Array.from({ length: 40 }, (_, i) => 50 + 7 * i);
    const dataset = await prepare([documents(lengths)]);
    const names = [...dataset.train, ...dataset.heldOut].map((document) => document.name).sort();
    expect(names).toEqual(lengths.map((_, i) => `d${String(i).padStart(2, "0")}.txt`));
    const share = dataset.heldOut.reduce((sum, d) => sum + d.bytes, 0) / lengths.reduce((a, b) => a + b);
    expect(share).toBeGreaterThan(0.05);
    expect(share).toBeLessThanOrEqual(0.08);
    expect(dataset.vocabulary).toBe(256);
    expect(dataset.tokenizerName).toBe("byte");
    expect([...(dataset.tokenBytes ?? [])]).toEqual(new Array(256).fill(1));
    // llm.c's form: 256 int32 with magic, version, count, then 16-bit ids
    for (const [file, part] of [
      ["train.bin", dataset.train],
      ["heldout.bin", dataset.heldOut],
    ] as const) {
      const bytes = readFileSync(join(dataset.folder, file));
      const text = part
        .map((d) => String.fromCharCode(97 + (Number(d.name.slice(1, 3)) % 26)).repeat(d.bytes))
        .join("");
      expect([0, 4, 8].map((at) => bytes.readInt32LE(at))).toEqual([20240520, 1, text.length]);
      expect(bytes.subarray(1024)).toEqual(Buffer.from(text, "utf16le"));
    }
    // every training token is of a training document, every evaluation window of a held-out one
    const letters = (part: readonly { name: string }[]) =>
      new Set(part.map((d) => 97 + (Number(d.name.slice(1, 3)) % 26)));
    const held = new Set(dataset.heldOut.map((d) => d.name));
    expect(dataset.train.some((d) => held.has(d.name))).toBe(false);
    const stream = dataset.trainingStream(16, 0);
    const batch = stream.batch(0, stream.sequencesPerEpoch);
    const trained = new Set([...batch.tokens].filter((_, i) => batch.targets[i] >= 0));
    expect(trained).toEqual(letters(dataset.train));
    for (const window of dataset.evaluationWindows(16).windows) {
      const name = dataset.heldOut[window.document].name;
      expect(window.tokens).toEqual(new Int32Array(17).fill(97 + (Number(name.slice(1, 3)) % 26)));
    }
  });

  it("holds out by name, and by seed whatever the other documents are", async () => {
    const text = documents(new Array(30).fill(100));
    const named = await prepare([text], { heldOut: ["d03.txt", "d01.txt"] });
    expect(named.heldOut.map((d) => d.name)).toEqual(["d01.txt", "d03.txt"]);
    const chosen = (await prepare([text], { seed: 1 })).heldOut.map((d) => d.name);
    expect((await prepare([text], { seed: 1 })).heldOut.map((d) => d.name)).toEqual(chosen);
    const others = await Promise.all([2, 3, 4].map((seed) => prepare([text], { seed })));
    expect(others.some((other) => other.heldOut.map((d) => d.name).join() !== chosen.join())).toBe(true);
  });

  it("holds out only documents with a full window, at least one", async () => {
    const dataset = await prepare([documents([10, 10, 16, 10, 17, 10])]);
    expect(dataset.heldOut.map((d) => d.name)).toEqual(["d04.txt"]);
    expect(dataset.evaluationWindows(16)).toMatchObject({ leftOut: 0, windows: [{ document: 0 }] });
  });

  it("keeps bytes that are no UTF-8", async () => {
    const bytes = Uint8Array.from({ length: 400 }, (_, i) => (i % 255) + 1);
    const name = folder.write("bytes/x.txt", bytes);
    folder.write("bytes/y.txt", "y".repeat(100));
    const dataset = await prepare([folder.path("bytes")], { heldOut: ["y.txt"] });
    const stream = dataset.trainingStream(399, 0);
    expect(Uint8Array.from(stream.batch(0, 1).tokens)).toEqual(bytes.slice(0, 399));
    expect(name).toContain("x.txt");
  });

  it("has a BPE that learned nothing from what is held out, also when a hash chooses that", async () => {
    // each document repeats a word of its own letters: what was learned from is a few tokens a word, the rest bytes
    const name = `words${made++}`;
    const word = (i: number) => String.fromCodePoint(0x400 + 3 * i, 0x401 + 3 * i, 0x402 + 3 * i);
    for (let i = 0; i < 20; i++) folder.write(`${name}/d${i}.txt`, `${word(i)} `.repeat(50));
    const dataset = await prepare([folder.path(name)], { tokenizer: "bpe-345", context: 16 });
    expect(dataset.heldOut.length).toBe(1);
    const tokensPerWord = (d: { tokens: number }) => d.tokens / 50;
    for (const document of dataset.heldOut) expect(tokensPerWord(document)).toBeGreaterThan(4);
    for (const document of dataset.train) expect(tokensPerWord(document)).toBeLessThan(3);
  });

  it("takes token shards of an unknown tokenizer", async () => {
    const header = new Int32Array(256);
    const ids = Uint16Array.from({ length: 3000 }, (_, i) => (i % 100 === 0 ? 999 : i % 100));
    header.set([20240520, 1, ids.length]);
    const path = folder.write("s.bin", Buffer.concat([Buffer.from(header.buffer), Buffer.from(ids.buffer)]));
    const dataset = await prepare([path], { tokenizer: "unknown", endOfText: 999 });
    expect(dataset.vocabulary).toBe(1000);
    expect(dataset.tokenBytes).toBeNull();
    expect(openTokenizer(dataset.folder)).toBeNull();
    expect(dataset.train.length + dataset.heldOut.length).toBe(30);
    expect(dataset.train[0]).toMatchObject({ tokens: 100, bytes: 0 });
    expect((await prepare([path], { tokenizer: "unknown-70000", endOfText: 999 })).vocabulary).toBe(70_000);
    expect(await messageOf(() => prepare([path], { tokenizer: "unknown-500" }))).toMatch(
      /s\.bin#0 holds token 999, outside the vocabulary of 500/,
    );
    expect(await messageOf(() => prepare([path]))).toMatch(
      /tokenizer is "byte", but the sources hold token ids/,
    );
  });

  it("is refused with a sentence, and leaves nothing behind", async () => {
    const text = documents([100, 100, 100]);
    const before = readdirSync(folder.path(".")).length;
    const bad = (options: Partial<PrepareOptions>, sources = [text]) =>
      messageOf(() => prepare(sources, options));
    expect(await bad({ context: 100 })).toMatch(
      /^InputError: the longest document \("d00\.txt"\) has 100 tokens, but a context of 100 needs 101/,
    );
    expect(await bad({ heldOut: ["nobody"] })).toMatch(
      /"nobody" is not among the 3 documents \(such as "d00\.txt", "d01\.txt", "d02\.txt"\)/,
    );
    expect(await bad({ heldOut: ["d00.txt"], context: 200 })).toMatch(
      /the longest held-out document has 100 tokens/,
    );
    expect(await bad({ heldOut: ["d00.txt", "d01.txt", "d02.txt"] })).toMatch(/nothing is left to train on/);
    expect(await bad({ tokenizer: "bpe" })).toMatch(/tokenizer is "bpe", which is no file/);
    expect(await bad({ tokenizer: "unknown" })).toMatch(/but the sources hold text/);
    expect(await bad({ tokenizer: "bpe-256" })).toMatch(/bpe-256: a byte-level BPE has 257/);
    expect(await bad({ tokenizer: "bpe-400" })).toMatch(/gives only \d+ tokens .* take at most bpe-/);
    expect(await bad({ context: 0 })).toMatch(/context is 0/);
    expect(await bad({ folder: text })).toMatch(/exists already/);
    expect(await bad({ folder: join(text, "d00.txt", "x") })).toMatch(
      /^InputError: cannot write .*d00\.txt: there is a file of that name/,
    );
    const target = folder.path("at-once");
    const meanwhile = () => void folder.write("at-once/x", "");
    expect(
      await messageOf(() =>
        prepareDataset({ folder: target, sources: [text], tokenizer: "byte", context: 16 }, meanwhile),
      ),
    ).toMatch(/^InputError: .*at-once exists already: another process made it/);
    rmSync(target, { recursive: true });
    expect(readdirSync(folder.path(".")).length).toBe(before);
  });

  it("is ended by what its caller hears between two files, and leaves nothing behind", async () => {
    const text = documents(new Array(50).fill(100));
    const before = readdirSync(folder.path(".")).length;
    let told = 0;
    let heard = false;
    const work = () =>
      prepareDataset({ folder: folder.path("cut"), sources: [text], tokenizer: "byte", context: 16 }, () => {
        if (told++ === 0) setImmediate(() => void (heard = true));
        if (heard) throw new RunError("interrupted");
      });
    expect(await messageOf(work)).toBe("RunError: interrupted");
    expect(told).toBeLessThan(10);
    expect(readdirSync(folder.path(".")).length).toBe(before);
    expect(readdirSync(folder.path(".")).some((name) => name.endsWith(".tmp"))).toBe(false);
  });
});

describe("a broken dataset", () => {
  /** The message after changing one file of a good dataset; null removes it. */
  async function broken(file: string, change: (data: Buffer) => Buffer | string | null): Promise<string> {
    const dataset = await prepare([documents([100, 100, 60])]);
    const path = join(dataset.folder, file);
    const changed = change(readFileSync(path));
    writeFileSync(path, changed ?? "");
    if (changed === null) rmSync(path);
    return messageOf(() => openDataset(dataset.folder));
  }

  it("is refused with the file and the fault", async () => {
    expect(await messageOf(() => openDataset(folder.path("none")))).toMatch(
      /^InputError: .*none is no dataset: it has no readable dataset\.json/,
    );
    expect(await broken("train.bin", () => null)).toMatch(/^InputError: .*train\.bin is missing/);
    expect(await broken("train.bin", (data) => data.subarray(0, -1))).toMatch(/train\.bin is \d+ bytes, but/);
    expect(await broken("heldout.bin", () => "")).toMatch(/heldout\.bin is 0 bytes, too short/);
    expect(
      await broken("train.bin", (data) => {
        data[1030] ^= 1;
        return data;
      }),
    ).toMatch(/train\.bin is corrupt: its checksum/);
    expect(await broken("dataset.json", (data) => data.subarray(0, 50))).toMatch(/dataset\.json is not JSON/);
    expect(
      await broken("dataset.json", (data) => data.toString().replace('"version":1', '"version":9')),
    ).toMatch(/dataset\.json is no dataset description: version/);
    expect(
      await broken("dataset.json", (data) => data.toString().replace('"vocabulary":256', '"vocabulary":9')),
    ).toMatch(/token 0 is \d+, outside the vocabulary of 9|vocabulary is 9, but byte tokens have 256/);
    expect(
      await broken("dataset.json", (data) => data.toString().replace(/"tokens":60/, '"tokens":61')),
    ).toMatch(/have \d+ tokens together, but/);
  });

  it("says which context its held-out documents allow", async () => {
    const dataset = await prepare([documents([100, 100, 60])]);
    expect(await messageOf(() => dataset.evaluationWindows(500))).toMatch(
      /^InputError: .*full window of context 500; the longest .* so the context can be at most (99|59)/,
    );
  });
});

describe("the demo corpus", () => {
  it("is prepared in about a second and gives enough held-out windows up to 16k bytes", async () => {
    const paths = demoCorpusPaths();
    expect(paths.length).toBe(233);
    const start = performance.now();
    const dataset = await prepare(paths, { context: 2048, heldOut: demoHeldOut });
    expect(performance.now() - start).toBeLessThan(5000);
    expect(dataset.heldOut.length).toBe(demoHeldOut.length);
    const bytes = [...dataset.train, ...dataset.heldOut].reduce((sum, d) => sum + d.bytes, 0);
    expect(bytes).toBe(10_761_413);
    for (const [context, windows] of [
      [2048, 325],
      [16_384, 37],
    ]) {
      const found = dataset.evaluationWindows(context).windows;
      expect(found.length).toBe(windows);
      expect(new Set(found.map((window) => window.document)).size).toBe(demoHeldOut.length);
    }
    expect(existsSync(join(dataset.folder, "ids.tmp"))).toBe(false);
  });
});
