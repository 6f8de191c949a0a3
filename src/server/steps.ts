/** The recorded steps of one run as typed columns, 52 bytes a step: appended, replaced by a higher attempt, thinned. */
import type { MetricColumns, Value } from "./api.ts";

/** Whole numbers, and the loss, exactly; the rest to float32, which is more than a chart shows. */
const EXACT = ["tokens", "loss"] as const;
const ROUNDED = [
  "gradNorm",
  "learningRate",
  "tokensPerSecond",
  "time_s",
  "pflops_days",
  "pflops_days_attended",
] as const;

type Field = (typeof EXACT)[number] | (typeof ROUNDED)[number];

/** As `JSON.parse` gave it: any field may be missing or of any type. */
export type StepRecord = { readonly step: number; readonly attempt: number } & {
  readonly [field in Field]?: unknown;
};

export class StepColumns {
  #length = 0;
  #step = new Float64Array(64);
  #attempt = new Uint32Array(64);
  readonly #columns = new Map<Field, Float64Array | Float32Array>([
    ...EXACT.map((field): [Field, Float64Array] => [field, new Float64Array(64)]),
    ...ROUNDED.map((field): [Field, Float32Array] => [field, new Float32Array(64)]),
  ]);

  get length(): number {
    return this.#length;
  }

  /** False when a higher attempt's record of that step is there. */
  put(record: StepRecord): boolean {
    let at = this.#length;
    if (at > 0 && record.step <= this.#step[at - 1]) {
      at = this.#search(record.step);
      if (this.#step[at] === record.step) {
        if (record.attempt < this.#attempt[at]) return false;
        this.#write(at, record);
        return true;
      }
    }
    this.#open(at);
    this.#write(at, record);
    return true;
  }

  clear(): void {
    this.#length = 0;
  }

  last(field: Field | "step" | "attempt", back = 0): number {
    return this.#values(field)[this.#length - 1 - back] ?? Number.NaN;
  }

  losses(): { step: number; tokens: number; loss: number }[] {
    const [tokens, loss] = [this.#values("tokens"), this.#values("loss")];
    return Array.from({ length: this.#length }, (_, i) => {
      return { step: this.#step[i], tokens: tokens[i], loss: loss[i] };
    });
  }

  /** Of steps, ascending, those that are there. */
  indicesOf(steps: readonly number[]): number[] {
    return steps.map((step) => this.#search(step)).filter((at, i) => this.#step[at] === steps[i]);
  }

  /** Index range of the steps from `from` to `to`, both included. */
  range(from: number, to: number): [start: number, end: number] {
    const end = this.#search(to);
    const after = this.#step[end] === to && end < this.#length ? end + 1 : end;
    return [Math.min(this.#search(from), after), after];
  }

  /**
   * Indices of at most about `points` of the steps in [start, end). The run is cut in stretches, half of them even in
   * log steps and half even in steps, so that it reads well on both axes. Of each stretch the lowest and the highest
   * loss, the first that is not finite, and the first of an attempt; of the run the first and the last step.
   */
  thin(points: number, start = 0, end = this.#length): number[] {
    const size = end - start;
    if (size <= points) return Array.from({ length: size }, (_, i) => start + i);
    const step = this.#step;
    const attempt = this.#attempt;
    const loss = this.#values("loss");
    const first = step[start];
    const span = step[end - 1] - first;
    const stretches = Math.max(1, Math.floor(points / 2));
    const logSpan = Math.log1p(span);
    const stretchOf = (i: number) => {
      const along = step[i] - first;
      return Math.floor((stretches * (along / span + Math.log1p(along) / logSpan)) / 2);
    };
    const kept: number[] = [];
    for (let from = start; from < end; ) {
      // The first of the next stretch, by bisection.
      const stretch = stretchOf(from);
      let [inside, next] = [from, end];
      while (next - inside > 1) {
        const middle = (inside + next) >> 1;
        if (stretchOf(middle) === stretch) inside = middle;
        else next = middle;
      }
      let [low, high, odd, resumed] = [-1, -1, -1, -1];
      for (let i = from; i < next; i++) {
        const y = loss[i];
        if (!Number.isFinite(y)) {
          if (odd < 0) odd = i;
        } else {
          if (low < 0 || y < loss[low]) low = i;
          if (high < 0 || y > loss[high]) high = i;
        }
        if (resumed < 0 && i > start && attempt[i] !== attempt[i - 1]) resumed = i;
      }
      const chosen = new Set([low, high, odd, resumed]);
      if (from === start) chosen.add(start);
      if (next === end) chosen.add(end - 1);
      chosen.delete(-1);
      kept.push(...[...chosen].sort((a, b) => a - b));
      from = next;
    }
    return kept;
  }

  /** The steps at the given indices, for JSON. */
  columns(run: string, indices: readonly number[], recorded: number): MetricColumns {
    const rounded = (field: Field) => {
      const values = this.#values(field);
      return indices.map((i) => short(values[i]));
    };
    const loss = this.#values("loss");
    const tokens = this.#values("tokens");
    return {
      run,
      recorded,
      step: indices.map((i) => this.#step[i]),
      attempt: indices.map((i) => this.#attempt[i]),
      tokens: indices.map((i) => known(tokens[i])),
      loss: indices.map((i) => value(loss[i])),
      ...(recorded > indices.length ? { meanLoss: this.#means(indices) } : {}),
      gradNorm: rounded("gradNorm"),
      learningRate: rounded("learningRate"),
      tokensPerSecond: rounded("tokensPerSecond"),
      time_s: rounded("time_s"),
      pflops_days: rounded("pflops_days"),
      pflops_days_attended: rounded("pflops_days_attended"),
    };
  }

  /** For each index the mean of the finite losses after the index before it; what thinning leaves out counts too. */
  #means(indices: readonly number[]): Value[] {
    const loss = this.#values("loss");
    return indices.map((index, k) => {
      let [sum, count] = [0, 0];
      for (let i = k === 0 ? index : indices[k - 1] + 1; i <= index; i++) {
        if (!Number.isFinite(loss[i])) continue;
        sum += loss[i];
        count++;
      }
      return short(count > 0 ? sum / count : Number.NaN);
    });
  }

  #values(field: Field | "step" | "attempt"): Float64Array | Float32Array | Uint32Array {
    if (field === "step") return this.#step;
    if (field === "attempt") return this.#attempt;
    return this.#columns.get(field)!;
  }

  /** The first index whose step is not below. */
  #search(step: number): number {
    let [low, high] = [0, this.#length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#step[middle] < step) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #write(at: number, record: StepRecord): void {
    this.#step[at] = record.step;
    this.#attempt[at] = record.attempt;
    for (const [field, column] of this.#columns) column[at] = numberOf(record[field]);
  }

  /** Makes room for so many steps at once, where their number is known about. */
  reserve(steps: number): void {
    if (steps > this.#step.length) this.#grow(steps);
  }

  /** Makes room for one step at an index. */
  #open(at: number): void {
    if (this.#length === this.#step.length) this.#grow(Math.ceil(this.#length * 1.25));
    if (at < this.#length) {
      for (const column of [this.#step, this.#attempt, ...this.#columns.values()]) {
        column.copyWithin(at + 1, at, this.#length);
      }
    }
    this.#length++;
  }

  #grow(capacity: number): void {
    const grown = <T extends Float64Array | Float32Array | Uint32Array>(column: T): T => {
      const larger = new (column.constructor as new (n: number) => T)(capacity);
      larger.set(column);
      return larger;
    };
    this.#step = grown(this.#step);
    this.#attempt = grown(this.#attempt);
    for (const [field, column] of this.#columns) this.#columns.set(field, grown(column));
  }
}

/** JSON written elsewhere has numbers as text, and null for what is not finite. */
export function numberOf(raw: unknown): number {
  if (typeof raw === "number") return raw;
  return typeof raw === "string" && raw.trim() !== "" ? Number(raw) : Number.NaN;
}

/** A number of which NaN is a finding. */
export function value(x: number): Value {
  return Number.isFinite(x) ? x : (String(x) as Value);
}

/** A number of which NaN says that it is not known. */
export function known(x: number): Value {
  return Number.isNaN(x) ? null : value(x);
}

const POWERS = Array.from({ length: 23 }, (_, exponent) => Number(`1e${exponent}`));

/**
 * As `known`, to the digits that a float32 has: ten times as fast as `toPrecision`, where powers of ten are exact
 * doubles, so that the quotient is the nearest double to the short decimal.
 */
export function short(x: number): Value {
  if (!Number.isFinite(x)) return known(x);
  if (x === 0) return 0;
  const power = POWERS[6 - Math.floor(Math.log10(Math.abs(x)))];
  return power === undefined ? Number(x.toPrecision(7)) : Math.round(x * power) / power;
}
