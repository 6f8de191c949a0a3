/**
 * Recall by distance: the share of records whose value a run finds again, by how far back they stand; and which blocks its
 * sparse layers attend to.
 */
import * as Plot from "@observablehq/plot";
import { byReason, fewOf, formatLength, MOST_TOLD, sortByAttention } from "../fit/words.ts";
import { type RecallSize, type RunRecall, recallSizes } from "../study/recall-sizes.ts";
import { withDistance } from "../study/routing-expected.ts";
import { bandsTogether } from "../train/recall-result.ts";
import type { BlocksBack, RecallBand } from "../train/types.ts";
import { linearTicks } from "./axes.ts";
import { axisMarks, type Chart, type ChartRow, chartHeight, FAINT_INK, INK, WIDTH } from "./chart.ts";
import { attentionColours, attentionsAmong, attentionTitles, formatFixed, tint } from "./labels.ts";
import { attentionLegend, type LegendEntry, rowLegend } from "./legend.ts";
import { endMargin, endNames } from "./position.ts";
import type { Table } from "./table.ts";

/** Attentions in the order of `every`, each from its smallest size on. */
function linesOf(recalls: readonly RunRecall[], every: readonly string[]): RecallSize[] {
  const sizes = recallSizes(recalls).filter(({ bands }) => bands.length > 0);
  const bySize = sizes.sort((a, b) => a.parameters - b.parameters);
  return sortByAttention(bySize, every, ({ attention }) => attention);
}

const distances = (band: Pick<RecallBand, "distance_start" | "distance_end">) =>
  `${band.distance_start}-${band.distance_end}`;

const MARGIN = { marginLeft: 68, marginTop: 34, marginBottom: 56 };

/** Null when no run has a result. `every` are the attentions of the report, for their colours. */
export function recallChart(
  recalls: readonly RunRecall[],
  every: readonly string[],
  width = WIDTH,
): Chart | null {
  const lines = linesOf(recalls, every);
  if (lines.length === 0) return null;
  const titles = attentionTitles(every);
  const colours = attentionColours(every);
  const attentions = attentionsAmong(every, lines);
  const bounds = lines.flatMap(({ bands }) =>
    bands.flatMap(({ distance_start, distance_end }) => [distance_start, distance_end]),
  );
  const ticks = [...new Set(bounds)].sort((a, b) => a - b);
  const height = chartHeight(width, 420);
  const inner = height - MARGIN.marginTop - MARGIN.marginBottom;
  const axes = { x: "distance, tokens", y: "share of values found" };
  const marks = shareAxes(axes, ticks, formatLength);
  const rows: ChartRow[] = [];
  const ends: { name: string; colour: string; y: number }[] = [];
  for (const { attention, model, bands } of lines) {
    const colour = colours.get(attention)!;
    const series = `${titles.get(attention)} ${model}`;
    const points = bands.map((band) => ({
      x: Math.sqrt(band.distance_start * band.distance_end),
      y: band.right / band.answers,
      text: `${series}, ${distances(band)} tokens back: ${band.right} of ${band.answers}`,
    }));
    marks.push(
      Plot.line(points, { x: "x", y: "y", z: null, stroke: colour, strokeWidth: 1.3, className: "curve" }),
      Plot.dot(points, { x: "x", y: "y", r: 2.3, fill: colour, title: "text" }),
    );
    rows.push(...points.map(({ x, y }): ChartRow => ({ series, kind: "final", colour, x, y })));
    ends.push({ name: model, colour, y: (1 - points.at(-1)!.y) * inner });
  }
  marks.push(...endNames(ends, inner));
  marks.push(Plot.frame({ stroke: INK }), attentionLegend(attentions, titles, colours));
  return {
    name: "recall",
    title: "Recall by distance",
    description: `${attentions.map((attention) => titles.get(attention)).join(" and ")}: share of records found again.`,
    notes: [],
    width,
    height,
    rows,
    columns: axes,
    plot: {
      ...{ ...MARGIN, marginRight: endMargin(lines.map(({ model }) => model)) },
      x: { type: "log", domain: [ticks[0]!, ticks.at(-1)!] },
      y: { type: "linear", domain: [0, 1] },
      marks,
    },
  };
}

/** Ticks on an axis of shares from 0 to 1, and on a logarithmic one. */
function shareAxes(
  axes: { readonly x: string; readonly y: string },
  ticks: readonly number[],
  format: (value: number) => string,
): Plot.Markish[] {
  const both = { fontSize: 13, labelOffset: 44 };
  const x = { labelled: [...ticks], minor: [] };
  const y = { labelled: linearTicks([0, 1], 5), minor: [] };
  return [
    ...axisMarks({ ...both, axis: "x", ticks: x, label: axes.x, format }),
    ...axisMarks({ ...both, axis: "y", ticks: y, label: axes.y, labelOffset: 54, format: String }),
  ];
}

export const ROUTING_CAPTION =
  "Which blocks layers that leave some out attend to, by how far back they lie from the query's own: share of heads over held-out text with records, a panel for each attention. " +
  "Dotted: if as many blocks were drawn at random. Grey: what the rotary embedding alone would favour among the nearer half, brought to the range of the largest size's shares; their rank correlation is given, also with nearness taken out.";

/** Lines of more points have no dots. */
const MOST_DOTS = 32;

/**
 * Which blocks are attended to by how far back they lie, a panel for each attention, with what the rotary embedding alone
 * would favour; null when no run has layers that leave some out.
 */
export function routingChart(
  recalls: readonly RunRecall[],
  every: readonly string[],
  width = WIDTH,
): Chart | null {
  const lines = linesOf(recalls, every).filter(({ routing }) => routing.length > 0);
  if (lines.length === 0) return null;
  const titles = attentionTitles(every);
  const colours = attentionColours(every);
  const panels = byReason(lines, ({ attention }) => attention);
  const furthest = Math.max(2, ...lines.flatMap(({ routing }) => routing.at(-1)!.blocks_back));
  const powers = Array.from({ length: Math.floor(Math.log2(furthest)) + 1 }, (_, i) => 2 ** i);
  const axes = { x: "blocks back", y: "share of heads that attend to it" };
  const marks = shareAxes(axes, powers, String);
  const rows: ChartRow[] = [];
  for (const [fy, sizes] of panels.entries()) {
    const { attention, routing, order } = sizes.at(-1)!;
    const colour = colours.get(attention)!;
    const title = titles.get(attention)!;
    const thin = { x: "x", y: "y", z: null, fy: () => fy };
    const random = routing.map(({ blocks_back: x, at_random: y }) => ({ x, y }));
    marks.push(Plot.line(random, { ...thin, stroke: FAINT_INK, strokeWidth: 1, strokeDasharray: "2,3" }));
    const rotary = order ? scaled(order.scores, routing) : [];
    marks.push(Plot.line(rotary, { ...thin, stroke: FAINT_INK, strokeWidth: 1.1, className: "rotary" }));
    for (const [i, { model, routing }] of sizes.entries()) {
      const shade = tint(colour, 1 - (0.65 * (sizes.length - 1 - i)) / Math.max(1, sizes.length - 1));
      const series = `${title} ${model}`;
      const points = routing.map(({ blocks_back: x, share: y, at_random: random }) => ({
        ...{ x, y },
        text: `${series}, ${x} blocks back: ${formatFixed(y, 3)} (at random ${formatFixed(random, 3)})`,
      }));
      marks.push(Plot.line(points, { ...thin, stroke: shade, strokeWidth: 1.3, className: "curve" }));
      if (points.length <= MOST_DOTS) {
        marks.push(Plot.dot(points, { ...thin, r: 2, fill: shade, title: "text" }));
      }
      const facet = { fy };
      rows.push(...points.map(({ x, y }): ChartRow => ({ series, kind: "final", colour, x, y, facet })));
    }
    const models = fewOf(
      sizes.map(({ model }) => model),
      MOST_TOLD,
    );
    const words = [
      ...(sizes.length > 1 ? [title, `${models}, pale to dark`] : [`${title} ${models}`]),
      ...(order ? [`rank correlation ${order.rotary.toFixed(2)}`] : []),
      ...(order && order.beyond !== null ? [`nearness taken out ${order.beyond.toFixed(2)}`] : []),
    ];
    for (const [i, text] of words.entries()) {
      marks.push(
        Plot.text([text], {
          ...{ text: (text: string) => text, fy: () => fy, frameAnchor: "top-right", dx: -8, dy: 8 + 16 * i },
          ...{ fontSize: i === 0 ? 13 : 12, fontWeight: i === 0 ? "bold" : "normal", fill: INK },
          ...{ stroke: "#ffffff", strokeWidth: 3 },
        }),
      );
    }
  }
  const shown: LegendEntry[] = [
    ...(panels.some((sizes) => sizes.at(-1)!.order)
      ? [{ label: "rotary embedding alone", colour: FAINT_INK, sample: "line" as const }]
      : []),
    { label: "at random", colour: FAINT_INK, sample: "dashes" },
  ];
  marks.push(Plot.frame({ stroke: INK }), rowLegend(shown, 13));
  const panelHeight = panels.length === 1 ? 330 : 250;
  return {
    name: "routing",
    title: "Which blocks are attended to",
    description: `${panels.map(([{ attention }]) => titles.get(attention)).join(" and ")}: share of heads by how far back a block lies.`,
    notes: [],
    width,
    height: MARGIN.marginTop + MARGIN.marginBottom + panels.length * panelHeight,
    rows,
    columns: axes,
    plot: {
      ...{ ...MARGIN, marginRight: 24 },
      x: { type: "log", domain: [1, furthest] },
      y: { type: "linear", domain: [0, 1] },
      fy: { axis: null, padding: 0.06 },
      marks,
    },
  };
}

/** Scores of the nearest blocks, brought to the range of these blocks' shares. */
function scaled(scores: readonly number[], routing: readonly BlocksBack[]): { x: number; y: number }[] {
  const shares = routing.slice(0, scores.length).map(({ share }) => share);
  const [low, high] = [Math.min(...shares), Math.max(...shares)];
  const [least, most] = [Math.min(...scores), Math.max(...scores)];
  return scores.map((score, i) => ({
    x: routing[i]!.blocks_back,
    y: low + ((score - least) / (most - least)) * (high - low),
  }));
}

export function recallTable(recalls: readonly RunRecall[], every: readonly string[]): Table {
  const lines = linesOf(recalls, every);
  const titles = attentionTitles(every);
  return {
    columns: [
      { title: "tokens back", align: "left" },
      ...lines.map(({ attention, model }) => ({
        title: `${titles.get(attention)} ${model}`,
        align: "right" as const,
      })),
    ],
    rows: bandsTogether(recalls.map(({ result }) => result)).map((band) => [
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
  const titled = ["", "tokens back", "heads", "any as far back", "at random"];
  titled.push("any head", "at random", "value found");
  const measured = recalls.map((run) =>
    run.config ? { ...run, result: withDistance(run.result, run.config) } : run,
  );
  const rows = linesOf(measured, every).flatMap(({ attention, model, bands }) =>
    bands.flatMap(({ attended, answers, right, ...band }) => {
      if (!attended) return [];
      const { heads, by_distance, heads_at_random, any, any_at_random } = attended;
      const shares = [heads, by_distance, heads_at_random, any, any_at_random, right / answers];
      return [
        [
          `${titles.get(attention)} ${model}`,
          distances(band),
          ...shares.map((share) => (share === undefined ? "" : formatFixed(share, 3))),
        ],
      ];
    }),
  );
  if (rows.length === 0) return null;
  return { columns: titled.map((title, i) => ({ title, align: i === 0 ? "left" : "right" })), rows };
}
