/** What the trainer asks of the data: batches for training, windows for evaluation. */

/** One or more packed sequences. Every window inside is a document of its own (positions and blocks restart). */
export interface Batch {
  /** Input tokens, `sequences * context` of them. */
  readonly tokens: Int32Array;
  /** The token that follows each input token in its document; -1 where there is none (no loss). */
  readonly targets: Int32Array;
  /** Document offsets: starts with 0, strictly increasing, ends with `tokens.length`. */
  readonly offsets: number[];
  /** What was found while it was made, so that nobody looks through the tokens again; absent: not looked at. */
  readonly counted?: {
    /** Targets that are not -1. */
    readonly predicted: number;
    /** The largest id among tokens and targets; none is negative but the targets that are -1. */
    readonly largest: number;
  };
}

/**
 * The endless training stream: sequence `i` is a pure function of the dataset, the context and the seed, so order
 * does not depend on batch size or resume.
 */
export interface TrainingStream {
  readonly context: number;
  /** Sequences in one pass over the training documents. */
  readonly sequencesPerEpoch: number;
  /** Predicted tokens (targets other than -1) in one pass. */
  readonly predictedTokensPerEpoch: number;
  /** The most windows packed in any one sequence. */
  readonly maxDocuments: number;
  /** Sequences `first .. first + count - 1`, concatenated. */
  batch(first: number, count: number): Batch;
  /**
   * `batch(first, count)`, `batch(first + count, count)` and so on up to sequence `end`, made in a thread of their own
   * into memory for `places` of them.
   */
  ahead(first: number, end: number, count: number, places: number): BatchQueue;
}

/** Batches in order, made before they are asked for. Close it. */
export interface BatchQueue {
  /** Its tokens and targets stay as they are until it is released. Throws what went wrong in the making. */
  next(): Promise<Batch>;
  /** Gives the memory of the oldest `count` batches back. */
  release(count: number): void;
  close(): void;
}

/** One full window of a held-out document: `context` inputs and their targets, `context + 1` tokens. */
export interface EvaluationWindow {
  /** Index into `Dataset.heldOut`. */
  readonly document: number;
  readonly tokens: Int32Array;
}

export interface DocumentInfo {
  readonly name: string;
  readonly tokens: number;
  /** Bytes of its text; 0 when the tokenizer is unknown. */
  readonly bytes: number;
}

/** A tokenized corpus on disk: whole documents in order, some held out. See `prepareDataset` and `openDataset`. */
export interface Dataset {
  readonly folder: string;
  readonly vocabulary: number;
  /** `byte`, `bpe-4096`, `llama3` ...: names the tokenizer in tables. */
  readonly tokenizerName: string;
  readonly train: readonly DocumentInfo[];
  readonly heldOut: readonly DocumentInfo[];
  /** Bytes of text each token id stands for, or null when the tokenizer is unknown. */
  readonly tokenBytes: Float64Array | null;
  trainingStream(context: number, seed: number): TrainingStream;
  /** All full windows of the held-out documents, and how many partial ones are left out. Errors when there is none. */
  evaluationWindows(context: number): { windows: EvaluationWindow[]; leftOut: number };
}
