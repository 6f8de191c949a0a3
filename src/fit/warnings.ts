/** What makes a fit less trustworthy than it looks (docs/method.md, section 4), said once per cause. */
import { suddenDrop } from "./drops.ts";
import { bucketKey, bucketLabel, type FinalPoint, type RunCurve, sameBudget } from "./points.ts";
import type { Law } from "./types.ts";
import { fewOf } from "./words.ts";

/** What the study folder knows of a run beside its curves. */
export interface RunFacts {
  /** Passes over the training documents at the end. */
  readonly epochs?: number;
  /** Whether the learning rate was decayed to its end; false for a run that stopped before its horizon. */
  readonly decayed?: boolean;
}

const FEWEST_SIZES = 4;
const MOST_EPOCHS = 4;
/** Losses of single tokens scatter by about 2 nats, so a mean over fewer is off by more than 2 % of one. */
const FEWEST_TOKENS = 10_000;

interface Findings {
  readonly curves: readonly RunCurve[];
  readonly finals: readonly FinalPoint[];
  readonly laws: readonly Law[];
  readonly runs: ReadonlyMap<string, RunFacts>;
}

export function warningsOf(findings: Findings): string[] {
  return [
    ...ladders(findings.laws),
    ...searches(findings.laws),
    ...undecayed(findings),
    ...drops(findings.curves),
    ...epochs(findings.runs),
    ...tokens(findings.finals),
  ];
}

/** Groups by a sentence that differs only in the buckets it holds for. */
function perBucket(entries: Iterable<{ sentence: string; bucket: string }>): string[] {
  const groups = new Map<string, Set<string>>();
  for (const { sentence, bucket } of entries) {
    const group = groups.get(sentence) ?? new Set();
    groups.set(sentence, group.add(bucket));
  }
  return [...groups].map(([sentence, buckets]) => `${sentence} (${fewOf([...buckets])})`);
}

function ladders(laws: readonly Law[]): string[] {
  const found = new Set<string>();
  for (const law of laws) {
    if (law.form === "parametric") continue;
    const { attention, convention, points } = law;
    if (points.length < FEWEST_SIZES) {
      found.add(
        `the law of ${attention} by ${convention} stands on ${points.length} sizes; fewer than ${FEWEST_SIZES} leave` +
          " next to nothing to judge it by",
      );
    }
    const budgets = points.map((point) => point.pflops_days);
    const span = Math.max(...budgets) / Math.min(...budgets);
    if (span < 10) {
      found.add(
        `the budgets of ${attention} by ${convention} span a factor of ${span.toPrecision(2)}, less than one decade:` +
          " exponents from so short a range move easily",
      );
    }
  }
  return [...found];
}

function searches(laws: readonly Law[]): string[] {
  return perBucket(
    laws
      .filter((law) => !law.converged)
      .map((law) => ({
        sentence: `the ${law.form} law of ${law.attention} did not converge to one minimum; do not use it`,
        bucket: bucketLabel(law),
      })),
  );
}

/** Runs known not to have decayed, and runs that end before their siblings of the same model did. */
function undecayed({ finals, runs }: Findings): string[] {
  const known = [...runs].filter(([, facts]) => facts.decayed === false).map(([name]) => name);
  const warnings =
    known.length > 0
      ? [`not decayed to their horizon, so their final loss is too high for a law: ${fewOf(known)}`]
      : [];
  const ends = [...new Map(finals.map((final) => [final.name, final])).values()];
  const longest = new Map<string, FinalPoint>();
  for (const final of ends) {
    const best = longest.get(final.model);
    if (!best || final.pflops_days > best.pflops_days) longest.set(final.model, final);
  }
  // A ladder that trains one model to several horizons has such runs in every attention; a run cut short is alone.
  const attentionsAt = (final: FinalPoint) =>
    new Set(
      ends
        .filter((f) => f.model === final.model && sameBudget(f.pflops_days, final.pflops_days))
        .map((f) => f.attention),
    ).size;
  const attentions = new Set(ends.map((final) => final.attention)).size;
  const short = new Map<string, string>();
  if (attentions > 1) {
    for (const final of ends) {
      const sibling = longest.get(final.model)!;
      if (known.includes(final.name) || sameBudget(final.pflops_days, sibling.pflops_days)) continue;
      if (attentionsAt(final) > 1) continue;
      const share = ((100 * final.pflops_days) / sibling.pflops_days).toFixed(0);
      short.set(
        final.name,
        `run ${final.name} ends at ${share} % of the compute of ${sibling.name}: if it was cut short, it did not decay`,
      );
    }
  }
  return [...warnings, ...short.values()];
}

function drops(curves: readonly RunCurve[]): string[] {
  const ends: { sentence: string; bucket: string }[] = [];
  const sides = new Map<string, { before: Set<string>; after: Set<string> }>();
  for (const curve of curves) {
    const drop = suddenDrop(curve.points);
    const key = `${curve.attention} at ${bucketLabel(curve)}`;
    const side = sides.get(key) ?? { before: new Set(), after: new Set() };
    sides.set(key, side);
    (drop === null ? side.before : side.after).add(curve.model);
    if (drop?.atEnd) {
      ends.push({
        sentence: `run ${curve.name} ends in or just after a sudden drop of its loss; its end is not on the trend`,
        bucket: bucketLabel(curve),
      });
    }
  }
  const split = [...sides]
    .filter(([, { before, after }]) => before.size > 0 && after.size > 0)
    .map(
      ([key, { before, after }]) =>
        `sizes lie on both sides of a sudden drop for ${key} (before it ${fewOf([...before])}; past it` +
        ` ${fewOf([...after])}): no power law joins them`,
    );
  const shown =
    split.length > 3 ? [...split.slice(0, 3), `... and the same in ${split.length - 3} more cases`] : split;
  return [...perBucket(ends), ...shown];
}

function epochs(runs: ReadonlyMap<string, RunFacts>): string[] {
  const many = [...runs].filter(([, facts]) => (facts.epochs ?? 0) > MOST_EPOCHS);
  if (many.length === 0) return [];
  const most = Math.max(...many.map(([, facts]) => facts.epochs!));
  return [
    `more than ${MOST_EPOCHS} epochs on the training documents (up to ${most.toFixed(1)}), where repetition stops` +
      ` helping as new text would: ${fewOf(many.map(([name]) => name))}`,
  ];
}

function tokens(finals: readonly FinalPoint[]): string[] {
  const few = finals.filter(
    (final) => final.predicted_tokens !== undefined && final.predicted_tokens < FEWEST_TOKENS,
  );
  if (few.length === 0) return [];
  const least = Math.min(...few.map((final) => final.predicted_tokens!));
  const buckets = new Map(few.map((final) => [bucketKey(final), bucketLabel(final)]));
  return [
    `few held-out tokens (${least} at the least, where ${FEWEST_TOKENS} keep a mean loss steady to about 2 %):` +
      ` ${fewOf([...buckets.values()])}`,
  ];
}
