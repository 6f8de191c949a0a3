/** The fit of a curves table: laws per attention, bucket and convention, comparisons, warnings and the reading. */
import type { Convention } from "../compute/compute.ts";
import { InputError } from "../errors.ts";
import { compare, FEWEST_PAIRS } from "./compare.ts";
import { fitFloored } from "./floored.ts";
import { fitParametric } from "./parametric.ts";
import {
  type Bucket,
  bucketKey,
  distinctBuckets,
  distinctBudgets,
  type FinalPoint,
  finalPoints,
  headlineBucket,
  runCurves,
  sizePairs,
  sizes,
} from "./points.ts";
import { fitPower } from "./power.ts";
import { readingInWords } from "./reading.ts";
import type { Comparison, CurvePoint, FitResult, Law } from "./types.ts";
import { type RunFacts, warningsOf } from "./warnings.ts";
import { fewOf } from "./words.ts";

export interface FitOptions {
  /** Form of the laws; `power` unless told otherwise. Comparisons are of power laws in any form. */
  readonly form?: "power" | "floored" | "parametric";
  /** Attention label the others are compared with; `full` when present. */
  readonly baseline?: string;
  /** How far apart "the same" may lie, as a share of the loss; 0.01 unless told otherwise. */
  readonly margin?: number;
  /** The bucket the reading is about; by `headlineBucket` unless told otherwise. */
  readonly headline?: Bucket;
  /** What is known of runs beside their curves, by run name; two of the warnings need it. */
  readonly runs?: ReadonlyMap<string, RunFacts>;
}

/** Sizes a law needs: a line through fewer has no interval. */
const FEWEST_SIZES = 3;

/** Fits a curves table. Pure. Throws InputError for a table or options that carry no fit. */
export function fit(points: readonly CurvePoint[], options: FitOptions = {}): FitResult {
  const { form = "power", margin = 0.01 } = options;
  if (points.length === 0)
    throw new InputError("the curves table has no rows; a fit needs the curves of runs");
  if (!(margin > 0 && margin < 1)) {
    throw new InputError(`margin is ${margin}; it is a share between 0 and 1, such as 0.01 for 1 %`);
  }
  const { curves, warnings } = runCurves(points);
  const finals = finalPoints(curves);
  const attentions = [...new Set(finals.map((final) => final.attention))];
  const baseline = baselineOf(attentions, options.baseline, warnings);
  const buckets = distinctBuckets(finals);
  const headline = options.headline ?? headlineBucket(buckets);
  if (!buckets.some((bucket) => bucketKey(bucket) === bucketKey(headline))) {
    throw new InputError(
      `headline ${bucketKey(headline)} is not a bucket of the table (${buckets.map(bucketKey).join(", ")})`,
    );
  }
  const conventions: Convention[] = ["6ND"];
  if (finals.some((final) => final.pflops_days_attended !== undefined)) conventions.push("attended");

  const groups = new Map<string, FinalPoint[]>();
  for (const final of finals) {
    const key = `${bucketKey(final)} ${final.attention}`;
    const group = groups.get(key);
    if (group) group.push(final);
    else groups.set(key, [final]);
  }
  const laws: Law[] = [];
  const comparisons: Comparison[] = [];
  const tooFew = new Map<string, number>();
  const note = (sentence: string) => tooFew.set(sentence, (tooFew.get(sentence) ?? 0) + 1);
  const unpaired = new Set<string>();
  for (const convention of conventions) {
    for (const bucket of buckets) {
      const of = (attention: string) => groups.get(`${bucketKey(bucket)} ${attention}`) ?? [];
      for (const attention of attentions) {
        const group = of(attention);
        if (group.length === 0) continue;
        const key = { convention, attention, ...bucket };
        if (form === "parametric") {
          if (convention === "6ND") laws.push(fitParametric(key, group));
          continue;
        }
        const fitted = sizes(group, convention);
        if (fitted.length < FEWEST_SIZES || distinctBudgets(fitted) < 2) {
          note(
            `no law for ${attention} by ${convention}: ${fitted.length} size${fitted.length === 1 ? "" : "s"},` +
              ` and a law with an interval needs ${FEWEST_SIZES} of different budgets`,
          );
          continue;
        }
        laws.push(form === "floored" ? fitFloored(key, fitted) : fitPower(key, fitted));
      }
      if (baseline === null) continue;
      for (const other of attentions) {
        if (other === baseline) continue;
        const found = sizePairs(of(baseline), of(other), convention);
        for (const name of found.unpaired) unpaired.add(name);
        const { pairs } = found;
        if (
          pairs.length < FEWEST_PAIRS ||
          distinctBudgets(pairs.map((pair) => pair.baseline)) < 2 ||
          distinctBudgets(pairs.map((pair) => pair.other)) < 2
        ) {
          if (of(baseline).length > 0 && of(other).length > 0) {
            note(
              `no comparison of ${other} with ${baseline} by ${convention}: ${pairs.length}` +
                ` size${pairs.length === 1 ? "" : "s"} in both (same model and seed), and it needs ${FEWEST_PAIRS} of different budgets`,
            );
          }
          continue;
        }
        comparisons.push(compare({ convention, ...bucket, baseline, other }, pairs, margin));
      }
    }
  }
  for (const [sentence, count] of tooFew) {
    warnings.push(buckets.length > 1 ? `${sentence} (${count} of ${buckets.length} buckets)` : sentence);
  }
  if (unpaired.size > 0) {
    warnings.push(
      `left out of the comparison, for want of a run of the same model and seed: ${fewOf([...unpaired])}`,
    );
  }
  warnings.push(...warningsOf({ curves, finals, laws, runs: options.runs ?? new Map() }));
  const reading = readingInWords({ laws, comparisons, curves, finals, headline, margin });
  return { laws, comparisons, warnings, reading };
}

/** `full` when present, else the named label; null when nothing can be compared. */
function baselineOf(
  attentions: readonly string[],
  named: string | undefined,
  warnings: string[],
): string | null {
  if (named !== undefined && !attentions.includes(named)) {
    throw new InputError(
      `baseline ${JSON.stringify(named)} is no attention of the table (${attentions.join(", ")})`,
    );
  }
  if (attentions.includes("full")) {
    if (named !== undefined && named !== "full") {
      warnings.push(`baseline ${named} was not used: the table has full, which is the baseline when present`);
    }
    return "full";
  }
  if (named !== undefined) return named;
  if (attentions.length > 1) {
    warnings.push(
      `no comparison: the table has no attention full, so name the baseline (${attentions.join(", ")})`,
    );
  }
  return null;
}
