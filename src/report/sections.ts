/** The sections of the HTML report. Each returns HTML in which everything that came from data is escaped. */

import { OPERATIONS_PER_PFLOPS_DAY } from "../compute/compute.ts";
import { type Bucket, bucketLabel, distinctBuckets, formatBudget, runCurves } from "../fit/index.ts";
import { partsOf } from "../fit/parts.ts";
import { mean } from "../fit/regression.ts";
import type { Comparison, CurvePoint, FitResult, SizeRatio } from "../fit/types.ts";
import { byReason, listOf } from "../fit/words.ts";
import type { RunRecall } from "../study/recall-sizes.ts";
import { type Axis, attentionsOf, finestBuckets, sameBucket } from "./curves.ts";
import { DEFINITIONS } from "./definitions.ts";
import { escapeHtml } from "./escape.ts";
import {
  attentionsAmong,
  attentionTitles,
  axisTitle,
  conventionTitle,
  formatCount,
  formatFixed,
  formatInterval,
  formatNumber,
  lossTitle,
} from "./labels.ts";
import { list, section } from "./page.ts";
import { finalLosses } from "./position.ts";
import { attendedTable, recallTable } from "./recall.ts";
import { type Sweep, sweepTable, sweepWords } from "./sweep.ts";
import { htmlTable, type Table } from "./table.ts";
import {
  claimInWords,
  claimsTable,
  comparisonTable,
  conventionsOf,
  lawsTable,
  leadingComparisons,
  MOST_AT_LENGTH,
  optimalSizeTable,
} from "./tables.ts";
import { dropTable, type TrainingCurve } from "./training.ts";
import { type RunTruncated, truncatedTable } from "./truncated.ts";

/** A run as the report's table shows it; what is unknown is left out. */
export interface RunSummary {
  readonly run: string;
  readonly attention: string;
  readonly model: string;
  readonly seed?: number;
  readonly state: "planned" | "running" | "finished" | "failed" | "unreadable";
  /** Non-embedding. */
  readonly parameters?: number;
  /** Input tokens seen. */
  readonly tokens?: number;
  readonly pflops_days?: number;
  readonly pflops_days_attended?: number;
  /** The peak. */
  readonly learningRate?: number;
  /** Final held-out loss over all positions, nats per token. */
  readonly lm_loss?: number;
  readonly tokens_per_second?: number;
  /** Seconds of training and of evaluating. */
  readonly time_s?: number;
  readonly evaluation_s?: number;
  /** Share of causal pairs not attended. */
  readonly sparsity?: number;
  /** Why it failed, or cannot be read. */
  readonly message?: string;
}

/** What a study is, beside its figures. */
export interface StudyDescription {
  readonly corpus?: string;
  readonly tokenizer?: string;
  /** Window length in tokens. */
  readonly context?: number;
  /** Share of causal pairs not attended, by attention label. */
  readonly sparsity?: Readonly<Record<string, number>>;
  readonly hardware?: string;
  /** How learning rate and batch were chosen. */
  readonly rule?: string;
  /** What else the runs share, of shape and optimizer. */
  readonly recipe?: string;
  readonly version?: string;
  readonly created?: string;
  /** Command lines that make this study and its report again. */
  readonly commands?: readonly string[];
}

const share = (value: number) => `${(value * 100).toFixed(1)} %`;

/** What was trained, in one sentence and a list of facts. */
export function aboutSection(
  title: string,
  points: readonly CurvePoint[],
  fit: FitResult,
  runs: readonly RunSummary[],
  attentions: readonly string[],
  description: StudyDescription,
): string {
  const titles = attentionTitles(attentions);
  const models = modelNames(points, runs);
  const buckets = distinctBuckets(runCurves(points).curves).filter(
    (bucket) => bucket.position_start !== null,
  );
  const narrow = finestBuckets(buckets);
  const wide = buckets.length - narrow.length;
  const names = attentions.map((label) =>
    titles.get(label)!.replace(/^(Full|Sliding|Sink)/, (word) => word.toLowerCase()),
  );
  const lead =
    attentions.length === 0
      ? "The curves table is empty: there are no runs to report."
      : `${listOf(names, ", ", " and ")} at ${plural(models.length, "size")}, measured ${buckets.length > 1 ? `in ${narrow.length} position buckets` : "over all positions"}: what each loss costs in compute.`;
  const facts: [string, string][] = [];
  const add = (name: string, value: string | undefined) => {
    if (value) facts.push([name, value]);
  };
  const count = runs.length || countRuns(points);
  const failed = runs.filter((run) => run.state === "failed").length;
  add("Runs", count > 0 ? `${count}${failed > 0 ? `, of which ${failed} failed` : ""}` : undefined);
  add(
    "Attention",
    attentions
      .map((label) => (titles.get(label) === label ? label : `${titles.get(label)} (${label})`))
      .join(", "),
  );
  add("Sizes", models.join(", "));
  add("Training tokens", tokenRange(points, runs));
  add("Context", description.context === undefined ? undefined : `${description.context} tokens`);
  add(
    "Positions",
    buckets.length > 1
      ? `${narrow.length} buckets, ${bucketLabel(narrow[0]!)} to ${bucketLabel(narrow.at(-1)!)}${wide > 0 ? `, and ${wide} wider ones` : ""}`
      : undefined,
  );
  add("Corpus", description.corpus);
  add("Tokenizer", description.tokenizer);
  const sparsity = Object.entries(description.sparsity ?? {}).filter(([, value]) => value > 0);
  add(
    "Causal pairs not attended",
    sparsity.map(([label, value]) => `${titles.get(label) ?? label} ${share(value)}`).join(", "),
  );
  add("Compute", conventionsOf(fit).map(conventionTitle).join(" and "));
  add("Learning rate and batch", description.rule);
  add("Recipe", description.recipe);
  add("Hardware", description.hardware);
  add("Version", description.version);
  add("Date", description.created);
  const rows = facts.map(([name, value]) => `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd>`);
  return `<header>\n<h1>${escapeHtml(title)}</h1>\n<p class="lead">${escapeHtml(capital(lead))}</p>\n<dl>${rows.join("\n")}</dl>\n</header>`;
}

function modelNames(points: readonly CurvePoint[], runs: readonly RunSummary[]): string[] {
  const fromPoints = new Set(finalLosses(points).map((loss) => loss.model));
  return [...new Set([...fromPoints, ...[...runs, ...runCurves(points).curves].map((row) => row.model)])];
}

function countRuns(points: readonly CurvePoint[]): number {
  return new Set(runCurves(points).curves.map((curve) => curve.name)).size;
}

function tokenRange(points: readonly CurvePoint[], runs: readonly RunSummary[]): string | undefined {
  const byRun = new Map<string, number>();
  const ends = runCurves(points).curves.map((curve) => ({
    run: curve.name,
    tokens: curve.points.at(-1)!.tokens,
  }));
  for (const { run, tokens } of [...ends, ...runs]) {
    if (tokens !== undefined) byRun.set(run, Math.max(byRun.get(run) ?? 0, tokens));
  }
  const tokens = [...byRun.values()].sort((a, b) => a - b);
  if (tokens.length === 0) return undefined;
  const [low, high] = [formatCount(tokens[0]!), formatCount(tokens.at(-1)!)];
  return low === high ? `${low} a run` : `${low} to ${high} a run`;
}

/** The four claims judged, at length for the leading bucket. */
export function claimsSection(fit: FitResult, bucket: Bucket): string {
  const comparisons = leadingComparisons(fit, bucket);
  if (comparisons.length === 0) {
    return section(
      "claims",
      "Claims, judged",
      "<p>Nothing was compared: that takes two attentions at the same sizes.</p>",
    );
  }
  const tables = comparisons.slice(0, MOST_AT_LENGTH).map((comparison) => {
    const titles = attentionTitles(comparisons.flatMap((c) => [c.baseline, c.other]));
    const rows = comparison.claims.map((claim) => {
      const words = escapeHtml(claimInWords(claim.claim, comparison, titles));
      return `<tr><th scope="row">${words}</th><td class="${claim.judgement}">${claim.judgement}</td><td>${escapeHtml(claim.because)}</td></tr>`;
    });
    const caption = `${titles.get(comparison.other)} against ${titles.get(comparison.baseline)!.toLowerCase()}, positions ${bucketLabel(comparison)}, by ${conventionTitle(comparison.convention)}, over the fitted range of ${rangeInWords(comparison)} PFLOP/s-days`;
    return `<div class="scroll claims" tabindex="0"><table><caption>${escapeHtml(caption)}</caption><thead><tr><th scope="col">Claim</th><th scope="col">Judgement</th><th scope="col">Because</th></tr></thead><tbody>\n${rows.join("\n")}\n</tbody></table></div>`;
  });
  const everywhere = conventionsOf(fit).flatMap((convention) => {
    const table = claimsTable(fit, convention);
    return table
      ? [htmlTable(table, `The same claims in every bucket, compute by ${conventionTitle(convention)}`)]
      : [];
  });
  const more = comparisons.length - MOST_AT_LENGTH;
  const rest = more > 0 ? `Every bucket, and ${more} more attentions` : "Every bucket";
  const details = `<details><summary>${rest}</summary>\n${everywhere.join("\n")}\n</details>`;
  return section("claims", "Claims, judged", [...tables, details].join("\n"));
}

function rangeInWords({ fitted_range: [low, high] }: Comparison): string {
  return `${formatBudget(low)} to ${formatBudget(high)}`;
}

/** The answer, and the other parts to unfold. */
export function readingHtml(fit: FitResult): string {
  const [first, ...rest] = partsOf(fit);
  if (!first) return "<p>There are too few sizes or attentions for a finding.</p>";
  const details = rest.map(
    ({ title, sentences }) =>
      `<details><summary>${escapeHtml(title)}</summary>\n${list(sentences, "sentences")}\n</details>`,
  );
  return [`<h3>${escapeHtml(first.title)}</h3>`, list(first.sentences, "sentences"), ...details].join("\n");
}

export function warningsSection(fit: FitResult): string {
  return section(
    "warnings",
    "Warnings",
    fit.warnings.length > 0 ? list(fit.warnings, "warnings") : "<p>None.</p>",
  );
}

export function lawsSection(fit: FitResult): string {
  const tables = conventionsOf(fit).flatMap((convention) => {
    const table = lawsTable(fit, convention);
    return table
      ? [htmlTable(table, `Compute by ${conventionTitle(convention)}, in PFLOP/s-days; 95 % intervals`)]
      : [];
  });
  const sizes = optimalSizeTable(fit);
  if (sizes) {
    tables.push(
      htmlTable(
        sizes,
        "Compute-optimal size: N = n C^b parameters and D = d C^b tokens, C in PFLOP/s-days by 6ND; 95 % intervals",
      ),
    );
  }
  const body =
    tables.length > 0
      ? tables.join("\n")
      : "<p>No law was fitted: that takes three sizes of one attention.</p>";
  return section("laws", "Scaling laws", body);
}

export function comparisonSection(fit: FitResult): string {
  const tables = conventionsOf(fit).flatMap((convention) => {
    const table = comparisonTable(fit, convention);
    const baseline = fit.comparisons.find((c) => c.convention === convention)?.baseline;
    const other = attentionTitles([baseline ?? ""]).get(baseline ?? "") ?? "";
    return table
      ? [
          htmlTable(
            table,
            `Loss as a ratio to ${other.toLowerCase()}, compute by ${conventionTitle(convention)}; 95 % intervals`,
          ),
        ]
      : [];
  });
  return tables.length > 0 ? section("comparison", "Comparison by position", tables.join("\n")) : "";
}

/** The figures behind the chart of loss against position, folded away. */
export function positionFigures(points: readonly CurvePoint[], attentions: readonly string[]): string {
  const losses = finalLosses(points);
  const titles = attentionTitles(attentionsOf(points));
  const columns = byReason(losses, ({ model }) => model).flatMap((own) => {
    return attentionsAmong(attentions, own).map((attention) => ({ attention, model: own[0]!.model }));
  });
  const buckets = distinctBuckets(losses);
  const counted = losses.some((loss) => loss.predicted_tokens !== undefined);
  const find = (i: number, bucket: (typeof buckets)[number]) =>
    losses.find(
      (loss) =>
        loss.attention === columns[i]!.attention &&
        loss.model === columns[i]!.model &&
        loss.position_start === bucket.position_start &&
        loss.position_end === bucket.position_end,
    );
  const table: Table = {
    columns: [
      { title: "positions", align: "left" },
      ...(counted ? [{ title: "tokens", align: "right" as const }] : []),
      ...columns.map(({ attention, model }) => ({
        title: `${titles.get(attention)} ${model}`,
        align: "right" as const,
      })),
    ],
    rows: buckets.map((bucket) => {
      const cells = columns.map((_, i) => find(i, bucket));
      const tokens = cells.find((cell) => cell?.predicted_tokens !== undefined)?.predicted_tokens;
      return [
        bucketLabel(bucket),
        ...(counted ? [tokens === undefined ? "" : String(tokens)] : []),
        ...cells.map((cell) => (cell ? formatFixed(cell.lm_loss, 4) : "")),
      ];
    }),
  };
  return `<details><summary>The figures</summary>\n${htmlTable(table, "Final LM loss, nats per token")}\n</details>`;
}

/** Largest products of bf16 matrices measured on a card, TFLOP/s (docs/results). */
const RATES: readonly (readonly [card: string, tflops: number])[] = [["NVIDIA H200", 790]];

/**
 * Minutes of training, the share of evaluating in all of it, operations as attended per second of training, and what
 * share of the card's rate that is, where the rate is known.
 */
function timesOf(
  { time_s: training, evaluation_s: evaluating = 0, pflops_days_attended }: RunSummary,
  rate: number | undefined,
): string[] {
  const operations = (pflops_days_attended ?? 0) * OPERATIONS_PER_PFLOPS_DAY;
  const tflops = training && operations > 0 ? operations / training / 1e12 : undefined;
  return [
    training ? formatFixed(training / 60, 1) : "",
    training && evaluating > 0 ? share(evaluating / (training + evaluating)) : "",
    tflops === undefined ? "" : formatNumber(tflops),
    ...(rate === undefined ? [] : [tflops === undefined ? "" : share(tflops / rate)]),
  ];
}

/** With its interval over documents; undefined where there is none, or where a model has several budgets. */
function ratioOver(
  ratios: readonly SizeRatio[],
  model: string,
  attention: string,
  of: (ratio: SizeRatio) => Pick<SizeRatio, "ratio" | "interval"> | undefined = (ratio) => ratio,
): string | undefined {
  const own = ratios.filter((one) => one.model === model && one.other === attention);
  const found = own.length === 1 ? of(own[0]) : undefined;
  const exact = (value: number) => formatFixed(value, 4);
  return found && `${exact(found.ratio)} ${formatInterval(found.interval, exact)}`;
}

function meanOf(values: readonly number[]): number | undefined {
  return values.length > 0 ? mean(values) : undefined;
}

/** Sizes side by side: final losses of the leading bucket, and what a run cost. Null when nothing is compared by it. */
export function sizesTable(
  runs: readonly RunSummary[],
  points: readonly CurvePoint[],
  bucket: Bucket,
  fit: FitResult,
  attentions: readonly string[],
): Table | null {
  const losses = finalLosses(points).filter((loss) => sameBucket(loss, bucket));
  const titles = attentionTitles(attentionsOf(points));
  const baseline = fit.comparisons[0]?.baseline ?? "full";
  const timed = runs.some(({ time_s }) => time_s);
  const sparse = runs.some(({ sparsity }) => sparsity !== undefined);
  const ratios = fit.size_ratios?.filter((one) => one.baseline === baseline) ?? [];
  const here = ratios.filter((one) => sameBucket(one, bucket));
  const first = ratios.find((one) => !sameBucket(one, bucket) && one.position_start === 0);
  const atStart = first ? ratios.filter((one) => sameBucket(one, first)) : [];
  const relative = first && here.some((one) => one.relative);
  const toItself = (attention: string) => (attention === baseline ? "1.0000" : "");
  const rows = [...new Set(losses.map(({ model }) => model))].flatMap((model) => {
    const own = losses.filter((loss) => loss.model === model);
    const sideBySide = attentionsAmong(attentions, own).map((attention) => {
      const same = runs.filter((run) => run.model === model && run.attention === attention);
      const ended = same.filter(({ state }) => state === "finished");
      const time = meanOf(ended.flatMap(({ time_s }) => time_s || []));
      const unattended = meanOf(ended.flatMap(({ sparsity }) => sparsity ?? []));
      const loss = own.find((one) => one.attention === attention)!.lm_loss;
      return { attention, loss, time, unattended, same };
    });
    const base = sideBySide.find(({ attention }) => attention === baseline);
    return sideBySide.map(({ attention, loss, time, unattended, same }) => [
      model,
      titles.get(attention)!,
      ...(sparse ? [unattended === undefined ? "" : share(unattended)] : []),
      String(same.filter(({ lm_loss }) => lm_loss !== undefined).length),
      formatFixed(loss, 4),
      ratioOver(here, model, attention) ?? (base ? formatFixed(loss / base.loss, 4) : ""),
      ...(first ? [ratioOver(atStart, model, attention) ?? toItself(attention)] : []),
      ...(relative ? [ratioOver(here, model, attention, (one) => one.relative) ?? toItself(attention)] : []),
      ...(timed
        ? [time ? formatFixed(time / 60, 2) : "", time && base?.time ? formatFixed(base.time / time, 2) : ""]
        : []),
    ]);
  });
  if (new Set(rows.map(([, attention]) => attention)).size < 2) return null;
  const start = first ? [`ratio at ${bucketLabel(first)}`] : [];
  const shares = relative ? [`ratio, each relative to its own at ${bucketLabel(first)}`] : [];
  const unattended = sparse ? ["causal pairs not attended"] : [];
  const times = timed ? ["minutes a run", "times as fast"] : [];
  return {
    columns: [
      { title: "size", align: "left" },
      { title: "attention", align: "left" },
      ...[...unattended, "runs", lossTitle(bucket), "ratio of losses", ...start, ...shares, ...times].map(
        (title) => ({
          title,
          align: "right" as const,
        }),
      ),
    ],
    rows,
  };
}

export function truncatedSection(
  runs: readonly RunTruncated[],
  attentions: readonly string[],
  figure: string,
): string {
  if (runs.length === 0) return "";
  const words =
    "<p>The last sixteenth of held-out windows is predicted with only so many tokens of the window's end kept, those predicted included: the same tokens, less context.</p>";
  const caption = "LM loss with each context, nats per token, and its change with more context";
  const table = htmlTable(truncatedTable(runs, attentions), caption);
  return section("truncated", "The same tokens with less context", [words, figure, table].join("\n"));
}

export function recallSection(
  recalls: readonly RunRecall[],
  attentions: readonly string[],
  figure: string,
  routing: string,
): string {
  if (recalls.length === 0) return "";
  const chance = recalls[0]!.result.chance;
  const words = `<p>Records of two random key tokens and a random value token stand in held-out text, each twice; asked with the second key, is the value the likeliest token? Chance: ${escapeHtml(formatNumber(chance, 2))}.</p>`;
  const table = htmlTable(recallTable(recalls, attentions), "Share of values found, by distance");
  const attended = attendedTable(recalls, attentions);
  const caption =
    "Is the block with the value attended to, in layers that leave blocks out? By the share of heads that do and by answers for which any head of any layer does, each beside the same with blocks drawn at random, the former also beside heads that attend to any block as far back; and the share of values found";
  const parts = [words, figure, table, routing, attended ? htmlTable(attended, caption) : ""];
  return section("recall", "Recall by distance", parts.join("\n"));
}

export function trainingSection(runs: readonly TrainingCurve[], figure: string): string {
  if (figure === "") return "";
  const drops = dropTable(runs);
  const caption =
    "Sudden drops of the training loss, such as when copying from the context is learned: half of the fall in log loss is the middle";
  return section("training", "Training loss", [figure, drops ? htmlTable(drops, caption) : ""].join("\n"));
}

export function sweepSection(
  sweeps: readonly Sweep[],
  attentions: readonly string[],
  figure: string,
): string {
  if (sweeps.length === 0) return "";
  const caption =
    "Final held-out loss, all positions, by learning rate; best by a parabola in its logarithm through the lowest and its neighbours, without runs that end in or just after a sudden drop, or lack the one that others of their size have";
  const table = htmlTable(sweepTable(sweeps, attentions), caption);
  const words = sweepWords(sweeps, attentions).map((sentence) => `<p>${escapeHtml(sentence)}</p>`);
  return section("sweep", "Learning rates", [figure, ...words, table].join("\n"));
}

export function runsSection(
  runs: readonly RunSummary[],
  bucketOfLoss: string,
  { sizes, intervals, hardware = "" }: { sizes: Table | null; intervals: boolean; hardware?: string },
): string {
  if (runs.length === 0) return "";
  const titles = attentionTitles(runs.map((run) => run.attention));
  const optional = <T>(value: T | undefined, format: (value: T) => string) =>
    value === undefined ? "" : format(value);
  const failed = runs.some((run) => run.message !== undefined);
  const timed = runs.some((run) => run.time_s !== undefined);
  const rated = runs.some((run) => run.learningRate !== undefined);
  const rate = RATES.find(([card]) => hardware.includes(card))?.[1];
  const table: Table = {
    columns: [
      { title: "run", align: "left" },
      { title: "attention", align: "left" },
      { title: "model", align: "left" },
      { title: "state", align: "left" },
      ...[
        "parameters",
        "tokens",
        ...(rated ? ["learning rate"] : []),
        "PFLOP/s-days, 6ND",
        "PFLOP/s-days, attended",
        "final loss",
        "tokens/s",
        ...(timed ? ["minutes", "evaluating", "TFLOP/s, attended"] : []),
        ...(timed && rate !== undefined ? [`of ${rate} TFLOP/s`] : []),
      ].map((title) => ({ title, align: "right" as const })),
      ...(failed ? [{ title: "reason", align: "left" as const }] : []),
    ],
    rows: runs.map((run) => [
      run.run,
      titles.get(run.attention)!,
      run.model,
      run.state,
      optional(run.parameters, formatCount),
      optional(run.tokens, formatCount),
      ...(rated ? [optional(run.learningRate, (value) => value.toExponential(2))] : []),
      optional(run.pflops_days, formatBudget),
      optional(run.pflops_days_attended, formatBudget),
      optional(run.lm_loss, (loss) => formatFixed(loss, 4)),
      optional(run.tokens_per_second, formatCount),
      ...(timed ? timesOf(run, rate) : []),
      ...(failed ? [run.message ?? ""] : []),
    ]),
  };
  const caption = `Parameters without embedding and output matrices; loss held out, nats per token, ${bucketOfLoss}`;
  const all = `<div class="runs">${htmlTable(table, caption)}</div>`;
  const bySize = sizes
    ? htmlTable(
        sizes,
        `By size, seeds averaged: final loss, and ratio and speed against the baseline${intervals ? "; ratios of the same seeds, 95 % intervals over documents, not over seeds" : ""}`,
      )
    : "";
  return section("runs", "Runs", `${all}\n${bySize}`);
}

export function definitionsSection(): string {
  const rows = DEFINITIONS.map(
    ([term, meaning]) => `<dt>${escapeHtml(term)}</dt><dd>${escapeHtml(meaning)}</dd>`,
  );
  return section("definitions", "How to read this", `<dl>\n${rows.join("\n")}\n</dl>`);
}

export function commandsSection(commands: readonly string[]): string {
  return section("commands", "Make it again", `<pre>${commands.map(escapeHtml).join("\n")}</pre>`);
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The heading of what is drawn along one axis. */
export function axisHeading(axis: Axis): string {
  return axis === "attended" ? "Compute as attended" : capital(axisTitle(axis));
}
