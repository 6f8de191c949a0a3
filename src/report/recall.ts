/** Recall by distance: the share of records whose value a run finds again, by how far back they stand. */
import * as Plot from "@observablehq/plot";
import { formatLength } from "../fit/words.ts";
import type { RecallResult } from "../train/types.ts";
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
  readonly bands: readonly { start: number; end: number; answers: number; right: number }[];
}

function linesOf(recalls: readonly RunRecall[]): Line[] {
  const lines = new Map<
    string,
    { attention: string; model: string; bands: Map<number, Line["bands"][number]> }
  >();
  for (const { attention, model, result } of recalls) {
    const key = JSON.stringify([attention, model]);
    const line = lines.get(key) ?? { attention, model, bands: new Map() };
    for (const { distance_start: start, distance_end: end, answers, right } of result.bands) {
      if (!(answers > 0)) continue;
      lines.set(key, line);
      const so = line.bands.get(start);
      line.bands.set(start, {
        start,
        end,
        answers: answers + (so?.answers ?? 0),
        right: right + (so?.right ?? 0),
      });
    }
  }
  const order = orderAttentions(recalls.map(({ attention }) => attention));
  return [...lines.values()]
    .map((line) => ({ ...line, bands: [...line.bands.values()].sort((a, b) => a.start - b.start) }))
    .sort((a, b) => order.indexOf(a.attention) - order.indexOf(b.attention));
}

const distances = ({ start, end }: { start: number; end: number }) => `${start}-${end}`;

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
      x: Math.sqrt(band.start * band.end),
      y: band.right / band.answers,
      text: `${titles.get(line.attention)} ${line.model}, ${distances(band)} tokens back: ${band.right} of ${band.answers}`,
    })),
  );
  const bounds = [...new Set(lines.flatMap(({ bands }) => bands.flatMap(({ start, end }) => [start, end])))];
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
  const bands = [...new Map(lines.flatMap((line) => line.bands.map((band) => [band.start, band]))).values()];
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
        const found = line.bands.find(({ start }) => start === band.start);
        return found ? formatFixed(found.right / found.answers, 3) : "";
      }),
    ]),
  };
}
