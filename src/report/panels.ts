/** Small multiples: the scaling chart of every bucket, all on the same two axes, each with its ratio. */
import * as Plot from "@observablehq/plot";
import type { Convention } from "../compute/compute.ts";
import { bucketLabel, distinctBuckets, formatRatio } from "../fit/index.ts";
import type { Comparison, CurvePoint, FitResult, Interval } from "../fit/types.ts";
import { orderAttentions } from "../fit/words.ts";
import { logTicks, type Ticks } from "./axes.ts";
import { meanRatio } from "./budgets.ts";
import {
  axisMarks,
  type Chart,
  type ChartRow,
  type ChartView,
  FAINT_INK,
  INK,
  isNarrow,
  textWidth,
} from "./chart.ts";
import { attentionsOf, curvesOf, finestBuckets, sameBucket } from "./curves.ts";
import {
  attentionColours,
  attentionsAmong,
  attentionTitles,
  axisLabel,
  conventionTitle,
  formatInterval,
  tickLabel,
} from "./labels.ts";
import { attentionEntries, legendRows, rowLegend } from "./legend.ts";
import { lawsOf, scalingDomains, scalingMarks, scalingRows, thinCurves } from "./scaling.ts";

const FONT = 11;
const GAP = 10;
const MARGIN = { left: 52, right: 14, top: 14, bottom: 50 };
const LEGEND = { font: 13, line: 20 };

/** Null when the table has fewer than two buckets: the scaling chart then says it all. */
export function bucketPanels(
  points: readonly CurvePoint[],
  fit: FitResult,
  convention: Convention = "6ND",
  view: ChartView = {},
): Chart | null {
  const curves = curvesOf(points, convention);
  const distinct = distinctBuckets(curves).filter((bucket) => bucket.position_start !== null);
  // Narrow ones side by side in order of position, then the wide ones that hold them.
  const narrow = finestBuckets(distinct);
  const buckets = [...narrow, ...distinct.filter((bucket) => !narrow.includes(bucket))];
  if (buckets.length < 2) return null;
  const seen = ({ attention }: { attention: string }) => !view.hidden?.has(attention);
  const shown = curves.filter((curve) => curve.position_start !== null && seen(curve));
  const laws = buckets.map((bucket) => lawsOf(fit, bucket, convention).filter(seen));
  const domains = scalingDomains(shown, laws.flat(), {});
  const attentions = orderAttentions([
    ...(view.attentions ?? []),
    ...attentionsOf(points),
    ...laws.flat().map((law) => law.attention),
  ]);
  const colours = attentionColours(attentions);
  const titles = attentionTitles(attentions);

  const width = view.width ?? 900;
  const drawn = attentionsAmong(attentions, [...shown, ...laws.flat()]);
  const legend = legendRows(attentionEntries(drawn, titles, colours), LEGEND.font, width - MARGIN.right);
  const top = MARGIN.top + legend.length * LEGEND.line;
  const columns = Math.min(isNarrow(width) ? 2 : 4, buckets.length);
  const rows = Math.ceil(buckets.length / columns);
  const cell = (width - MARGIN.left - MARGIN.right - GAP * (columns - 1)) / columns;
  const cellHeight = Math.round(Math.min(220, cell * 0.82));
  const height = top + MARGIN.bottom + rows * cellHeight + (rows - 1) * GAP;
  // Plot takes the gap as a share of the step between facets.
  const padding = (size: number) => GAP / (size + GAP);

  const values: ChartRow[] = [];
  const marks: Plot.Markish[] = [
    ...axisMarks({
      axis: "x",
      ticks: insideTicks(domains.x, cell, (value) => textWidth(tickLabel(value), FONT), 8),
      label: axisLabel(convention),
      fontSize: FONT,
      labelOffset: 40,
    }),
    ...axisMarks({
      axis: "y",
      ticks: insideTicks(domains.y, cellHeight, () => FONT, 8),
      label: "LM loss",
      fontSize: FONT,
      labelOffset: 42,
    }),
  ];
  for (const [i, bucket] of buckets.entries()) {
    const facet = { fx: i % columns, fy: Math.floor(i / columns) };
    const inside = shown.filter((curve) => sameBucket(curve, bucket));
    const own = thinCurves(inside, domains.x, cell);
    values.push(...scalingRows(own, laws[i]!, { x: domains.x, colours, titles, width: cell, facet }));
    marks.push(
      ...scalingMarks(own, laws[i]!, {
        x: domains.x,
        y: domains.y,
        colours,
        curveWidth: 0.7,
        lawWidth: 1.2,
        dash: [4, 3],
        dot: 1.7,
        facet,
      }),
    );
    const comparisons = fit.comparisons.filter(
      (comparison) =>
        comparison.convention === convention &&
        sameBucket(comparison, bucket) &&
        !view.hidden?.has(comparison.other),
    );
    const lines = [
      { text: bucketLabel(bucket), fill: INK, weight: "bold" },
      ...comparisons
        .slice(0, 3)
        .flatMap((comparison) => panelRatio(comparison, comparisons.length > 1, titles, colours)),
    ];
    for (const [row, line] of lines.entries()) {
      marks.push(
        Plot.text([{ ...facet, text: line.text }], {
          text: "text",
          fx: "fx",
          fy: "fy",
          frameAnchor: "top-right",
          dx: -6,
          dy: 6 + row * 14,
          fontSize: FONT,
          fontWeight: line.weight,
          fill: line.fill,
          stroke: "#ffffff",
          strokeWidth: 3,
        }),
      );
    }
  }
  marks.push(
    Plot.frame({ stroke: "#8a929c" }),
    ...legend.map((row, i) => rowLegend(row, LEGEND.font, (legend.length - 1 - i) * LEGEND.line)),
  );
  return {
    name: "buckets",
    title: `LM loss against compute in ${buckets.length} position buckets (${conventionTitle(convention)})`,
    description: `${buckets.length} panels on the same axes, log-log: ${drawn.map((label) => titles.get(label)).join(" and ")}.`,
    notes: [],
    width,
    height,
    rows: values,
    columns: { x: axisLabel(convention), y: "LM loss" },
    plot: {
      marginLeft: MARGIN.left,
      marginRight: MARGIN.right,
      marginTop: top,
      marginBottom: MARGIN.bottom,
      x: { type: "log", domain: domains.x },
      y: { type: "log", domain: domains.y },
      fx: { axis: null, padding: padding(cell), round: false },
      fy: { axis: null, padding: padding(cellHeight), round: false },
      marks,
    },
  };
}

/** The ratio at the mean budget in two lines, or in one short line of its colour when there are several. */
function panelRatio(
  comparison: Comparison,
  several: boolean,
  titles: ReadonlyMap<string, string>,
  colours: ReadonlyMap<string, string>,
): { text: string; fill: string; weight: string }[] {
  const at = meanRatio(comparison);
  if (!at) return [];
  const ratio = formatRatio(at.ratio);
  const interval = formatInterval(at.interval, formatRatio);
  if (several) {
    return [
      {
        text: `${titles.get(comparison.other)} ${ratio}`,
        fill: colours.get(comparison.other) ?? INK,
        weight: "normal",
      },
    ];
  }
  return [
    { text: `ratio ${ratio}`, fill: INK, weight: "normal" },
    { text: interval, fill: FAINT_INK, weight: "normal" },
  ];
}

/** Ticks of a panel, without labels that would reach into the next panel. */
function insideTicks(
  domain: Interval,
  length: number,
  size: (value: number) => number,
  clear: number,
): Ticks {
  const ticks = logTicks(domain, length, (value) => size(value) + clear);
  const inside = (value: number) => {
    const position = (Math.log(value / domain[0]) / Math.log(domain[1] / domain[0])) * length;
    return Math.min(position, length - position) >= size(value) / 2 - GAP / 2 + 1;
  };
  return {
    labelled: ticks.labelled.filter(inside),
    minor: [...ticks.minor, ...ticks.labelled.filter((value) => !inside(value))],
  };
}
