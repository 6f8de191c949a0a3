/** The tables of laws, comparisons and claims, by convention, for the terminal and for the report. */
import { CONVENTIONS, type Convention } from "../compute/compute.ts";
import { type Bucket, bucketLabel, formatBudget, formatRatio } from "../fit/index.ts";
import { partsOf } from "../fit/parts.ts";
import type {
  Claim,
  Comparison,
  FitResult,
  Law,
  ParametricLaw,
  PowerLaw,
  PowerOfCompute,
  Verdict,
} from "../fit/types.ts";
import { orderAttentions } from "../fit/words.ts";
import { atBudget, type BudgetName } from "./budgets.ts";
import { leadingBucket, sameBucket } from "./curves.ts";
import {
  attentionTitles,
  conventionTitle,
  formatCount,
  formatFixed,
  formatInterval,
  formatNumber,
} from "./labels.ts";
import { type Table, textTable, wrap } from "./table.ts";

const left = (title: string) => ({ title, align: "left" as const });
const right = (title: string) => ({ title, align: "right" as const });
const loss = (value: number) => formatFixed(value, 3);
const coefficient = (value: number) => formatNumber(value, 3);
const exponent = (value: number) => formatFixed(value, 3);

function isParametric(law: Law): law is ParametricLaw {
  return law.form === "parametric";
}

/** The conventions that the result holds anything for. */
export function conventionsOf(result: FitResult): Convention[] {
  return CONVENTIONS.filter((convention) =>
    [...result.laws, ...result.comparisons].some((item) => item.convention === convention),
  );
}

/** Laws of compute, one row for each bucket of one attention. */
function powerTable(laws: readonly PowerLaw[]): Table {
  const floored = laws.some((law) => law.form === "floored");
  const broken = laws.some((law) => law.form === "broken");
  const budgets = new Set(laws.map((law) => formatBudget(law.loss_at_mean_budget.pflops_days)));
  const one = budgets.size === 1;
  return {
    columns: [
      left("positions"),
      right("a"),
      right("b"),
      ...(floored ? [right("E")] : []),
      ...(broken ? [right("break at"), right("b after")] : []),
      right(one ? `loss at ${[...budgets][0]}` : "loss at mean C"),
      ...(one ? [] : [right("mean C")]),
    ],
    rows: laws.map((law) => [
      bucketLabel(law),
      `${coefficient(law.coefficient)} ${formatInterval(law.coefficient_interval, coefficient)}`,
      `${exponent(law.exponent)} ${formatInterval(law.exponent_interval, exponent)}`,
      ...(floored ? [law.floor === undefined ? "" : loss(law.floor)] : []),
      ...(broken
        ? law.break
          ? [formatBudget(law.break.pflops_days), exponent(law.break.exponent_after)]
          : ["", ""]
        : []),
      `${loss(law.loss_at_mean_budget.loss)} ${formatInterval(law.loss_at_mean_budget.interval, loss)}`,
      ...(one ? [] : [formatBudget(law.loss_at_mean_budget.pflops_days)]),
    ]),
  };
}

function parametricTable(laws: readonly ParametricLaw[]): Table {
  return {
    columns: [left("positions"), ...["E", "A", "B", "alpha", "beta", "objective", "points"].map(right)],
    rows: laws.map((law) => [
      bucketLabel(law),
      formatNumber(law.E, 4),
      formatNumber(law.A, 4),
      formatNumber(law.B, 4),
      formatFixed(law.alpha, 4),
      formatFixed(law.beta, 4),
      formatNumber(law.objective, 3),
      String(law.points),
    ]),
  };
}

/** How each form is written, and what it goes through where that is not the final losses. */
const FORMULAS: Record<Law["form"], readonly [formula: string, through: string]> = {
  power: ["a C^b", ""],
  floored: ["E + a C^b", ""],
  broken: ["a C^b up to a break, another exponent after it", ""],
  envelope: ["a C^b", " through the lower envelope of the curves"],
  isoflop: ["a C^b", " through the lowest loss of each budget"],
  parametric: ["E + A N^-alpha + B D^-beta", ""],
};

/** The laws as text, a table for each convention and attention. */
export function formatLaws(result: FitResult): string {
  if (result.laws.length === 0) return "No law was fitted.";
  const parts: string[] = [];
  for (const convention of conventionsOf(result)) {
    const laws = result.laws.filter((law) => law.convention === convention);
    if (laws.length === 0) continue;
    const [form, through] = FORMULAS[laws[0]!.form];
    parts.push(
      wrap(
        `Scaling laws: loss = ${form}${through}, C in PFLOP/s-days by ${conventionTitle(convention)}${laws.every(isParametric) ? "" : ", 95 % intervals"}`,
      ),
    );
    for (const attention of orderAttentions(laws.map((law) => law.attention))) {
      const own = laws.filter((law) => law.attention === attention);
      const parametric = own.filter(isParametric);
      const power = own.filter((law) => !isParametric(law));
      if (power.length > 0) parts.push(`${wrap(attention)}\n${textTable(powerTable(power as PowerLaw[]))}`);
      if (parametric.length > 0) parts.push(`${wrap(attention)}\n${textTable(parametricTable(parametric))}`);
    }
    const window = laws.find((law): law is PowerLaw => law.form === "envelope")?.window;
    if (window) {
      parts.push(
        wrap(`The envelope is that of budgets from ${window.map(formatBudget).join(" to ")} PFLOP/s-days.`),
      );
    }
  }
  const sizes = orderAttentions(result.laws.map((law) => law.attention)).flatMap((attention) => {
    const table = optimalSizeTable({
      ...result,
      laws: result.laws.filter((law) => law.attention === attention),
    });
    return table ? `${wrap(attention)}\n${textTable(without(table, "attention"))}` : [];
  });
  if (sizes.length > 0) {
    const heading =
      "Compute-optimal size: N = n C^b parameters, D = d C^b tokens, C in PFLOP/s-days by 6ND, 95 % intervals";
    parts.push(wrap(heading), ...sizes);
  }
  return parts.join("\n\n");
}

function without({ columns, rows }: Table, title: string): Table {
  const kept = columns.map((column) => column.title !== title);
  const keep = <Cell>(row: readonly Cell[]) => row.filter((_, i) => kept[i]);
  return { columns: keep(columns), rows: rows.map(keep) };
}

/** The best size for a budget, where a form says it; null where none does. */
export function optimalSizeTable(result: FitResult): Table | null {
  const rows = result.laws.flatMap((law) => {
    const sizes = law.form === "parametric" ? [law.optimal_size] : (law.optimal_size ?? []);
    const power = ({ exponent: b, exponent_interval: interval }: PowerOfCompute) =>
      interval ? `${exponent(b)} ${formatInterval(interval, exponent)}` : exponent(b);
    return sizes.map(({ method, parameters, tokens }) => [
      bucketLabel(law),
      law.attention,
      method,
      formatCount(parameters.coefficient),
      power(parameters),
      formatCount(tokens.coefficient),
      power(tokens),
    ]);
  });
  if (rows.length === 0) return null;
  return {
    columns: [
      left("positions"),
      left("attention"),
      left("way"),
      right("n"),
      right("b of N"),
      right("d"),
      right("b of D"),
    ],
    rows,
  };
}

/** All laws of a convention in one table, with their hold-out. */
export function lawsTable(result: FitResult, convention: Convention): Table | null {
  const laws = result.laws.filter((law) => law.convention === convention);
  const titles = attentionTitles(result.laws.map((law) => law.attention));
  const power = laws.filter((law): law is PowerLaw => !isParametric(law));
  if (laws.length === 0) return null;
  if (power.length === 0) {
    const { columns, rows } = parametricTable(laws.filter(isParametric));
    return {
      columns: [columns[0]!, left("attention"), ...columns.slice(1)],
      rows: rows.map((row, i) => [row[0]!, titles.get(laws[i]!.attention)!, ...row.slice(1)]),
    };
  }
  const floored = power.some((law) => law.form === "floored");
  const broken = power.some((law) => law.form === "broken");
  const resampled = power.some((law) => law.bootstrap_interval !== undefined);
  const exact = (value: number) => formatFixed(value, 4);
  return {
    columns: [
      left("positions"),
      left("attention"),
      right("coefficient a"),
      right("exponent b"),
      ...(resampled ? [right("b, runs resampled")] : []),
      ...(floored ? [right("floor E")] : []),
      ...(broken ? [right("break at"), right("exponent after")] : []),
      right("loss at the mean budget"),
      right("mean budget"),
      right("sizes"),
      left("largest size predicted from the others"),
    ],
    rows: power.map((law) => [
      bucketLabel(law),
      titles.get(law.attention)!,
      `${formatNumber(law.coefficient, 4)} ${formatInterval(law.coefficient_interval, (v) => formatNumber(v, 4))}`,
      `${exact(law.exponent)} ${formatInterval(law.exponent_interval, exact)}`,
      ...(resampled ? [law.bootstrap_interval ? formatInterval(law.bootstrap_interval, exact) : ""] : []),
      ...(floored
        ? [law.floor_interval ? `${loss(law.floor!)} ${formatInterval(law.floor_interval, loss)}` : ""]
        : []),
      ...(broken
        ? law.break
          ? [
              `${formatBudget(law.break.pflops_days)} ${formatInterval(law.break.interval, formatBudget)}`,
              `${exact(law.break.exponent_after)} ${formatInterval(law.break.exponent_after_interval, exact)}`,
            ]
          : ["", ""]
        : []),
      `${loss(law.loss_at_mean_budget.loss)} ${formatInterval(law.loss_at_mean_budget.interval, loss)}`,
      formatBudget(law.loss_at_mean_budget.pflops_days),
      String(law.points.length),
      holdout(law),
    ]),
  };
}

function holdout(law: PowerLaw): string {
  if (!law.holdout) return "too few sizes";
  const { model, predicted, observed, interval } = law.holdout;
  const inside = observed >= interval[0] && observed <= interval[1];
  return `${model}: ${loss(predicted)} ${formatInterval(interval, loss)}, observed ${loss(observed)} (${inside ? "inside" : "outside"})`;
}

const SHORT_VERDICTS: Record<Verdict, string> = {
  "other higher": "higher",
  "other lower": "lower",
  crossing: "crossing",
  "not distinguishable over the whole range": "undecided",
};

/** A verdict with the attention's name in it. */
function verdictInWords(comparison: Comparison, title: string): string {
  if (comparison.verdict === "other higher") return `${title} higher`;
  if (comparison.verdict === "other lower") return `${title} lower`;
  return comparison.verdict;
}

function ratioCell(comparison: Comparison, name: BudgetName, interval: boolean): string {
  const at = atBudget(comparison.ratio_at, comparison.fitted_range, name);
  if (!at) return "-";
  return interval
    ? `${formatRatio(at.ratio)} ${formatInterval(at.interval, formatRatio)}`
    : formatRatio(at.ratio);
}

function multiplierCell(comparison: Comparison, name: BudgetName): string {
  const at = atBudget(comparison.multiplier_at, comparison.fitted_range, name);
  return at
    ? `${formatFixed(at.multiplier, 2)} ${formatInterval(at.interval, (v) => formatFixed(v, 2))}`
    : "-";
}

function crossingCell({ crossing }: Comparison, format: (pflopsDays: number) => string): string {
  if (!crossing) return "-";
  return `${format(crossing.pflops_days)} ${formatInterval(crossing.interval, format)}`;
}

/** A budget for a narrow column: two digits where it needs an exponent. */
function shortBudget(pflopsDays: number): string {
  return pflopsDays < 1e-3 || pflopsDays >= 1e4
    ? pflopsDays.toExponential(1).replace("+", "")
    : formatBudget(pflopsDays);
}

/** Pairs of (baseline, other) in the order of the result. */
function pairsOf(comparisons: readonly Comparison[]): { baseline: string; other: string }[] {
  const pairs = new Map<string, { baseline: string; other: string }>();
  for (const { baseline, other } of comparisons)
    pairs.set(JSON.stringify([baseline, other]), { baseline, other });
  return [...pairs.values()];
}

/** The comparisons as text: ratio of losses by position, a table for each convention and pair of attentions. */
export function formatComparison(result: FitResult): string {
  if (result.comparisons.length === 0)
    return "Nothing was compared: that takes two attentions at the same sizes.";
  const parts: string[] = [];
  for (const convention of conventionsOf(result)) {
    const comparisons = result.comparisons.filter((comparison) => comparison.convention === convention);
    for (const { baseline, other } of pairsOf(comparisons)) {
      const rows = comparisons.filter((c) => c.baseline === baseline && c.other === other);
      const table: Table = {
        columns: [
          left("positions"),
          right("at mean budget"),
          right("small"),
          right("large"),
          right("crossing at"),
          left(`${other.length <= 8 ? other : "other"} is`),
        ],
        rows: rows.map((comparison) => [
          bucketLabel(comparison),
          ratioCell(comparison, "mean", true),
          ratioCell(comparison, "smallest", false),
          ratioCell(comparison, "largest", false),
          crossingCell(comparison, shortBudget),
          SHORT_VERDICTS[comparison.verdict],
        ]),
      };
      const heading = `Loss of ${other} / loss of ${baseline}, by ${conventionTitle(convention)}, 95 % intervals`;
      parts.push(`${wrap(heading)}\n${textTable(table)}`);
    }
  }
  const undecided = result.comparisons.some((c) => SHORT_VERDICTS[c.verdict] === "undecided");
  if (undecided) parts.push("undecided: not distinguishable over the whole fitted range");
  return parts.join("\n\n");
}

/** All comparisons of a convention in one table. */
export function comparisonTable(result: FitResult, convention: Convention): Table | null {
  const comparisons = result.comparisons.filter((comparison) => comparison.convention === convention);
  if (comparisons.length === 0) return null;
  const titles = attentionTitles(comparisons.flatMap(({ other, baseline }) => [other, baseline]));
  const several = pairsOf(comparisons).length > 1;
  return {
    columns: [
      left("positions"),
      ...(several ? [left("attention")] : []),
      right("ratio, smallest budget"),
      right("ratio, mean budget"),
      right("ratio, largest budget"),
      right("compute multiplier, mean budget"),
      right("crossing at"),
      right("differs between"),
      left("verdict"),
    ],
    rows: comparisons.map((comparison) => [
      bucketLabel(comparison),
      ...(several ? [titles.get(comparison.other)!] : []),
      ratioCell(comparison, "smallest", true),
      ratioCell(comparison, "mean", true),
      ratioCell(comparison, "largest", true),
      multiplierCell(comparison, "mean"),
      crossingCell(comparison, formatBudget),
      comparison.differs_between ? comparison.differs_between.map(formatBudget).join(" and ") : "-",
      verdictInWords(comparison, titles.get(comparison.other)!),
    ]),
  };
}

const CLAIMS: readonly (readonly [Claim["claim"], string])[] = [
  ["cross", "the lines cross"],
  ["never cross", "they never cross"],
  ["lower throughout", "lower throughout"],
  ["the same", "the same"],
];

/** The judgements of the four claims, a row for each bucket and pair of attentions. */
export function claimsTable(result: FitResult, convention: Convention): Table | null {
  const comparisons = result.comparisons.filter((comparison) => comparison.convention === convention);
  if (comparisons.length === 0) return null;
  const titles = attentionTitles(comparisons.flatMap(({ other, baseline }) => [other, baseline]));
  return {
    columns: [left("positions"), left("attention"), ...CLAIMS.map(([, words]) => left(words))],
    rows: comparisons.map((comparison) => [
      bucketLabel(comparison),
      titles.get(comparison.other)!,
      ...CLAIMS.map(([name]) => comparison.claims.find(({ claim }) => claim === name)?.judgement ?? "-"),
    ]),
  };
}

/** A claim in the words people use, with the attentions' names. */
export function claimInWords(
  claim: Claim["claim"],
  comparison: Comparison,
  titles: ReadonlyMap<string, string>,
): string {
  const other = titles.get(comparison.other) ?? comparison.other;
  const baseline = titles.get(comparison.baseline) ?? comparison.baseline;
  const { crossing } = comparison;
  if (claim === "cross") {
    const where = crossing?.inside_data ? `, at ${formatBudget(crossing.pflops_days)} PFLOP/s-days` : "";
    return `The lines cross inside the range${where}`;
  }
  if (claim === "never cross") return "The lines never cross inside the range";
  if (claim === "lower throughout") return `${other} is lower throughout`;
  return `${other} and ${baseline.toLowerCase()} are the same`;
}

/** Comparisons whose claims are judged at length; those of more stand in the tables. */
export const MOST_AT_LENGTH = 5;

/** The comparisons of one bucket, by the first convention that has any. */
export function leadingComparisons(result: FitResult, bucket: Bucket): Comparison[] {
  for (const convention of conventionsOf(result)) {
    const found = result.comparisons.filter((c) => c.convention === convention && sameBucket(c, bucket));
    if (found.length > 0) return found;
  }
  return [];
}

/** The parts of the reading, as text. */
function formatParts(result: FitResult): string[] {
  return partsOf(result).map(({ title, sentences }) =>
    [title, ...sentences.map((s) => wrap(s, "  "))].join("\n"),
  );
}

/** The finding in words (`short`: its first part), the four claims of the headline bucket and the warnings, as text. */
export function formatReading(result: FitResult, headline?: Bucket, { short = false } = {}): string {
  return [...formatParts(result).slice(0, short ? 1 : undefined), ...formatJudgements(result, headline)].join(
    "\n\n",
  );
}

/** The four claims and the warnings. */
function formatJudgements(result: FitResult, headline: Bucket = leadingBucket(result.comparisons)): string[] {
  const parts: string[] = [];
  const leading = leadingComparisons(result, headline);
  for (const comparison of leading.slice(0, MOST_AT_LENGTH)) {
    const titles = attentionTitles([comparison.baseline, comparison.other]);
    const lines = comparison.claims.map((claim) =>
      wrap(`${claimInWords(claim.claim, comparison, titles)}: ${claim.judgement}. ${claim.because}`, "  "),
    );
    const heading = `Claims for ${comparison.other} against ${comparison.baseline}, positions ${bucketLabel(comparison)}, by ${conventionTitle(comparison.convention)}`;
    parts.push([wrap(heading), ...lines].join("\n"));
  }
  const more = leading.length - MOST_AT_LENGTH;
  if (more > 0)
    parts.push(wrap(`The claims for ${more} more attentions are judged in the report and with --json.`));
  if (result.warnings.length > 0) {
    parts.push(["Warnings", ...result.warnings.map((warning) => wrap(warning, "  "))].join("\n"));
  }
  return parts;
}

/** What `mobalab fit` prints: the answer, then laws and comparison, then the rest of the reading. */
export function formatFit(result: FitResult): string {
  const [answer, ...rest] = formatParts(result);
  const tables = [formatLaws(result), formatComparison(result)];
  return [...(answer ? [answer] : []), ...tables, ...rest, ...formatJudgements(result)].join("\n\n");
}
