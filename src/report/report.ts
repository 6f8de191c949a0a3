/** The report of a fit: report.html and its charts as SVG and PNG files in a folder. */
import { join } from "node:path";
import type { Convention } from "../compute/compute.ts";
import { inFolder, writeWhole } from "../files.ts";
import { type Bucket, bucketLabel, runCurves } from "../fit/index.ts";
import type { CurvePoint, FitResult, Interval } from "../fit/types.ts";
import { orderAttentions } from "../fit/words.ts";
import type { RunRecall } from "../study/recall-sizes.ts";
import { type Chart, chartFigure } from "./chart.ts";
import { type Axis, attentionsOf, curvesOf, leadingBucket, sameBucket } from "./curves.ts";
import { axisTitle, conventionTitle, lossTitle } from "./labels.ts";
import { page, section } from "./page.ts";
import { bucketPanels } from "./panels.ts";
import { positionChart } from "./position.ts";
import { multiplierChart, ratioChart } from "./ratio.ts";
import { ROUTING_CAPTION, recallChart, routingChart } from "./recall.ts";
import { chartPng, chartSvg } from "./render.ts";
import { scalingChart } from "./scaling.ts";
import {
  aboutSection,
  axisHeading,
  claimsSection,
  commandsSection,
  comparisonSection,
  definitionsSection,
  lawsSection,
  positionFigures,
  type RunSummary,
  readingHtml,
  recallSection,
  runsSection,
  type StudyDescription,
  sizesTable,
  sweepSection,
  trainingSection,
  truncatedSection,
  warningsSection,
} from "./sections.ts";
import { type SweptRun, sweepCaption, sweepChart, sweepsOf } from "./sweep.ts";
import { conventionsOf } from "./tables.ts";
import { type TrainingCurve, trainingChart } from "./training.ts";
import { type RunTruncated, truncatedChart } from "./truncated.ts";

export interface ReportInput {
  readonly title: string;
  readonly points: readonly CurvePoint[];
  readonly fit: FitResult;
  /** Runs for the table; taken from the points when absent. */
  readonly runs?: readonly RunSummary[];
  readonly description?: StudyDescription;
  /** Training loss by step, for the chart of training curves. */
  readonly metrics?: readonly TrainingCurve[];
  /** Losses with less context, of the runs that measured them. */
  readonly truncated?: readonly RunTruncated[];
  /** Recall by distance, of the runs that measured it. */
  readonly recalls?: readonly RunRecall[];
  /** Finished runs, to find those that differ in their learning rate. */
  readonly swept?: readonly SweptRun[];
  /** The bucket of the leading chart, of the claims and of the reading; by the rule of the method when absent. */
  readonly headline?: Bucket;
  /** What the leading chart is drawn against, the axes of compute after it; 6ND when absent. */
  readonly axis?: Axis;
  /** Limits of the leading chart's axes in place of the rules. */
  readonly xDomain?: Interval;
  readonly yDomain?: Interval;
}

export interface WrittenReport {
  /** Paths of the page and of the leading chart. */
  readonly report: string;
  readonly chartSvg: string;
  readonly chartPng: string;
  /** Every file written. */
  readonly files: string[];
  /** What stands on the page: its sections as HTML. */
  readonly body: string;
}

/** Only what is written of a chart: its rows and marks can be let go. */
interface Drawn {
  readonly name: string;
  readonly svg: string;
}

/** The page and the charts on it, without writing anything. The same input gives the same text. */
export function renderReport(input: ReportInput): { html: string; body: string; charts: Drawn[] } {
  const { title, points, fit, description = {} } = input;
  const bucket = input.headline ?? leadingBucket(runCurves(points).curves);
  const runs = input.runs ?? runsOf(points, bucket);
  // Runs of a study without an evaluation have no points, the table alone no other order than theirs.
  const attentions = orderAttentions([
    ...(input.runs ?? []).map((run) => run.attention),
    ...attentionsOf(points),
  ]);
  // The last loss of a run that was cut short is no final one.
  const short = new Set(runs.flatMap(({ run, state }) => (state === "finished" ? [] : run)));
  const ended = points.filter(({ run }) => run === undefined || !short.has(run));
  const charts: Drawn[] = [];
  const figure = (chart: Chart | null, caption: string): string => {
    if (!chart) return "";
    const svg = chartSvg(chart);
    charts.push({ name: chart.name, svg });
    return chartFigure(chart, svg, caption);
  };
  const conventions: Convention[] = ["6ND"];
  if (conventionsOf(fit).includes("attended") || curvesOf(points, "attended").length > 0)
    conventions.push("attended");

  const axes = leadingAxes(points, conventions, input.axis);
  const headline = axes.map((axis, i) => {
    const chart = scalingChart(points, fit, {
      axis,
      bucket,
      name: i === 0 ? "chart" : `chart-${axis.toLowerCase()}`,
      // The given limits are of the leading chart; another axis has other values.
      xDomain: i === 0 ? input.xDomain : undefined,
      yDomain: input.yDomain,
      attentions,
    });
    const laws =
      axis === "6ND" || axis === "attended"
        ? " Thin lines are runs, dots the points that the laws are fitted through, dashed lines the laws projected over the whole width, shaded areas the 95 % interval of one new run."
        : " Each line is a run.";
    const drawn = figure(chart, `${lossTitle(bucket)} against ${axisTitle(axis)}.${laws}`);
    return axes.length > 1 ? `<h3>${axisHeading(axis)}</h3>\n${drawn}` : drawn;
  });
  const reading = readingHtml(fit);
  // The reading stands right after the first chart; the other convention's chart follows it.
  const [first, ...rest] = headline;

  const panels = conventions.flatMap((convention) => {
    const chart = bucketPanels(points, fit, convention, { attentions });
    return chart
      ? [
          figure(
            { ...chart, name: convention === "6ND" ? "buckets" : "buckets-attended" },
            `All position buckets on the same axes, compute by ${conventionTitle(convention)}, each with the ratio of losses at its mean budget and the ratio's 95 % interval.`,
          ),
        ]
      : [];
  });
  const position = figure(
    positionChart(ended, { attentions }),
    "Final held-out loss in each position bucket, one line for each attention and size.",
  );
  const truncated = input.truncated ?? [];
  const lessContext = figure(
    truncatedChart(truncated, attentions),
    "Change of the loss as more context is kept, a line for each attention and size.",
  );
  const ratios = conventions.flatMap((convention) => {
    const suffix = convention === "6ND" ? "" : "-attended";
    const ratio = ratioChart(fit, convention, { attentions });
    const multiplier = multiplierChart(fit, convention, { attentions });
    return [
      ratio &&
        figure(
          { ...ratio, name: `ratio${suffix}` },
          `Ratio of losses in each position bucket, compute by ${conventionTitle(convention)}. Bars are 95 % intervals.`,
        ),
      multiplier &&
        figure(
          { ...multiplier, name: `multiplier${suffix}` },
          `Compute needed for the same loss, as a multiple of the baseline's, by ${conventionTitle(convention)}. Bars are 95 % intervals.`,
        ),
    ].filter((html) => html !== null);
  });
  const training = figure(
    trainingChart(input.metrics ?? [], { attentions }),
    "Training loss of every run, smoothed by an exponential mean over 0.05 decades of tokens that lags behind no trend, from about 1/300 of the tokens on; further seeds are thin. Of more than 500 steps neighbours are averaged. Pale bands, with up to four runs: where 80 % of those lie.",
  );
  const recalls = input.recalls ?? [];
  const recall = figure(
    recallChart(recalls, attentions),
    "Share of records whose value is found again, by how far back they stand, a line for each attention and size.",
  );
  const routing = figure(routingChart(recalls, attentions), ROUTING_CAPTION);
  const sweeps = sweepsOf(input.swept ?? []);
  const sweep = figure(sweepChart(sweeps, { attentions }), sweepCaption(sweeps));

  const sections = [
    aboutSection(title, points, fit, runs, attentions, description),
    section("chart", lossTitle(bucket), [first, reading, ...rest].join("\n")),
    claimsSection(fit, bucket),
    warningsSection(fit),
    lawsSection(fit),
    comparisonSection(fit),
    panels.length > 0 ? section("buckets", "Every position bucket", panels.join("\n")) : "",
    position
      ? section("position", "Loss against position", `${position}\n${positionFigures(ended, attentions)}`)
      : "",
    truncatedSection(truncated, attentions, lessContext),
    ratios.length > 0 ? section("ratio", "Ratio and compute multiplier by position", ratios.join("\n")) : "",
    recallSection(recalls, attentions, recall, routing),
    trainingSection(input.metrics ?? [], training),
    sweepSection(sweeps, attentions, sweep),
    runsSection(
      input.runs ? bySize(runs) : runs,
      input.runs ? "all positions" : `positions ${bucketLabel(bucket)}`,
      {
        sizes: sizesTable(runs, ended, bucket, fit, attentions),
        intervals: fit.size_ratios !== undefined,
        hardware: description.hardware,
      },
    ),
    definitionsSection(),
    commandsSection(description.commands ?? ["mobalab fit curves.csv", "mobalab report curves.csv"]),
  ];
  const body = sections.filter((part) => part !== "").join("\n");
  return { html: page(title, body), body, charts };
}

/** Writes report.html, chart.svg, chart.png and the other charts into the folder, each aside and then renamed. */
export function writeReport(folder: string, input: ReportInput): WrittenReport {
  const { html, body, charts } = renderReport(input);
  const images = charts.map(({ name, svg }) => ({ name, svg, png: chartPng(svg) }));
  const files: string[] = [];
  const write = (name: string, content: string | Buffer) => {
    const path = join(folder, name);
    writeWhole(path, content);
    files.push(path);
    return path;
  };
  return inFolder(folder, () => {
    for (const { name, svg, png } of images) {
      write(`${name}.svg`, svg);
      write(`${name}.png`, png);
    }
    const report = write("report.html", html);
    return { report, chartSvg: join(folder, "chart.svg"), chartPng: join(folder, "chart.png"), files, body };
  });
}

/** The axis asked for first, then compute by the conventions that the table has. */
function leadingAxes(
  points: readonly CurvePoint[],
  conventions: readonly Convention[],
  first: Axis | undefined,
): Axis[] {
  if (first === undefined) return [...conventions];
  return [first, ...conventions.filter((axis) => axis !== first && curvesOf(points, axis).length > 0)];
}

/** Smallest first: a study may have been begun with larger ones. */
function bySize(runs: readonly RunSummary[]): RunSummary[] {
  const size = ({ parameters = Number.MAX_VALUE }: RunSummary) => parameters;
  return [...runs].sort((a, b) => size(a) - size(b));
}

/** What the curves table alone says about its runs: their ends in one bucket. */
function runsOf(points: readonly CurvePoint[], bucket: Bucket): RunSummary[] {
  const curves = runCurves(points).curves.filter((curve) => sameBucket(curve, bucket));
  return curves.map((curve): RunSummary => {
    const last = curve.points.at(-1)!;
    return {
      run: curve.name,
      attention: curve.attention,
      model: curve.model,
      seed: curve.seed,
      state: "finished",
      parameters: last.parameters,
      tokens: last.tokens,
      pflops_days: last.pflops_days ?? undefined,
      pflops_days_attended: last.pflops_days_attended,
      lm_loss: last.lm_loss,
      tokens_per_second: last.tokens_per_second,
    };
  });
}
