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

interface Point {
  readonly x: number;
  readonly y: number;
}

/** A line of a chart on log axes, in order of x; where y is no number above 0 it has a gap. */
export interface Line {
  readonly run: string;
  readonly attention: string;
  readonly points: readonly Point[];
  /** What was recorded, drawn pale behind a line that was smoothed. */
  readonly recorded?: readonly Point[];
  /** Where to mark the line, by x. */
  readonly marks?: readonly number[];
  /** Marks at the upper edge (values that are not finite) and at the lower edge (resumes), by x. */
  readonly edge?: readonly { readonly x: number; readonly mark: "NaN" | "infinite" | "resume" }[];
}

const hasPlace = ({ x, y }: Point) => x > 0 && y > 0 && Number.isFinite(x) && Number.isFinite(y);

/** The stretches of a line between its gaps. */
function stretches(points: readonly Point[]): Point[][] {
  const found: Point[][] = [];
  let open = false;
  for (const point of points) {
    if (!hasPlace(point)) open = false;
    else if (open) found.at(-1)!.push(point);
    else {
      found.push([point]);
      open = true;
    }
  }
  return found;
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
function domainsOf(lines: readonly Line[]): { x: Interval; y: Interval } {
  let [low, high] = [Number.POSITIVE_INFINITY, 0];
  let [lowest, highest] = [Number.POSITIVE_INFINITY, 0];
  for (const point of lines.flatMap((line) => line.points)) {
    if (!hasPlace(point)) continue;
    low = Math.min(low, point.x);
    high = Math.max(high, point.x);
    lowest = Math.min(lowest, point.y);
    highest = Math.max(highest, point.y);
  }
  // The whole curve is shown here, the first step too.
  return { x: [low, high > low ? high : low * 10], y: lossDomain([lowest, highest], [highest]) };
}

const EDGE = {
  NaN: { symbol: "times", frameAnchor: "top", dy: 8 },
  infinite: { symbol: "triangle", frameAnchor: "top", dy: 8 },
  resume: { symbol: "triangle", rotate: 180, frameAnchor: "bottom", dy: -7 },
} as const;

/** Null when no line has a point. */
export function lineChart(given: readonly Line[], options: LineChartOptions): Chart | null {
  const lines = given.filter((line) => line.points.some(hasPlace));
  if (lines.length === 0) return null;
  const attentions = orderAttentions(lines.map((line) => line.attention));
  const every = orderAttentions([...(options.attentions ?? []), ...attentions]);
  const titles = attentionTitles(every);
  const colours = attentionColours(every);
  const domains = domainsOf(lines);
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
  const drawn = (line: Line, points: readonly Point[], strokeOpacity: number) =>
    stretches(points).map((stretch) =>
      Plot.line(
        thinByColumn(
          stretch.map((point) => pixel(point.x)),
          stretch.map((point) => point.y),
          1,
        ).map((i) => stretch[i]!),
        {
          x: "x",
          y: "y",
          z: null,
          stroke: colours.get(line.attention)!,
          strokeWidth: 0.8,
          strokeOpacity,
          className: "curve",
          title: () => line.run,
          clip: true,
        },
      ),
    );
  return {
    name: options.name,
    title: options.title,
    description: `${lines.length} runs, log-log: ${attentions.map((attention) => titles.get(attention)).join(" and ")}.`,
    notes: [],
    width,
    height,
    rows: lines.flatMap((line) => {
      const series = { series: line.run, colour: colours.get(line.attention)! };
      return [
        ...line.points.map((point): ChartRow => ({ ...series, kind: "curve", ...point })),
        ...(line.recorded ?? []).map((point): ChartRow => ({ ...series, kind: "recorded", ...point })),
      ];
    }),
    columns: { x: options.x.label, y: options.y.label },
    plot: {
      ...margin,
      x: { type: "log", domain: x },
      y: { type: "log", domain: y },
      marks: [
        ...logAxes({ x: { domain: x, ...options.x }, y: { domain: y, ...options.y } }, inner, 13),
        ...lines.flatMap((line) => drawn(line, line.recorded ?? [], 0.25)),
        ...lines.flatMap((line) => drawn(line, line.points, 0.8)),
        ...lines.flatMap((line) =>
          (["NaN", "infinite", "resume"] as const).map((mark) =>
            Plot.dot(
              (line.edge ?? []).filter((one) => one.mark === mark && one.x >= x[0] && one.x <= x[1]),
              {
                x: "x",
                ...EDGE[mark],
                r: 4,
                stroke: colours.get(line.attention)!,
                fill: mark === "resume" ? colours.get(line.attention)! : "none",
                strokeWidth: 1.4,
                className: "edge",
              },
            ),
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
