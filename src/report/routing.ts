/** How sparse layers choose: which blocks they attend to by how far back, and whether those with a record's value. */
import * as Plot from "@observablehq/plot";
import { linearTicks } from "./axes.ts";
import { axisMarks, type Chart, type ChartRow, chartHeight, INK, WIDTH } from "./chart.ts";
import { attentionColours, attentionTitles, formatFixed, orderAttentions } from "./labels.ts";
import { attentionLegend } from "./legend.ts";
import { endNames } from "./position.ts";
import { distances, linesOf, type RunRecall } from "./recall.ts";
import type { Table } from "./table.ts";

const MARGIN = { marginLeft: 68, marginRight: 70, marginTop: 34, marginBottom: 56 };

/** Null when no run has sparse layers. `every` are the attentions of the report, for their colours. */
export function routingChart(
  recalls: readonly RunRecall[],
  every: readonly string[],
  width = WIDTH,
): Chart | null {
  const lines = linesOf(recalls).filter(({ routing }) => routing.length > 0);
  if (lines.length === 0) return null;
  const titles = attentionTitles(every);
  const colours = attentionColours(every);
  const attentions = orderAttentions(lines.map(({ attention }) => attention));
  const furthest = Math.max(
    2,
    ...lines.flatMap(({ routing }) => routing.map(({ blocks_back }) => blocks_back)),
  );
  const powers = Array.from({ length: Math.floor(Math.log2(furthest)) + 1 }, (_, i) => 2 ** i);
  const height = chartHeight(width, 420);
  const inner = height - MARGIN.marginTop - MARGIN.marginBottom;
  const marks: Plot.Markish[] = [
    ...axisMarks({
      axis: "x",
      ticks: { labelled: powers, minor: [] },
      label: "blocks back",
      fontSize: 13,
      labelOffset: 44,
      format: String,
    }),
    ...axisMarks({
      axis: "y",
      ticks: { labelled: linearTicks([0, 1], 5), minor: [] },
      label: "share of heads that attend to it",
      fontSize: 13,
      labelOffset: 54,
      format: String,
    }),
  ];
  const rows: ChartRow[] = [];
  for (const { attention, model, routing } of lines) {
    const colour = colours.get(attention)!;
    const series = `${titles.get(attention)} ${model}`;
    const dots = routing.map(({ blocks_back: back, share, at_random: random }) => ({
      x: back,
      y: share,
      random,
      text: `${series}, ${back} blocks back: ${formatFixed(share, 3)} (at random ${formatFixed(random, 3)})`,
    }));
    marks.push(
      Plot.line(dots, {
        x: "x",
        y: "random",
        z: null,
        stroke: colour,
        strokeWidth: 0.8,
        strokeDasharray: "2,3",
      }),
      Plot.line(dots, { x: "x", y: "y", z: null, stroke: colour, strokeWidth: 1.3, className: "curve" }),
      Plot.dot(dots, { x: "x", y: "y", r: 2.3, fill: colour, title: "text" }),
    );
    rows.push(...dots.map(({ x, y }): ChartRow => ({ series, kind: "final", colour, x, y })));
  }
  const ends = lines.map(({ attention, model, routing }) => ({
    name: model,
    colour: colours.get(attention)!,
    y: (1 - routing.at(-1)!.share) * inner,
  }));
  marks.push(...endNames(ends, inner));
  marks.push(Plot.frame({ stroke: INK }), attentionLegend(attentions, titles, colours));
  return {
    name: "routing",
    title: "Which blocks are attended to",
    description: `${attentions.map((attention) => titles.get(attention)).join(" and ")}: share of heads by how far back a block lies.`,
    notes: [],
    width,
    height,
    rows,
    columns: { x: "blocks back", y: "share of heads that attend to it" },
    plot: {
      ...MARGIN,
      x: { type: "log", domain: [1, furthest] },
      y: { type: "linear", domain: [0, 1] },
      marks,
    },
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
