/** Reads and writes Hugging Face `tokenizer.json` files of the byte-level BPE kind (GPT-2, Llama 3, Qwen 2 ...). */
import { readFileSync } from "node:fs";
import { InputError } from "../errors.ts";
import { type BpeModel, ByteLevelBpe } from "./bpe.ts";
import { GPT2_PATTERN, LEARNED_PATTERN, type Split, translatePattern } from "./pre-tokenize.ts";

/**
 * A tokenizer from a `tokenizer.json`. Added tokens are found in text as the file says; tokens that its post-processor
 * puts at the start or the end (such as a begin-of-text) are not added. InputError names the part that is missing or of
 * another kind: a model other than BPE, byte fallback, dropout, other pre-tokenizers and normalizers, added tokens that
 * strip the space around them.
 */
export function readTokenizerFile(path: string, name: string): ByteLevelBpe {
  let file: unknown;
  try {
    file = JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    throw new InputError(`${path} cannot be read as a tokenizer.json: ${(error as Error).message}`);
  }
  return tokenizerOf(path, file, name);
}

/** As `readTokenizerFile`, of the file's parsed JSON; `path` stands for it in errors. */
export function tokenizerOf(path: string, file: unknown, name: string): ByteLevelBpe {
  return new ByteLevelBpe(new Reader(path).model(object(file), name));
}

type Json = Record<string, unknown>;

function object(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

class Reader {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  #refuse(part: string, found: unknown, wanted: string): InputError {
    const shown = (JSON.stringify(found) ?? "missing").slice(0, 80);
    return new InputError(`${this.#path}: ${part} is ${shown}; ${wanted} (byte-level BPE is read)`);
  }

  model(file: Json, name: string): BpeModel {
    const model = object(file.model);
    if (file.model === undefined || (model.type ?? "BPE") !== "BPE") {
      throw this.#refuse("model.type", model.type, 'it must be "BPE"');
    }
    for (const part of ["dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"]) {
      if (model[part]) throw this.#refuse(`model.${part}`, model[part], "it must be null, empty or false");
    }
    const vocab = object(model.vocab);
    const tokens = this.#tokens(vocab, file);
    const byteIds = this.#byteIds(vocab);
    return {
      name,
      tokens,
      byteIds,
      merges: this.#merges(model, vocab),
      splits: this.#splits(file.pre_tokenizer),
      ignoreMerges: model.ignore_merges === true,
      normalization: this.#normalization(file.normalizer, "normalizer"),
      added: this.#added(file),
    };
  }

  #tokens(vocab: Json, file: Json): Uint8Array[] {
    const tokens: Uint8Array[] = [];
    const put = (id: unknown, bytes: Uint8Array, part: string) => {
      if (!Number.isInteger(id) || (id as number) < 0 || (id as number) >= 1 << 21) {
        throw this.#refuse(part, id, "an id must be a whole number from 0 to 2^21 - 1");
      }
      tokens[id as number] = bytes;
    };
    for (const [token, id] of Object.entries(vocab)) put(id, bytesOfToken(token), `model.vocab[${token}]`);
    for (const [i, token] of list(file.added_tokens).map(object).entries()) {
      put(token.id, new TextEncoder().encode(String(token.content)), `added_tokens[${i}].id`);
    }
    return Array.from(tokens, (bytes) => bytes ?? new Uint8Array(0));
  }

  #byteIds(vocab: Json): Int32Array {
    return Int32Array.from(BYTE_CHARACTERS, (character, byte) => {
      const id = Object.hasOwn(vocab, character) ? vocab[character] : undefined;
      if (typeof id !== "number") {
        throw this.#refuse("model.vocab", undefined, `it has no token "${character}" for byte ${byte}`);
      }
      return id;
    });
  }

  #merges(model: Json, vocab: Json): BpeModel["merges"] {
    if (!Array.isArray(model.merges)) throw this.#refuse("model.merges", model.merges, "it must be a list");
    return model.merges.map((merge, rank) => {
      const pair = typeof merge === "string" ? merge.split(" ") : list(merge);
      const [left, right] = pair.map(String);
      const ids = pair.length === 2 ? [left, right, left + right].map((token) => vocab[token]) : [];
      if (ids.length !== 3 || !ids.every((id) => typeof id === "number")) {
        throw this.#refuse(
          `model.merges[${rank}]`,
          merge,
          "it must be two tokens that make a third, all in model.vocab",
        );
      }
      return ids as [number, number, number];
    });
  }

  #normalization(normalizer: unknown, part: string): BpeModel["normalization"] {
    if (normalizer === null || normalizer === undefined) return null;
    const { type, normalizers } = object(normalizer);
    if (type === "NFC" || type === "NFD" || type === "NFKC" || type === "NFKD") return type;
    if (type === "Sequence" && list(normalizers).length <= 1) {
      return this.#normalization(list(normalizers)[0], `${part}.normalizers[0]`);
    }
    throw this.#refuse(`${part}.type`, type, "it must be null, NFC, NFD, NFKC or NFKD");
  }

  #splits(preTokenizer: unknown): Split[] {
    const { type, pretokenizers } = object(preTokenizer);
    const steps = type === "Sequence" ? list(pretokenizers) : [preTokenizer];
    const splits: Split[] = [];
    for (const [i, step] of steps.map(object).entries()) {
      const part = type === "Sequence" ? `pre_tokenizer.pretokenizers[${i}]` : "pre_tokenizer";
      switch (step.type) {
        case "ByteLevel":
          if (step.add_prefix_space) throw this.#refuse(`${part}.add_prefix_space`, true, "it must be false");
          if (i < steps.length - 1) throw this.#refuse(part, step.type, "it must be the last pre-tokenizer");
          if (step.use_regex ?? true)
            splits.push({ pattern: translatePattern(GPT2_PATTERN), keepBetween: true });
          return splits;
        case "Digits":
          splits.push({ pattern: step.individual_digits ? /\p{N}/gu : /\p{N}+/gu, keepBetween: true });
          break;
        case "Split":
          splits.push(this.#split(step, part));
          break;
        default:
          throw this.#refuse(
            `${part}.type`,
            step.type,
            "it must be Split, Digits or ByteLevel, or a Sequence of them",
          );
      }
    }
    throw this.#refuse("pre_tokenizer", type, "it must end with ByteLevel");
  }

  #split(step: Json, part: string): Split {
    const pattern = object(step.pattern);
    const behavior = String(step.behavior).toLowerCase();
    const keepBetween = behavior === "isolated";
    // "removed" inverted drops what lies between matches
    if (!keepBetween && !(behavior === "removed" && step.invert === true)) {
      throw this.#refuse(
        `${part}.behavior`,
        step.behavior,
        'it must be "Isolated", or "Removed" with invert',
      );
    }
    if (typeof pattern.String === "string") {
      return {
        pattern: new RegExp(pattern.String.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "gu"),
        keepBetween,
      };
    }
    if (typeof pattern.Regex !== "string") {
      throw this.#refuse(`${part}.pattern`, step.pattern, "it must be a Regex or a String");
    }
    try {
      return { pattern: translatePattern(pattern.Regex), keepBetween };
    } catch (error) {
      throw this.#refuse(
        `${part}.pattern`,
        pattern.Regex,
        `it has ${(error as Error).message}, which is not supported`,
      );
    }
  }

  #added(file: Json): BpeModel["added"] {
    return list(file.added_tokens).map((value, i) => {
      const token = object(value);
      for (const flag of ["lstrip", "rstrip", "single_word"]) {
        if (token[flag]) throw this.#refuse(`added_tokens[${i}].${flag}`, token[flag], "it must be false");
      }
      if (typeof token.content !== "string" || token.content === "") {
        throw this.#refuse(`added_tokens[${i}].content`, token.content, "it must be a text");
      }
      return { content: token.content, id: token.id as number, normalized: token.normalized === true };
    });
  }
}

/** GPT-2's byte alphabet: bytes that print stand for themselves, the others follow from U+0100 on. */
const BYTE_CHARACTERS: readonly string[] = (() => {
  let other = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const prints = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
    return String.fromCharCode(prints ? byte : other++);
  });
})();

const CHARACTER_BYTES = new Map(BYTE_CHARACTERS.map((character, byte) => [character, byte]));

/** The bytes of a token in that alphabet; a token outside it (an added one) is its UTF-8. */
function bytesOfToken(token: string): Uint8Array {
  const bytes = new Uint8Array(token.length);
  for (let i = 0; i < token.length; i++) {
    const byte = CHARACTER_BYTES.get(token[i]);
    if (byte === undefined) return new TextEncoder().encode(token);
    bytes[i] = byte;
  }
  return bytes;
}

/** The `tokenizer.json` of a learned BPE (`LEARNED_PATTERN`, no added tokens, ids 0-255 the bytes). */
export function tokenizerFileText(tokenizer: ByteLevelBpe): string {
  const { tokens, merges } = tokenizer.model;
  const names = tokens.map((bytes) => Array.from(bytes, (byte) => BYTE_CHARACTERS[byte]).join(""));
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
  const split = { type: "Split", pattern: { Regex: LEARNED_PATTERN }, behavior: "Isolated", invert: false };
  const file = {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: "Sequence", pretokenizers: [split, byteLevel] },
    post_processor: null,
    decoder: byteLevel,
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(names.map((name, id) => [name, id])),
      merges: merges.map(([left, right]) => `${names[left]} ${names[right]}`),
    },
  };
  return `${JSON.stringify(file)}\n`;
}
