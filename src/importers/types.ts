/** What importers read: the losses a trainer logged, run by run, before labels and compute are known. */
import type { CurvePoint } from "../fit/types.ts";

export type Split = "train" | "eval";

/**
 * One logged loss, in nats per token: a row of the curves table in the making. It has at least one of step, tokens,
 * pflops_days and time_s; its labels are blank until they are known.
 */
export type LoggedRow = { -readonly [Column in keyof CurvePoint]: CurvePoint[Column] } & { split: Split };

/** A row with every column in place, so that a million of them have one shape and stay small. */
export function newRow(
  split: Split,
  loss: number,
  start: number | null = null,
  end: number | null = null,
): LoggedRow {
  return {
    attention: "",
    model: "",
    position_start: start,
    position_end: end,
    pflops_days: null,
    lm_loss: loss,
    seed: undefined,
    run: undefined,
    step: undefined,
    tokens: undefined,
    parameters: undefined,
    pflops_days_attended: undefined,
    split,
    time_s: undefined,
    tokens_per_second: undefined,
    predicted_tokens: undefined,
    bits_per_byte: undefined,
  };
}

/** Facts of a run beside its losses. */
export interface RunFacts {
  attention?: string;
  model?: string;
  seed?: number;
  /** Parameters without the embedding and output matrices, N of 6ND. */
  parameters?: number;
  tokens_per_step?: number;
  /** Training operations per token, attention as done. */
  flops_per_token?: number;
}

/** One run's rows in the order they were logged. */
export interface LoggedRun {
  /** Empty when the log does not name its run. */
  readonly name: string;
  readonly rows: LoggedRow[];
  readonly facts: RunFacts;
}

/** Rows that were left out for one reason, with the place of the first. */
export interface Skipped {
  readonly reason: string;
  count: number;
  readonly first: string;
}

/** One source (a file, or an MLflow run's folder) as read. */
export interface Log {
  readonly format: string;
  readonly runs: LoggedRun[];
  readonly skipped: Skipped[];
  /** Sentences about choices made while reading. */
  readonly notes: string[];
}

/** A file to read. `name` is what messages call it. */
export interface Source {
  readonly name: string;
  readonly bytes: Uint8Array;
}

/** A text to read, decoded; `notes` say what had to be replaced. */
export interface TextSource {
  readonly name: string;
  readonly text: string;
  readonly notes: readonly string[];
}

/** Counts what is left out, by reason. */
export class SkipCounts {
  readonly #reasons = new Map<string, Skipped>();

  add(reason: string, place: string, count = 1): void {
    const known = this.#reasons.get(reason);
    if (known) known.count += count;
    else this.#reasons.set(reason, { reason, count, first: place });
  }

  list(): Skipped[] {
    return [...this.#reasons.values()];
  }
}
