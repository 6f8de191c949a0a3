/** Held-out loss by position (docs/method.md, section 2): all full windows of the held-out documents, in float64. */
import type { Batch, Dataset, EvaluationWindow } from "../data/types.ts";
import { InputError, RunError } from "../errors.ts";
import type { Model } from "../model/model.ts";
import type { BucketLoss } from "./types.ts";

export interface HeldOutLoss {
  /** Mean over all predicted tokens, nats. */
  readonly lm_loss: number;
  readonly predicted_tokens: number;
  /** Bits of all predicted tokens over the bytes they stand for; absent when the tokenizer is unknown. */
  readonly bits_per_byte?: number;
  readonly buckets: BucketLoss[];
  readonly documents: { readonly document: string; readonly buckets: BucketLoss[] }[];
}

/** Sums of the losses of one document (or of all) by position bucket. */
class BucketSums {
  readonly losses: Float64Array;
  readonly counts: Float64Array;
  readonly width: number;

  constructor(context: number, buckets: number) {
    this.losses = new Float64Array(buckets);
    this.counts = new Float64Array(buckets);
    this.width = context / buckets;
  }

  /** The sum of `count` losses in a bucket. */
  add(bucket: number, loss: number, count: number): void {
    this.losses[bucket] += loss;
    this.counts[bucket] += count;
  }

  /** Buckets without a token are absent. */
  means(): BucketLoss[] {
    return Array.from(this.losses, (loss, i) => ({
      position_start: i * this.width,
      position_end: (i + 1) * this.width,
      lm_loss: loss / this.counts[i],
      predicted_tokens: this.counts[i],
    })).filter((bucket) => bucket.predicted_tokens > 0);
  }
}

/** Collects per-token losses of held-out windows, window by window. */
export class LossByPosition {
  readonly #dataset: Pick<Dataset, "heldOut" | "tokenBytes">;
  readonly #context: number;
  readonly #buckets: number;
  readonly #all: BucketSums;
  readonly #documents = new Map<number, BucketSums>();
  #bytes = 0;

  /** `buckets` equal ones over the context; throws `InputError` when they do not divide it. */
  constructor(dataset: Pick<Dataset, "heldOut" | "tokenBytes">, context: number, buckets: number) {
    if (!Number.isInteger(buckets) || buckets < 1 || context % buckets !== 0) {
      throw new InputError(`buckets is ${buckets}, expected a divisor of the context ${context}`);
    }
    this.#dataset = dataset;
    this.#context = context;
    this.#buckets = buckets;
    this.#all = new BucketSums(context, buckets);
  }

  /** `losses[first + i]` is the loss of predicting the window's token `i + 1` from its tokens up to `i`. */
  add(window: EvaluationWindow, losses: ArrayLike<number>, first: number): void {
    let sums = this.#documents.get(window.document);
    if (!sums) {
      sums = new BucketSums(this.#context, this.#buckets);
      this.#documents.set(window.document, sums);
    }
    const { width } = sums;
    for (let bucket = 0; bucket < this.#buckets; bucket++) {
      const start = first + bucket * width;
      let loss = 0;
      for (let i = start; i < start + width; i++) loss += losses[i];
      sums.add(bucket, loss, width);
      this.#all.add(bucket, loss, width);
    }
    const { tokenBytes } = this.#dataset;
    if (tokenBytes) for (let i = 1; i <= this.#context; i++) this.#bytes += tokenBytes[window.tokens[i]];
  }

  result(): HeldOutLoss {
    let loss = 0;
    let tokens = 0;
    for (const [i, sum] of this.#all.losses.entries()) {
      loss += sum;
      tokens += this.#all.counts[i];
    }
    return {
      lm_loss: loss / tokens,
      predicted_tokens: tokens,
      ...(this.#bytes > 0 ? { bits_per_byte: loss / Math.LN2 / this.#bytes } : {}),
      buckets: [...this.#all.means(), ...reportBuckets(this.#all.means())],
      documents: [...this.#documents]
        .sort(([a], [b]) => a - b)
        .map(([document, sums]) => ({
          document: this.#dataset.heldOut[document].name,
          buckets: sums.means(),
        })),
    };
  }
}

/** Width of the MoBA report's buckets, of which the headline [10240, 12288) is one. */
const REPORT_WIDTH = 2048;
const HEADLINE_END = 12_288;

/** The report's buckets, each the mean of the narrower ones that make it up; none where the headline is not among them. */
function reportBuckets(buckets: readonly BucketLoss[]): BucketLoss[] {
  const ends = new Set(buckets.map((bucket) => bucket.position_end));
  const width = buckets.length > 0 ? buckets[0].position_end - buckets[0].position_start : REPORT_WIDTH;
  if (!ends.has(HEADLINE_END) || width >= REPORT_WIDTH || REPORT_WIDTH % width !== 0) return [];
  const wide: BucketLoss[] = [];
  for (let start = 0; ends.has(start + REPORT_WIDTH); start += REPORT_WIDTH) {
    const end = start + REPORT_WIDTH;
    wide.push({ position_start: start, position_end: end, ...lossBetween(buckets, start, end) });
  }
  return wide;
}

/** The mean loss over those of the buckets that lie within [start, end), each counted by its tokens. */
export function lossBetween(
  buckets: readonly BucketLoss[],
  start: number,
  end: number,
): Pick<BucketLoss, "lm_loss" | "predicted_tokens"> {
  const inside = buckets.filter((b) => b.position_start >= start && b.position_end <= end);
  const tokens = inside.reduce((sum, b) => sum + b.predicted_tokens, 0);
  const loss = inside.reduce((sum, b) => sum + b.predicted_tokens * b.lm_loss, 0);
  return { lm_loss: loss / tokens, predicted_tokens: tokens };
}

/**
 * The held-out loss of a model whose passes hold whole windows (`model.tokens` is a multiple of `context`, and as many
 * documents fit). Throws `RunError` when it is not finite; `which` says there which loss, as `after step 12`.
 */
export function evaluate(
  model: Model,
  dataset: Pick<Dataset, "heldOut" | "tokenBytes">,
  windows: readonly EvaluationWindow[],
  context: number,
  buckets: number,
  which: string,
): HeldOutLoss {
  const sums = new LossByPosition(dataset, context, buckets);
  eachWindow(model, windows, context, (window, losses, first) => sums.add(window, losses, first));
  const result = sums.result();
  if (!Number.isFinite(result.lm_loss)) {
    throw new RunError(
      `the held-out loss ${which} is ${result.lm_loss}, expected a finite number; first tensor with a value that is not finite: ${model.findNonFinite() ?? "none"}`,
    );
  }
  return result;
}

/** Gives `take` each window with losses of which those of its tokens begin at `first`; passes of the model as `evaluate`. */
export function eachWindow(
  model: Model,
  windows: readonly EvaluationWindow[],
  context: number,
  take: (window: EvaluationWindow, losses: ArrayLike<number>, first: number) => void,
): void {
  const perPass = model.tokens / context;
  for (let start = 0; start < windows.length; start += perPass) {
    const packed = windows.slice(start, start + perPass);
    model.loadBatch(packWindows(packed, perPass, context));
    const losses = model.backend.read(model.forward());
    for (const [i, window] of packed.entries()) take(window, losses, i * context);
  }
}

/** `count` of the windows, spread evenly over all of them; all when that is more or absent. */
export function spreadWindows(
  windows: readonly EvaluationWindow[],
  count = windows.length,
): readonly EvaluationWindow[] {
  if (count >= windows.length) return windows;
  return Array.from({ length: count }, (_, i) => windows[Math.floor(((i + 0.5) * windows.length) / count)]);
}

/** Windows side by side, each a document; unused places repeat the first window without targets. */
export function packWindows(windows: readonly EvaluationWindow[], places: number, context: number): Batch {
  const tokens = new Int32Array(places * context);
  const targets = new Int32Array(places * context).fill(-1);
  for (let place = 0; place < places; place++) {
    const window = windows[place] ?? windows[0];
    tokens.set(window.tokens.subarray(0, context), place * context);
    if (place < windows.length) targets.set(window.tokens.subarray(1, context + 1), place * context);
  }
  return { tokens, targets, offsets: Array.from({ length: places + 1 }, (_, i) => i * context) };
}
