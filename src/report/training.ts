/** Training loss against tokens, a line for each run; and any other quantity of runs against another on log axes. */
import * as Plot from "@observablehq/plot";
import type { SuddenDrop } from "../fit/drops.ts";
import { smooth } from "../fit/smooth.ts";
import type { Interval } from "../fit/types.ts";
import { orderAttentions } from "../fit/words.ts";
import { floor125, lossDomain } from "./axes.ts";
import {
  type Chart,
  type ChartRow,
  type ChartView,
  chartHeight,
  FAINT_INK,
  INK,
  isNarrow,
  logAxes,
  textWidth,
  WIDTH,
} from "./chart.ts";
import { attentionColours, attentionsAmong, attentionTitles, formatCount, formatFixed } from "./labels.ts";
import { cornerLegend } from "./legend.ts";
import { endMargin, spread } from "./position.ts";
import type { Table } from "./table.ts";
import { thinByColumn } from "./thin.ts";

/** The steps of one run, in order; as arrays, for there may be very many. */
export interface TrainingCurve {
  readonly run: string;
  readonly attention: string;
  readonly model: string;
  readonly tokens: Float64Array;
  readonly losses: Float64Array;
  /** Null when there is none (yet). */
  readonly drop?: SuddenDrop | null;
}

interface Point {
  readonly x: number;
  readonly y: number;
}

/** A line of a chart on log axes, in order of x; where y is no number above 0 it has a gap. */
export interface Line {
  readonly run: string;
  readonly attention: string;
  readonly points: readonly Point[];
  /** What was recorded, drawn pale behind a line that was smoothed. */
  readonly recorded?: readonly Point[];
  /** Spread of what was recorded, drawn as a pale band. */
  readonly band?: readonly { readonly x: number; readonly low: number; readonly high: number }[];
  /** Written at the end of the lines that share it. */
  readonly label?: string;
  /** In pixels; 0.8 when absent. */
  readonly width?: number;
  /** Where to mark the line with a ring, by x. */
  readonly marks?: readonly number[];
  /** Marks at the edges, by x: values that are no number, above or below the axis, and resumes. */
  readonly edge?: readonly { readonly x: number; readonly mark: keyof typeof EDGE }[];
}

const hasPlace = ({ x, y }: Point) => x > 0 && y > 0 && Number.isFinite(x) && Number.isFinite(y);

/** The stretches of a line between its gaps. */
function stretches(points: readonly Point[]): Point[][] {
  const found: Point[][] = [];
  let open = false;
  for (const point of points) {
    if (!hasPlace(point)) open = false;
    else if (open) found.at(-1)!.push(point);
    else {
      found.push([point]);
      open = true;
    }
  }
  return found;
}

export interface LineChartOptions extends ChartView {
  readonly name: string;
  readonly title: string;
  readonly x: { readonly label: string; readonly format?: (value: number) => string };
  readonly y: { readonly label: string };
  readonly xDomain?: Interval;
  readonly yDomain?: Interval;
  /** What a ring says. */
  readonly ring?: string;
}

/** Distance along the tokens after which a step counts 1/e in the smoothed loss; the screen's usual one. */
const DECADES = 0.05;
/** The chart begins at about this part of the tokens: before it the loss is nearly that of chance. */
const FROM = 300;
/** Bands of more runs than this would lie over each other. */
const MOST_BANDS = 4;
/** Pixels of a chart in which the band takes its quantiles. */
const BAND_COLUMN = 6;

/** Null when no run has a step with tokens and a finite loss. */
export function trainingChart(
  runs: readonly TrainingCurve[],
  { attentions }: Pick<ChartView, "attentions"> = {},
): Chart | null {
  const drawn = runs.flatMap((run) => {
    const placed = (_: number, i: number) => hasPlace({ x: run.tokens[i]!, y: run.losses[i]! });
    const [tokens, losses] = [run.tokens.filter(placed), run.losses.filter(placed)];
    return tokens.length > 0 ? [{ ...run, tokens, losses }] : [];
  });
  if (drawn.length === 0) return null;
  const first = Math.min(...drawn.map(({ tokens }) => tokens[0]!));
  const last = Math.max(...drawn.map(({ tokens }) => tokens.at(-1)!));
  const x: Interval = [Math.max(first, floor125(last / FROM)), last > first ? last : first * 10];
  const pixel = (at: number) => (Math.log(at / x[0]) / Math.log(x[1] / x[0])) * WIDTH;
  const seen = new Set<string>();
  const models = new Set(drawn.map(({ model }) => model));
  const lines = drawn.map(({ run, attention, model, tokens, losses, drop }): Line => {
    const smoothed = smooth(tokens, losses, DECADES);
    const kept = thinByColumn(tokens.map(pixel), smoothed, 1);
    const kind = JSON.stringify([attention, model]);
    // Further seeds of a size are thin.
    const width = seen.has(kind) ? 0.6 : 1.3;
    seen.add(kind);
    return {
      run,
      attention,
      width,
      ...(models.size > 1 ? { label: model } : {}),
      points: kept.map((i) => ({ x: tokens[i]!, y: smoothed[i]! })),
      band: drawn.length <= MOST_BANDS ? bandOf(tokens, losses, pixel) : [],
      marks: drop ? [drop.middle] : [],
    };
  });
  const shown = lines.flatMap(({ points }) => points.filter((point) => point.x >= x[0]).map(({ y }) => y));
  const starts = drawn.map(({ losses }) => losses[0]!).sort((a, b) => a - b);
  // Hundreds of runs have more points than a call takes arguments.
  const highest = shown.reduce((most, loss) => Math.max(most, loss), Number.NEGATIVE_INFINITY);
  const lowest = shown.reduce((least, loss) => Math.min(least, loss), highest);
  // A run that diverges leaves the chart at its upper edge, a little above where runs start.
  const top = Math.min(1.03 * highest, 1.1 * starts[starts.length >> 1]!);
  const edged = lines.map((line): Line => {
    const out = line.points.find((point) => point.x >= x[0] && point.y > top);
    return out ? { ...line, edge: [{ x: out.x, mark: "above" }] } : line;
  });
  return lineChart(edged, {
    attentions,
    name: "training",
    title: "Training loss against tokens",
    x: { label: "tokens", format: formatCount },
    y: { label: "training loss, smoothed" },
    xDomain: x,
    yDomain: [0.95 * Math.min(top, lowest), top],
    ring: "middle of a sudden drop",
  });
}

/** From the 10th to the 90th hundredth of the values in each column of pixels that has several. */
function bandOf(x: Float64Array, y: Float64Array, pixel: (x: number) => number): NonNullable<Line["band"]> {
  const band: { x: number; low: number; high: number }[] = [];
  for (let start = 0; start < x.length; ) {
    const column = Math.floor(pixel(x[start]!) / BAND_COLUMN);
    let end = start + 1;
    while (end < x.length && Math.floor(pixel(x[end]!) / BAND_COLUMN) === column) end++;
    if (column >= 0 && end - start > 2) {
      const sorted = y.slice(start, end).sort();
      const at = (share: number) => sorted[Math.round(share * (sorted.length - 1))]!;
      band.push({ x: x[(start + end) >> 1]!, low: at(0.1), high: at(0.9) });
    }
    start = end;
  }
  return band;
}

/** Where each run's loss drops and whether it ends past that; null when none drops. */
export function dropTable(runs: readonly TrainingCurve[]): Table | null {
  if (!runs.some(({ drop }) => drop)) return null;
  const titles = attentionTitles(runs.map(({ attention }) => attention));
  const columns = ["middle of the drop, tokens", "over at, tokens", "loss before", "loss after"];
  return {
    columns: [
      ...["run", "attention", "model"].map((title) => ({ title, align: "left" as const })),
      ...columns.map((title) => ({ title, align: "right" as const })),
      { title: "run ends", align: "left" },
    ],
    rows: runs.flatMap(({ run, attention, model, tokens, drop }) => {
      const last = tokens.at(-1);
      if (!last) return [];
      const side = drop ? (drop.atEnd ? "in it or just after it" : "past it") : "before a drop";
      return [
        [
          run,
          titles.get(attention)!,
          model,
          ...(drop
            ? [
                formatCount(drop.middle),
                formatCount(drop.end),
                formatFixed(drop.before, 2),
                formatFixed(drop.after, 2),
              ]
            : ["", "", "", ""]),
          `${side}, at ${formatCount(last)}`,
        ],
      ];
    }),
  };
}

/** The smallest x and the largest that have a place on the axes of these lines, and the whole height. */
function domainsOf(lines: readonly Line[]): { x: Interval; y: Interval } {
  let [low, high] = [Number.POSITIVE_INFINITY, 0];
  let [lowest, highest] = [Number.POSITIVE_INFINITY, 0];
  for (const point of lines.flatMap((line) => line.points)) {
    if (!hasPlace(point)) continue;
    low = Math.min(low, point.x);
    high = Math.max(high, point.x);
    lowest = Math.min(lowest, point.y);
    highest = Math.max(highest, point.y);
  }
  // The whole curve is shown here, the first step too.
  return { x: [low, high > low ? high : low * 10], y: lossDomain([lowest, highest], [highest]) };
}

const EDGE = {
  NaN: { symbol: "times", frameAnchor: "top", dy: 8 },
  above: { symbol: "triangle", frameAnchor: "top", dy: 8 },
  below: { symbol: "triangle", rotate: 180, frameAnchor: "bottom", dy: -8 },
  resume: { symbol: "triangle", rotate: 180, frameAnchor: "bottom", dy: -7 },
} as const;

/** Null when no line has a point. */
export function lineChart(given: readonly Line[], options: LineChartOptions): Chart | null {
  const lines = given.filter((line) => line.points.some(hasPlace));
  if (lines.length === 0) return null;
  const every = orderAttentions([...(options.attentions ?? []), ...lines.map((line) => line.attention)]);
  const attentions = attentionsAmong(every, lines);
  const titles = attentionTitles(every);
  const colours = attentionColours(every);
  const domains = domainsOf(lines);
  const x = options.xDomain ?? domains.x;
  const y = options.yDomain ?? domains.y;

  const width = options.width ?? WIDTH;
  const height = chartHeight(width, 480);
  const names = [...new Set(lines.flatMap(({ label }) => label ?? []))];
  const margin = {
    marginLeft: 68,
    marginRight: Math.max(isNarrow(width) ? 16 : 34, endMargin(names, { fontSize: 12, gap: 16 })),
    marginTop: 16,
    marginBottom: 56,
  };
  const inner = { width: width - 68 - margin.marginRight, height: height - 72 };
  const pixel = (at: number) => (Math.log(at / x[0]) / Math.log(x[1] / x[0])) * inner.width;
  const drawn = (line: Line, points: readonly Point[], strokeOpacity: number) =>
    stretches(points).map((stretch) =>
      Plot.line(
        thinByColumn(
          stretch.map((point) => pixel(point.x)),
          stretch.map((point) => point.y),
          1,
        ).map((i) => stretch[i]!),
        {
          x: "x",
          y: "y",
          z: null,
          stroke: colours.get(line.attention)!,
          strokeWidth: line.width ?? 0.8,
          strokeOpacity,
          className: "curve",
          title: () => line.run,
          clip: true,
        },
      ),
    );
  return {
    name: options.name,
    title: options.title,
    description: `${lines.length} runs, log-log: ${attentions.map((attention) => titles.get(attention)).join(" and ")}.`,
    notes: [],
    width,
    height,
    rows: lines.flatMap((line) => {
      const series = { series: line.run, colour: colours.get(line.attention)! };
      return [
        ...line.points.map((point): ChartRow => ({ ...series, kind: "curve", ...point })),
        ...(line.recorded ?? []).map((point): ChartRow => ({ ...series, kind: "recorded", ...point })),
      ];
    }),
    columns: { x: options.x.label, y: options.y.label },
    plot: {
      ...margin,
      x: { type: "log", domain: x },
      y: { type: "log", domain: y },
      marks: [
        ...logAxes({ x: { domain: x, ...options.x }, y: { domain: y, ...options.y } }, inner, 13),
        ...lines.flatMap((line) =>
          (line.band ?? []).length > 1
            ? Plot.areaY(line.band, {
                x: "x",
                y1: "low",
                y2: "high",
                fill: colours.get(line.attention)!,
                fillOpacity: 0.13,
                className: "band",
                clip: true,
              })
            : [],
        ),
        ...lines.flatMap((line) => drawn(line, line.recorded ?? [], 0.25)),
        ...lines.flatMap((line) => drawn(line, line.points, 0.8)),
        ...lines.flatMap((line) =>
          (["NaN", "above", "below", "resume"] as const).map((mark) =>
            Plot.dot(
              (line.edge ?? []).filter((one) => one.mark === mark && one.x >= x[0] && one.x <= x[1]),
              {
                x: "x",
                ...EDGE[mark],
                r: 4,
                stroke: colours.get(line.attention)!,
                fill: mark === "resume" ? colours.get(line.attention)! : "none",
                strokeWidth: 1.4,
                className: "edge",
              },
            ),
          ),
        ),
        ...lines.map((line) =>
          Plot.dot(
            (line.marks ?? []).flatMap((mark) => line.points.find(({ x }) => x >= mark) ?? []),
            {
              x: "x",
              y: "y",
              r: 4,
              stroke: colours.get(line.attention)!,
              strokeWidth: 1.6,
              className: "mark",
            },
          ),
        ),
        Plot.frame({ stroke: INK }),
        ...endLabels(lines, { x, y }, inner),
        cornerLegend(
          [
            ...attentions.map((attention) => ({
              label: titles.get(attention)!,
              colour: colours.get(attention)!,
              sample: "line" as const,
            })),
            ...(options.ring && lines.some(({ marks = [] }) => marks.length > 0)
              ? [{ label: options.ring, colour: FAINT_INK, sample: "ring" as const }]
              : []),
          ],
          13,
        ),
      ],
    },
  };
}

/** Labels beside the ends of their lines, pushed apart where they would touch: inside the frame, or right of it. */
function endLabels(
  lines: readonly Line[],
  { x, y }: { x: Interval; y: Interval },
  inner: { width: number; height: number },
): Plot.Markish[] {
  const pixelX = (at: number) => (Math.log(at / x[0]) / Math.log(x[1] / x[0])) * inner.width;
  const pixelY = (at: number) =>
    Math.min(1, Math.max(0, Math.log(y[1] / at) / Math.log(y[1] / y[0]))) * inner.height;
  const places = [...new Set(lines.flatMap(({ label }) => label ?? []))].flatMap((label) => {
    const ends = lines
      .filter((line) => line.label === label)
      .flatMap(({ points }) => points.findLast(hasPlace) ?? [])
      .map((end) => ({ x: pixelX(end.x), y: pixelY(end.y) }));
    const right = Math.max(...ends.map((end) => end.x));
    const longest = ends.filter((end) => end.x > right - LABEL_HEIGHT);
    // A run that was stopped before the others of its size has a label of its own.
    const stopped = ends.filter((end) => !longest.includes(end));
    const y = longest.reduce((sum, end) => sum + end.y, 0) / longest.length;
    return [{ x: right, y }, ...stopped].map((place) => ({ label, ...place }));
  });
  // Beside the frame where there is no room left of it.
  const outside = places.filter(({ x, label }) => x + 10 + textWidth(label, 12) > inner.width);
  const inside = places.filter((place) => !outside.includes(place));
  return [
    ...spread(outside, LABEL_HEIGHT, [-LABEL_HEIGHT / 2, inner.height + LABEL_HEIGHT / 2]).map((place) => ({
      ...place,
      x: inner.width,
    })),
    ...spread(inside, LABEL_HEIGHT, [2, inner.height - 2]),
  ].map((place) =>
    Plot.text([place.label], {
      text: (label: string) => label,
      frameAnchor: "top-left",
      textAnchor: "start",
      lineAnchor: "middle",
      dx: Math.round(place.x) + 7,
      dy: Math.round(place.y),
      fontSize: 12,
      fill: FAINT_INK,
      stroke: "#ffffff",
      className: "label",
    }),
  );
}

const LABEL_HEIGHT = 15;
