/** The curves table as lines to draw: one per run of a bucket, along one axis. */
import { CONVENTIONS, type Convention, pflopsDays } from "../compute/compute.ts";
import { type Bucket, headlineBucket, runCurves } from "../fit/index.ts";
import type { CurvePoint } from "../fit/types.ts";

export { finestBuckets, sameBucket } from "../fit/index.ts";

export interface Curve extends Bucket {
  readonly attention: string;
  readonly model: string;
  readonly run: string;
  /** In the unit of the axis, ascending, and in nats. Never empty. */
  readonly x: Float64Array;
  readonly y: Float64Array;
}

/** What curves are drawn against: compute by a convention, or what a log has beside it. Laws are of compute only. */
export type Axis = Convention | "tokens" | "steps" | "time";
export const AXES: readonly Axis[] = [...CONVENTIONS, "tokens", "steps", "time"];

/** Where a row stands on an axis; by 6ND also from parameters and tokens. NaN when unknown. */
function along(point: CurvePoint, axis: Axis): number {
  if (axis === "tokens") return point.tokens ?? Number.NaN;
  if (axis === "steps") return point.step ?? Number.NaN;
  if (axis === "time") return point.time_s ?? Number.NaN;
  if (axis === "attended") return point.pflops_days_attended ?? Number.NaN;
  if (point.pflops_days !== null) return point.pflops_days;
  return pflopsDays(6 * (point.parameters ?? Number.NaN) * (point.tokens ?? Number.NaN));
}

const laidOut = new WeakMap<readonly CurvePoint[], Map<Axis, Curve[]>>();

/** One curve per run and bucket. Rows without an x, or at 0, have no place on a log axis. */
export function curvesOf(points: readonly CurvePoint[], axis: Axis): readonly Curve[] {
  const known = laidOut.get(points) ?? new Map<Axis, Curve[]>();
  laidOut.set(points, known);
  let curves = known.get(axis);
  if (curves === undefined) known.set(axis, (curves = layOut(points, axis)));
  return curves;
}

function layOut(points: readonly CurvePoint[], axis: Axis): Curve[] {
  return runCurves(points).curves.flatMap((run) => {
    const x = new Float64Array(run.points.length);
    const y = new Float64Array(run.points.length);
    let count = 0;
    let ascending = true;
    for (const point of run.points) {
      const at = along(point, axis);
      if (!(at > 0 && point.lm_loss > 0 && Number.isFinite(at) && Number.isFinite(point.lm_loss))) continue;
      if (count > 0 && at < x[count - 1]!) ascending = false;
      x[count] = at;
      y[count] = point.lm_loss;
      count++;
    }
    if (count === 0) return [];
    const { attention, model, name, position_start, position_end } = run;
    const order = ascending ? null : [...x.subarray(0, count).keys()].sort((a, b) => x[a]! - x[b]!);
    return [
      {
        attention,
        model,
        run: name,
        position_start,
        position_end,
        x: order ? Float64Array.from(order, (i) => x[i]!) : x.subarray(0, count),
        y: order ? Float64Array.from(order, (i) => y[i]!) : y.subarray(0, count),
      },
    ];
  });
}

/** The attentions of a table, one for each of its curves. */
export function attentionsOf(points: readonly CurvePoint[]): string[] {
  return runCurves(points).curves.map((curve) => curve.attention);
}

/** The bucket that the report leads with; all positions for an empty table. */
export function leadingBucket(rows: readonly Bucket[]): Bucket {
  return rows.length === 0 ? { position_start: null, position_end: null } : headlineBucket(rows);
}
