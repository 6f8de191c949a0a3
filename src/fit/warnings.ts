/** What makes a fit less trustworthy than it looks (docs/method.md, section 4), said once per cause. */
import type { EvaluationRecord } from "../train/types.ts";
import { isDense, suddenDrop } from "./drops.ts";
import { bucketKey, bucketLabel, type FinalPoint, type RunCurve, sameBudget } from "./points.ts";
import type { Law } from "./types.ts";
import { byReason, fewOf } from "./words.ts";

/** What the study folder knows of a run beside its curves. */
export interface RunFacts {
  /** Passes over the training documents at the end. */
  readonly epochs?: number;
  /** Whether the learning rate was decayed to its end; false for a run that stopped before its horizon. */
  readonly decayed?: boolean;
  /** Losses by document at the end. */
  readonly documents?: EvaluationRecord["documents"];
  /** Whether it ends before the sudden drop of its training loss, in it or just after it. */
  readonly offTrend?: boolean;
  /** Tokens from a document's start on that attend to everything before them. */
  readonly reach?: number;
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

/** One sentence for all that have a thing to be said of them in the same buckets. */
function perBucket(
  entries: Iterable<{ name: string; bucket: string }>,
  sentence: (names: readonly string[]) => string,
): string[] {
  const named = byReason(entries, ({ name }) => name).map((group) => ({
    name: group[0].name,
    buckets: fewOf([...new Set(group.map(({ bucket }) => bucket))]),
  }));
  return byReason(named, ({ buckets }) => buckets).map(
    (group) => `${sentence(group.map(({ name }) => name))} (${group[0].buckets})`,
  );
}

function ladders(laws: readonly Law[]): string[] {
  const ladders = laws.flatMap((law) => {
    if (law.form === "parametric") return [];
    const { attention, convention, points } = law;
    const budgets = points.map((point) => point.pflops_days);
    const span = Math.max(...budgets) / Math.min(...budgets);
    return [{ attention, convention, sizes: points.length, span }];
  });
  const few = ladders.filter(({ sizes }) => sizes < FEWEST_SIZES);
  const narrow = ladders.filter(({ span }) => span < 10);
  const attentionsOf = (group: typeof ladders) => [...new Set(group.map(({ attention }) => attention))];
  return [
    ...byReason(few, ({ convention, sizes }) => `${convention} ${sizes}`).map((group) => {
      const [{ convention, sizes }] = group;
      const names = attentionsOf(group);
      const [law, stands, judge] = names.length > 1 ? ["laws", "stand", "them"] : ["law", "stands", "it"];
      return (
        `the ${law} of ${fewOf(names)} by ${convention} ${stands} on ${sizes} sizes; fewer than ${FEWEST_SIZES} leave` +
        ` next to nothing to judge ${judge} by`
      );
    }),
    ...byReason(narrow, ({ convention }) => convention).map((group) => {
      const spans = group.map(({ span }) => span);
      const [least, most] = [Math.min(...spans), Math.max(...spans)].map((span) => span.toPrecision(2));
      return (
        `the budgets of ${fewOf(attentionsOf(group))} by ${group[0].convention} span a factor of` +
        ` ${least === most ? least : `${least} to ${most}`}, less than one decade: exponents from so short a range move easily`
      );
    }),
  ];
}

function searches(laws: readonly Law[]): string[] {
  return byReason(
    laws.filter((law) => !law.converged),
    ({ form }) => form,
  ).flatMap((group) =>
    perBucket(
      group.map((law) => ({ name: law.attention, bucket: bucketLabel(law) })),
      (names) =>
        names.length > 1
          ? `the ${group[0].form} laws of ${fewOf(names)} did not converge to one minimum each; do not use them`
          : `the ${group[0].form} law of ${names[0]} did not converge to one minimum; do not use it`,
    ),
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
  const short: { name: string; share: string; sibling: string }[] = [];
  if (attentions > 1) {
    for (const final of ends) {
      const sibling = longest.get(final.model)!;
      if (known.includes(final.name) || sameBudget(final.pflops_days, sibling.pflops_days)) continue;
      if (attentionsAt(final) > 1) continue;
      const share = ((100 * final.pflops_days) / sibling.pflops_days).toFixed(0);
      short.push({ name: final.name, share, sibling: sibling.name });
    }
  }
  if (short.length === 1) {
    const [{ name, share, sibling }] = short;
    warnings.push(
      `run ${name} ends at ${share} % of the compute of ${sibling}: if it was cut short, it did not decay`,
    );
  } else if (short.length > 1) {
    const runs = short.map(({ name, share, sibling }) => `${name} (${share} % of ${sibling})`);
    warnings.push(
      `runs that end with less compute than others of their size: ${fewOf(runs)}; if they were cut short, they did not decay`,
    );
  }
  return warnings;
}

function drops(curves: readonly RunCurve[]): string[] {
  const ends: { name: string; bucket: string }[] = [];
  const sides = new Map<string, { before: Set<string>; after: Set<string> }>();
  for (const curve of curves) {
    const drop = suddenDrop(curve.points);
    const key = `${curve.attention} at ${bucketLabel(curve)}`;
    const side = sides.get(key) ?? { before: new Set(), after: new Set() };
    sides.set(key, side);
    if (drop !== null) side.after.add(curve.model);
    else if (isDense(curve.points)) side.before.add(curve.model);
    if (drop?.atEnd) ends.push({ name: curve.name, bucket: bucketLabel(curve) });
  }
  const split = [...sides].flatMap(([place, { before, after }]) =>
    before.size > 0 && after.size > 0
      ? [{ place, sizes: `before it ${fewOf([...before])}; past it ${fewOf([...after])}` }]
      : [],
  );
  const sentences = byReason(split, ({ sizes }) => sizes).map(
    (group) =>
      `sizes lie on both sides of a sudden drop for ${fewOf(group.map(({ place }) => place))} (${group[0].sizes}):` +
      " no power law joins them",
  );
  const shown =
    sentences.length > 3
      ? [...sentences.slice(0, 3), `... and the same in ${sentences.length - 3} more cases`]
      : sentences;
  const ended = perBucket(ends, (names) =>
    names.length > 1
      ? `runs ${fewOf(names)} end in or just after a sudden drop of their loss; their ends are not on the trend`
      : `run ${names[0]} ends in or just after a sudden drop of its loss; its end is not on the trend`,
  );
  return [...ended, ...shown];
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
