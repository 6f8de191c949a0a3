/** Windows cut from documents (method, section 2), packed into the training stream. */
import { Prefetch } from "./prefetch.ts";
import { permutation } from "./random.ts";
import type { Tokens } from "./shards.ts";
import type { Batch, DocumentInfo, EvaluationWindow, TrainingStream } from "./types.ts";

/** A training stream that can also be written into memory of the caller's. */
export interface WindowStream extends TrainingStream {
  /** `batch` for the `tokens.length / context` sequences from `first` on, into `tokens` and `targets`. */
  fill(first: number, tokens: Int32Array, targets: Int32Array): Batch;
}

/** A window shorter than the context: its first token's place among all tokens, and its inputs (= its targets). */
interface ShortWindow {
  readonly start: number;
  readonly length: number;
}

/**
 * The training stream. A document of n tokens gives floor((n - 1) / T) full windows, one sequence each. What remains
 * after them, m tokens (the last full window's final target is the first of them), gives a short window of m - 1 inputs
 * with their m - 1 targets, if m >= 2. Short windows are packed into sequences of exactly T tokens, first fit from the
 * longest to the shortest; space left over is one more document of token 0 without targets.
 */
export function trainingStream(
  tokens: Tokens,
  documents: readonly Pick<DocumentInfo, "tokens">[],
  context: number,
  seed: number,
): WindowStream {
  requireContext(context);
  const firstToken: number[] = [];
  const firstWindow: number[] = [];
  const short: ShortWindow[] = [];
  let start = 0;
  let fullWindows = 0;
  let predicted = 0;
  for (const { tokens: length } of documents) {
    firstToken.push(start);
    firstWindow.push(fullWindows);
    const full = fullWindowCount(length, context);
    fullWindows += full;
    const rest = length - full * context - 1;
    if (rest > 0) short.push({ start: start + full * context, length: rest });
    predicted += Math.max(0, length - 1);
    start += length;
  }
  const packs = pack(short, context);
  const sequencesPerEpoch = fullWindows + packs.length;
  let maxDocuments = 1;
  for (const { windows, space } of packs) {
    maxDocuments = Math.max(maxDocuments, windows.length + (space > 0 ? 1 : 0));
  }

  let orderEpoch = -1;
  let order = new Uint32Array(0);
  const placeOf = (sequence: number): number => {
    const epoch = Math.floor(sequence / sequencesPerEpoch);
    if (epoch !== orderEpoch) {
      order = permutation(sequencesPerEpoch, seed, epoch) as Uint32Array<ArrayBuffer>;
      orderEpoch = epoch;
    }
    return order[sequence - epoch * sequencesPerEpoch];
  };

  const fill = (first: number, inputs: Int32Array, targets: Int32Array): Batch => {
    const offsets: number[] = [];
    let predicted = 0;
    let largest = 0;
    /** `length` inputs and their targets: the tokens from `from` on, and the one behind them. */
    const put = (from: number, length: number, to: number) => {
      offsets.push(to);
      inputs.set(tokens.subarray(from, from + length), to);
      targets.set(tokens.subarray(from + 1, from + 1 + length), to);
      predicted += length;
      for (let t = from; t <= from + length; t++) largest = Math.max(tokens[t], largest);
    };
    const count = inputs.length / context;
    for (let i = 0; i < count; i++) {
      const place = placeOf(first + i);
      let to = i * context;
      if (place < fullWindows) {
        const document = lastAtMost(firstWindow, place);
        put(firstToken[document] + (place - firstWindow[document]) * context, context, to);
        continue;
      }
      const { windows, space } = packs[place - fullWindows];
      for (const window of windows) {
        put(window.start, window.length, to);
        to += window.length;
      }
      if (space === 0) continue;
      offsets.push(to);
      inputs.fill(0, to, (i + 1) * context);
      targets.fill(-1, to, (i + 1) * context);
    }
    offsets.push(count * context);
    return { tokens: inputs, targets, offsets, counted: { predicted, largest } };
  };

  return {
    context,
    sequencesPerEpoch,
    predictedTokensPerEpoch: predicted,
    maxDocuments,
    batch(first, count) {
      return fill(first, new Int32Array(count * context), new Int32Array(count * context));
    },
    fill,
    ahead(first, end, count, places) {
      const lengths = Float64Array.from(documents, (document) => document.tokens);
      return new Prefetch({ tokens, lengths, context, seed }, { first, end, count, places, maxDocuments });
    },
  };
}

/** All full windows of the documents, and how many partial ones (with at least one target) are left out. */
export function fullWindows(
  tokens: Tokens,
  documents: readonly DocumentInfo[],
  context: number,
): { windows: EvaluationWindow[]; leftOut: number } {
  requireContext(context);
  const windows: EvaluationWindow[] = [];
  let leftOut = 0;
  let start = 0;
  for (const [document, { tokens: length }] of documents.entries()) {
    const full = fullWindowCount(length, context);
    for (let w = 0; w < full; w++) {
      const from = start + w * context;
      windows.push({ document, tokens: Int32Array.from(tokens.subarray(from, from + context + 1)) });
    }
    if (length - full * context >= 2) leftOut++;
    start += length;
  }
  return { windows, leftOut };
}

/** Full windows of a document: each has `context` inputs and as many targets. */
export function fullWindowCount(tokens: number, context: number): number {
  return tokens < 1 ? 0 : Math.floor((tokens - 1) / context);
}

function requireContext(context: number): void {
  if (!Number.isInteger(context) || context < 1) {
    throw new RangeError(`context is ${context}; it must be a whole number of tokens, at least 1`);
  }
}

interface Pack {
  readonly windows: ShortWindow[];
  space: number;
}

/** First fit decreasing. A tree over the packs holds the most space of each subtree, so finding the first fit is O(log n). */
function pack(short: readonly ShortWindow[], context: number): Pack[] {
  const sorted = [...short].sort((a, b) => b.length - a.length || a.start - b.start);
  let leaves = 1;
  while (leaves < sorted.length) leaves *= 2;
  const space = new Float64Array(2 * leaves).fill(context);
  const packs: Pack[] = [];
  for (const window of sorted) {
    let node = 1;
    while (node < leaves) node = space[2 * node] >= window.length ? 2 * node : 2 * node + 1;
    const index = node - leaves;
    if (index === packs.length) packs.push({ windows: [], space: context });
    packs[index].windows.push(window);
    packs[index].space -= window.length;
    space[node] = packs[index].space;
    for (node >>= 1; node >= 1; node >>= 1) space[node] = Math.max(space[2 * node], space[2 * node + 1]);
  }
  return packs;
}

/** Index of the last value that is at most `x`, in a non-decreasing list that starts with 0. */
function lastAtMost(values: readonly number[], x: number): number {
  let low = 0;
  let high = values.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle;
    else high = middle;
  }
  return low;
}
