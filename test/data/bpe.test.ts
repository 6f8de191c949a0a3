import { readFileSync, writeFileSync } from "node:fs";
import { Tokenizer as Oracle } from "@huggingface/tokenizers";
import { beforeAll, describe, expect, it } from "vitest";
import type { ByteLevelBpe } from "../../src/data/bpe.ts";
import { learnBpe } from "../../src/data/bpe-learn.ts";
import { readTokenizerFile, tokenizerFileText } from "../../src/data/hugging-face.ts";
import { byteTokenizer, demoCorpusPaths, IncrementalDecoder, Random } from "../../src/data/index.ts";
import { forEachPiece, GPT2_PATTERN, translatePattern } from "../../src/data/pre-tokenize.ts";
import { messageOf, testFolder } from "./folder.ts";

const folder = testFolder();

async function* only(...texts: (string | Uint8Array)[]) {
  for (const text of texts) yield Buffer.from(text as string);
}

/** Text of every kind a corpus holds; no U+0085 and U+FEFF, which the oracle's ByteLevel takes differently. */
function mixedText(): string {
  const paths = demoCorpusPaths();
  const random = new Random(11);
  const alphabets = [
    "abcdefghijklmnop  \n",
    "äöüßéñ ÀÇ ",
    "абвгд ёжз ",
    "日本語の文章 漢字かな",
    "한국어 ",
    "עברית عربي ",
    "🚀👩‍👩‍👧‍👦🇩🇪❤️ ",
    "0123456789 ,. ²½Ⅷ٣",
    "'s 're 'VE 'Ll 'd can't I'M ",
    " \t\r\n\u00a0\u2003\u3000",
    "{}()[];=+-*/<>!&|^~#\"'`_\\",
    "e\u0301 a\u0308 \u1e9b\u0323 \ufb01 \u0000\u0001\u007f",
    "<|endoftext|> <|end <|im_start|>user ",
  ].map((alphabet) => [...alphabet]);
  let text = "";
  for (let i = 0; i < 2500; i++) {
    const alphabet = alphabets[random.below(alphabets.length)];
    const length = 1 + random.below(30);
    for (let j = 0; j < length; j++) text += alphabet[random.below(alphabet.length)];
  }
  const code = readFileSync(new URL("../../src/data/bpe.ts", import.meta.url), "utf8");
  return [
    readFileSync(paths[0], "utf8"),
    readFileSync(paths[230], "utf8"),
    readFileSync(paths[150], "utf8"),
    code,
    code.replaceAll("\n", "\r\n").replaceAll("  ", "\t"),
    text,
    " ".repeat(5000),
    "\n".repeat(300),
    "x".repeat(3000),
    "=-".repeat(2000),
    "the end",
  ].join("\n\n");
}

let learned: ByteLevelBpe;
let mixed: string;
beforeAll(async () => {
  mixed = mixedText();
  learned = await learnBpe(
    2000,
    only(
      ...demoCorpusPaths()
        .slice(0, 40)
        .map((path) => readFileSync(path)),
      mixed,
    ),
  );
});

describe("learning", () => {
  it("merges as worked by hand", async () => {
    // pieces: "low" x5, "lower" x2, " new" x3 ... pairs: lo 7, ow 7 (l < o, so lo first), then (lo)w 7
    const bpe = await learnBpe(
      260,
      only("low", "low", "low", "low", "low", "lower", "lower", "x new", "x new", "x new"),
    );
    const text = bpe.model.merges.map(([left, right]) =>
      [left, right].map((id) => Buffer.from(bpe.model.tokens[id]).toString()).join("+"),
    );
    // then " "+n, e+w, n+e 3 each; e+r and w+e(r) 2: of the three, the smallest left id is the space
    expect(text).toEqual(["l+o", "lo+w", " +n", "e+w"]);
    expect([...bpe.encode("low newer")]).toEqual([257, 258, 259, 101, 114]);
  });

  it("agrees with counting everything anew for each merge", async () => {
    const random = new Random(3);
    const words = Array.from({ length: 400 }, () =>
      Array.from({ length: 1 + random.below(14) }, () => "ab"[random.below(2)]).join(""),
    );
    const text = words.join(" ");
    const bpe = await learnBpe(350, only(text));
    const pieces = (text.match(/ ?[a-z]+/g) ?? []).map((piece) => [...Buffer.from(piece)]);
    const tokens = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte));
    const merges: number[][] = [];
    while (tokens.length < 350) {
      const counts = new Map<string, number>();
      for (const ids of pieces) {
        for (let i = 1; i < ids.length; i++) {
          const pair = `${ids[i - 1]},${ids[i]}`;
          counts.set(pair, (counts.get(pair) ?? 0) + 1);
        }
      }
      const order = [...counts].map(([pair, count]) => [...pair.split(",").map(Number), count]);
      const [left, right] = order.sort((a, b) => b[2] - a[2] || a[0] - b[0] || a[1] - b[1])[0];
      const id = tokens.push(tokens[left] + tokens[right]) - 1;
      merges.push([left, right, id]);
      for (const ids of pieces) {
        for (let i = 1; i < ids.length; i++)
          if (ids[i - 1] === left && ids[i] === right) ids.splice(i - 1, 2, id);
      }
    }
    expect(bpe.model.merges.map((merge) => [...merge])).toEqual(merges);
    expect(new Set(tokens).size).toBe(350);
  });

  it("does not depend on the order of the texts", async () => {
    const texts = demoCorpusPaths()
      .slice(0, 6)
      .map((path) => readFileSync(path));
    const one = await learnBpe(600, only(...texts));
    const other = await learnBpe(600, only(...texts.reverse()));
    expect(other.model.merges).toEqual(one.model.merges);
  });
});

type Json = Record<string, unknown>;

/** Variants of the learned tokenizer in the forms that are about. */
function variant(change: (file: Json & { model: Json }) => void): { file: Json; path: string } {
  const file = JSON.parse(tokenizerFileText(learned));
  change(file);
  const path = folder.path(`tokenizer-${Math.random()}.json`);
  writeFileSync(path, JSON.stringify(file));
  return { file, path };
}

const LLAMA3 =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const QWEN2 = LLAMA3.replace("\\p{N}{1,3}", "\\p{N}");
const GPT4O =
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const BYTES = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
const added = (id: number, content: string, more: Json = {}) => ({
  id,
  content,
  single_word: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special: true,
  ...more,
});
const split = (regex: string, more: Json = {}) => ({
  type: "Split",
  pattern: { Regex: regex },
  behavior: "Isolated",
  invert: false,
  ...more,
});

const FORMS: Record<string, (file: Json & { model: Json }) => void> = {
  "as learned": () => {},
  "GPT-2 (no model type, normalized end of text)": (file) => {
    delete file.model.type;
    file.model.unk_token = "";
    file.added_tokens = [added(2000, "<|endoftext|>", { normalized: true })];
  },
  "Llama 3 (pairs, ignored merges, many added tokens)": (file) => {
    file.pre_tokenizer = { type: "Sequence", pretokenizers: [split(LLAMA3), BYTES] };
    file.model.ignore_merges = true;
    file.model.merges = (file.model.merges as string[]).map((merge) => merge.split(" "));
    // tokens that no merge makes, so that ignoring merges matters
    Object.assign(file.model.vocab as Json, { Ġcan: 2000, xxxxxxx: 2001 });
    file.added_tokens = [added(2002, "<|endoftext|>"), added(2003, "<|end"), added(2007, "<|im_start|>")];
  },
  "Qwen 2 (NFC)": (file) => {
    file.normalizer = { type: "NFC" };
    file.pre_tokenizer = { type: "Sequence", pretokenizers: [split(QWEN2), BYTES] };
    file.added_tokens = [added(2000, "<|endoftext|>"), added(2001, "<|im_start|>", { normalized: true })];
  },
  "GPT-4o's pattern, gaps removed": (file) => {
    const pattern = split(GPT4O, { behavior: "Removed", invert: true });
    file.pre_tokenizer = { type: "Sequence", pretokenizers: [pattern, BYTES] };
  },
  "two splits": (file) => {
    const string = { type: "Split", pattern: { String: "th" }, behavior: "Isolated", invert: false };
    file.pre_tokenizer = { type: "Sequence", pretokenizers: [string, { ...BYTES, use_regex: true }] };
  },
};

describe("encoding", () => {
  it.each(Object.keys(FORMS))("gives the ids of @huggingface/tokenizers: %s", (form) => {
    const { file, path } = variant(FORMS[form]);
    const tokenizer = readTokenizerFile(path, "test");
    const expected = new Oracle(file, {}).encode(mixed, { add_special_tokens: false }).ids;
    const ids = tokenizer.encode(mixed);
    const differs = expected.findIndex((id: number, i: number) => id !== ids[i]);
    expect([ids.length, differs]).toEqual([expected.length, -1]);
    const normal = file.normalizer ? mixed.normalize("NFC") : mixed;
    expect(Buffer.from(tokenizer.decode(ids)).toString("utf8") === normal).toBe(true);
    expect(ids.reduce((sum, id) => sum + tokenizer.tokenBytes[id], 0)).toBe(Buffer.byteLength(normal));
  });

  it("gives the same ids for a saved and read tokenizer, and again from its cache", () => {
    const { path } = variant(() => {});
    const ids = learned.encode(mixed);
    expect(readTokenizerFile(path, "again").encode(mixed)).toEqual(ids);
    expect(learned.encode(mixed)).toEqual(ids);
  });

  it("takes white space as Unicode has it: U+0085 is, U+FEFF is not", () => {
    const splits = [{ pattern: translatePattern(GPT2_PATTERN), keepBetween: true }];
    const pieces: string[] = [];
    forEachPiece("a \u0085b \ufeffc", splits, (piece) => pieces.push(piece));
    expect(pieces).toEqual(["a", " ", "\u0085", "b", " \ufeff", "c"]);
  });

  it("gives any bytes back, valid UTF-8 or not", () => {
    const random = new Random(4);
    for (let trial = 0; trial < 300; trial++) {
      const bytes = Uint8Array.from({ length: random.below(60) }, () =>
        random.below(2) === 0 ? random.below(256) : 97 + random.below(4),
      );
      expect(Uint8Array.from(learned.decode(learned.encode(bytes)))).toEqual(bytes);
      expect(Uint8Array.from(byteTokenizer.decode(byteTokenizer.encode(bytes)))).toEqual(bytes);
    }
    // bytes that are no UTF-8 change nothing in the text around them
    const broken = Buffer.concat([
      Buffer.from("the people"),
      Uint8Array.of(0xff, 0xc3),
      Buffer.from(" of the"),
    ]);
    const middle = [...learned.encode(broken)].join();
    expect(middle.startsWith([...learned.encode("the people")].join())).toBe(true);
    expect(middle.endsWith([...learned.encode(" of the")].join())).toBe(true);
  });
});

describe("decoding as tokens arrive", () => {
  it("gives whole characters only, and what is left at the end", () => {
    const text = "naïve 🚀 日本\r\n\ufeffend";
    for (const tokenizer of [byteTokenizer, learned]) {
      const decoder = new IncrementalDecoder(tokenizer);
      const parts = [...tokenizer.encode(text)].map((id) => decoder.push(id));
      expect(parts.join("") + decoder.end()).toBe(text);
      expect(parts.some((part) => part.includes("\ufffd"))).toBe(false);
    }
    const decoder = new IncrementalDecoder(byteTokenizer);
    expect([0xf0, 0x9f, 0x9a].map((byte) => decoder.push(byte))).toEqual(["", "", ""]);
    expect(decoder.end()).toBe("\ufffd");
    expect(() => decoder.push(256)).toThrow("token 256 is outside the vocabulary 0 .. 255");
  });
});

describe("tokenizer.json", () => {
  const refused: [string, RegExp, (file: Json & { model: Json }) => void][] = [
    ["another model", /model\.type is "Unigram"; it must be "BPE"/, (file) => (file.model.type = "Unigram")],
    ["byte fallback", /model\.byte_fallback is true/, (file) => (file.model.byte_fallback = true)],
    ["dropout", /model\.dropout is 0\.1/, (file) => (file.model.dropout = 0.1)],
    ["suffix", /model\.end_of_word_suffix is "<\/w>"/, (file) => (file.model.end_of_word_suffix = "</w>")],
    ["normalizer", /normalizer\.type is "Lowercase"/, (file) => (file.normalizer = { type: "Lowercase" })],
    [
      "no bytes",
      /pre_tokenizer\.type is "Metaspace"/,
      (file) => (file.pre_tokenizer = { type: "Metaspace" }),
    ],
    ["nothing", /pre_tokenizer\.type is missing/, (file) => (file.pre_tokenizer = null)],
    [
      "a prefix space",
      /pre_tokenizer\.add_prefix_space is true/,
      (file) => (file.pre_tokenizer = { ...BYTES, add_prefix_space: true }),
    ],
    [
      "a behaviour",
      /pretokenizers\[0\]\.behavior is "MergedWithNext"/,
      (file) =>
        (file.pre_tokenizer = {
          type: "Sequence",
          pretokenizers: [split("a", { behavior: "MergedWithNext" }), BYTES],
        }),
    ],
    [
      "a possessive quantifier",
      /pretokenizers\[0\]\.pattern is .* the quantifier "\+\+"/,
      (file) => (file.pre_tokenizer = { type: "Sequence", pretokenizers: [split("\\p{L}++"), BYTES] }),
    ],
    [
      "an added token that strips",
      /added_tokens\[0\]\.lstrip is true/,
      (file) => (file.added_tokens = [added(2000, "<mask>", { lstrip: true })]),
    ],
    ["no list of merges", /model\.merges is \{\}; it must be a list/, (file) => (file.model.merges = {})],
    [
      "a merge of nothing",
      /model\.merges\[0\] is "zz qq"/,
      (file) => ((file.model.merges as string[])[0] = "zz qq"),
    ],
    [
      "a lacking byte",
      /it has no token "Ġ" for byte 32/,
      (file) => delete (file.model.vocab as Record<string, number>).Ġ,
    ],
  ];
  it.each(refused)("is refused with the part named: %s", async (_, message, change) => {
    const { path } = variant(change);
    const found = await messageOf(() => readTokenizerFile(path, "test"));
    expect(found).toMatch(/^InputError: /);
    expect(found).toMatch(message);
    expect(found).toContain(path);
  });

  it("is refused when it is no JSON", async () => {
    const path = folder.write("broken.json", "{");
    expect(await messageOf(() => readTokenizerFile(path, "test"))).toMatch(
      /^InputError: .*broken\.json cannot be read/,
    );
  });
});
