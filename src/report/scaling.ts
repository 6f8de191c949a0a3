/** The scaling chart of one bucket: training curves, fitted final points, projections and their bands, log-log. */
import * as Plot from "@observablehq/plot";
import { type Bucket, bucketLabel, runCurves } from "../fit/index.ts";
import type { CurvePoint, FitResult, Interval, PowerLaw } from "../fit/types.ts";
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
  attentionTitles,
  axisLabel,
  axisTitle,
  formatCount,
  lossTitle,
  orderAttentions,
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
  const y =
    given.yDomain ??
    lossDomain(
      [
        ...curves.flatMap((curve) => extremes(curve.y)),
        ...laws.map((law) => project(law, [right, right], 1)[0]!.y),
      ],
      [...curves.map((curve) => curve.y.at(-1)!), ...fitted.map((point) => point.lm_loss)],
    );
  let smallest = largest;
  for (const point of fitted) smallest = Math.min(smallest, point.pflops_days);
  for (const curve of curves) {
    const seen = curve.y.findIndex((loss) => loss <= y[1]);
    if (seen >= 0) smallest = Math.min(smallest, curve.x[seen]!);
  }
  return { x: given.xDomain ?? computeDomain(smallest, largest), y };
}

/** Everything inside the axes, for a chart or for one panel of several. */
export function scalingMarks(
  curves: readonly Curve[],
  laws: readonly PowerLaw[],
  view: {
    x: Interval;
    y: Interval;
    /** Inner width in pixels. */
    width: number;
    colours: ReadonlyMap<string, string>;
    curveWidth: number;
    lawWidth: number;
    /** Length of dash and gap in pixels. */
    dash: readonly [number, number];
    dot: number;
    facet?: Record<string, string | number>;
  },
): Plot.Markish[] {
  const facet = view.facet ?? {};
  const pixel = (x: number) => (Math.log(x / view.x[0]) / Math.log(view.x[1] / view.x[0])) * view.width;
  const tag = <T extends object>(rows: T[]) => rows.map((row) => ({ ...row, ...facet }));
  const channels = Object.fromEntries(Object.keys(facet).map((key) => [key, key]));
  const clampLow = (value: number) => Math.max(view.y[0] * 0.5, value);
  const clampHigh = (value: number) => Math.min(view.y[1] * 2, value);
  const [on, off] = view.dash;
  const marks: Plot.Markish[] = [];
  const projections = laws.map((law) => ({ law, line: project(law, view.x) }));
  for (const { law, line } of projections) {
    const band = line.filter((p) => Number.isFinite(p.low) && Number.isFinite(p.high));
    if (band.length < 2) continue;
    marks.push(
      Plot.areaY(tag(band), {
        x: "x",
        y1: (p: Projected) => clampLow(p.low),
        y2: (p: Projected) => clampHigh(p.high),
        fill: view.colours.get(law.attention)!,
        fillOpacity: 0.13,
        clip: true,
        className: "band",
        ...channels,
      }),
    );
  }
  for (const curve of curves) {
    const kept = thinByColumn(curve.x.map(pixel), curve.y, 1);
    const thinned = kept.map((i) => ({ x: curve.x[i]!, y: curve.y[i]! }));
    marks.push(
      Plot.line(tag(thinned), {
        x: "x",
        y: "y",
        z: null,
        stroke: view.colours.get(curve.attention)!,
        strokeWidth: view.curveWidth,
        strokeOpacity: 0.85,
        strokeLinejoin: "round",
        clip: true,
        className: "curve",
        ...(view.facet ? {} : { title: () => curve.run }),
        ...channels,
      }),
    );
    // A run with one evaluation has no line; show where it is.
    if (thinned.length === 1) {
      marks.push(
        Plot.dot(tag(thinned), {
          x: "x",
          y: "y",
          r: view.dot,
          stroke: view.colours.get(curve.attention)!,
          clip: true,
          ...channels,
        }),
      );
    }
  }
  for (const [index, { law, line }] of projections.entries()) {
    marks.push(
      Plot.line(tag(line), {
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
        ...channels,
      }),
    );
  }
  for (const { law } of projections) {
    marks.push(
      Plot.dot(tag(law.points.map((p) => ({ x: p.pflops_days, y: p.lm_loss, model: p.model }))), {
        x: "x",
        y: "y",
        r: view.dot,
        fill: view.colours.get(law.attention)!,
        stroke: "#ffffff",
        strokeWidth: view.dot > 2 ? 0.8 : 0.4,
        clip: true,
        className: "final-points",
        ...(view.facet
          ? {}
          : { title: (p: { model: string; y: number }) => `${law.attention} ${p.model}: ${p.y.toFixed(4)}` }),
        ...channels,
      }),
    );
  }
  return marks;
}

/** The values behind the marks. */
export function scalingRows(
  curves: readonly Curve[],
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
  const pixel = (x: number) => (Math.log(x / view.x[0]) / Math.log(view.x[1] / view.x[0])) * view.width;
  return [
    ...curves.flatMap((curve) => {
      const { attention, run } = curve;
      const shared = { series: run, kind: "curve" as const, colour: colour(attention), ...place(curve) };
      const whole = curve.x.length <= view.width;
      const kept = whole ? curve.x.keys() : thinByColumn(curve.x.map(pixel), curve.y, 1);
      return Array.from(kept, (i): ChartRow => ({ ...shared, x: curve.x[i]!, y: curve.y[i]! }));
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
): string[] {
  if (curves.length === 0) {
    return [
      points === 0
        ? "The curves table is empty, so there is nothing to draw."
        : `No row of this bucket has a place on the axis of ${axisTitle(axis)}, so there is nothing to draw.`,
    ];
  }
  const notes: string[] = [];
  const attentions = orderAttentions(curves.map((curve) => curve.attention));
  const titles = attentionTitles(attentions);
  if (attentions.length === 1) {
    notes.push(`Only one attention (${titles.get(attentions[0]!)}) was trained, so nothing can be compared.`);
  }
  for (const attention of laws === null ? [] : attentions) {
    if (laws!.some((law) => law.attention === attention)) continue;
    const sizes = new Set(curves.filter((c) => c.attention === attention).map((c) => c.model)).size;
    notes.push(
      `${titles.get(attention)} has no projection: ${sizes === 1 ? "one size gives one final loss, and a law needs three sizes" : `no law was fitted through its ${sizes} sizes`}.`,
    );
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
  const drawn = orderAttentions([...curves, ...laws].map((row) => row.attention));
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
    notes: missingNotes(curves, ofCompute ? laws : null, points.length, axis),
    width,
    height,
    rows: scalingRows(curves, laws, { x: domains.x, colours, titles, width: inner.width }),
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
        ...scalingMarks(curves, laws, {
          x: domains.x,
          y: domains.y,
          width: inner.width,
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
