/** How much of its context a model uses: the loss of the same tokens with less and less of the window before them. */
import * as Plot from "@observablehq/plot";
import { mean } from "../fit/regression.ts";
import type { Interval } from "../fit/types.ts";
import { byReason, formatLength, signedPercent, sortByAttention } from "../fit/words.ts";
import type { TruncatedResult } from "../train/types.ts";
import { linearTicks } from "./axes.ts";
import {
  axisMarks,
  type Chart,
  type ChartRow,
  chartHeight,
  INK,
  isNarrow,
  textWidth,
  WIDTH,
} from "./chart.ts";
import { attentionColours, attentionsAmong, attentionTitles, formatFixed } from "./labels.ts";
import { attentionLegend } from "./legend.ts";
import { endMargin, endNames } from "./position.ts";
import type { Table } from "./table.ts";

/** The result of one run. */
export interface RunTruncated {
  readonly attention: string;
  readonly model: string;
  readonly result: Pick<TruncatedResult, "contexts" | "lm_loss">;
}

/** Seeds of one attention and size together, those that kept other contexts apart. */
interface Line {
  readonly attention: string;
  readonly model: string;
  /** Ascending, with mean losses. */
  readonly points: readonly { readonly context: number; readonly loss: number }[];
}

/** In the order of `every`. */
function linesOf(runs: readonly RunTruncated[], every: readonly string[]): Line[] {
  const inOrder = sortByAttention(runs, every, ({ attention }) => attention);
  return byReason(inOrder, ({ attention, model, result }) =>
    JSON.stringify([attention, model, result.contexts]),
  ).map((seeds) => {
    const { attention, model, result } = seeds[0]!;
    const points = result.contexts.map((context, i) => {
      return { context, loss: mean(seeds.map((seed) => seed.result.lm_loss[i]!)) };
    });
    return { attention, model, points };
  });
}

/** All contexts that lines kept, ascending. */
function contextsOf(lines: readonly Line[]): number[] {
  const contexts = new Set(lines.flatMap(({ points }) => points.map(({ context }) => context)));
  return [...contexts].sort((a, b) => a - b);
}

/** Null when no run has a result. `every` are the attentions of the report, for their colours. */
export function truncatedChart(
  runs: readonly RunTruncated[],
  every: readonly string[],
  width = WIDTH,
): Chart | null {
  const lines = linesOf(runs, every);
  if (lines.length === 0) return null;
  const titles = attentionTitles(every);
  const colours = attentionColours(every);
  const attentions = attentionsAmong(every, lines);
  const drawn = lines.map((line) => {
    const { loss: first, context: least } = line.points[0]!;
    const rows = line.points.map(({ context, loss }) => {
      const change = loss / first - 1;
      const against =
        context === least ? "" : ` (${signedPercent(change, 2)} against ${formatLength(least)})`;
      return {
        x: context,
        y: 100 * change,
        text: `${titles.get(line.attention)} ${line.model}, ${formatLength(context)} tokens kept: ${formatFixed(loss, 4)}${against}`,
      };
    });
    return { ...line, colour: colours.get(line.attention)!, rows };
  });

  const height = chartHeight(width, 420);
  const marginRight = endMargin(lines.map(({ model }) => model));
  const margin = { marginLeft: 68, marginRight, marginTop: 34, marginBottom: 56 };
  const inner = {
    width: width - margin.marginLeft - margin.marginRight,
    height: height - margin.marginTop - margin.marginBottom,
  };
  const contexts = contextsOf(lines);
  const [low, high] = [contexts[0]!, contexts.at(-1)!];
  const pixel = (context: number) => (Math.log(context / low) / Math.log(high / low)) * inner.width;
  const labelled: number[] = [];
  for (const context of contexts) {
    const room = textWidth(formatLength(context), 13) + 10;
    if (labelled.length === 0 || pixel(context) - pixel(labelled.at(-1)!) >= room) labelled.push(context);
  }
  const changes = drawn.flatMap(({ rows }) => rows.map(({ y }) => y));
  const [lowest, highest] = [Math.min(...changes), Math.max(...changes)];
  const padding = Math.max((highest - lowest) * 0.05, 0.01);
  const domain: Interval = [lowest - padding, highest + padding];
  const least = new Set(lines.map(({ points }) => points[0]!.context));
  const marks: Plot.Markish[] = [
    ...axisMarks({
      axis: "x",
      ticks: { labelled, minor: contexts.filter((context) => !labelled.includes(context)) },
      label: "context kept, tokens",
      fontSize: 13,
      labelOffset: 44,
      format: formatLength,
    }),
    ...axisMarks({
      axis: "y",
      ticks: { labelled: linearTicks(domain, 6), minor: [] },
      label: `change of loss against ${least.size === 1 ? formatLength(low) : "the least context"}, %`,
      fontSize: 13,
      labelOffset: 54,
      format: (value) => String(value),
    }),
  ];
  for (const { rows, colour } of drawn) {
    marks.push(
      Plot.line(rows, { x: "x", y: "y", z: null, stroke: colour, strokeWidth: 1.3, className: "curve" }),
      Plot.dot(rows, { x: "x", y: "y", r: 2.3, fill: colour, title: "text" }),
    );
  }
  const ends = drawn.map(({ model, colour, rows }) => ({
    name: model,
    colour,
    y: ((domain[1] - rows.at(-1)!.y) / (domain[1] - domain[0])) * inner.height,
  }));
  marks.push(...endNames(ends, inner.height));
  marks.push(Plot.frame({ stroke: INK }));
  // No room for it on a narrow screen, which has a legend of its own.
  if (!isNarrow(width)) marks.push(attentionLegend(attentions, titles, colours));
  return {
    name: "truncated",
    title: "The same tokens with less context",
    description: `${attentions.map((attention) => titles.get(attention)).join(" and ")}: how the loss of the same tokens changes as more of the window before them is kept.`,
    notes: [],
    width,
    height,
    rows: drawn.flatMap(({ attention, model, colour, rows }) =>
      rows.map(({ x, y }): ChartRow => {
        return { series: `${titles.get(attention)} ${model}`, kind: "final", colour, x, y };
      }),
    ),
    columns: { x: "context kept, tokens", y: "change of loss, %" },
    plot: { ...margin, x: { type: "log", domain: [low, high] }, y: { type: "linear", domain }, marks },
  };
}

/** Losses with each context, and their changes from one to the next. */
export function truncatedTable(runs: readonly RunTruncated[], every: readonly string[]): Table {
  const lines = linesOf(runs, every);
  const titles = attentionTitles(every);
  const contexts = contextsOf(lines);
  const steps = new Map<string, readonly [number, number]>();
  for (const { points } of lines) {
    for (const [i, { context: to }] of points.slice(1).entries()) {
      const from = points[i]!.context;
      steps.set(`${formatLength(from)} to ${formatLength(to)}`, [from, to]);
    }
  }
  const right = (title: string) => ({ title, align: "right" as const });
  return {
    columns: [
      { title: "attention", align: "left" },
      { title: "size", align: "left" },
      ...[...contexts.map(formatLength), ...steps.keys()].map(right),
    ],
    rows: lines.map(({ attention, model, points }) => {
      const losses = new Map(points.map(({ context, loss }) => [context, loss]));
      const next = new Map(points.slice(1).map(({ context }, i) => [points[i]!.context, context]));
      return [
        titles.get(attention)!,
        model,
        ...contexts.map((context) => (losses.has(context) ? formatFixed(losses.get(context)!, 4) : "")),
        ...[...steps.values()].map(([from, to]) =>
          next.get(from) === to ? signedPercent(losses.get(to)! / losses.get(from)! - 1, 2) : "",
        ),
      ];
    }),
  };
}
