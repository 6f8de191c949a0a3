/**
 * From the curves table to the points that laws are fitted through (docs/method.md, section 4): runs, their final
 * losses, sizes with their seeds averaged, pairs of runs, and the headline bucket.
 */
import type { Convention } from "../compute/compute.ts";
import { OPERATIONS_PER_PFLOPS_DAY } from "../compute/compute.ts";
import { InputError } from "../errors.ts";
import { mean } from "./regression.ts";
import type { CurvePoint, FittedPoint } from "./types.ts";
import type { RunFacts } from "./warnings.ts";
import { fewOf } from "./words.ts";

/** A position bucket; both bounds null for all positions. */
export interface Bucket {
  readonly position_start: number | null;
  readonly position_end: number | null;
}

/** Budgets closer than this share of the larger one count as one. */
const SAME_BUDGET = 0.01;
/** The share of training whose evaluations make up the final loss. */
const FINAL_SHARE = 0.03;

export function bucketKey(bucket: Bucket): string {
  return bucket.position_start === null ? "all" : `${bucket.position_start}-${bucket.position_end}`;
}

/** `10k-12k`, `1920-2048`, or `all positions`. */
export function bucketLabel({ position_start, position_end }: Bucket): string {
  if (position_start === null || position_end === null) return "all positions";
  const thousands = position_start % 1024 === 0 && position_end % 1024 === 0;
  return thousands
    ? `${position_start / 1024}k-${position_end / 1024}k`
    : `${position_start}-${position_end}`;
}

/** The distinct buckets in order of position, all positions last. */
export function distinctBuckets(rows: Iterable<Bucket>): Bucket[] {
  const found = new Map<string, Bucket>();
  for (const row of rows) {
    const key = bucketKey(row);
    if (!found.has(key))
      found.set(key, { position_start: row.position_start, position_end: row.position_end });
  }
  const order = (bucket: Bucket) => bucket.position_start ?? Infinity;
  return [...found.values()].sort(
    (a, b) => order(a) - order(b) || (a.position_end ?? 0) - (b.position_end ?? 0) || 0,
  );
}

export function sameBucket(a: Bucket, b: Bucket): boolean {
  return a.position_start === b.position_start && a.position_end === b.position_end;
}

/** Without the rows of buckets that hold other, narrower ones: what is left lies side by side. */
export function finestBuckets<Row extends Bucket>(rows: readonly Row[]): Row[] {
  const buckets = distinctBuckets(rows).filter((bucket) => bucket.position_start !== null);
  const holds = (a: Bucket, b: Bucket) =>
    a.position_start! <= b.position_start! && b.position_end! <= a.position_end! && !sameBucket(a, b);
  const wide = buckets.filter((bucket) => buckets.some((other) => holds(bucket, other)));
  return rows.filter((row) => !wide.some((bucket) => sameBucket(bucket, row)));
}

/** `[10240, 12288)` when it is there, else the last bucket; all positions only when there are no buckets. */
export function headlineBucket(rows: Iterable<Bucket>): Bucket {
  const buckets = distinctBuckets(rows);
  if (buckets.length === 0)
    throw new InputError("the curves table has no rows, so there is no headline bucket");
  const positioned = buckets.filter((bucket) => bucket.position_start !== null);
  return (
    positioned.find((bucket) => bucket.position_start === 10240 && bucket.position_end === 12288) ??
    positioned.at(-1) ??
    buckets[0]
  );
}

/** One run's losses in one bucket, in order of training. */
export interface RunCurve extends Bucket {
  readonly attention: string;
  readonly model: string;
  readonly seed: number | undefined;
  /** How messages call the run. */
  readonly name: string;
  readonly points: readonly CurvePoint[];
}

/** A run's end in one bucket. */
export interface FinalPoint extends Bucket {
  readonly attention: string;
  readonly model: string;
  readonly seed: number | undefined;
  readonly name: string;
  readonly lm_loss: number;
  /** At the end of the run. */
  readonly pflops_days: number;
  readonly pflops_days_attended: number | undefined;
  readonly parameters: number | undefined;
  readonly tokens: number | undefined;
  readonly predicted_tokens: number | undefined;
  /** Training, seconds. */
  readonly time_s?: number;
}

/** What ratios and sentences beside the laws are made of. */
export interface Known {
  /** Of all runs in all buckets. */
  readonly finals: readonly FinalPoint[];
  /** Those of `finals`, in the order to name them. */
  readonly attentions: readonly string[];
  readonly baseline: string | null;
  readonly headline: Bucket;
  /** What is known of runs beside their curves, by name. */
  readonly runs: ReadonlyMap<string, RunFacts>;
}

/** Compute by 6ND: as given, else from parameters and tokens, else null. */
function computeOf(point: CurvePoint): number | null {
  if (point.pflops_days !== null) return point.pflops_days;
  if (point.parameters === undefined || point.tokens === undefined) return null;
  return (6 * point.parameters * point.tokens) / OPERATIONS_PER_PFLOPS_DAY;
}

function runName(point: CurvePoint): string {
  if (point.run !== undefined) return point.run;
  return `${point.attention} ${point.model}${point.seed === undefined ? "" : ` seed ${point.seed}`}`;
}

/** Rows of one run in one bucket, in the order of the table. */
function rowsByCurve(points: readonly CurvePoint[]): CurvePoint[][] {
  const groups: CurvePoint[][] = [];
  const runs = new Map<string, Map<number, Map<number, CurvePoint[]>>>();
  // Rows of a run stand together in most tables: its key is made once.
  let last: CurvePoint | null = null;
  let starts = new Map<number, Map<number, CurvePoint[]>>();
  for (const point of points) {
    if (
      last === null ||
      point.run !== last.run ||
      point.attention !== last.attention ||
      point.model !== last.model ||
      point.seed !== last.seed
    ) {
      const run = point.run ?? `seed ${point.seed ?? ""}`;
      const key = JSON.stringify([point.attention, point.model, run]);
      starts = runs.get(key) ?? new Map();
      runs.set(key, starts);
      last = point;
    }
    const start = point.position_start ?? -1;
    let ends = starts.get(start);
    if (ends === undefined) starts.set(start, (ends = new Map()));
    const end = point.position_end ?? -1;
    let group = ends.get(end);
    if (group === undefined) {
      ends.set(end, (group = []));
      groups.push(group);
    }
    group.push(point);
  }
  return groups;
}

const cut = new WeakMap<readonly CurvePoint[], { curves: RunCurve[]; warnings: string[] }>();

/**
 * The table as one curve per run and bucket. Held-out rows only, when a run has any beside rows of split `train`; of
 * rows at one step the later wins. What was repaired is said in `warnings`. A table is cut once, however often asked.
 */
export function runCurves(points: readonly CurvePoint[]): {
  readonly curves: readonly RunCurve[];
  readonly warnings: readonly string[];
} {
  let found = cut.get(points);
  if (found === undefined) cut.set(points, (found = cutCurves(points)));
  return found;
}

function cutCurves(points: readonly CurvePoint[]): { curves: RunCurve[]; warnings: string[] } {
  const repeated = new Map<string, number>();
  const decreasing = new Set<string>();
  const trainOnly = new Set<string>();
  const averaged = new Set<string>();
  const curves: RunCurve[] = [];
  for (const group of rowsByCurve(points)) {
    const heldOut = group.some((point) => point.split === "train")
      ? group.filter((point) => point.split !== "train")
      : group;
    const rows = heldOut.length > 0 ? heldOut : group;
    const name = runName(rows[0]);
    if (heldOut.length === 0) trainOnly.add(name);
    const at = orderOf(rows);
    if (!at.exact && rows.length > 1 && rows.every((row) => at.value(row) === at.value(rows[0]))) {
      averaged.add(name);
    }
    let kept = rows;
    let last = -Infinity;
    if (!rows.every((row) => last < (last = at.value(row)))) {
      const byStep = new Map<number, CurvePoint>();
      last = -Infinity;
      let replaced = 0;
      for (const row of rows) {
        const x = at.value(row);
        if (x < last) decreasing.add(name);
        last = x;
        if (byStep.has(x)) replaced++;
        byStep.set(x, row);
      }
      if (replaced > 0 && at.exact) repeated.set(name, Math.max(replaced, repeated.get(name) ?? 0));
      kept = at.exact ? [...byStep.values()] : [...rows];
      kept.sort((a, b) => at.value(a) - at.value(b));
    }
    const { attention, model, seed, position_start, position_end } = rows[0];
    curves.push({ attention, model, seed, position_start, position_end, name, points: kept });
  }
  const warnings: string[] = [];
  if (repeated.size > 0) {
    const counts = [...repeated].map(
      ([name, count]) => `${name} repeats ${count} step${count === 1 ? "" : "s"}`,
    );
    warnings.push(`run ${fewOf(counts)}; the later row of each was kept, the earlier left out`);
  }
  if (decreasing.size > 0) {
    const [run, has, its] = decreasing.size > 1 ? ["runs", "have", "their"] : ["run", "has", "its"];
    warnings.push(
      `${run} ${fewOf([...decreasing])} ${has} decreasing steps; ${its} rows were sorted by step`,
    );
  }
  if (averaged.size > 0) {
    warnings.push(
      "several rows at one budget and no step to order them by, so their losses were averaged (give seeds a column seed," +
        ` or runs a column run): ${fewOf([...averaged])}`,
    );
  }
  if (trainOnly.size > 0) {
    warnings.push(
      `training losses stand in for held-out losses, of which there are none: ${fewOf([...trainOnly])}`,
    );
  }
  return { curves, warnings };
}

/** What orders the rows of a run: steps, else tokens, else compute (which several rows may share after rounding). */
function orderOf(rows: readonly CurvePoint[]): { value: (row: CurvePoint) => number; exact: boolean } {
  if (rows.every((row) => row.step !== undefined)) return { value: (row) => row.step!, exact: true };
  if (rows.every((row) => row.tokens !== undefined)) return { value: (row) => row.tokens!, exact: true };
  return { value: (row) => computeOf(row) ?? 0, exact: false };
}

/** The end of each curve: the mean of its evaluations in the last 3 % of training, at the run's last budget. */
export function finalPoints(curves: readonly RunCurve[]): FinalPoint[] {
  return curves.map((curve) => {
    const { points, attention, model, seed, position_start, position_end, name } = curve;
    const progress = (point: CurvePoint) => point.tokens ?? computeOf(point) ?? Number.NaN;
    const byTokens = points.every((point) => point.tokens !== undefined);
    const x = byTokens ? progress : (point: CurvePoint) => computeOf(point) ?? Number.NaN;
    const last = points.at(-1)!;
    const budget = computeOf(last);
    if (budget === null || !(budget > 0)) {
      throw new InputError(
        `pflops_days of run ${name} is ${budget === null ? "empty" : "0"} at its end; a fit needs the run's compute` +
          " (or its parameters and tokens)",
      );
    }
    const end = x(last);
    let sum = 0;
    let count = 0;
    for (const point of points) {
      if (point !== last && !(x(point) >= (1 - FINAL_SHARE) * end)) continue;
      sum += point.lm_loss;
      count++;
    }
    return {
      attention,
      model,
      seed,
      position_start,
      position_end,
      name,
      lm_loss: sum / count,
      pflops_days: budget,
      pflops_days_attended: last.pflops_days_attended,
      parameters: last.parameters,
      tokens: last.tokens,
      predicted_tokens: last.predicted_tokens,
      time_s: last.time_s,
    };
  });
}

/** A run's budget by a convention; finals without `pflops_days_attended` have none by `attended`. */
export function budgetOf(final: FinalPoint, convention: Convention): number | undefined {
  return convention === "6ND" ? final.pflops_days : final.pflops_days_attended;
}

export function sameBudget(a: number, b: number): boolean {
  return Math.abs(a - b) <= SAME_BUDGET * Math.max(a, b);
}

/** How many budgets there are, those within 1 % of each other counted once. */
export function distinctBudgets(points: readonly { readonly pflops_days: number }[]): number {
  let count = 0;
  let first = 0;
  for (const budget of points.map((point) => point.pflops_days).sort((a, b) => a - b)) {
    if (count > 0 && sameBudget(first, budget)) continue;
    count++;
    first = budget;
  }
  return count;
}

/** Items of one model whose budgets agree within 1 %, in order of budget; each group is one size. */
export function bySize<T>(
  items: readonly T[],
  modelOf: (item: T) => string,
  budget: (item: T) => number,
): T[][] {
  const sorted = [...items].sort((a, b) => budget(a) - budget(b));
  const open = new Map<string, T[]>();
  const groups: T[][] = [];
  for (const item of sorted) {
    const group = open.get(modelOf(item));
    if (group && sameBudget(budget(group[0]), budget(item))) group.push(item);
    else {
      const started = [item];
      open.set(modelOf(item), started);
      groups.push(started);
    }
  }
  return groups;
}

/** Sizes of one attention and bucket, their seeds averaged, in order of budget. Finals without a budget are left out. */
export function sizes(finals: readonly FinalPoint[], convention: Convention): FittedPoint[] {
  const known = finals.filter((final) => (budgetOf(final, convention) ?? 0) > 0);
  return bySize(
    known,
    (final) => final.model,
    (final) => budgetOf(final, convention)!,
  ).map((group) => ({
    model: group[0].model,
    pflops_days: mean(group.map((final) => budgetOf(final, convention)!)),
    lm_loss: mean(group.map((final) => final.lm_loss)),
    seeds: group.length,
  }));
}

/** Two runs of the same model and seed. */
export interface RunPair {
  readonly baseline: { readonly pflops_days: number; readonly lm_loss: number };
  readonly other: { readonly pflops_days: number; readonly lm_loss: number };
}

/** Both attentions at one size: the same model and seeds. */
export interface SizePair extends RunPair {
  readonly model: string;
  /** Names of the runs, a pair for each seed. */
  readonly names: readonly (readonly [baseline: string, other: string])[];
}

/**
 * Pairs of runs with the same model and seed, seeds of one size averaged, in order of budget. Several runs of one model
 * and seed pair by budget. `runs` has the pairs before averaging; `unpaired` names runs without a partner.
 */
export function sizePairs(
  baseline: readonly FinalPoint[],
  other: readonly FinalPoint[],
  convention: Convention,
): { pairs: SizePair[]; runs: RunPair[]; unpaired: string[] } {
  const budget = (final: FinalPoint) => budgetOf(final, convention)!;
  const byRun = (finals: readonly FinalPoint[]) => {
    const groups = new Map<string, FinalPoint[]>();
    for (const final of finals) {
      if (!((budgetOf(final, convention) ?? 0) > 0)) continue;
      const key = JSON.stringify([final.model, final.seed ?? null]);
      const group = groups.get(key);
      if (group) group.push(final);
      else groups.set(key, [final]);
    }
    for (const group of groups.values()) group.sort((a, b) => budget(a) - budget(b));
    return groups;
  };
  const left = byRun(baseline);
  const right = byRun(other);
  const matched: { b: FinalPoint; o: FinalPoint }[] = [];
  const unpaired: string[] = [];
  for (const [key, runs] of left) {
    const partners = [...(right.get(key) ?? [])];
    right.delete(key);
    const inOrder = partners.length === runs.length;
    for (const b of runs) {
      const i = inOrder ? 0 : partners.findIndex((o) => sameBudget(budget(o), budget(b)));
      if (i < 0) unpaired.push(b.name);
      else matched.push({ b, o: partners.splice(i, 1)[0] });
    }
    unpaired.push(...partners.map((o) => o.name));
  }
  for (const runs of right.values()) unpaired.push(...runs.map((o) => o.name));
  const pairs = bySize(
    matched,
    ({ b }) => b.model,
    ({ b }) => budget(b),
  ).map((group) => ({
    model: group[0].b.model,
    names: group.map(({ b, o }) => [b.name, o.name] as const),
    baseline: {
      pflops_days: mean(group.map(({ b }) => budget(b))),
      lm_loss: mean(group.map(({ b }) => b.lm_loss)),
    },
    other: {
      pflops_days: mean(group.map(({ o }) => budget(o))),
      lm_loss: mean(group.map(({ o }) => o.lm_loss)),
    },
  }));
  const ends = (final: FinalPoint) => ({ pflops_days: budget(final), lm_loss: final.lm_loss });
  return { pairs, runs: matched.map(({ b, o }) => ({ baseline: ends(b), other: ends(o) })), unpaired };
}

/** Pairs by 6ND of two attentions in one bucket. */
export function pairsInBucket(
  finals: readonly FinalPoint[],
  bucket: Bucket,
  baseline: string,
  other: string,
): SizePair[] {
  const of = (attention: string) =>
    finals.filter((final) => final.attention === attention && sameBucket(final, bucket));
  return sizePairs(of(baseline), of(other), "6ND").pairs;
}

/** How many budgets either side of the pairs has at the least. */
export function distinctPairs(pairs: readonly RunPair[]): number {
  return Math.min(
    distinctBudgets(pairs.map((pair) => pair.baseline)),
    distinctBudgets(pairs.map((pair) => pair.other)),
  );
}
