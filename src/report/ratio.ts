/** Ratio of losses and compute multiplier by position: what the cheaper attention costs, and where. */
import * as Plot from "@observablehq/plot";
import type { Convention } from "../compute/compute.ts";
import { bucketLabel, formatBudget, formatRatio } from "../fit/index.ts";
import type { Comparison, FitResult, Interval } from "../fit/types.ts";
import { orderAttentions } from "../fit/words.ts";
import { linearTicks, logTicks } from "./axes.ts";
import { atBudget, BUDGETS, type BudgetName } from "./budgets.ts";
import {
  axisMarks,
  type Chart,
  type ChartRow,
  type ChartView,
  FAINT_INK,
  INK,
  isNarrow,
  WIDTH,
} from "./chart.ts";
import { finestBuckets } from "./curves.ts";
import { attentionColours, attentionTitles, conventionTitle, formatInterval, tint } from "./labels.ts";
import { rowLegend } from "./legend.ts";
import { positionAxis } from "./position.ts";

const SHADE: Record<BudgetName, number> = { smallest: 0.55, mean: 1, largest: 0.7 };

interface Bar {
  readonly position: number;
  readonly value: number;
  readonly low: number;
  readonly high: number;
  readonly budget: BudgetName;
  readonly text: string;
  readonly row: number;
  readonly positions: string;
}

/** Loss ratio by position at the smallest, mean and largest budget; null when nothing was compared by position. */
export function ratioChart(
  fit: FitResult,
  convention: Convention = "6ND",
  view: ChartView = {},
): Chart | null {
  return byPosition(fit, convention, view, {
    name: "ratio",
    title: "Ratio of losses by position",
    axis: (baseline) => `loss / ${baseline}`,
    log: false,
    entries: (comparison) =>
      comparison.ratio_at.map(({ pflops_days, ratio, interval }) => ({
        pflops_days,
        value: ratio,
        interval,
      })),
  });
}

/** Compute multiplier by position: the compute needed for the baseline's loss, as a multiple of the baseline's. */
export function multiplierChart(
  fit: FitResult,
  convention: Convention = "6ND",
  view: ChartView = {},
): Chart | null {
  return byPosition(fit, convention, view, {
    name: "multiplier",
    title: "Compute multiplier by position",
    axis: (baseline) => `compute / ${baseline}`,
    log: true,
    entries: (comparison) =>
      comparison.multiplier_at.map(({ pflops_days, multiplier, interval }) => ({
        pflops_days,
        value: multiplier,
        interval,
      })),
  });
}

function byPosition(
  fit: FitResult,
  convention: Convention,
  view: ChartView,
  kind: {
    name: string;
    title: string;
    axis: (baseline: string) => string;
    log: boolean;
    entries: (comparison: Comparison) => { pflops_days: number; value: number; interval: Interval }[];
  },
): Chart | null {
  const comparisons = finestBuckets(
    fit.comparisons.filter(
      (comparison) =>
        comparison.convention === convention &&
        comparison.position_start !== null &&
        !view.hidden?.has(comparison.other),
    ),
  );
  if (comparisons.length === 0) return null;
  const labels = orderAttentions([
    ...(view.attentions ?? []),
    ...fit.laws.map((law) => law.attention),
    ...comparisons.flatMap((comparison) => [comparison.baseline, comparison.other]),
  ]);
  const others = labels.filter((label) => comparisons.some((comparison) => comparison.other === label));
  const titles = attentionTitles(labels);
  const colours = attentionColours(labels);
  const axis = positionAxis(comparisons);
  const offset = axis.bucketWidth * 0.2;

  const bars: Bar[] = [];
  for (const comparison of comparisons) {
    const entries = kind.entries(comparison);
    for (const [i, budget] of BUDGETS.entries()) {
      const entry = atBudget(entries, comparison.fitted_range, budget);
      if (!entry || !Number.isFinite(entry.value) || (kind.log && !(entry.value > 0))) continue;
      const [low, high] = entry.interval;
      const middle = (comparison.position_start! + comparison.position_end!) / 2;
      bars.push({
        position: middle + (i - 1) * offset,
        value: entry.value,
        // Not finite: the interval is open on that side, and is drawn to the edge of the frame.
        low: Number.isFinite(low) ? low : kind.log ? 0 : Number.NEGATIVE_INFINITY,
        high: Number.isFinite(high) ? high : Number.POSITIVE_INFINITY,
        budget,
        row: others.indexOf(comparison.other),
        positions: bucketLabel(comparison),
        text: `${titles.get(comparison.other)} ${bucketLabel(comparison)} at ${formatBudget(entry.pflops_days)} PFLOP/s-days: ${formatRatio(entry.value)} ${formatInterval(entry.interval, formatRatio)}`,
      });
    }
  }
  if (bars.length === 0) return null;

  const width = view.width ?? WIDTH;
  const rowHeight = others.length === 1 ? 300 : 220;
  const margin = { marginLeft: 78, marginRight: 24, marginTop: 34, marginBottom: 56 };
  const height = margin.marginTop + margin.marginBottom + others.length * rowHeight;
  const domain = kind.log ? logRange(bars) : linearRange(bars);
  const ticks = kind.log
    ? logTicks(domain, rowHeight, () => 24)
    : { labelled: linearTicks(domain, rowHeight / 38), minor: [] };
  const clamp = (value: number) =>
    Math.min(domain[1] * 1.5, Math.max(kind.log ? domain[0] / 1.5 : domain[0] - 1, value));
  const baselines = [...new Set(comparisons.map((comparison) => comparison.baseline))];
  const baselineTitle = baselines.length === 1 ? titles.get(baselines[0]!)! : "baseline";

  const marks: Plot.Markish[] = [
    ...axis.marks(width - margin.marginLeft - margin.marginRight),
    ...axisMarks({
      axis: "y",
      ticks,
      label: kind.axis(baselineTitle.toLowerCase()),
      fontSize: 13,
      labelOffset: 66,
      format: kind.log ? undefined : (value) => String(value),
    }),
    Plot.ruleY([1], { stroke: INK, strokeWidth: 1.2, clip: true }),
  ];
  for (const budget of BUDGETS) {
    for (const [row, other] of others.entries()) {
      const colour = colours.get(other)!;
      const mine = bars.filter((bar) => bar.budget === budget && bar.row === row);
      const common = { x: "position", fy: "row", stroke: tint(colour, SHADE[budget]), clip: true };
      marks.push(
        Plot.ruleX(mine, {
          ...common,
          className: "interval",
          y1: (bar: Bar) => clamp(bar.low),
          y2: (bar: Bar) => clamp(bar.high),
          strokeWidth: 1.6,
        }),
        Plot.dot(mine, {
          ...common,
          className: "estimate",
          y: "value",
          r: budget === "mean" ? 3.4 : 2.8,
          symbol: budget === "largest" ? "square" : "circle",
          fill: budget === "smallest" ? "#ffffff" : tint(colour, SHADE[budget]),
          title: "text",
        }),
      );
    }
  }
  if (others.length > 1) {
    marks.push(
      Plot.text(
        others.map((other, row) => ({ row, text: titles.get(other)! })),
        {
          text: "text",
          fy: "row",
          frameAnchor: "top-left",
          dx: 8,
          dy: 8,
          fontSize: 13,
          fontWeight: "bold",
          fill: INK,
          stroke: "#ffffff",
          strokeWidth: 3,
        },
      ),
    );
  }
  marks.push(Plot.frame({ stroke: INK }));
  const at = isNarrow(width) ? "" : "at the ";
  const key = others.length === 1 ? colours.get(others[0]!)! : FAINT_INK;
  marks.push(
    rowLegend(
      [
        { label: `${at}smallest budget`, colour: tint(key, SHADE.smallest), sample: "ring" },
        { label: `${at}mean${isNarrow(width) ? "" : " budget"}`, colour: key, sample: "dot" },
        {
          label: `${at}largest${isNarrow(width) ? "" : " budget"}`,
          colour: tint(key, SHADE.largest),
          sample: "square",
        },
      ],
      12,
    ),
  );
  return {
    name: kind.name,
    title: `${kind.title} (${conventionTitle(convention)})`,
    description: `${others.map((other) => titles.get(other)).join(" and ")} against ${baselineTitle}, with 95 % intervals; 1 is equal.`,
    notes: [],
    width,
    height,
    rows: bars.map((bar): ChartRow => {
      const { position: x, value: y, low, high, row } = bar;
      const other = others[row]!;
      const series = `${titles.get(other)} at the ${bar.budget} budget`;
      const { positions } = bar;
      const facet = { fy: row };
      return { series, kind: "estimate", colour: colours.get(other)!, x, y, low, high, positions, facet };
    }),
    columns: { x: "position in the context, tokens", y: kind.axis(baselineTitle.toLowerCase()) },
    plot: {
      ...margin,
      x: axis.scale,
      y: { type: kind.log ? "log" : "linear", domain },
      fy: { axis: null, padding: 0.06 },
      marks,
    },
  };
}

/** Linear limits that hold every estimate, 1, and the intervals as far as they stay within five times that span. */
function linearRange(bars: readonly Bar[]): Interval {
  let low = 1;
  let high = 1;
  for (const { value } of bars) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const reach = 2 * Math.max(high - low, 0.01);
  const [from, to] = [low - reach, high + reach];
  for (const bar of bars) {
    low = Math.min(low, Math.max(bar.low, from));
    high = Math.max(high, Math.min(bar.high, to));
  }
  const margin = (high - low) * 0.04;
  return [low - margin, high + margin];
}

/** The same in log. */
function logRange(bars: readonly Bar[]): Interval {
  const logs = bars.map((bar) => ({
    ...bar,
    value: Math.log(bar.value) + 1,
    low: bar.low > 0 ? Math.log(bar.low) + 1 : Number.NEGATIVE_INFINITY,
    high: Math.log(bar.high) + 1,
  }));
  const [low, high] = linearRange(logs);
  return [Math.exp(low - 1), Math.exp(high - 1)];
}
