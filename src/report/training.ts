/** Training loss against tokens, a line for each run. */
import * as Plot from "@observablehq/plot";
import type { Interval } from "../fit/types.ts";
import { lossDomain } from "./axes.ts";
import { type Chart, type ChartRow, chartHeight, INK, isNarrow, logAxes, WIDTH } from "./chart.ts";
import { attentionColours, attentionTitles, formatCount, orderAttentions } from "./labels.ts";
import { cornerLegend } from "./legend.ts";
import { thinByColumn } from "./thin.ts";

/** The steps of one run, in order. */
export interface TrainingCurve {
  readonly run: string;
  readonly attention: string;
  readonly model: string;
  readonly steps: readonly { readonly tokens: number; readonly loss: number }[];
}

/** Null when no run has a step with tokens and a finite loss. */
export function trainingChart(
  runs: readonly TrainingCurve[],
  options: { readonly width?: number; readonly xDomain?: Interval; readonly yDomain?: Interval } = {},
): Chart | null {
  const lines = runs.flatMap((run) => {
    const points = run.steps
      .filter(({ tokens, loss }) => tokens > 0 && loss > 0 && Number.isFinite(loss))
      .map(({ tokens, loss }) => ({ x: tokens, y: loss }));
    return points.length > 0 ? [{ ...run, points }] : [];
  });
  if (lines.length === 0) return null;
  const attentions = orderAttentions(lines.map((line) => line.attention));
  const titles = attentionTitles(attentions);
  const colours = attentionColours(attentions);
  let low = Number.POSITIVE_INFINITY;
  let high = 0;
  for (const { points } of lines) {
    low = Math.min(low, points[0]!.x);
    high = Math.max(high, points.at(-1)!.x);
  }
  const x = options.xDomain ?? [low, high > low ? high : low * 10];
  // The whole curve is shown here, the first step too.
  const everything = lines.flatMap((line) => line.points.map((point) => point.y));
  let highest = 0;
  for (const loss of everything) highest = Math.max(highest, loss);
  const y = options.yDomain ?? lossDomain(everything, [highest]);

  const width = options.width ?? WIDTH;
  const height = chartHeight(width, 480);
  const margin = {
    marginLeft: 68,
    marginRight: isNarrow(width) ? 16 : 34,
    marginTop: 16,
    marginBottom: 56,
  };
  const inner = { width: width - 68 - margin.marginRight, height: height - 72 };
  const pixel = (tokens: number) => (Math.log(tokens / x[0]) / Math.log(x[1] / x[0])) * inner.width;
  return {
    name: "training",
    title: "Training loss against tokens",
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
    columns: { x: "tokens", y: "training loss" },
    plot: {
      ...margin,
      x: { type: "log", domain: x },
      y: { type: "log", domain: y },
      marks: [
        ...logAxes(
          {
            x: { domain: x, label: "tokens", format: formatCount },
            y: { domain: y, label: "training loss" },
          },
          inner,
          13,
        ),
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
