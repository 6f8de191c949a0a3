/** The steps of one run as the browser keeps them: columns that grow with training, but never past a limit. */
import type { MetricColumns, Value } from "../src/server/api.ts";

/** A row stands for the steps after the row before it; `meanLoss` is the mean over those. */
export const COLUMNS = [
  "step",
  "tokens",
  "attempt",
  "loss",
  "meanLoss",
  "gradNorm",
  "learningRate",
  "tokensPerSecond",
  "time_s",
  "pflops_days",
  "pflops_days_attended",
] as const;
export type Column = (typeof COLUMNS)[number];
type Columns = Record<Column, number[]>;

/** Past this many rows a track is thinned to about half of it; one that came longer keeps what it came with. */
export const LIMIT = 1000;

export const numberOf = (value: Value | undefined): number => (value == null ? Number.NaN : Number(value));

export class Track {
  readonly columns: Columns;
  /** Counts what was appended: as long as it stays, so do the rows. */
  version = 0;
  #limit = LIMIT;

  constructor() {
    this.columns = Object.fromEntries(COLUMNS.map((name) => [name, []])) as unknown as Columns;
  }

  get length(): number {
    return this.columns.step.length;
  }

  /**
   * Adds rows in order of step. A row replaces the one of its step, and a higher attempt replaces everything that an
   * earlier attempt left between the rows that it brings.
   */
  append(rows: MetricColumns): void {
    if (rows.step.length === 0) return;
    this.version++;
    if (this.length === 0) this.#limit = Math.max(LIMIT, rows.step.length * 1.5);
    const { step, attempt } = this.columns;
    const first = rows.step[0]!;
    const last = rows.step.at(-1)!;
    const highest = Math.max(...rows.attempt);
    const columns = Object.keys(this.columns) as Column[];
    const given = (name: Column, i: number): number => {
      if (name === "meanLoss") return numberOf((rows.meanLoss ?? rows.loss)[i]);
      return numberOf(rows[name][i]);
    };
    if (step.length === 0 || first > step.at(-1)!) {
      for (let i = 0; i < rows.step.length; i++)
        for (const name of columns) this.columns[name].push(given(name, i));
    } else {
      const merged = new Map<number, number[]>();
      for (let i = 0; i < step.length; i++) {
        const overtaken = step[i]! >= first && step[i]! <= last && attempt[i]! < highest;
        if (!overtaken)
          merged.set(
            step[i]!,
            columns.map((name) => this.columns[name][i]!),
          );
      }
      const at = columns.indexOf("attempt");
      for (let i = 0; i < rows.step.length; i++) {
        const before = merged.get(rows.step[i]!);
        if (before && before[at]! > rows.attempt[i]!) continue;
        merged.set(
          rows.step[i]!,
          columns.map((name) => given(name, i)),
        );
      }
      const ordered = [...merged].sort((a, b) => a[0] - b[0]);
      for (const [c, name] of columns.entries()) this.columns[name] = ordered.map(([, row]) => row[c]!);
    }
    if (this.length > this.#limit) this.#thin();
  }

  /**
   * Keeps of each stretch of log tokens the lowest and the highest loss, the first that is not finite and the first
   * step of an attempt, and of the run the first and the last step.
   */
  #thin(): void {
    const { step, meanLoss } = this.columns;
    // As long as that leaves too much, stretches are twice as long: at three quarters, rows that come have room.
    let kept: number[] = [];
    for (let stretches = this.#limit / 4; stretches >= 1; stretches /= 2) {
      kept = this.#extremes(stretches);
      if (kept.length <= this.#limit * 0.75) break;
    }
    // What is left out lives on in the mean of the row after it.
    const means = kept.map((row, k) => {
      let sum = 0;
      let steps = 0;
      for (let i = (kept[k - 1] ?? -1) + 1; i <= row; i++) {
        const count = step[i]! - (i === 0 ? step[i]! - 1 : step[i - 1]!);
        if (Number.isFinite(meanLoss[i]!)) {
          sum += meanLoss[i]! * count;
          steps += count;
        }
      }
      return steps > 0 ? sum / steps : Number.NaN;
    });
    for (const name of COLUMNS) this.columns[name] = kept.map((i) => this.columns[name][i]!);
    this.columns.meanLoss = means;
  }

  #extremes(stretches: number): number[] {
    const { step, tokens, loss, attempt } = this.columns;
    const size = this.length;
    // Where a token count is not known, steps are as good.
    const along = tokens.every((count) => count >= 0) ? tokens : step;
    const from = Math.log(Math.max(1, along[0]!));
    const width = (Math.log(Math.max(2, along[size - 1]!)) - from) / stretches;
    const stretch = (i: number) =>
      width > 0 ? Math.floor((Math.log(Math.max(1, along[i]!)) - from) / width) : i;
    const kept: number[] = [];
    for (let start = 0; start < size; ) {
      const bin = stretch(start);
      let end = start;
      let [low, high, odd, resumed] = [-1, -1, -1, -1];
      do {
        if (!Number.isFinite(loss[end]!)) {
          if (odd < 0) odd = end;
        } else {
          if (low < 0 || loss[end]! < loss[low]!) low = end;
          if (high < 0 || loss[end]! > loss[high]!) high = end;
        }
        if (resumed < 0 && end > 0 && attempt[end] !== attempt[end - 1]) resumed = end;
        end++;
      } while (end < size && stretch(end) === bin);
      const chosen = new Set([low, high, odd, resumed]);
      if (start === 0) chosen.add(0);
      if (end === size) chosen.add(size - 1);
      chosen.delete(-1);
      kept.push(...[...chosen].sort((a, b) => a - b));
      start = end;
    }
    return kept;
  }
}
