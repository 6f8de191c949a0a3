/** Recall by distance: the share of records whose value a run finds again, by how far back they stand. */
import * as Plot from "@observablehq/plot";
import { byReason, formatLength } from "../fit/words.ts";
import { bandsTogether, routingTogether } from "../train/recall-result.ts";
import type { BlocksBack, RecallBand, RecallResult } from "../train/types.ts";
import { linearTicks } from "./axes.ts";
import { axisMarks, type Chart, type ChartRow, chartHeight, INK, WIDTH } from "./chart.ts";
import { attentionColours, attentionTitles, formatFixed, orderAttentions } from "./labels.ts";
import { attentionLegend } from "./legend.ts";
import { endNames } from "./position.ts";
import type { Table } from "./table.ts";

/** The result of one run. */
export interface RunRecall {
  readonly attention: string;
  readonly model: string;
  readonly result: RecallResult;
}

/** Seeds of one attention and size together: the bands in which something was asked, at least one. */
interface Line {
  readonly attention: string;
  readonly model: string;
  readonly bands: readonly RecallBand[];
  readonly routing: readonly BlocksBack[];
}

export function linesOf(recalls: readonly RunRecall[]): Line[] {
  const order = orderAttentions(recalls.map(({ attention }) => attention));
  return byReason(recalls, ({ attention, model }) => JSON.stringify([attention, model]))
    .map((seeds): Line => {
      const { attention, model } = seeds[0]!;
      const results = seeds.map(({ result }) => result);
      return { attention, model, bands: bandsTogether(results), routing: routingTogether(results) };
    })
    .filter(({ bands }) => bands.length > 0)
    .sort((a, b) => order.indexOf(a.attention) - order.indexOf(b.attention));
}

export const distances = (band: Pick<RecallBand, "distance_start" | "distance_end">) =>
  `${band.distance_start}-${band.distance_end}`;

const MARGIN = { marginLeft: 68, marginRight: 70, marginTop: 34, marginBottom: 56 };

/** Null when no run has a result. `every` are the attentions of the report, for their colours. */
export function recallChart(
  recalls: readonly RunRecall[],
  every: readonly string[],
  width = WIDTH,
): Chart | null {
  const lines = linesOf(recalls);
  if (lines.length === 0) return null;
  const titles = attentionTitles(every);
  const colours = attentionColours(every);
  const attentions = orderAttentions(lines.map(({ attention }) => attention));
  const rows = lines.flatMap((line) =>
    line.bands.map((band) => ({
      ...line,
      x: Math.sqrt(band.distance_start * band.distance_end),
      y: band.right / band.answers,
      text: `${titles.get(line.attention)} ${line.model}, ${distances(band)} tokens back: ${band.right} of ${band.answers}`,
    })),
  );
  const bounds = [
    ...new Set(
      lines.flatMap(({ bands }) => bands.flatMap((band) => [band.distance_start, band.distance_end])),
    ),
  ];
  bounds.sort((a, b) => a - b);
  const height = chartHeight(width, 420);
  const inner = height - MARGIN.marginTop - MARGIN.marginBottom;
  const marks: Plot.Markish[] = [
    ...axisMarks({
      axis: "x",
      ticks: { labelled: bounds, minor: [] },
      label: "distance, tokens",
      fontSize: 13,
      labelOffset: 44,
      format: formatLength,
    }),
    ...axisMarks({
      axis: "y",
      ticks: { labelled: linearTicks([0, 1], 5), minor: [] },
      label: "share of values found",
      fontSize: 13,
      labelOffset: 54,
      format: (value) => String(value),
    }),
  ];
  for (const { attention, model } of lines) {
    const line = rows.filter((row) => row.attention === attention && row.model === model);
    const colour = colours.get(attention)!;
    marks.push(
      Plot.line(line, { x: "x", y: "y", z: null, stroke: colour, strokeWidth: 1.3, className: "curve" }),
      Plot.dot(line, { x: "x", y: "y", r: 2.3, fill: colour, title: "text" }),
    );
  }
  const ends = lines.map(({ attention, model, bands }) => ({
    name: model,
    colour: colours.get(attention)!,
    y: (1 - bands.at(-1)!.right / bands.at(-1)!.answers) * inner,
  }));
  marks.push(...endNames(ends, inner));
  marks.push(Plot.frame({ stroke: INK }), attentionLegend(attentions, titles, colours));
  return {
    name: "recall",
    title: "Recall by distance",
    description: `${attentions.map((attention) => titles.get(attention)).join(" and ")}: share of records found again.`,
    notes: [],
    width,
    height,
    rows: rows.map(
      ({ attention, model, x, y }): ChartRow => ({
        series: `${titles.get(attention)} ${model}`,
        kind: "final",
        colour: colours.get(attention)!,
        x,
        y,
      }),
    ),
    columns: { x: "distance, tokens", y: "share of values found" },
    plot: {
      ...MARGIN,
      x: { type: "log", domain: [bounds[0]!, bounds.at(-1)!] },
      y: { type: "linear", domain: [0, 1] },
      marks,
    },
  };
}

export function recallTable(recalls: readonly RunRecall[], every: readonly string[]): Table {
  const lines = linesOf(recalls);
  const titles = attentionTitles(every);
  const bands = [
    ...new Map(lines.flatMap((line) => line.bands.map((band) => [band.distance_start, band]))).values(),
  ];
  return {
    columns: [
      { title: "tokens back", align: "left" },
      ...lines.map(({ attention, model }) => ({
        title: `${titles.get(attention)} ${model}`,
        align: "right" as const,
      })),
    ],
    rows: bands.map((band) => [
      distances(band),
      ...lines.map((line) => {
        const found = line.bands.find(({ distance_start }) => distance_start === band.distance_start);
        return found ? formatFixed(found.right / found.answers, 3) : "";
      }),
    ]),
  };
}
