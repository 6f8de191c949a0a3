/** Learns a byte-level BPE from text: counts pieces, then merges the most frequent pair again and again. */
import { InputError } from "../errors.ts";
import { ByteLevelBpe } from "./bpe.ts";
import { LEARNED_SPLITS, type PackedCounts, PieceCounts } from "./bpe-pieces.ts";
import { Threads } from "./threads.ts";

const BYTES = 256;
/** Rank times positions must stay exact in the encoder's queue, and no one needs more. */
const MOST_TOKENS = 1 << 20;

/**
 * `vocabulary` tokens: ids 0-255 are the bytes, then one id per merge, in the order learned. The pair merged next is the
 * one that occurs most often in the pieces (`LEARNED_PATTERN`), of equals the one with the smaller left id, then the smaller
 * right id; so neither the order of the texts nor the number of threads matters. Bytes that are no UTF-8 do not count.
 * InputError when the text has too few pairs that occur twice.
 */
export async function learnBpe(
  vocabulary: number,
  texts: AsyncIterable<Uint8Array>,
  threads = new Threads(1),
): Promise<ByteLevelBpe> {
  checkLearnedVocabulary(vocabulary);
  for await (const _ of threads.map("count", texts, (text) => text));
  const all = new PieceCounts();
  for (const counts of await threads.onAll("takeCounts", undefined)) all.addPacked(counts);
  const { tokens, merges } = learnMerges(all.pack(), vocabulary);
  if (tokens.length < vocabulary) {
    throw new InputError(
      `bpe-${vocabulary}: the text gives only ${tokens.length} tokens from pairs that occur twice; take ${tokens.length > BYTES ? `at most bpe-${tokens.length}` : "byte"}, or more text`,
    );
  }
  return new ByteLevelBpe({
    name: `bpe-${vocabulary}`,
    tokens,
    byteIds: Int32Array.from({ length: BYTES }, (_, byte) => byte),
    merges,
    splits: LEARNED_SPLITS,
    ignoreMerges: false,
    normalization: null,
    added: [],
  });
}

interface Pair {
  readonly left: number;
  readonly right: number;
  /** Occurrences in all pieces. */
  count: number;
  /** Pieces it occurred in at some time, each at least once. */
  readonly pieces: number[];
}

/** Merges until there are `vocabulary` tokens or no pair occurs twice. */
function learnMerges(
  { bytes, lengths, counts: weights }: PackedCounts,
  vocabulary: number,
): { tokens: Uint8Array[]; merges: [left: number, right: number, merged: number][] } {
  let end = 0;
  const pieces = Array.from(lengths, (length) => {
    end += length;
    return [...bytes.subarray(end - length, end)];
  });
  const pairs = new Map<number, Pair>();
  const grown = new Set<Pair>();
  /** Adds a piece's pairs, `times` its weight. Those with the id `merged` (null: all) are new to the piece. */
  const addAll = (piece: number, times: 1 | -1, merged: number | null) => {
    const ids = pieces[piece];
    for (let i = 1; i < ids.length; i++) {
      const left = ids[i - 1];
      const right = ids[i];
      const key = left * MOST_TOKENS + right;
      let pair = pairs.get(key);
      if (pair === undefined) pairs.set(key, (pair = { left, right, count: 0, pieces: [] }));
      pair.count += times * weights[piece];
      if (merged === null || left === merged || right === merged) {
        grown.add(pair);
        if (pair.pieces[pair.pieces.length - 1] !== piece) pair.pieces.push(piece);
      }
    }
  };
  for (let piece = 0; piece < pieces.length; piece++) addAll(piece, 1, null);
  const queue = new PairQueue();
  for (const pair of pairs.values()) queue.push(pair);

  const tokens = Array.from({ length: BYTES }, (_, byte) => Uint8Array.of(byte));
  const merges: [number, number, number][] = [];
  while (tokens.length < vocabulary) {
    const best = queue.pop();
    if (best === undefined || best.count < 2) break;
    // A new id: the same bytes cannot come from another pair, since what happens inside a stretch that ends as one token
    // does not depend on what surrounds it.
    const merged = tokens.length;
    tokens.push(Buffer.concat([tokens[best.left], tokens[best.right]]));
    merges.push([best.left, best.right, merged]);
    grown.clear();
    for (const piece of best.pieces) {
      const ids = replaced(pieces[piece], best.left, best.right, merged);
      if (ids === null) continue;
      // pairs that survive lose and regain their count: only those with the merged id grow
      addAll(piece, -1, merged);
      pieces[piece] = ids;
      addAll(piece, 1, merged);
    }
    for (const pair of grown) queue.push(pair);
  }
  return { tokens, merges };
}

/** The ids with each (left, right), from the left, replaced; null when there is none. */
function replaced(ids: readonly number[], left: number, right: number, merged: number): number[] | null {
  let out: number[] | null = null;
  for (let i = 0; i < ids.length; i++) {
    const hit = ids[i] === left && i + 1 < ids.length && ids[i + 1] === right;
    if (hit && out === null) out = ids.slice(0, i);
    if (hit) {
      out?.push(merged);
      i++;
    } else out?.push(ids[i]);
  }
  return out;
}

/**
 * Pairs by count, most first. Entries carry the count they were queued with; one that has shrunk since is queued again
 * when it comes up (once queued, counts never grow).
 */
class PairQueue {
  readonly #heap: { pair: Pair; count: number }[] = [];

  push(pair: Pair): void {
    const heap = this.#heap;
    const entry = { pair, count: pair.count };
    let at = heap.push(entry) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!comesFirst(entry, heap[parent])) break;
      heap[at] = heap[parent];
      at = parent;
    }
    heap[at] = entry;
  }

  pop(): Pair | undefined {
    for (;;) {
      const top = this.#heap[0];
      if (top === undefined) return undefined;
      this.#removeFirst();
      if (top.count === top.pair.count) return top.pair;
      if (top.pair.count > 0) this.push(top.pair);
    }
  }

  #removeFirst(): void {
    const heap = this.#heap;
    const entry = heap.pop();
    if (entry === undefined || heap.length === 0) return;
    let at = 0;
    for (let child = 1; child < heap.length; child = 2 * at + 1) {
      if (child + 1 < heap.length && comesFirst(heap[child + 1], heap[child])) child++;
      if (!comesFirst(heap[child], entry)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = entry;
  }
}

function comesFirst(a: { pair: Pair; count: number }, b: { pair: Pair; count: number }): boolean {
  if (a.count !== b.count) return a.count > b.count;
  return a.pair.left !== b.pair.left ? a.pair.left < b.pair.left : a.pair.right < b.pair.right;
}

/** InputError when no byte-level BPE has so many tokens. */
export function checkLearnedVocabulary(vocabulary: number): void {
  if (vocabulary > BYTES && vocabulary <= MOST_TOKENS) return;
  throw new InputError(
    `bpe-${vocabulary}: a byte-level BPE has ${BYTES + 1} (the bytes and one merge) to ${MOST_TOKENS} tokens`,
  );
}
