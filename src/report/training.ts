/** Training loss against tokens, a line for each run; and any other quantity of runs against another on log axes. */
import * as Plot from "@observablehq/plot";
import type { Interval } from "../fit/types.ts";
import { lossDomain } from "./axes.ts";
import {
  type Chart,
  type ChartRow,
  type ChartView,
  chartHeight,
  INK,
  isNarrow,
  logAxes,
  WIDTH,
} from "./chart.ts";
import { attentionColours, attentionTitles, formatCount, orderAttentions } from "./labels.ts";
import { cornerLegend } from "./legend.ts";
import { thinByColumn } from "./thin.ts";

/** The steps of one run, in order. */
export interface TrainingCurve {
  readonly run: string;
  readonly attention: string;
  readonly model: string;
  readonly steps: readonly { readonly tokens: number; readonly loss: number }[];
  /** Tokens at which a sudden drop of the loss is over; absent when there is none. */
  readonly dropEnd?: number;
}

/** A line of a chart on log axes: points with an x and a y above 0, in order of x. */
export interface Line {
  readonly run: string;
  readonly attention: string;
  readonly points: readonly { readonly x: number; readonly y: number }[];
  /** Where to mark the line, by x. */
  readonly marks?: readonly number[];
}

export interface LineChartOptions extends ChartView {
  readonly name: string;
  readonly title: string;
  readonly x: { readonly label: string; readonly format?: (value: number) => string };
  readonly y: { readonly label: string };
  readonly xDomain?: Interval;
  readonly yDomain?: Interval;
}

/** Null when no run has a step with tokens and a finite loss. */
export function trainingChart(runs: readonly TrainingCurve[]): Chart | null {
  return lineChart(
    runs.map(({ run, attention, steps, dropEnd }) => ({
      run,
      attention,
      marks: dropEnd === undefined ? [] : [dropEnd],
      points: steps
        .filter(({ tokens, loss }) => tokens > 0 && loss > 0 && Number.isFinite(loss))
        .map(({ tokens, loss }) => ({ x: tokens, y: loss })),
    })),
    {
      name: "training",
      title: "Training loss against tokens",
      x: { label: "tokens", format: formatCount },
      y: { label: "training loss" },
    },
  );
}

/** The smallest x and the largest that have a place on the axes of these lines, and the whole height. */
export function lineDomains(lines: readonly Line[]): { x: Interval; y: Interval } {
  let low = Number.POSITIVE_INFINITY;
  let high = 0;
  let highest = 0;
  for (const { points } of lines) {
    if (points.length === 0) continue;
    low = Math.min(low, points[0]!.x);
    high = Math.max(high, points.at(-1)!.x);
    for (const point of points) highest = Math.max(highest, point.y);
  }
  // The whole curve is shown here, the first step too.
  const losses = lines.flatMap((line) => line.points.map((point) => point.y));
  return { x: [low, high > low ? high : low * 10], y: lossDomain(losses, [highest]) };
}

/** Null when no line has a point. */
export function lineChart(given: readonly Line[], options: LineChartOptions): Chart | null {
  const lines = given.filter((line) => line.points.length > 0);
  if (lines.length === 0) return null;
  const attentions = orderAttentions(lines.map((line) => line.attention));
  const every = orderAttentions([...(options.attentions ?? []), ...attentions]);
  const titles = attentionTitles(every);
  const colours = attentionColours(every);
  const domains = lineDomains(lines);
  const x = options.xDomain ?? domains.x;
  const y = options.yDomain ?? domains.y;

  const width = options.width ?? WIDTH;
  const height = chartHeight(width, 480);
  const margin = {
    marginLeft: 68,
    marginRight: isNarrow(width) ? 16 : 34,
    marginTop: 16,
    marginBottom: 56,
  };
  const inner = { width: width - 68 - margin.marginRight, height: height - 72 };
  const pixel = (at: number) => (Math.log(at / x[0]) / Math.log(x[1] / x[0])) * inner.width;
  return {
    name: options.name,
    title: options.title,
    description: `${lines.length} runs, log-log: ${attentions.map((attention) => titles.get(attention)).join(" and ")}.`,
    notes: [],
    width,
    height,
    rows: lines.flatMap((line) =>
      line.points.map(
        (point): ChartRow => ({
          series: line.run,
          kind: "curve",
          colour: colours.get(line.attention)!,
          ...point,
        }),
      ),
    ),
    columns: { x: options.x.label, y: options.y.label },
    plot: {
      ...margin,
      x: { type: "log", domain: x },
      y: { type: "log", domain: y },
      marks: [
        ...logAxes({ x: { domain: x, ...options.x }, y: { domain: y, ...options.y } }, inner, 13),
        ...lines.map((line) =>
          Plot.line(
            thinByColumn(
              line.points.map((point) => pixel(point.x)),
              line.points.map((point) => point.y),
              1,
            ).map((i) => line.points[i]!),
            {
              x: "x",
              y: "y",
              z: null,
              stroke: colours.get(line.attention)!,
              strokeWidth: 0.8,
              strokeOpacity: 0.8,
              className: "curve",
              title: () => line.run,
              clip: true,
            },
          ),
        ),
        ...lines.map((line) =>
          Plot.dot(
            (line.marks ?? []).flatMap((mark) => line.points.find(({ x }) => x >= mark) ?? []),
            {
              x: "x",
              y: "y",
              r: 4,
              stroke: colours.get(line.attention)!,
              strokeWidth: 1.6,
              className: "mark",
            },
          ),
        ),
        Plot.frame({ stroke: INK }),
        cornerLegend(
          attentions.map((attention) => ({
            label: titles.get(attention)!,
            colour: colours.get(attention)!,
            sample: "line",
          })),
          13,
        ),
      ],
    },
  };
}
