/** Log axes: which limits and which ticks, by rules that depend on the data alone. */
import type { Interval } from "../fit/types.ts";

/** The largest of 1, 2, 5 times a power of ten that is at most `value`. */
export function floor125(value: number): number {
  const exponent = Math.floor(Math.log10(value) + 1e-9);
  // Parsed from decimal text, so that 2e-9 is the number people write and not 2.0000000000000003e-9.
  for (const mantissa of [5, 2]) {
    const candidate = Number(`${mantissa}e${exponent}`);
    if (candidate <= value * (1 + 1e-9)) return candidate;
  }
  return Number(`1e${exponent}`);
}

/** Steps of a loss axis within a decade: one significant digit, and 1.5. */
const STEPS = [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9, 10];

/** Down to a step: 6.34 -> 6, 1.71 -> 1.5, 0.0371 -> 0.03. */
function stepBelow(value: number): number {
  const exponent = Math.floor(Math.log10(value) + 1e-9);
  const mantissa = value / 10 ** exponent;
  return Number(`${STEPS.findLast((step) => step <= mantissa * (1 + 1e-9)) ?? 1}e${exponent}`);
}

/** Up to a step, or to the next one when `value` is a step. */
function stepAbove(value: number): number {
  const exponent = Math.floor(Math.log10(value) + 1e-9);
  const mantissa = value / 10 ** exponent;
  return Number(`${STEPS.find((step) => step > mantissa * (1 + 1e-9)) ?? 10}e${exponent}`);
}

/**
 * Compute axis: from the 1-2-5 step at or below the smallest budget drawn to the 1-2-5 step at or below ten times
 * the largest, so that a projection is seen for about a decade past the data.
 */
export function computeDomain(smallest: number, largest: number): Interval {
  if (!(smallest > 0 && largest >= smallest && Number.isFinite(largest))) return [0.1, 10];
  return [floor125(smallest), floor125(largest * 10)];
}

/**
 * Loss axis, from step to step: down from the smallest value drawn (projections included); down from the
 * largest too, which cuts the first moments of training off, unless that would come near the final losses.
 */
export function lossDomain(curves: readonly number[], finals: readonly number[]): Interval {
  let low = Number.POSITIVE_INFINITY;
  let high = 0;
  for (const loss of curves) {
    low = Math.min(low, loss);
    high = Math.max(high, loss);
  }
  let finalHigh = 0;
  for (const loss of finals) {
    low = Math.min(low, loss);
    finalHigh = Math.max(finalHigh, loss);
  }
  high = Math.max(high, finalHigh);
  if (!(low > 0 && Number.isFinite(low) && Number.isFinite(high))) return [1, 10];
  const top = stepBelow(high) >= 1.25 * finalHigh && finalHigh > 0 ? stepBelow(high) : stepAbove(high);
  return [stepBelow(low), top];
}

export interface Ticks {
  /** Values that carry a label, ascending. */
  readonly labelled: number[];
  /** Further values that carry a short tick only. */
  readonly minor: number[];
}

/** Ticks of a log axis of the given length in pixels; `room` is the length that the label of a value takes along it. */
export function logTicks(domain: Interval, length: number, room: (value: number) => number): Ticks {
  const [low, high] = domain;
  const position = (value: number) => (Math.log(value / low) / Math.log(high / low)) * length;
  const fits = (values: number[]) =>
    values.length >= 2 &&
    values.every((value, i) => {
      if (i === 0) return true;
      const before = values[i - 1]!;
      return position(value) - position(before) >= (room(value) + room(before)) / 2;
    });
  const within = (value: number) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9);
  const decades: number[] = [];
  for (let e = Math.floor(Math.log10(low)) - 1; e <= Math.ceil(Math.log10(high)); e++) decades.push(e);
  const grid = (mantissas: readonly number[], every = 1) =>
    decades
      .filter((e) => e % every === 0)
      .flatMap((e) => mantissas.map((m) => Number(`${m}e${e}`)))
      .filter(within);
  const all = grid([1, 2, 3, 4, 5, 6, 7, 8, 9]);

  const candidates: number[][] = [];
  // Less than a decade: even steps, finest first, as long as the labels keep apart.
  if (high / low < 10) {
    for (const step of [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2]) {
      const unit = step * 10 ** Math.floor(Math.log10(low));
      const values: number[] = [];
      for (let i = Math.ceil(low / unit - 1e-9); i * unit <= high * (1 + 1e-9); i++)
        values.push(Number((i * unit).toPrecision(12)));
      if (values.length <= 10) candidates.push(values);
    }
  }
  candidates.push(grid([1, 2, 3, 5]), grid([1, 2, 5]), grid([1, 3]));
  // One value of 1e300 among losses does not take the labels away.
  for (const every of [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 20, 30, 50, 100, 200])
    candidates.push(grid([1], every));
  const labelled = candidates.find(fits) ?? [low, high];
  const known = new Set(labelled);
  const minor = decades.length > 9 ? grid([1]) : all;
  return { labelled, minor: minor.filter((value) => !known.has(value)) };
}

/** About `count` round values over a linear range, ascending. */
export function linearTicks([low, high]: Interval, count: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999)!;
  const ticks: number[] = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}
