/** Byte-level byte-pair encoding (Sennrich et al. 2016, in GPT-2's form): text to ids and back. */
import { constants } from "node:buffer";
import { InputError } from "../errors.ts";
import { forEachPiece, type Split } from "./pre-tokenize.ts";
import { requireToken, type Tokenizer } from "./tokenizer.ts";
import { utf8Runs } from "./utf8.ts";

export interface BpeModel {
  readonly name: string;
  /** Bytes of each id; empty for ids that stand for nothing. */
  readonly tokens: readonly Uint8Array[];
  /** Id of each byte. */
  readonly byteIds: Int32Array;
  /** In rank order: two neighbouring ids and the id that replaces them. */
  readonly merges: readonly (readonly [left: number, right: number, merged: number])[];
  readonly splits: readonly Split[];
  /** A piece that is a token by itself is that token, whatever the merges say (Llama 3). */
  readonly ignoreMerges: boolean;
  /** Unicode normalization before anything else. */
  readonly normalization: "NFC" | "NFD" | "NFKC" | "NFKD" | null;
  /** Texts that are one token wherever they occur: before normalization, or after it. */
  readonly added: readonly { readonly content: string; readonly id: number; readonly normalized: boolean }[];
}

/** Pieces remembered; forgotten all at once when full. */
const CACHE_PIECES = 1 << 18;
/** Longer pieces are rare and would hold much memory. */
const CACHE_PIECE_LENGTH = 64;

/**
 * Bytes that are no UTF-8 are kept: each run of them is a piece of its own, so `decode(encode(text))` is `text` for any
 * bytes (unless the model normalizes). Encoding needs a text whose characters fit in one JavaScript string, 512 MB.
 */
export class ByteLevelBpe implements Tokenizer {
  readonly name: string;
  readonly vocabulary: number;
  readonly tokenBytes: Float64Array;
  readonly model: BpeModel;
  /** Rank by pair, `left * vocabulary + right`. */
  readonly #ranks = new Map<number, number>();
  /** For `ignoreMerges`: ids by their bytes, as latin-1. */
  readonly #whole = new Map<string, number>();
  readonly #cache = new Map<string, number | Int32Array>();
  readonly #addedBefore: AddedTokens;
  readonly #addedAfter: AddedTokens;

  constructor(model: BpeModel) {
    this.model = model;
    this.name = model.name;
    this.vocabulary = model.tokens.length;
    this.tokenBytes = Float64Array.from(model.tokens, (bytes) => bytes.length);
    for (const [rank, [left, right]] of model.merges.entries()) {
      this.#ranks.set(left * this.vocabulary + right, rank);
    }
    if (model.ignoreMerges) {
      const added = new Set(model.added.map((token) => token.id));
      for (const [id, bytes] of model.tokens.entries()) {
        if (!added.has(id)) this.#whole.set(latin1(bytes), id);
      }
    }
    const { normalization } = model;
    const isBefore = (token: { normalized: boolean }) => !token.normalized || normalization === null;
    this.#addedBefore = new AddedTokens(
      model.added.filter(isBefore).map((token) => [token.content, token.id]),
    );
    this.#addedAfter = new AddedTokens(
      model.added
        .filter((token) => !isBefore(token))
        .map((token) => [token.content.normalize(normalization ?? undefined), token.id]),
    );
  }

  encode(text: Uint8Array | string): Int32Array {
    const bytes = typeof text === "string" ? utf8.encode(text) : text;
    const out = new Ids(Math.ceil(bytes.length / 3));
    const put = (piece: string) => this.#putPiece(piece, out);
    for (const run of utf8Runs(bytes)) {
      if (!run.valid) {
        out.putAll(this.#merge(run.bytes));
        continue;
      }
      if (run.bytes.length > constants.MAX_STRING_LENGTH) {
        throw new InputError(
          `a text of ${run.bytes.length} bytes is too long to encode at once; the most is ${constants.MAX_STRING_LENGTH}, so split the file`,
        );
      }
      this.#addedBefore.split(textOf(run.bytes), out, (part) => {
        const { normalization } = this.model;
        const normal = normalization === null ? part : part.normalize(normalization);
        this.#addedAfter.split(normal, out, (plain) => forEachPiece(plain, this.model.splits, put));
      });
    }
    return out.ids();
  }

  decode(tokens: ArrayLike<number>): Uint8Array {
    const parts: Uint8Array[] = [];
    for (let i = 0; i < tokens.length; i++) {
      requireToken(tokens[i], this.vocabulary);
      parts.push(this.model.tokens[tokens[i]]);
    }
    const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
    let end = 0;
    for (const part of parts) {
      all.set(part, end);
      end += part.length;
    }
    return all;
  }

  #putPiece(piece: string, out: Ids): void {
    let ids = this.#cache.get(piece);
    if (ids === undefined) {
      const merged = this.#merge(utf8.encode(piece));
      ids = merged.length === 1 ? merged[0] : merged;
      if (piece.length <= CACHE_PIECE_LENGTH) {
        if (this.#cache.size >= CACHE_PIECES) this.#cache.clear();
        this.#cache.set(ownString(piece), ids);
      }
    }
    if (typeof ids === "number") out.put(ids);
    else out.putAll(ids);
  }

  /**
   * Merges the pair of lowest rank, the leftmost of equals, until no pair merges: a linked list of ids and a queue of
   * (rank, position), so a piece of n bytes takes O(n log n) however long.
   */
  #merge(bytes: Uint8Array): Int32Array {
    const { byteIds, merges, ignoreMerges } = this.model;
    if (ignoreMerges) {
      const id = this.#whole.get(latin1(bytes));
      if (id !== undefined) return Int32Array.of(id);
    }
    const n = bytes.length;
    const ids = Int32Array.from(bytes, (byte) => byteIds[byte]);
    const next = Int32Array.from(ids, (_, i) => i + 1);
    const previous = Int32Array.from(ids, (_, i) => i - 1);
    const queue = new MinQueue();
    const offer = (at: number) => {
      if (at < 0 || next[at] >= n) return;
      const rank = this.#ranks.get(ids[at] * this.vocabulary + ids[next[at]]);
      if (rank !== undefined) queue.push(rank * POSITIONS + at);
    };
    for (let i = 0; i < n; i++) offer(i);
    for (let top = queue.pop(); top !== undefined; top = queue.pop()) {
      const at = top % POSITIONS;
      const rank = (top - at) / POSITIONS;
      const right = next[at];
      // an entry is out of date when its left id was swallowed (-1) or either id has changed
      if (ids[at] < 0 || right >= n) continue;
      if (this.#ranks.get(ids[at] * this.vocabulary + ids[right]) !== rank) continue;
      ids[at] = merges[rank][2];
      ids[right] = -1;
      next[at] = next[right];
      if (next[at] < n) previous[next[at]] = at;
      offer(previous[at]);
      offer(at);
    }
    return ids.filter((id) => id >= 0);
  }
}

const utf8 = new TextEncoder();
const fromUtf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** The text of valid UTF-8. */
export function textOf(bytes: Uint8Array): string {
  return fromUtf8.decode(bytes);
}

function latin1(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

/** Queue entries are `rank * POSITIONS + position`, exact in a double for ranks below 2^21. */
const POSITIONS = 2 ** 32;

/** A copy that does not keep the text alive which the piece was cut from. */
export function ownString(piece: string): string {
  return textOf(utf8.encode(piece));
}

/** Finds added tokens in a text: the leftmost, of several at one place the longest. */
class AddedTokens {
  readonly #ids: Map<string, number>;
  readonly #pattern: RegExp | null;

  constructor(tokens: [content: string, id: number][]) {
    this.#ids = new Map(tokens);
    const contents = [...this.#ids.keys()].sort((a, b) => b.length - a.length);
    const escaped = contents.map((content) => content.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
    this.#pattern = contents.length === 0 ? null : new RegExp(escaped.join("|"), "gu");
  }

  /** Puts added tokens into `out` and hands on the text between them, in order. */
  split(text: string, out: Ids, between: (part: string) => void): void {
    let end = 0;
    if (this.#pattern !== null) {
      for (const match of text.matchAll(this.#pattern)) {
        if (match.index > end) between(text.slice(end, match.index));
        out.put(this.#ids.get(match[0]) as number);
        end = match.index + match[0].length;
      }
    }
    if (end < text.length) between(end === 0 ? text : text.slice(end));
  }
}

/** A growing list of ids. */
class Ids {
  #ids: Int32Array;
  #length = 0;

  constructor(expected: number) {
    this.#ids = new Int32Array(expected + 16);
  }

  put(id: number): void {
    if (this.#length === this.#ids.length) this.#grow(1);
    this.#ids[this.#length++] = id;
  }

  putAll(ids: Int32Array): void {
    if (this.#length + ids.length > this.#ids.length) this.#grow(ids.length);
    for (let i = 0; i < ids.length; i++) this.#ids[this.#length++] = ids[i];
  }

  ids(): Int32Array {
    return this.#ids.slice(0, this.#length);
  }

  #grow(by: number): void {
    const larger = new Int32Array(2 * this.#ids.length + by);
    larger.set(this.#ids);
    this.#ids = larger;
  }
}

/** A binary heap of numbers, smallest first. */
class MinQueue {
  readonly #heap: number[] = [];

  push(value: number): void {
    const heap = this.#heap;
    let at = heap.push(value) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (heap[parent] <= value) break;
      heap[at] = heap[parent];
      at = parent;
    }
    heap[at] = value;
  }

  pop(): number | undefined {
    const heap = this.#heap;
    const top = heap[0];
    const value = heap.pop();
    if (value === undefined || heap.length === 0) return top;
    let at = 0;
    for (let child = 1; child < heap.length; child = 2 * at + 1) {
      if (child + 1 < heap.length && heap[child + 1] < heap[child]) child++;
      if (heap[child] >= value) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = value;
    return top;
  }
}
