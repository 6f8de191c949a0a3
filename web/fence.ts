/** Which values of a chart's lines are far from all others: they are told by marks, and do not stretch the axis. */

import { bucketLabel } from "../src/fit/points.ts";
import type { CurvePoint, Interval } from "../src/fit/types.ts";
import { formatNumber } from "../src/report/labels.ts";

/** Values from `low` to `high` have a place on the axis. */
export interface Fence {
  readonly low: number;
  readonly high: number;
}

/** Where every value above zero counts. */
export const NO_FENCE: Fence = { low: 0, high: Number.POSITIVE_INFINITY };

/** The share of a line's values left out at either end of its middle. */
const TAIL = 0.1;

/** A decade or less from end to end is no stretch, whatever the values. */
const CLOSE = 10;

/** Limits of the middle of a line's values, of those that a log axis has; null when there are none. */
export function middleOf(values: readonly number[]): Interval | null {
  let [low, high] = [Number.POSITIVE_INFINITY, 0];
  for (const value of values) {
    if (!(value > 0 && value < Number.POSITIVE_INFINITY)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (high === 0) return null;
  if (high / low <= CLOSE) return [low, high];
  const sorted = Float64Array.from(values.filter((value) => value > 0 && Number.isFinite(value))).sort();
  const cut = cutOf(sorted.length);
  return [sorted[cut]!, sorted[sorted.length - 1 - cut]!];
}

/** How many of so many sorted values lie outside their middle, at either end. */
function cutOf(count: number): number {
  return Math.min((count - 1) >> 1, Math.ceil(TAIL * (count - 1)));
}

/** Decades by which a line's middle may be off those of the others; where only one is off, more are no company for them. */
const COMPANY = 3;

/** Decades of the log axis that the limits move by at a time, so that a line that grows rarely moves them. */
const STRIDE = 0.5;

/**
 * The lines' middles are inside, and as much again above them and below them, at least a decade: those values fill at
 * least a third of the axis. A few lines that are wholly elsewhere do not count; of two lines that is the upper one.
 */
export function fenceOf(middles: readonly (Interval | null)[]): Fence {
  const known = middles.filter((middle) => middle !== null);
  if (known.length === 0) return NO_FENCE;
  const lows = Float64Array.from(known, ([low]) => Math.log10(low)).sort();
  const highs = Float64Array.from(known, ([, high]) => Math.log10(high)).sort();
  const cut = cutOf(known.length);
  // Of two, one that is far above the other has diverged.
  const over = known.length === 2 ? 1 : cut;
  const [bottom, top] = [lows[cut]! - COMPANY, highs[highs.length - 1 - over]! + COMPANY];
  const low = lows.find((one) => one >= bottom)!;
  const high = highs.findLast((one) => one <= top)!;
  const reach = Math.max(1, high - low);
  return {
    low: 10 ** (STRIDE * Math.floor((low - reach) / STRIDE)),
    high: 10 ** (STRIDE * Math.ceil((high + reach) / STRIDE)),
  };
}

/** Also what is not finite, zero or below it: a log axis has no place for those. */
export function isAway(value: number, { low, high }: Fence): boolean {
  return !(value > 0 && Number.isFinite(value) && value >= low && value <= high);
}

/** The rows of a chart whose losses have a place on its axis, and in a sentence those that have none. */
export function fenced(points: readonly CurvePoint[]): {
  points: readonly CurvePoint[];
  note: string | null;
} {
  const runs = new Map<string, number[]>();
  for (const { run = "", lm_loss } of points) {
    const losses = runs.get(run);
    if (losses) losses.push(lm_loss);
    else runs.set(run, [lm_loss]);
  }
  const fence = fenceOf([...runs.values()].map(middleOf));
  const away = points.filter(({ lm_loss }) => isAway(lm_loss, fence));
  const [first] = away;
  if (first === undefined) return { points, note: null };
  const more = away.length > 1 ? `, and ${away.length - 1} more` : "";
  const note = `Far from all others and not drawn: ${first.run} with ${formatNumber(first.lm_loss, 5)} at ${bucketLabel(first)}${more}.`;
  return { points: points.filter(({ lm_loss }) => !isAway(lm_loss, fence)), note };
}
