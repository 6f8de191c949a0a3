/** The fit of a curves table: laws per attention, bucket and convention, comparisons, warnings and the reading. */
import type { Convention } from "../compute/compute.ts";
import { InputError } from "../errors.ts";
import { ratiosToLaw } from "./against-law.ts";
import { bend, seedScatter } from "./bend.ts";
import { bootstrapComparison, bootstrapLaw, bootstrapParametric } from "./bootstrap.ts";
import { ratiosBySize, ratiosOfGrowth } from "./by-size.ts";
import { ratiosByTime } from "./by-time.ts";
import { compare, FEWEST_PAIRS, leavingOut, ratioModel } from "./compare.ts";
import { DISTINCT_BUDGETS_FOR_A_FLOOR } from "./floored.ts";
import { bestForm, fitForm, formErrors } from "./forms.ts";
import type { LawKey } from "./law.ts";
import { envelopeWindow, fitEnvelope, fitIsoflop } from "./optimum.ts";
import { fitParametric, inLockstep } from "./parametric.ts";
import { withSentences } from "./parts.ts";
import {
  type Bucket,
  bucketKey,
  bucketLabel,
  distinctBuckets,
  distinctBudgets,
  distinctPairs,
  type FinalPoint,
  finalPoints,
  headlineBucket,
  type Known,
  type RunCurve,
  runCurves,
  sameBucket,
  sizePairs,
  sizes,
} from "./points.ts";
import { readingInWords } from "./reading.ts";
import type { Comparison, CurvePoint, FitResult, FittedPoint, Interval, Law } from "./types.ts";
import { type RunFacts, warningsOf } from "./warnings.ts";
import { byReason, fewOf, orderAttentions } from "./words.ts";

/** The forms of a law; `auto` takes the one of power, floored and broken that predicts the largest sizes best. */
export const FORMS = ["power", "floored", "broken", "parametric", "envelope", "isoflop", "auto"] as const;
export type Form = (typeof FORMS)[number];

export interface FitOptions {
  /**
   * Form of the laws; `power` unless told otherwise. Comparisons are of two floored laws in form `floored`, of power
   * laws in any other.
   */
  readonly form?: Form;
  /** Attention label the others are compared with; `full` when present. */
  readonly baseline?: string;
  /** How far apart "the same" may lie, as a share of the loss; 0.01 unless told otherwise. */
  readonly margin?: number;
  /** The bucket the reading is about; by `headlineBucket` unless told otherwise. */
  readonly headline?: Bucket;
  /** Budgets between which form `envelope` follows the curves; from the shortest run's end to the longest's. */
  readonly window?: Interval;
  /** Resamples of the runs, where there are 8 or more; 1000 unless told otherwise, 0 for none. */
  readonly bootstrap?: number;
  /** What is known of runs beside their curves, by run name; two of the warnings need it. */
  readonly runs?: ReadonlyMap<string, RunFacts>;
}

/** Sizes a law needs: a line through fewer has no interval. */
const FEWEST_SIZES = 3;
const RESAMPLES = 1000;

/** The runs of one attention and bucket. */
interface Group {
  readonly curves: RunCurve[];
  readonly finals: FinalPoint[];
}

/** Fits a curves table. Pure. Throws InputError for a table or options that carry no fit. */
export function fit(points: readonly CurvePoint[], options: FitOptions = {}): FitResult {
  return fitKnown(points, options).result;
}

/** The fit, and what it knows of the table. */
export function fitKnown(
  points: readonly CurvePoint[],
  options: FitOptions = {},
): { result: FitResult; known: Known } {
  const { margin = 0.01, bootstrap: resamples = RESAMPLES } = options;
  if (points.length === 0)
    throw new InputError("the curves table has no rows; a fit needs the curves of runs");
  if (!(margin > 0 && margin < 1)) {
    throw new InputError(`margin is ${margin}; it is a share between 0 and 1, such as 0.01 for 1 %`);
  }
  const read = runCurves(points);
  const { curves } = read;
  const warnings = [...read.warnings];
  const finals = finalPoints(curves);
  const attentions = orderAttentions(finals.map((final) => final.attention));
  const baseline = baselineOf(attentions, options.baseline, warnings);
  const buckets = distinctBuckets(finals);
  const headline = options.headline ?? headlineBucket(buckets);
  if (!buckets.some((bucket) => bucketKey(bucket) === bucketKey(headline))) {
    throw new InputError(
      `positions ${bucketKey(headline)} are no bucket of the table (${buckets.map(bucketKey).join(", ")})`,
    );
  }
  const conventions: Convention[] = ["6ND"];
  if (finals.some((final) => final.pflops_days_attended !== undefined)) conventions.push("attended");

  const groups = new Map<string, Group>();
  for (const [i, final] of finals.entries()) {
    const key = `${bucketKey(final)} ${final.attention}`;
    const group = groups.get(key) ?? { curves: [], finals: [] };
    groups.set(key, group);
    group.finals.push(final);
    group.curves.push(curves[i]);
  }
  const notes = new Map<string, Note & { buckets: number }>();
  const note = (said: Note) => {
    const key = JSON.stringify(said);
    notes.set(key, { ...said, buckets: (notes.get(key)?.buckets ?? 0) + 1 });
  };
  const [unpaired, paired] = [new Set<string>(), new Set<string>()];

  const cases: Case[] = [];
  for (const convention of conventions) {
    for (const bucket of buckets) {
      for (const attention of attentions) {
        const group = groups.get(`${bucketKey(bucket)} ${attention}`);
        if (group === undefined) continue;
        cases.push({
          key: { convention, attention, ...bucket },
          group,
          points: sizes(group.finals, convention),
        });
      }
    }
  }
  const forms = formErrors(cases);
  const form = options.form === "auto" ? bestForm(forms) : (options.form ?? "power");
  const unfitted: { attention: string; error: InputError }[] = [];
  const laws = cases.flatMap((one) => {
    try {
      const law = fitLaw(one, form, options.window, note, warnings);
      return law === null ? [] : [completed(law, one, resamples)];
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      unfitted.push({ attention: one.key.attention, error });
      return [];
    }
  });
  // One attention with too few runs for the form does not keep the others from theirs.
  if (laws.length === 0 && unfitted.length > 0) throw unfitted[0].error;
  for (const group of byReason(unfitted, ({ attention }) => attention)) {
    const more = group.length > 1 ? ` (and so in ${group.length - 1} more cases)` : "";
    warnings.push(`no law: ${group[0].error.message}${more}`);
  }
  const comparisons: Comparison[] = [];
  for (const convention of baseline === null ? [] : conventions) {
    for (const bucket of buckets) {
      const of = (attention: string) => groups.get(`${bucketKey(bucket)} ${attention}`)?.finals ?? [];
      for (const other of attentions) {
        if (baseline === null || other === baseline) continue;
        const { pairs, runs, unpaired: alone } = sizePairs(of(baseline), of(other), convention);
        const distinct = distinctPairs(pairs);
        if (pairs.length < FEWEST_PAIRS || distinct < 2) {
          if (of(baseline).length > 0 && of(other).length > 0) {
            note({
              before: "no comparison of ",
              attention: other,
              after: ` with ${baseline}`,
              convention,
              because:
                `: ${pairs.length} size${pairs.length === 1 ? "" : "s"}${pairs.length < FEWEST_PAIRS ? "" : " of one budget"} in both` +
                ` (same model and seed), and it needs ${FEWEST_PAIRS} of different budgets`,
            });
          }
          continue;
        }
        for (const { name } of [...of(baseline), ...of(other)]) {
          (alone.includes(name) ? unpaired : paired).add(name);
        }
        const kind = form === "floored" && distinct >= DISTINCT_BUDGETS_FOR_A_FLOOR ? "floored" : "power";
        const key = { convention, ...bucket, baseline, other };
        const line = ratioModel(pairs, kind);
        const found = compare(key, pairs, margin, line);
        const resampled = kind === "floored" ? found : bootstrapComparison(found, runs, resamples);
        comparisons.push(
          sameBucket(bucket, headline) ? leavingOut(resampled, pairs, margin, kind, line) : resampled,
        );
      }
    }
  }
  const named = byReason(notes.values(), ({ convention: _, ...said }) => JSON.stringify(said)).map(
    (group) => ({
      ...group[0],
      by: group[0].convention ? ` by ${group.map(({ convention }) => convention).join(" and ")}` : "",
    }),
  );
  for (const group of byReason(named, ({ before, after, by, because, buckets }) =>
    JSON.stringify([before, after, by, because, buckets]),
  )) {
    const [{ before, after, by, because = "", buckets: count }] = group;
    const sentence = `${before}${fewOf(group.map(({ attention }) => attention))}${after}${by}${because}`;
    warnings.push(buckets.length > 1 ? `${sentence} (${count} of ${buckets.length} buckets)` : sentence);
  }
  const leftOut = [...unpaired].filter((name) => !paired.has(name));
  if (leftOut.length > 0) {
    warnings.push(
      `left out of the comparison, for want of a run of the same model and seed: ${fewOf(leftOut)}`,
    );
  }
  const known: Known = { finals, attentions, baseline, headline, runs: options.runs ?? new Map() };
  warnings.push(...warningsOf({ curves, laws, ...known }));
  const sizeRatios = ratiosBySize(known);
  const lawRatios = ratiosToLaw(known, laws, comparisons);
  const growthRatios = ratiosOfGrowth(known);
  // Of a study: the times in a table may be those of different machines.
  const timeRatios = known.runs.size > 0 ? ratiosByTime(known, margin) : [];
  const sentences = readingInWords({
    ...known,
    laws,
    comparisons,
    forms,
    curves,
    sizeRatios,
    lawRatios,
    growthRatios,
    timeRatios,
    margin,
  });
  const result = {
    laws,
    comparisons,
    ...(sizeRatios.length > 0 ? { size_ratios: sizeRatios } : {}),
    ...(lawRatios.length > 0 ? { law_ratios: lawRatios } : {}),
    ...(growthRatios.length > 0 ? { growth_ratios: growthRatios } : {}),
    ...(timeRatios.length > 0 ? { time_ratios: timeRatios } : {}),
    ...(forms.length > 1 ? { forms } : {}),
    warnings,
    ...withSentences({ reading: [], reading_parts: [] }, sentences),
  };
  return { result, known };
}

/** What is said once of all attentions and conventions that it holds for: a sentence around their names. */
interface Note {
  readonly before: string;
  readonly attention: string;
  readonly after: string;
  readonly convention?: Convention;
  readonly because?: string;
}

/** One attention in one bucket by one convention, and the points its law goes through. */
interface Case {
  readonly key: LawKey;
  readonly group: Group;
  readonly points: FittedPoint[];
}

/** The law of one case, or null (and a note) where there are too few sizes. */
function fitLaw(
  { key, group, points }: Case,
  form: Exclude<Form, "auto">,
  window: Interval | undefined,
  note: (said: Note) => void,
  warnings: string[],
): Law | null {
  const { convention, attention } = key;
  if (form === "parametric" || form === "envelope" || form === "isoflop") {
    // Curves and sizes are laid out by 6ND.
    if (convention !== "6ND") return null;
    if (form === "parametric") {
      const law = fitParametric(key, group.finals);
      if (inLockstep(group.finals)) {
        note({
          before: "sizes and token counts of ",
          attention,
          after: " rise together, so that these runs do not tell the two terms of the parametric law apart",
        });
      }
      return law;
    }
    if (form === "envelope") return fitEnvelope(key, group.curves, window ?? envelopeWindow(group.finals));
    const { law, leftOut } = fitIsoflop(key, group.finals);
    if (leftOut.length > 0) {
      warnings.push(
        `budgets left out of the IsoFLOP law of ${attention} at ${bucketLabel(key)}: ${fewOf(leftOut)}`,
      );
    }
    return law;
  }
  if (points.length < FEWEST_SIZES || distinctBudgets(points) < 2) {
    note({
      before: "no law for ",
      attention,
      after: "",
      convention,
      because:
        `: ${points.length} size${points.length === 1 ? "" : "s"}${points.length < FEWEST_SIZES ? "" : " of one budget"},` +
        ` and a law with an interval needs ${FEWEST_SIZES} of different budgets`,
    });
    return null;
  }
  return fitForm(form, key, points);
}

/** With what the runs say beside the form: resamples, the noise between seeds, the bend. */
function completed(law: Law, { group, points }: Case, resamples: number): Law {
  if (law.form === "parametric") {
    const interval = bootstrapParametric(law, group.finals, resamples);
    return interval ? { ...law, bootstrap_interval: interval } : law;
  }
  const interval = bootstrapLaw(law, group.finals, group.curves, resamples);
  const scatter = seedScatter(group.finals);
  const curved = law.form === "power" ? bend(points) : null;
  return {
    ...law,
    ...(interval ? { bootstrap_interval: interval } : {}),
    ...(scatter === null ? {} : { seed_noise: scatter.noise }),
    ...(curved ? { bend: curved } : {}),
  };
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
      warnings.unshift(
        `baseline ${named} was not used: full is the baseline of every table that has it; to compare with ${named}, ` +
          "fit a table without full",
      );
    }
    return "full";
  }
  return named ?? null;
}
