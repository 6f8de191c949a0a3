/**
 * Finds a sudden drop in a run's loss curve, such as the forming of induction heads: after the loss had slowed down, a
 * stretch several times steeper than what came before it. The first descent from the untrained loss is none.
 */
import type { CurvePoint } from "./types.ts";

export interface SuddenDrop {
  /** Tokens (else budget or step, the curve's own x) at which half of the log loss is lost, and at which the drop is over. */
  readonly middle: number;
  readonly end: number;
  /** Loss as the drop begins and when it is over. */
  readonly before: number;
  readonly after: number;
  /** Whether the run ends in the drop or just after it. */
  readonly atEnd: boolean;
}

/** Whether a drop is the usual of runs: those without it are then before it, and off the trend of the others. */
export const isUsual = (dropped: number, runs: number): boolean => 2 * dropped >= runs;

/** A change of log loss that is no trend's; decaying the learning rate costs about half of it. */
const FALL = 0.1;
/** Widths in log x: of a cell in which evaluations are averaged, and of what is looked at before and after a drop. */
const CELL = Math.log(1.12);
const AROUND = Math.log(1.3);

/** What makes a fall a drop. */
interface Kind {
  /** In log x. */
  readonly widest: number;
  /** Log loss lost beyond the trend before it, at least. */
  readonly least: number;
  /** How many times as steep as that trend. */
  readonly steeper: number;
}

const FAST: Kind = { widest: Math.log(1.7), least: FALL, steeper: 3 };
/**
 * A drop that begins slowly, or comes in two stages: what is no wider than a fast one leaves out most of it, or counts its
 * beginning as the trend. Over so wide a stretch a trend bends by itself, so that much more must be lost.
 */
const SLOW: Kind = { widest: Math.log(2.2), least: 0.25, steeper: 2.5 };

const x = (point: CurvePoint) => point.tokens ?? point.pflops_days ?? point.step ?? 0;

/** Cell means of log loss over log x, from a curve in order of training. */
function cells(points: readonly CurvePoint[]): { u: number; v: number; count: number }[] {
  const means: { u: number; v: number; count: number }[] = [];
  let open: { from: number; u: number; v: number; count: number } | null = null;
  const close = () =>
    open && means.push({ u: open.u / open.count, v: open.v / open.count, count: open.count });
  for (const point of points) {
    if (!(x(point) > 0)) continue;
    const u = Math.log(x(point));
    if (open === null || u - open.from > CELL) {
      close();
      open = { from: u, u: 0, v: 0, count: 0 };
    }
    open.u += u;
    open.v += Math.log(point.lm_loss);
    open.count++;
  }
  close();
  return means;
}

/** The steepest fall of log loss per log x over stretches that end at or before cell `to`. */
function steepest(curve: readonly { u: number; v: number }[], to: number): number {
  let most = 0;
  for (let i = 0, j = 1; j <= to; j++) {
    while (i + 1 < j && curve[j].u - curve[i + 1].u >= AROUND) i++;
    most = Math.max(most, (curve[i].v - curve[j].v) / (curve[j].u - curve[i].u));
  }
  return most;
}

/** Where the curve first comes down to `v` between two of its cells, in log x. */
function crossing(curve: readonly { u: number; v: number }[], v: number, from: number, to: number): number {
  let i = from + 1;
  while (i < to && curve[i].v > v) i++;
  const [above, below] = [curve[i - 1], curve[i]];
  const share = above.v > below.v ? Math.min(1, Math.max(0, (above.v - v) / (above.v - below.v))) : 1;
  return above.u + share * (below.u - above.u);
}

/** The largest sudden drop of a curve (points in order of training), or null. */
export function suddenDrop(points: readonly CurvePoint[]): SuddenDrop | null {
  const curve = cells(points);
  const last = curve.at(-1);
  const found = largestFall(curve, FAST) ?? largestFall(curve, SLOW);
  if (found === null || last === undefined) return null;
  const { start, from } = found;
  const end = curve[found.end];
  return {
    middle: Math.exp(crossing(curve, (from + end.v) / 2, start, found.end)),
    end: Math.exp(end.u),
    before: Math.exp(from),
    after: Math.exp(end.v),
    atEnd: last.u - end.u <= AROUND,
  };
}

interface Fall {
  /** Log loss lost beyond the trend. */
  readonly excess: number;
  /** Cells, and the log loss it is counted from. */
  readonly start: number;
  readonly end: number;
  readonly from: number;
}

/** The fall of a kind that loses most beyond the trend before it. */
function largestFall(
  curve: readonly { u: number; v: number }[],
  { widest, least, steeper }: Kind,
): Fall | null {
  let found: Fall | null = null;
  // A fall is counted from the lowest loss so far, so that recovering from a spike is none.
  let lowest = Math.min(...curve.slice(0, 2).map((cell) => cell.v));
  for (let i = 2; i < curve.length - 1; i++) {
    lowest = Math.min(lowest, curve[i].v);
    let h = i - 1;
    while (h > 0 && curve[i].u - curve[h].u < AROUND) h--;
    if (h === 0) continue;
    const before = Math.max(0, (curve[h].v - curve[i].v) / (curve[i].u - curve[h].u));
    // In the first descent every stretch is steeper than all before it.
    if (curve[0].v - curve[h].v < FALL || steepest(curve, h) < 0.8 * before) continue;
    for (let j = i + 1; j < curve.length; j++) {
      const width = curve[j].u - curve[i].u;
      if (width > widest && j > i + 1) break;
      const fall = lowest - curve[j].v;
      const excess = fall - before * width;
      if (excess < least || fall < steeper * before * width) continue;
      if (found === null || excess > found.excess) found = { excess, start: i, end: j, from: lowest };
    }
  }
  return found;
}

/** Whether a curve has points enough to tell that it has no sudden drop: in its last decade most are as close as `AROUND`. */
export function isDense(points: readonly CurvePoint[]): boolean {
  const last = points.at(-1);
  if (last === undefined) return false;
  const late = points.filter((point) => x(point) > 0.1 * x(last)).map((point) => Math.log(x(point)));
  const gaps = late.slice(1).map((u, i) => u - late[i]);
  return gaps.length > 0 && gaps.sort((a, b) => a - b)[gaps.length >> 1] <= AROUND;
}

/** Points that a cell must hold for a rise to be more than noise. */
const FEWEST = 8;

/**
 * Where a curve stands furthest above its lowest loss so far, cells compared with cells, and by what factor; null when
 * nowhere by more than a tenth: a run that was unstable, even if it came down again.
 */
export function largestRise(points: readonly CurvePoint[]): { at: number; factor: number } | null {
  let lowest = Number.POSITIVE_INFINITY;
  let found: { at: number; factor: number } | null = null;
  for (const { u, v, count } of cells(points)) {
    if (count < FEWEST) continue;
    lowest = Math.min(lowest, v);
    if (v - lowest <= (found === null ? FALL : Math.log(found.factor))) continue;
    found = { at: Math.exp(u), factor: Math.exp(v - lowest) };
  }
  return found;
}
