/** What importers read: the losses a trainer logged, run by run, before labels and compute are known. */
import type { CurvePoint } from "../fit/types.ts";

export type Split = "train" | "eval";

type Columns = Omit<CurvePoint, "attention" | "model" | "seed" | "run">;

/** One logged loss, in nats per token. A row has at least one of step, tokens, pflops_days and time_s. */
export interface LoggedRow extends Partial<{ -readonly [Name in keyof Columns]: Columns[Name] }> {
  split: Split;
  lm_loss: number;
  /** Null, as in the curves table, when all positions are meant. */
  position_start: number | null;
  position_end: number | null;
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
