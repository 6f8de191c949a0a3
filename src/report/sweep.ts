/** A sweep of the learning rate: final loss against it, and where the loss is lowest. */

import { mean } from "../fit/regression.ts";
import type { Interval } from "../fit/types.ts";
import { byReason, fewOf } from "../fit/words.ts";
import { type OffTrend, offTrend, type Swept } from "../study/swept.ts";
import type { Chart, ChartView } from "./chart.ts";
import { attentionTitles, formatFixed, formatNumber } from "./labels.ts";
import type { Table } from "./table.ts";
import { lineChart } from "./training.ts";

/** A finished run of a sweep. */
export interface SweptRun extends Swept {
  readonly run: string;
  readonly attention: string;
  /** Final held-out loss over all positions. */
  readonly loss: number;
}

export interface Sweep {
  readonly attention: string;
  readonly size: string;
  readonly rule?: number;
  /** Seeds averaged, ascending; without the runs that are left out, where others of the rate are not. */
  readonly points: readonly Point[];
  /**
   * The lowest loss of the parabola through the lowest point and its neighbours, in log learning rate, without points
   * left out; null where the lowest of these is at an end of them, so that it is not bracketed.
   */
  readonly best: { readonly learningRate: number; readonly loss: number } | null;
  /** Names of the runs that have no say: that end in a sudden drop, and that have none where others of the size do. */
  readonly inDrop: readonly string[];
  readonly beforeDrop: readonly string[];
}

interface Point {
  readonly x: number;
  readonly y: number;
  /** Where every run of this rate ends, if all are left out. */
  readonly out?: OffTrend;
}

/** Sizes and attentions that were trained with several learning rates. */
export function sweepsOf(runs: readonly SweptRun[]): Sweep[] {
  // Runs that have no say, and why.
  const out = new Map(
    byReason(runs, ({ size }) => size).flatMap((alike) => {
      const outOfTrend = offTrend(alike.map(({ drop }) => drop));
      return alike.flatMap((run) => {
        const why = outOfTrend(run.drop);
        return why ? [[run, why] as const] : [];
      });
    }),
  );
  return byReason(runs, ({ attention, size }) => JSON.stringify([attention, size])).flatMap((group) => {
    const { attention, size, rule } = group[0]!;
    const rates = [...new Set(group.map((run) => run.learningRate))].sort((a, b) => a - b);
    if (rates.length < 2) return [];
    const points = rates.map((x): Point => {
      const all = group.filter((run) => run.learningRate === x);
      const past = all.filter((run) => !out.has(run));
      const y = mean((past.length > 0 ? past : all).map((run) => run.loss));
      return past.length === 0 ? { x, y, out: out.get(all[0]!) } : { x, y };
    });
    const names = (why: OffTrend) => group.flatMap((run) => (out.get(run) === why ? run.run : []));
    return [
      {
        ...{ attention, size, rule, points },
        best: lowest(points.filter(({ out }) => !out)),
        inDrop: names("in a drop"),
        beforeDrop: names("before the drop"),
      },
    ];
  });
}

function lowest(points: readonly Point[]): Sweep["best"] {
  if (points.length === 0) return null;
  const at = points.reduce((least, { y }, i) => (y < points[least]!.y ? i : least), 0);
  const [left, middle, right] = [points[at - 1], points[at], points[at + 1]];
  if (!left || !middle || !right) return null;
  // Newton's form around the middle, in u = log x.
  const [a, b] = [Math.log(left.x / middle.x), Math.log(right.x / middle.x)];
  const [p, q] = [(left.y - middle.y) / a, (right.y - middle.y) / b];
  const curvature = (q - p) / (b - a);
  const slope = p - curvature * a;
  const u = curvature > 0 ? -slope / (2 * curvature) : 0;
  return { learningRate: middle.x * Math.exp(u), loss: middle.y + slope * u + curvature * u * u };
}

/** Null when nothing was swept. */
export function sweepChart(sweeps: readonly Sweep[], view: ChartView = {}): Chart | null {
  const several = new Set(sweeps.map(({ size }) => size)).size > 1;
  return lineChart(
    sweeps.map(({ attention, size, points }) => ({
      run: `${size} ${attention}`,
      attention,
      points,
      width: 1.3,
      ...(several ? { label: size } : {}),
      marks: points.flatMap(({ x, out }) => (out ? [] : x)),
    })),
    {
      ...view,
      name: "sweep",
      title: "Final loss against learning rate",
      x: { label: "learning rate" },
      y: { label: "final LM loss, all positions" },
      xDomain: rateRange(sweeps),
      yDomain: lossRange(sweeps),
    },
  );
}

export function sweepCaption(sweeps: readonly Sweep[]): string {
  const all = sweeps.flatMap(({ points }) => points.flatMap(({ out }) => out ?? []));
  const kinds = [
    ...(all.includes("in a drop") ? ["that end in or just after a sudden drop"] : []),
    ...(all.includes("before the drop") ? ["without the drop that others of their size have"] : []),
  ];
  const ringless = kinds.length > 0 ? `; without a ring, runs ${kinds.join(" or ")}` : "";
  return `Final held-out loss over all positions against the peak learning rate${ringless}.`;
}

/** The learning rates and a little more, for the rings at the ends. */
function rateRange(sweeps: readonly Sweep[]): Interval {
  const rates = sweeps.flatMap(({ points }) => points.map(({ x }) => x));
  return [Math.min(...rates) / 1.1, Math.max(...rates) * 1.1];
}

/** The losses, as a sweep is about small differences, and room for the legend above them. */
function lossRange(sweeps: readonly Sweep[]): Interval {
  const losses = sweeps.flatMap(({ points }) => points.map(({ y }) => y));
  const [low, high] = [Math.min(...losses), Math.max(...losses)];
  const margin = 0.08 * (high - low) + 0.001 * high;
  return [low - margin, high + margin + 0.3 * (high - low)];
}

export function sweepTable(sweeps: readonly Sweep[], every: readonly string[]): Table {
  const titles = attentionTitles(every);
  const rates = [...new Set(sweeps.flatMap(({ points }) => points.map(({ x }) => x)))].sort((a, b) => a - b);
  return {
    columns: [
      { title: "run", align: "left" },
      ...rates.map((rate) => ({ title: rate.toExponential(2), align: "right" as const })),
      { title: "best factor on the rule", align: "right" },
      { title: "best learning rate", align: "right" },
    ],
    rows: sweeps.map(({ attention, size, rule, points, best }) => [
      `${titles.get(attention)} ${size}`,
      ...rates.map((rate) => {
        const point = points.find(({ x }) => x === rate);
        return point ? `${formatFixed(point.y, 4)}${point.out ? ` ${point.out}` : ""}` : "";
      }),
      best && rule ? formatNumber(best.learningRate / rule, 2) : "",
      best ? best.learningRate.toExponential(2) : "not bracketed",
    ]),
  };
}

/** Which best learning rates are not bracketed, and how far apart those of one size lie, in sentences. */
export function sweepWords(sweeps: readonly Sweep[], every: readonly string[]): string[] {
  const titles = attentionTitles(every);
  const open = sweeps.flatMap(({ attention, size, points, best, inDrop, beforeDrop }) => {
    const name = `${titles.get(attention)} at ${size}`;
    const leftOut = (runs: readonly string[], one: string, several: string, what: string) =>
      runs.length === 0
        ? []
        : `${fewOf(runs)} ${runs.length > 1 ? several : one} ${what} and ${runs.length > 1 ? "are" : "is"} left out`;
    const out = [
      leftOut(inDrop, "ends", "end", "in or just after a sudden drop of the training loss"),
      leftOut(
        beforeDrop,
        "has",
        "have",
        "no sudden drop of the training loss, which others of the size have,",
      ),
    ]
      .flat()
      .join("; ");
    if (best) return out ? [`Of ${name}, ${out}.`] : [];
    const left = points.filter((point) => !point.out).length;
    const why =
      left < 3
        ? `it takes 3 learning rates, not ${left}`
        : "the lowest loss is at an end of the learning rates";
    return [`The best learning rate of ${name} is not bracketed: ${why}${out && `; ${out}`}.`];
  });
  const apart = [...new Set(sweeps.map(({ size }) => size))].flatMap((of) => {
    const found = sweeps.flatMap(({ attention, size, best }) =>
      size === of && best ? [{ attention, ...best }] : [],
    );
    const rates = found.map(({ learningRate }) => learningRate);
    if (rates.length < 2) return [];
    const names = found.map(({ attention }) => titles.get(attention));
    const factor = formatNumber(Math.max(...rates) / Math.min(...rates), 2);
    return [`The best learning rates of ${names.join(", ")} at ${of} lie within a factor of ${factor}.`];
  });
  return [...open, ...apart];
}
