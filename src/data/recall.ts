/**
 * A long-range task on top of natural text: associative recall. Records of two random key tokens and a random value
 * token are written over a text, each once more at a chosen distance, where the value is the answer to its key. What
 * the language model learns to copy from its context is enough to solve it, so accuracy by distance shows how far an
 * attention finds what it looks for.
 */
import { Random } from "./random.ts";
import type { Batch, TrainingStream } from "./types.ts";

/** Tokens of a record: two of key, one of value. */
const RECORD = 3;
/** Where in a record its value stands. */
export const VALUE = 2;
/** The first band of distances is [32, 64), each further one twice as far, up to the document's length. */
const NEAREST = 32;
/** One record for so many tokens, and at least one for each band: with both its copies under 5 % of the text. */
const TOKENS_PER_RECORD = 128;
const TRIES = 64;

export interface RecallAnswer {
  /** Index of the last key token of the second copy: the next token is the answer. */
  readonly place: number;
  /** Index of the record's first copy. */
  readonly first: number;
  readonly answer: number;
  /** Tokens from the first copy to the second. */
  readonly distance: number;
}

/** Bands of distance [start, end) that fit into a document of `length` tokens: [32, 64), [64, 128) and so on. */
export function recallBands(length: number): { start: number; end: number }[] {
  const bands: { start: number; end: number }[] = [];
  for (let start = NEAREST; start + RECORD <= length; start *= 2) {
    bands.push({ start, end: Math.min(2 * start, length) });
  }
  return bands;
}

/**
 * Writes records over `tokens[from .. from + length)`, as many of each band of distances as far as there is room, and
 * returns their second copies in order of place. A document too short for any is left as it is.
 */
export function writeRecords(
  tokens: Int32Array,
  from: number,
  length: number,
  vocabulary: number,
  random: Random,
): RecallAnswer[] {
  const bands = recallBands(length).reverse();
  if (bands.length === 0) return [];
  const taken = new Uint8Array(length);
  const free = (at: number) => !taken[at] && !taken[at + 1] && !taken[at + 2];
  const put = (at: number, record: readonly number[]) => {
    taken.fill(1, at, at + RECORD);
    tokens.set(record, from + at);
  };
  const answers: RecallAnswer[] = [];
  const records = Math.max(bands.length, Math.floor(length / TOKENS_PER_RECORD));
  for (let i = 0; i < records; i++) {
    const { start, end } = bands[i % bands.length];
    const most = Math.min(end - 1, length - RECORD);
    for (let attempt = 0; attempt < TRIES; attempt++) {
      const distance = start + random.below(most - start + 1);
      const first = random.below(length - RECORD - distance + 1);
      const second = first + distance;
      if (!free(first) || !free(second)) continue;
      const record = Array.from({ length: RECORD }, () => random.below(vocabulary));
      put(first, record);
      put(second, record);
      answers.push({ place: from + second + 1, first: from + first, answer: record[VALUE], distance });
      break;
    }
  }
  return answers.sort((a, b) => a.place - b.place);
}

/** Records are the same for every run that is asked: they depend on the window's number only. */
const ASKED_SEED = 1;

/** The records of a window that recall is measured on, by its number among these. */
export function writeAsked(
  tokens: Int32Array,
  context: number,
  vocabulary: number,
  window: number,
): RecallAnswer[] {
  return writeRecords(tokens, 0, context, vocabulary, new Random(ASKED_SEED, window));
}

/**
 * The stream with records in a share of its sequences, chosen by the seed and the sequence's number, so that they are
 * the same for every attention and after a resume. Records are no text: their tokens carry no loss but the answers.
 */
export function withRecall(
  stream: TrainingStream,
  { share, vocabulary, seed }: { share: number; vocabulary: number; seed: number },
): TrainingStream {
  if (share === 0) return stream;
  const mixed = (batch: Batch, firstSequence: number): Batch => {
    const { tokens, targets, offsets } = batch;
    const sequences = tokens.length / stream.context;
    let changed = false;
    for (let i = 0; i < sequences; i++) {
      const random = new Random(seed, RECALL_STREAM + firstSequence + i);
      if (random.uniform() >= share) continue;
      changed = true;
      for (let d = 0; d + 1 < offsets.length; d++) {
        const [from, to] = [offsets[d], offsets[d + 1]];
        if (Math.floor(from / stream.context) !== i) continue;
        for (const { place, first, answer } of writeRecords(tokens, from, to - from, vocabulary, random)) {
          // The token before a record predicts its first token, and so on: none of them can be known.
          for (const copy of [first, place - 1]) {
            targets.fill(-1, Math.max(from, copy - 1), copy + RECORD - 1);
          }
          targets[place] = answer;
        }
      }
    }
    return changed ? { tokens, targets, offsets } : batch;
  };
  return {
    ...stream,
    batch: (first, count) => mixed(stream.batch(first, count), first),
    ahead(first, end, count, places) {
      const queue = stream.ahead(first, end, count, places);
      let next = first;
      return {
        async next() {
          const batch = mixed(await queue.next(), next);
          next += count;
          return batch;
        },
        release: (batches) => queue.release(batches),
        close: () => queue.close(),
      };
    },
  };
}

/** Streams of a seed from here on choose and write records; those before order the documents of an epoch. */
const RECALL_STREAM = 2 ** 40;
