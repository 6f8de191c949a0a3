/** The curves table as lines to draw: one per run of a bucket, against compute by one convention. */
import type { Convention } from "../compute/compute.ts";
import type { CurvePoint } from "../fit/types.ts";
import { type Bucket, compareBuckets, sameBucket } from "./labels.ts";

export interface Curve {
  readonly attention: string;
  readonly model: string;
  readonly run: string;
  /** x in PFLOP/s-days, ascending; y in nats. */
  readonly points: readonly { readonly x: number; readonly y: number }[];
}

export function budgetOf(point: CurvePoint, convention: Convention): number | null {
  return (convention === "6ND" ? point.pflops_days : point.pflops_days_attended) ?? null;
}

/** A run is `run`, else (attention, model, seed). */
export function runName(point: CurvePoint): string {
  return (
    point.run ??
    [point.attention, point.model, ...(point.seed === undefined ? [] : [`s${point.seed}`])].join(" ")
  );
}

/** Held-out losses where a run has any, else all of them. */
function heldOut(points: readonly CurvePoint[]): readonly CurvePoint[] {
  const rest = points.filter((point) => point.split !== "train");
  return rest.length > 0 ? rest : points;
}

/** One curve per run of the bucket, in order of appearance. Rows without a budget or with a loss <= 0 have no place on log axes. */
export function curvesOf(points: readonly CurvePoint[], bucket: Bucket, convention: Convention): Curve[] {
  const runs = new Map<string, CurvePoint[]>();
  for (const point of points) {
    if (!sameBucket(point, bucket)) continue;
    const key = JSON.stringify([point.attention, point.model, runName(point)]);
    const run = runs.get(key);
    if (run) run.push(point);
    else runs.set(key, [point]);
  }
  const curves: Curve[] = [];
  for (const run of runs.values()) {
    const first = run[0]!;
    const line = heldOut(run)
      .map((point) => ({ x: budgetOf(point, convention) ?? Number.NaN, y: point.lm_loss }))
      .filter(({ x, y }) => x > 0 && y > 0 && Number.isFinite(x) && Number.isFinite(y))
      .sort((a, b) => a.x - b.x);
    if (line.length > 0)
      curves.push({ attention: first.attention, model: first.model, run: runName(first), points: line });
  }
  return curves;
}

/** The distinct buckets of the table, in order of position. */
export function bucketsOf(rows: readonly Bucket[]): Bucket[] {
  const buckets = new Map<string, Bucket>();
  for (const { position_start, position_end } of rows) {
    const key = `${position_start} ${position_end}`;
    if (!buckets.has(key)) buckets.set(key, { position_start, position_end });
  }
  return [...buckets.values()].sort(compareBuckets);
}
