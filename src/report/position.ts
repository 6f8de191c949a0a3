/** Final loss against position, a line for each attention and size. */
import * as Plot from "@observablehq/plot";
import { type Bucket, bucketLabel, type FinalPoint, finalPoints, runCurves } from "../fit/index.ts";
import type { CurvePoint, Interval } from "../fit/types.ts";
import { orderAttentions } from "../fit/words.ts";
import { linearTicks } from "./axes.ts";
import {
  axisMarks,
  type Chart,
  type ChartRow,
  type ChartView,
  chartHeight,
  FAINT_INK,
  INK,
  isNarrow,
  textWidth,
  WIDTH,
} from "./chart.ts";
import { attentionsOf, finestBuckets } from "./curves.ts";
import { attentionColours, attentionsAmong, attentionTitles, formatFixed } from "./labels.ts";
import { attentionLegend } from "./legend.ts";

/** A linear axis over the context, ticked at bucket bounds. */
export function positionAxis(buckets: readonly Bucket[]): {
  scale: Plot.ScaleOptions;
  bucketWidth: number;
  marks: (length: number) => Plot.Markish[];
} {
  let low = Number.POSITIVE_INFINITY;
  let high = 0;
  let bucketWidth = Number.POSITIVE_INFINITY;
  const bounds = new Set<number>();
  for (const { position_start: start, position_end: end } of buckets) {
    if (start === null || end === null) continue;
    low = Math.min(low, start);
    high = Math.max(high, end);
    bucketWidth = Math.min(bucketWidth, end - start);
    bounds.add(start).add(end);
  }
  const sorted = [...bounds].sort((a, b) => a - b);
  const thousands = high >= 8192 && sorted.every((bound) => bound % 1024 === 0);
  const format = (value: number) => (thousands && value > 0 ? `${value / 1024}k` : String(value));
  return {
    scale: { type: "linear", domain: [low, high] },
    bucketWidth,
    marks: (length) => {
      const room = Math.max(...sorted.map((bound) => textWidth(format(bound), 13))) + 12;
      const fitting = Math.max(2, Math.floor(length / room));
      let every = 1;
      while ((sorted.length - 1) / every > fitting) every *= 2;
      const labelled = sorted.filter((_, i) => i % every === 0);
      return axisMarks({
        axis: "x",
        ticks: { labelled, minor: sorted.filter((_, i) => i % every !== 0) },
        label: "position in the context, tokens",
        fontSize: 13,
        labelOffset: 44,
        format,
      });
    },
  };
}

/** A size's final loss in one bucket: the mean of its seeds, and how many tokens it was measured on. */
export interface SizeLoss extends Bucket {
  readonly attention: string;
  readonly model: string;
  readonly lm_loss: number;
  readonly predicted_tokens: number | undefined;
  readonly pflops_days: number;
}

/** Final losses by attention, model and bucket (seeds averaged), smallest budget first. Runs without a budget are left out. */
export function finalLosses(points: readonly CurvePoint[]): SizeLoss[] {
  const { curves } = runCurves(points);
  const groups = new Map<string, FinalPoint[]>();
  for (const curve of curves) {
    let final: FinalPoint;
    try {
      final = finalPoints([curve])[0]!;
    } catch {
      continue;
    }
    const key = JSON.stringify([final.attention, final.model, final.position_start, final.position_end]);
    groups.set(key, [...(groups.get(key) ?? []), final]);
  }
  const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const losses = [...groups.values()].map((finals): SizeLoss => {
    const { attention, model, position_start, position_end, predicted_tokens } = finals[0]!;
    return {
      attention,
      model,
      position_start,
      position_end,
      predicted_tokens,
      lm_loss: mean(finals.map((final) => final.lm_loss)),
      pflops_days: mean(finals.map((final) => final.pflops_days)),
    };
  });
  // By size first: budgets of one size may differ a little from bucket to bucket.
  const order = new Map<string, number>();
  for (const loss of losses) {
    order.set(loss.model, Math.max(order.get(loss.model) ?? 0, loss.pflops_days));
  }
  const at = (loss: SizeLoss) => loss.position_start ?? Number.POSITIVE_INFINITY;
  return losses.sort(
    (a, b) =>
      order.get(a.model)! - order.get(b.model)! || a.model.localeCompare(b.model, "en") || at(a) - at(b) || 0,
  );
}

/** Null when the table has fewer than two buckets. */
export function positionChart(points: readonly CurvePoint[], view: ChartView = {}): Chart | null {
  const losses = finestBuckets(
    finalLosses(points).filter((loss) => loss.position_start !== null && !view.hidden?.has(loss.attention)),
  );
  if (new Set(losses.map((loss) => loss.position_start)).size < 2) return null;
  const every = orderAttentions([...(view.attentions ?? []), ...attentionsOf(points)]);
  const attentions = attentionsAmong(every, losses);
  const titles = attentionTitles(every);
  const colours = attentionColours(every);
  const models = [...new Set(losses.map((loss) => loss.model))];
  const rows = losses.map((loss) => ({
    ...loss,
    x: (loss.position_start! + loss.position_end!) / 2,
    text: `${titles.get(loss.attention)} ${loss.model}, positions ${bucketLabel(loss)}: ${formatFixed(loss.lm_loss, 4)}${loss.predicted_tokens === undefined ? "" : ` (${loss.predicted_tokens} tokens)`}`,
  }));

  const width = view.width ?? WIDTH;
  const height = chartHeight(width, 480);
  const marginRight = endMargin(models, { fontSize: 12, gap: 20 });
  const margin = { marginLeft: 68, marginRight, marginTop: 34, marginBottom: 56 };
  const innerHeight = height - margin.marginTop - margin.marginBottom;
  const axis = positionAxis(losses);
  const domain = paddedRange(losses.map((loss) => loss.lm_loss));
  const pixel = (loss: number) => ((domain[1] - loss) / (domain[1] - domain[0])) * innerHeight;

  const marks: Plot.Markish[] = [
    ...axis.marks(width - margin.marginLeft - margin.marginRight),
    ...axisMarks({
      axis: "y",
      ticks: { labelled: linearTicks(domain, 7), minor: [] },
      label: "final LM loss",
      fontSize: 13,
      labelOffset: 54,
      format: (value) => String(value),
    }),
  ];
  for (const attention of attentions) {
    for (const model of models) {
      const line = rows.filter((row) => row.attention === attention && row.model === model);
      if (line.length === 0) continue;
      const colour = colours.get(attention)!;
      marks.push(
        Plot.line(line, {
          x: "x",
          y: "lm_loss",
          z: null,
          stroke: colour,
          strokeWidth: 1.3,
          className: "curve",
        }),
        Plot.dot(line, {
          x: "x",
          y: "lm_loss",
          r: 2.3,
          fill: colour,
          stroke: "#ffffff",
          strokeWidth: 0.6,
          title: "text",
        }),
      );
    }
  }
  // Sizes are named at the right end, between their lines, pushed apart where they would touch.
  const names = models.map((model) => {
    const ends = attentions.flatMap(
      (attention) => rows.findLast((row) => row.attention === attention && row.model === model) ?? [],
    );
    const y = pixel(ends.reduce((sum, row) => sum + row.lm_loss, 0) / ends.length);
    return { name: model, colour: FAINT_INK, y };
  });
  marks.push(...endNames(names, innerHeight, { fontSize: 12, gap: 15 }));
  marks.push(Plot.frame({ stroke: INK }));
  // No room for it on a narrow screen, which has a legend of its own.
  if (!isNarrow(width)) {
    marks.push(attentionLegend(attentions, titles, colours));
  }
  return {
    name: "position",
    title: "Final LM loss against position",
    description: `${attentions.map((attention) => titles.get(attention)).join(" and ")} at ${models.length} sizes.`,
    notes: [],
    width,
    height,
    rows: rows.map(
      (row): ChartRow => ({
        series: `${titles.get(row.attention)} ${row.model}`,
        kind: "final",
        colour: colours.get(row.attention)!,
        x: row.x,
        y: row.lm_loss,
        positions: bucketLabel(row),
      }),
    ),
    columns: { x: "position in the context, tokens", y: "final LM loss" },
    plot: { ...margin, x: axis.scale, y: { type: "linear", domain }, marks },
  };
}

export function paddedRange(values: readonly number[]): Interval {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const margin = Math.max((high - low) * 0.05, high * 0.005);
  return [low - margin, high + margin];
}

/** Widest name that a chart makes room for at its right. */
const WIDEST_NAME = 180;

/** The margin that names of lines right of the frame take; 0 of none. */
export function endMargin(names: readonly string[], { fontSize, gap } = { fontSize: 11, gap: 20 }): number {
  if (names.length === 0) return 0;
  return Math.ceil(Math.min(WIDEST_NAME, Math.max(...names.map((name) => textWidth(name, fontSize))))) + gap;
}

/** Names of lines right of the frame, pushed apart where they would touch, within its height. `y` in pixels from its top. */
export function endNames(
  ends: readonly { readonly name: string; readonly colour: string; readonly y: number }[],
  innerHeight: number,
  { fontSize, gap } = { fontSize: 11, gap: 13 },
): Plot.Markish[] {
  return spread(ends, gap, [-gap / 2, innerHeight + gap / 2]).map(({ name, colour, y }) =>
    Plot.text([name], {
      text: (text: string) => text,
      frameAnchor: "top-right",
      textAnchor: "start",
      lineAnchor: "middle",
      dx: 8,
      dy: Math.round(y),
      fontSize,
      fill: colour,
    }),
  );
}

/** Moves items so that neighbours are at least `gap` apart, within `range` where it has room for all; order is kept. */
export function spread<T extends { readonly y: number }>(
  items: readonly T[],
  gap: number,
  range: Interval = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY],
): (T & { y: number })[] {
  const sorted = items.map((item) => ({ ...item })).sort((a, b) => a.y - b.y);
  const within = (centre: number, count: number) =>
    Math.max(range[0] + (count * gap) / 2, Math.min(range[1] - (count * gap) / 2, centre));
  // Groups that touch share their mean, like beads pushed together.
  const groups: { items: (T & { y: number })[]; centre: number }[] = [];
  for (const item of sorted) {
    let group = { items: [item], centre: within(item.y, 1) };
    for (;;) {
      const above = groups.at(-1);
      if (!above) break;
      const reach = ((above.items.length + group.items.length) / 2) * gap;
      if (group.centre - above.centre >= reach) break;
      groups.pop();
      const all = [...above.items, ...group.items];
      group = {
        items: all,
        centre: within(all.reduce((sum, one) => sum + one.y, 0) / all.length, all.length),
      };
    }
    groups.push(group);
  }
  return groups.flatMap(({ items: members, centre }) =>
    members.map((member, i) => ({ ...member, y: centre + (i - (members.length - 1) / 2) * gap })),
  );
}
