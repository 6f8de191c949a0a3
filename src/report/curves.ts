/** The curves table as lines to draw: one per run of a bucket, against compute by one convention. */
import { type Convention, pflopsDays } from "../compute/compute.ts";
import { type Bucket, headlineBucket, runCurves } from "../fit/index.ts";
import type { CurvePoint } from "../fit/types.ts";

export interface Curve extends Bucket {
  readonly attention: string;
  readonly model: string;
  readonly run: string;
  /** x in PFLOP/s-days, ascending; y in nats. Never empty. */
  readonly points: readonly { readonly x: number; readonly y: number }[];
}

/** Compute of a row; by 6ND also from parameters and tokens. NaN when unknown. */
function computeOf(point: CurvePoint, convention: Convention): number {
  if (convention === "attended") return point.pflops_days_attended ?? Number.NaN;
  if (point.pflops_days !== null) return point.pflops_days;
  return pflopsDays(6 * (point.parameters ?? Number.NaN) * (point.tokens ?? Number.NaN));
}

/** One curve per run and bucket. Rows without a budget, or at budget 0, have no place on a log axis. */
export function curvesOf(points: readonly CurvePoint[], convention: Convention): Curve[] {
  return runCurves(points).curves.flatMap((run) => {
    const line = run.points
      .map((point) => ({ x: computeOf(point, convention), y: point.lm_loss }))
      .filter(({ x, y }) => x > 0 && y > 0 && Number.isFinite(x) && Number.isFinite(y))
      .sort((a, b) => a.x - b.x);
    if (line.length === 0) return [];
    const { attention, model, name, position_start, position_end } = run;
    return [{ attention, model, run: name, position_start, position_end, points: line }];
  });
}

export function sameBucket(a: Bucket, b: Bucket): boolean {
  return a.position_start === b.position_start && a.position_end === b.position_end;
}

/** The bucket that the report leads with; all positions for an empty table. */
export function leadingBucket(rows: readonly Bucket[]): Bucket {
  return rows.length === 0 ? { position_start: null, position_end: null } : headlineBucket(rows);
}
