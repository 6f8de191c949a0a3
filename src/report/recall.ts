/**
 * Recall by distance: the share of records whose value a run finds again, by how far back they stand; and which blocks its
 * sparse layers attend to.
 */
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

function linesOf(recalls: readonly RunRecall[]): Line[] {
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

const distances = (band: Pick<RecallBand, "distance_start" | "distance_end">) =>
  `${band.distance_start}-${band.distance_end}`;

const MARGIN = { marginLeft: 68, marginRight: 70, marginTop: 34, marginBottom: 56 };

/** Null when no run has a result. `every` are the attentions of the report, for their colours. */
export function recallChart(
  recalls: readonly RunRecall[],
  every: readonly string[],
  width = WIDTH,
): Chart | null {
  const lines = linesOf(recalls).map(({ bands, ...line }) => ({
    ...line,
    points: bands.map((band) => ({
      x: Math.sqrt(band.distance_start * band.distance_end),
      y: band.right / band.answers,
      text: `${distances(band)} tokens back: ${band.right} of ${band.answers}`,
    })),
    bounds: bands.flatMap((band) => [band.distance_start, band.distance_end]),
  }));
  const bounds = [...new Set(lines.flatMap((line) => line.bounds))].sort((a, b) => a - b);
  return sharesChart(lines, every, width, {
    name: "recall",
    title: "Recall by distance",
    says: "share of records found again",
    x: { ticks: bounds, label: "distance, tokens", format: formatLength },
    y: "share of values found",
  });
}

/** Which blocks are attended to by how far back they lie; null when no run has layers that leave some out. */
export function routingChart(
  recalls: readonly RunRecall[],
  every: readonly string[],
  width = WIDTH,
): Chart | null {
  const lines = linesOf(recalls)
    .filter(({ routing }) => routing.length > 0)
    .map(({ routing, ...line }) => ({
      ...line,
      points: routing.map(({ blocks_back: x, share: y, at_random: atRandom }) => {
        const text = `${x} blocks back: ${formatFixed(y, 3)} (at random ${formatFixed(atRandom, 3)})`;
        return { x, y, atRandom, text };
      }),
    }));
  const furthest = Math.max(2, ...lines.flatMap(({ points }) => points.map(({ x }) => x)));
  const powers = Array.from({ length: Math.floor(Math.log2(furthest)) + 1 }, (_, i) => 2 ** i);
  return sharesChart(lines, every, width, {
    name: "routing",
    title: "Which blocks are attended to",
    says: "share of heads by how far back a block lies",
    x: { ticks: powers, end: furthest, label: "blocks back", format: String },
    y: "share of heads that attend to it",
  });
}

interface Shares {
  readonly attention: string;
  readonly model: string;
  readonly points: readonly {
    readonly x: number;
    readonly y: number;
    /** Dotted. */
    readonly atRandom?: number;
    readonly text: string;
  }[];
}

/** Shares against something on a logarithmic axis from the first tick to the end, a line for each attention and size. */
function sharesChart(
  lines: readonly Shares[],
  every: readonly string[],
  width: number,
  told: {
    readonly name: string;
    readonly title: string;
    readonly says: string;
    readonly x: {
      readonly ticks: readonly number[];
      readonly end?: number;
      readonly label: string;
      readonly format: (value: number) => string;
    };
    readonly y: string;
  },
): Chart | null {
  if (lines.length === 0) return null;
  const titles = attentionTitles(every);
  const colours = attentionColours(every);
  const attentions = orderAttentions(lines.map(({ attention }) => attention));
  const { ticks, end = ticks.at(-1)!, label, format } = told.x;
  const height = chartHeight(width, 420);
  const inner = height - MARGIN.marginTop - MARGIN.marginBottom;
  const marks: Plot.Markish[] = [
    ...axisMarks({
      axis: "x",
      ticks: { labelled: [...ticks], minor: [] },
      label,
      fontSize: 13,
      labelOffset: 44,
      format,
    }),
    ...axisMarks({
      axis: "y",
      ticks: { labelled: linearTicks([0, 1], 5), minor: [] },
      label: told.y,
      fontSize: 13,
      labelOffset: 54,
      format: String,
    }),
  ];
  const rows: ChartRow[] = [];
  for (const { attention, model, points } of lines) {
    const colour = colours.get(attention)!;
    const series = `${titles.get(attention)} ${model}`;
    const dots = points.map((point) => ({ ...point, text: `${series}, ${point.text}` }));
    const random = dots.filter(({ atRandom }) => atRandom !== undefined);
    if (random.length > 0) {
      const dotted = { stroke: colour, strokeWidth: 0.8, strokeDasharray: "2,3" };
      marks.push(Plot.line(random, { x: "x", y: "atRandom", z: null, ...dotted }));
    }
    marks.push(
      Plot.line(dots, { x: "x", y: "y", z: null, stroke: colour, strokeWidth: 1.3, className: "curve" }),
      Plot.dot(dots, { x: "x", y: "y", r: 2.3, fill: colour, title: "text" }),
    );
    rows.push(...dots.map(({ x, y }): ChartRow => ({ series, kind: "final", colour, x, y })));
  }
  const ends = lines.map(({ attention, model, points }) => ({
    name: model,
    colour: colours.get(attention)!,
    y: (1 - points.at(-1)!.y) * inner,
  }));
  marks.push(...endNames(ends, inner));
  marks.push(Plot.frame({ stroke: INK }), attentionLegend(attentions, titles, colours));
  return {
    name: told.name,
    title: told.title,
    description: `${attentions.map((attention) => titles.get(attention)).join(" and ")}: ${told.says}.`,
    notes: [],
    width,
    height,
    rows,
    columns: { x: label, y: told.y },
    plot: {
      ...MARGIN,
      x: { type: "log", domain: [ticks[0]!, end] },
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

/** Whether the block with a record's value is attended to; null when no run has sparse layers. */
export function attendedTable(recalls: readonly RunRecall[], every: readonly string[]): Table | null {
  const titles = attentionTitles(every);
  const titled = ["", "tokens back", "heads", "at random", "any head", "at random", "value found"];
  const rows = linesOf(recalls).flatMap(({ attention, model, bands }) =>
    bands.flatMap(({ attended, answers, right, ...band }) => {
      if (!attended) return [];
      const { heads, heads_at_random, any, any_at_random } = attended;
      const shares = [heads, heads_at_random, any, any_at_random, right / answers];
      return [
        [
          `${titles.get(attention)} ${model}`,
          distances(band),
          ...shares.map((share) => formatFixed(share, 3)),
        ],
      ];
    }),
  );
  if (rows.length === 0) return null;
  return { columns: titled.map((title, i) => ({ title, align: i === 0 ? "left" : "right" })), rows };
}
