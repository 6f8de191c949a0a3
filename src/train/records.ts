/**
 * The records of a run: appending them, and reading them back by the readers' rule (each step's highest attempt, torn
 * lines ignored). A process killed while appending leaves a torn last line; the next attempt ends it with a newline
 * and goes on, so a torn line is one that is last, or that is followed by a record of a higher attempt.
 */
import { closeSync, existsSync, fstatSync, openSync, readFileSync, readSync } from "node:fs";
import { join } from "node:path";
import { InputError } from "../errors.ts";
import { writeSynced, writeWhole, writing } from "../files.ts";
import type { EvaluationRecord, MetricsRecord, RunStatus } from "./types.ts";

/** Names within a run folder. */
export const METRICS_FILE = "metrics.jsonl";
export const EVALUATIONS_FILE = "eval.jsonl";
export const STATUS_FILE = "status.json";

/**
 * The records of a `metrics.jsonl`, one per step, ascending; none when the file is not there. A loss may be NaN or
 * infinite: JSON has null for it, or its name as text.
 */
export function readMetrics(file: string): MetricsRecord[] {
  return readRecords<MetricsRecord>(file, (record) => {
    const loss = lossOf(record.loss);
    return loss === null ? null : { ...record, loss };
  });
}

/** The records of an `eval.jsonl`, one per evaluated step, ascending; none when the file is not there. Losses as above. */
export function readEvaluations(file: string): EvaluationRecord[] {
  return readRecords<EvaluationRecord>(file, (record) => {
    const lm_loss = lossOf(record.lm_loss);
    if (lm_loss === null || !Array.isArray(record.buckets)) return null;
    const buckets = record.buckets.map((bucket) => ({
      ...bucket,
      lm_loss: lossOf(bucket?.lm_loss) ?? Number.NaN,
    }));
    return { ...record, lm_loss, buckets };
  });
}

/** Null when it is no loss at all. */
function lossOf(raw: unknown): number | null {
  if (typeof raw === "number") return raw;
  if (raw === null || raw === "NaN") return Number.NaN;
  return raw === "Infinity" || raw === "-Infinity" ? Number(raw) : null;
}

/** `status.json` of a run folder, null when it is not there. */
export function readStatus(runFolder: string): RunStatus | null {
  const file = join(runFolder, STATUS_FILE);
  if (!existsSync(file)) return null;
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    throw new InputError(
      `${file} is not readable as JSON: ${(error as Error).message}; without the file the run goes on from its checkpoint`,
    );
  }
}

export function writeStatus(runFolder: string, status: RunStatus): void {
  writeWhole(join(runFolder, STATUS_FILE), `${JSON.stringify(status, null, 2)}\n`);
}

function readRecords<Kept extends { readonly step: number; readonly attempt: number }>(
  file: string,
  whole: (record: Kept) => Kept | null,
): Kept[] {
  if (!existsSync(file)) return [];
  const kept = new Map<number, Kept>();
  let attempt = 0;
  let torn = 0;
  for (const [index, line] of readFileSync(file, "utf8").split("\n").entries()) {
    if (line === "") continue;
    const parsed = parseRecord<Kept>(line);
    if (parsed === null) {
      torn ||= index + 1;
      continue;
    }
    const record = whole(parsed);
    if (record === null) {
      throw new InputError(`${file}, line ${index + 1}: the record of step ${parsed.step} lacks its losses`);
    }
    if (torn > 0 && record.attempt <= attempt) {
      throw new InputError(
        `${file}, line ${torn}: not a record, and not the end of an attempt that was cut short; expected a JSON object with step and attempt`,
      );
    }
    torn = 0;
    attempt = record.attempt;
    const other = kept.get(record.step);
    if (other === undefined || record.attempt >= other.attempt) kept.set(record.step, record);
  }
  return [...kept.values()].sort((a, b) => a.step - b.step);
}

function parseRecord<Kept>(line: string): Kept | null {
  try {
    const value = JSON.parse(line);
    return Number.isInteger(value?.step) && Number.isInteger(value?.attempt) ? value : null;
  } catch {
    return null;
  }
}

/** Appends records to one file; they reach the disk at `flush`. */
export class RecordWriter {
  readonly file: string;
  #waiting: string;

  constructor(file: string) {
    this.file = file;
    this.#waiting = endsInTornLine(file) ? "\n" : "";
  }

  append(record: MetricsRecord | EvaluationRecord): void {
    this.#waiting += `${JSON.stringify(record)}\n`;
  }

  /** Throws `RunError` naming the file when it cannot be written. */
  flush(): void {
    if (this.#waiting === "") return;
    const lines = this.#waiting;
    // Also when it fails: part of them may be on disk, and a second try would garble the torn line.
    this.#waiting = "";
    writing(this.file, () => writeSynced(this.file, "a", lines));
  }
}

function endsInTornLine(file: string): boolean {
  if (!existsSync(file)) return false;
  const opened = openSync(file, "r");
  try {
    const { size } = fstatSync(opened);
    const last = Buffer.alloc(1);
    return size > 0 && readSync(opened, last, 0, 1, size - 1) === 1 && last.toString() !== "\n";
  } finally {
    closeSync(opened);
  }
}
