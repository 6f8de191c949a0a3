/** The scaling chart of one bucket: training curves, fitted final points, projections and their bands, log-log. */
import * as Plot from "@observablehq/plot";
import { type Bucket, bucketLabel, runCurves } from "../fit/index.ts";
import type { CurvePoint, FitResult, FittedPoint, Interval, PowerLaw } from "../fit/types.ts";
import { orderAttentions } from "../fit/words.ts";
import { computeDomain, lossDomain } from "./axes.ts";
import {
  type Chart,
  type ChartRow,
  type ChartView,
  chartHeight,
  INK,
  isNarrow,
  logAxes,
  WIDTH,
} from "./chart.ts";
import { type Axis, attentionsOf, type Curve, curvesOf, leadingBucket, sameBucket } from "./curves.ts";
import {
  attentionColours,
  attentionsAmong,
  attentionTitles,
  axisLabel,
  axisTitle,
  formatCount,
  lossTitle,
} from "./labels.ts";
import { cornerLegend } from "./legend.ts";
import { type Projected, project } from "./projection.ts";
import { thinByColumn } from "./thin.ts";

export interface ScalingOptions extends ChartView {
  /** Default `6ND`. */
  readonly axis?: Axis;
  /** Default: the headline bucket. */
  readonly bucket?: Bucket;
  /** Axis limits in place of the rules of `computeDomain` and `lossDomain`. */
  readonly xDomain?: Interval;
  readonly yDomain?: Interval;
  readonly name?: string;
  /** Runs whose last loss is not their final one. */
  readonly unfinished?: ReadonlySet<string>;
}

/** The power laws of one bucket along an axis: none unless it is of compute. */
export function lawsOf(fit: FitResult, bucket: Bucket, axis: Axis): PowerLaw[] {
  return fit.laws.filter(
    (law): law is PowerLaw => law.form !== "parametric" && law.convention === axis && sameBucket(law, bucket),
  );
}

function extremes(values: Float64Array): [low: number, high: number] {
  let [low, high] = [values[0]!, values[0]!];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** The x from where curves begin to where the longest ends. */
function span(curves: readonly Curve[]): Interval | undefined {
  if (curves.length === 0) return undefined;
  const low = Math.min(...curves.map((curve) => curve.x[0]!));
  const high = Math.max(...curves.map((curve) => curve.x.at(-1)!));
  return [low, high > low ? high : 10 * low];
}

/** Times the middle one of the final losses: more than any first loss is, that of an untrained model. */
const DIVERGED = 20;

/** Axis limits that hold the given curves (from where they come into view), fitted points and projections. */
export function scalingDomains(
  curves: readonly Curve[],
  laws: readonly PowerLaw[],
  given: { readonly xDomain?: Interval; readonly yDomain?: Interval },
): { x: Interval; y: Interval } {
  const fitted = laws.flatMap((law) => law.points);
  let largest = 0;
  for (const curve of curves) largest = Math.max(largest, curve.x.at(-1)!);
  for (const point of fitted) largest = Math.max(largest, point.pflops_days);
  const right = given.xDomain?.[1] ?? computeDomain(largest, largest)[1];
  const drawn = [
    ...curves.flatMap((curve) => extremes(curve.y)),
    ...laws.map((law) => project(law, [right, right], 1)[0]!.y),
  ];
  const ends = [...curves.map((curve) => curve.y.at(-1)!), ...fitted.map((point) => point.lm_loss)];
  // What has diverged is not in sight.
  const most = DIVERGED * ([...ends].sort((a, b) => a - b)[ends.length >> 1] ?? Number.POSITIVE_INFINITY);
  const sane = (losses: readonly number[]) => losses.filter((loss) => loss <= most);
  const y = given.yDomain ?? lossDomain(sane(drawn), sane(ends));
  let smallest = largest;
  for (const point of fitted) smallest = Math.min(smallest, point.pflops_days);
  for (const curve of curves) {
    const seen = curve.y.findIndex((loss) => loss <= y[1]);
    if (seen >= 0) smallest = Math.min(smallest, curve.x[seen]!);
  }
  return { x: given.xDomain ?? computeDomain(smallest, largest), y };
}

/** A curve and the indices of its points that are drawn. */
export interface ThinnedCurve {
  readonly curve: Curve;
  readonly kept: readonly number[];
}

/** To what a chart `width` pixels wide inside its axes shows, once for its marks and its rows. */
export function thinCurves(curves: readonly Curve[], domain: Interval, width: number): ThinnedCurve[] {
  const span = Math.log(domain[1] / domain[0]);
  const pixel = (x: number) => (Math.log(x / domain[0]) / span) * width;
  return curves.map((curve) => ({ curve, kept: thinByColumn(curve.x.map(pixel), curve.y, 1) }));
}

/** Everything inside the axes, for a chart or for one panel of several. */
export function scalingMarks(
  curves: readonly ThinnedCurve[],
  laws: readonly PowerLaw[],
  view: {
    x: Interval;
    y: Interval;
    colours: ReadonlyMap<string, string>;
    curveWidth: number;
    lawWidth: number;
    /** Length of dash and gap in pixels. */
    dash: readonly [number, number];
    dot: number;
    facet?: Record<string, string | number>;
  },
): Plot.Markish[] {
  const facet = Object.fromEntries(
    Object.entries(view.facet ?? {}).map(([key, value]) => [key, () => value]),
  );
  const clampLow = (value: number) => Math.max(view.y[0] * 0.5, value);
  const clampHigh = (value: number) => Math.min(view.y[1] * 2, value);
  const [on, off] = view.dash;
  const marks: Plot.Markish[] = [];
  const projections = laws.map((law) => ({ law, line: project(law, view.x) }));
  for (const { law, line } of projections) {
    const band = line.filter((p) => Number.isFinite(p.low) && Number.isFinite(p.high));
    if (band.length < 2) continue;
    marks.push(
      Plot.areaY(band, {
        x: "x",
        y1: (p: Projected) => clampLow(p.low),
        y2: (p: Projected) => clampHigh(p.high),
        fill: view.colours.get(law.attention)!,
        fillOpacity: 0.13,
        clip: true,
        className: "band",
        ...facet,
      }),
    );
  }
  for (const { curve, kept } of curves) {
    // Columns in place of an object for each point, of which there are very many.
    const place = {
      x: Float64Array.from(kept, (i) => curve.x[i]!),
      y: Float64Array.from(kept, (i) => curve.y[i]!),
      ...facet,
    };
    marks.push(
      Plot.line(kept, {
        ...place,
        z: null,
        stroke: view.colours.get(curve.attention)!,
        strokeWidth: view.curveWidth,
        strokeOpacity: 0.85,
        strokeLinejoin: "round",
        clip: true,
        className: "curve",
        ...(view.facet ? {} : { title: () => curve.run }),
      }),
    );
    // A run with one evaluation has no line; show where it is.
    if (kept.length === 1) {
      marks.push(
        Plot.dot(kept, {
          ...place,
          r: view.dot,
          stroke: view.colours.get(curve.attention)!,
          clip: true,
        }),
      );
    }
  }
  for (const [index, { law, line }] of projections.entries()) {
    marks.push(
      Plot.line(line, {
        x: "x",
        y: "y",
        stroke: view.colours.get(law.attention)!,
        strokeWidth: view.lawWidth,
        strokeDasharray: `${on} ${off}`,
        // Where two lines coincide, the dashes of one fill the gaps of the other.
        strokeDashoffset: (index % 2) * ((on + off) / 2),
        strokeLinecap: "butt",
        clip: true,
        className: "projection",
        ...facet,
      }),
    );
  }
  for (const { law } of projections) {
    marks.push(
      Plot.dot(law.points, {
        x: "pflops_days",
        y: "lm_loss",
        r: view.dot,
        fill: view.colours.get(law.attention)!,
        stroke: "#ffffff",
        strokeWidth: view.dot > 2 ? 0.8 : 0.4,
        clip: true,
        className: "final-points",
        ...(view.facet
          ? {}
          : { title: (p: FittedPoint) => `${law.attention} ${p.model}: ${p.lm_loss.toFixed(4)}` }),
        ...facet,
      }),
    );
  }
  return marks;
}

/** The values behind the marks. */
export function scalingRows(
  curves: readonly ThinnedCurve[],
  laws: readonly PowerLaw[],
  view: {
    x: Interval;
    colours: ReadonlyMap<string, string>;
    titles: ReadonlyMap<string, string>;
    /** Inner width in pixels: a curve of more points is given as it is drawn, a shorter one whole. */
    width: number;
    facet?: ChartRow["facet"];
  },
): ChartRow[] {
  const colour = (attention: string) => view.colours.get(attention)!;
  const title = (attention: string) => view.titles.get(attention)!;
  const place = (bucket: Bucket) => ({ positions: bucketLabel(bucket), facet: view.facet });
  return [
    ...curves.flatMap(({ curve, kept }) => {
      const series = curve.run;
      const ink = colour(curve.attention);
      const { positions, facet } = place(curve);
      const { x, y } = curve;
      // In full: an object that is spread into is five times as large, and there are very many.
      const row = (i: number): ChartRow => {
        return { series, kind: "curve", colour: ink, positions, facet, x: x[i]!, y: y[i]! };
      };
      return Array.from(x.length <= view.width ? x.keys() : kept, row);
    }),
    ...laws.flatMap((law) => {
      const shared = { colour: colour(law.attention), ...place(law) };
      return [
        ...law.points.map((point): ChartRow => {
          const { model, pflops_days: x, lm_loss: y } = point;
          return { series: `${title(law.attention)} ${model}`, kind: "final", x, y, ...shared };
        }),
        ...project(law, view.x).map((point): ChartRow => {
          return { series: `${title(law.attention)} projection`, kind: "projection", ...point, ...shared };
        }),
      ];
    }),
  ];
}

/** What is missing for a full chart, in sentences. */
function missingNotes(
  curves: readonly Curve[],
  laws: readonly PowerLaw[] | null,
  points: number,
  axis: Axis,
  every: readonly string[],
  unfinished: ReadonlySet<string> = new Set(),
): string[] {
  if (curves.length === 0) {
    return [
      points === 0
        ? "The curves table is empty, so there is nothing to draw."
        : `No row of this bucket has a place on the axis of ${axisTitle(axis)}, so there is nothing to draw.`,
    ];
  }
  const notes: string[] = [];
  const attentions = attentionsAmong(every, curves);
  const titles = attentionTitles(attentions);
  if (attentions.length === 1) {
    notes.push(`Only one attention (${titles.get(attentions[0]!)}) was trained, so nothing can be compared.`);
  }
  for (const attention of laws === null ? [] : attentions) {
    if (laws!.some((law) => law.attention === attention)) continue;
    const ended = curves.filter((c) => c.attention === attention && !unfinished.has(c.run));
    const sizes = new Set(ended.map((c) => c.model)).size;
    const why =
      sizes === 0
        ? "a law goes through final losses, and no run of it has finished"
        : sizes === 1
          ? "one size gives one final loss, and a law needs three sizes"
          : `no law was fitted through its ${sizes} sizes`;
    notes.push(`${titles.get(attention)} has no projection: ${why}.`);
  }
  return notes;
}

/** The chart of the training curves of one bucket and their laws. Describes what is missing in `notes`. */
export function scalingChart(
  points: readonly CurvePoint[],
  fit: FitResult,
  options: ScalingOptions = {},
): Chart {
  const axis = options.axis ?? "6ND";
  const bucket = options.bucket ?? leadingBucket(runCurves(points).curves);
  const shown = (row: { attention: string }) => !options.hidden?.has(row.attention);
  const curves = curvesOf(points, axis).filter((curve) => sameBucket(curve, bucket) && shown(curve));
  const laws = lawsOf(fit, bucket, axis).filter(shown);
  const attentions = orderAttentions([
    ...(options.attentions ?? []),
    ...attentionsOf(points),
    ...laws.map((law) => law.attention),
  ]);
  const colours = attentionColours(attentions);
  const titles = attentionTitles(attentions);
  const ofCompute = axis === "6ND" || axis === "attended";
  const xDomain = options.xDomain ?? (ofCompute ? undefined : span(curves));
  const domains = scalingDomains(curves, laws, { xDomain, yDomain: options.yDomain });
  const width = options.width ?? WIDTH;
  const height = chartHeight(width, 580);
  const narrow = isNarrow(width);
  const margin = { marginLeft: 68, marginRight: narrow ? 16 : 34, marginTop: 16, marginBottom: 58 };
  const inner = { width: width - 68 - margin.marginRight, height: height - 74 };
  const fontSize = narrow ? 12 : 14;
  // As published: the cheaper attention first, full attention last.
  const drawn = attentionsAmong(attentions, [...curves, ...laws]);
  const thinned = thinCurves(curves, domains.x, inner.width);
  const legend = [
    ...drawn.filter((label) => label !== "full"),
    ...drawn.filter((label) => label === "full"),
  ].map((label) => {
    const projected = laws.some((law) => law.attention === label);
    return {
      label: `${titles.get(label)}${projected ? " projection" : ""}`,
      colour: colours.get(label)!,
      sample: projected ? ("dashes" as const) : ("line" as const),
    };
  });
  return {
    name: options.name ?? "chart",
    title: `${lossTitle(bucket)} against ${axisTitle(axis)}`,
    description: `${curves.length} training curves and ${laws.length} projections of ${drawn.map((label) => titles.get(label)).join(" and ") || "no attention"}, log-log.`,
    notes: missingNotes(curves, ofCompute ? laws : null, points.length, axis, attentions, options.unfinished),
    width,
    height,
    rows: scalingRows(thinned, laws, { x: domains.x, colours, titles, width: inner.width }),
    columns: { x: axisLabel(axis), y: lossTitle(bucket) },
    plot: {
      ...margin,
      x: { type: "log", domain: domains.x },
      y: { type: "log", domain: domains.y },
      marks: [
        ...logAxes(
          {
            x: { domain: domains.x, label: axisLabel(axis), format: ofCompute ? undefined : formatCount },
            y: { domain: domains.y, label: lossTitle(bucket) },
          },
          inner,
          fontSize,
        ),
        ...scalingMarks(thinned, laws, {
          x: domains.x,
          y: domains.y,
          colours,
          curveWidth: 1.1,
          lawWidth: 1.9,
          dash: [7, 5],
          dot: 2.8,
        }),
        Plot.frame({ stroke: INK }),
        // No room for it on a narrow screen, which has a legend of its own.
        ...(legend.length > 0 && !narrow ? [cornerLegend(legend, fontSize)] : []),
      ],
    },
  };
}
