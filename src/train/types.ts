/** What a run is told (`config.json`) and what it writes (`metrics.jsonl`, `eval.jsonl`, `status.json`). */
import type { ModelConfig } from "../model/config.ts";

/** `runs/<run>/config.json`. A run is a function of this and of the dataset; it never knows that it is part of a study. */
export interface RunConfig {
  /** Model name in tables, such as `d4` or `545M`. */
  readonly model: string;
  readonly shape: ModelConfig;
  /**
   * The attention label, with an optional schedule: `full`, `moba-b128-k4`, `moba-b128-k4/full:2` (the last two
   * layers full), `moba-b128-k4+full@0.9` (full from 90 % of the tokens on).
   */
  readonly attention: string;
  /** Dataset folder, relative to the run's folder. */
  readonly dataset: string;
  readonly context: number;
  /** Sequences of `context` tokens per optimizer step, and per forward pass (a divisor). */
  readonly sequencesPerStep: number;
  readonly sequencesPerPass: number;
  /** Exactly one is set. Tokens are input tokens; tokens per parameter counts non-embedding parameters. */
  readonly horizon:
    | { readonly steps: number }
    | { readonly tokens: number }
    | { readonly tokensPerParameter: number }
    | { readonly pflopsDays: number };
  readonly optimizer: {
    readonly learningRate: number;
    readonly beta1: number;
    readonly beta2: number;
    readonly epsilon: number;
    readonly weightDecay: number;
    /** Gradient norm above which gradients are scaled down; 0 for none. */
    readonly maxNorm: number;
    readonly schedule: "cosine" | "wsd";
    /** Share of the horizon spent warming up, and (wsd) decaying. */
    readonly warmup: number;
    readonly decay: number;
    /** Learning rate at the end, as a share of the peak. */
    readonly finalShare: number;
  };
  /** Position buckets over the context; evaluations along the run (log-spaced, the end always evaluated). */
  readonly buckets: number;
  readonly evaluations: number;
  /** Full held-out windows of an evaluation, spread evenly over all of them; all when absent. */
  readonly evaluationWindows?: number;
  /**
   * Share of the training sequences that have recall records (data/recall.ts). When present, 0 included, accuracy by
   * distance is measured at the end, on the windows of an evaluation.
   */
  readonly recall?: number;
  /** Steps between checkpoints; 0: only at the end. */
  readonly checkpointEvery: number;
  readonly recompute: boolean;
  readonly seed: number;
}

/** A line of `metrics.jsonl`: one optimizer step. Readers keep each step's highest attempt. */
export interface MetricsRecord {
  readonly step: number;
  /** Input tokens seen after this step. */
  readonly tokens: number;
  /** 1 for the first start, one more for each resume. */
  readonly attempt: number;
  /** Mean training loss of the step's predicted tokens, nats. */
  readonly loss: number;
  readonly gradNorm: number;
  readonly learningRate: number;
  readonly tokensPerSecond: number;
  /** Seconds of training so far, all attempts. */
  readonly time_s: number;
  /** Cumulative compute by both conventions. */
  readonly pflops_days: number;
  readonly pflops_days_attended: number;
}

export interface BucketLoss {
  readonly position_start: number;
  readonly position_end: number;
  /** Mean loss, nats per token, and how many tokens it is the mean of. */
  readonly lm_loss: number;
  readonly predicted_tokens: number;
}

/** A line of `eval.jsonl`: losses on the held-out documents after `step` steps. */
export interface EvaluationRecord {
  readonly step: number;
  readonly tokens: number;
  readonly attempt: number;
  readonly split: "held-out";
  readonly lm_loss: number;
  readonly predicted_tokens: number;
  /** Absent when the tokenizer is unknown. */
  readonly bits_per_byte?: number;
  readonly buckets: BucketLoss[];
  /** The same per original document. */
  readonly documents: { readonly document: string; readonly buckets: BucketLoss[] }[];
  readonly pflops_days: number;
  readonly pflops_days_attended: number;
  readonly time_s: number;
  readonly tokensPerSecond: number;
  /** Seconds that this evaluation took; absent in older records. */
  readonly evaluation_s?: number;
  /** True for the evaluation at the end of the horizon. */
  readonly final: boolean;
}

/** `status.json`, written aside then renamed. */
export interface RunStatus {
  readonly state: "running" | "finished" | "failed";
  readonly step: number;
  readonly steps: number;
  readonly attempt: number;
  /** Why it failed, one sentence. */
  readonly message?: string;
  /** All of them, the embedding and output matrices included. */
  readonly parameters: number;
  /** Held-out windows that are not full. */
  readonly windowsLeftOut: number;
  /** Passes over the training documents at the end of the horizon. */
  readonly epochs: number;
  /** Bytes planned before the first step. */
  readonly memory: number;
  /** Share of causal pairs not attended so far, over layers, phases and the documents trained on. */
  readonly sparsity: number;
}

/** `recall.json`: accuracy on recall records by distance, at the end of a run. */
export interface RecallResult {
  readonly windows: number;
  /** Share of right answers when every token of the vocabulary is as likely. */
  readonly chance: number;
  /** Bands of tokens between a record and its query, end exclusive. */
  readonly bands: readonly RecallBand[];
  /** Which blocks the layers that leave some out attend to, over all of these windows; absent when none does. */
  readonly routing?: readonly BlocksBack[];
}

/** A choice of blocks by how far back they lie: 1 is the block before the query's own. */
export interface BlocksBack {
  readonly blocks_back: number;
  /** Of the queries with such a block, in each head of each of those layers, the share that attends to it. */
  readonly share: number;
  /** The same if as many earlier blocks were drawn at random. */
  readonly at_random: number;
}

export interface RecallBand {
  readonly distance_start: number;
  readonly distance_end: number;
  readonly answers: number;
  /** Answers that are the likeliest token, ties to the lower id. */
  readonly right: number;
  /** Mean loss of the answers, nats. */
  readonly lm_loss: number;
  /** Whether the block with the record's value is attended to, in layers that leave blocks out; absent when none does. */
  readonly attended?: {
    /** Of the heads of those layers, mean over the answers. */
    readonly heads: number;
    /** The same if every head drew as many blocks at random. */
    readonly heads_at_random: number;
    /** Of the answers, those for which at least one head of one layer attends to it; at random. */
    readonly any: number;
    readonly any_at_random: number;
    /** Not in the file: of the heads, the mean share that attends to any block as far back (`withDistance`). */
    readonly by_distance?: number;
  };
}

/**
 * `truncated.json`, at the end of a run: the loss of the same tokens, the last sixteenth of held-out windows, when less
 * and less of the window stands before them. By position, other tokens stand at each place; here only the context differs.
 */
export interface TruncatedResult {
  readonly windows: number;
  /** Lengths of what is kept of the windows' end, the predicted sixteenth included, ascending: T/16, T/8 ... T. */
  readonly contexts: readonly number[];
  /** Mean loss with each of `contexts`, nats. */
  readonly lm_loss: readonly number[];
  readonly predicted_tokens: number;
  /** The same for the windows of each document. */
  readonly documents: readonly TruncatedDocument[];
}

export interface TruncatedDocument {
  readonly document: string;
  readonly lm_loss: readonly number[];
  readonly predicted_tokens: number;
}

/** What a run reports after every step. */
export interface RunProgress {
  readonly step: number;
  readonly steps: number;
  readonly loss: number;
  readonly tokensPerSecond: number;
  readonly secondsLeft: number;
  /** Mean held-out loss of the last evaluation, when there was one. */
  readonly heldOut?: number;
}
