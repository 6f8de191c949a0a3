/** The time of an attention layer against context, as the MoBA report's Figure 2 draws it; the same as a table and in words. */
import { join } from "node:path";
import * as Plot from "@observablehq/plot";
import { inFolder, writeWhole } from "../files.ts";
import type { Interval } from "../fit/types.ts";
import {
  type AttentionSpeed,
  attendedOperations,
  compareTimes,
  PASSES,
  type Pass,
  type TimePoint,
  timesOf,
} from "../study/attention-speed.ts";
import { floor125, logTicks } from "./axes.ts";
import { axisMarks, type Chart, type ChartRow, INK, textWidth, WIDTH } from "./chart.ts";
import { attentionColours, attentionTitles, formatNumber } from "./labels.ts";
import { chartPng, chartSvg } from "./render.ts";
import type { Table } from "./table.ts";

const PANELS: Record<Pass, string> = { forward: "Forward", training: "Forward and backward" };
const MARGIN = { marginLeft: 68, marginRight: 18, marginTop: 14, marginBottom: 54 };
const HEIGHT = 460;
const GAP = 16;
const FONT = 11;
const LINE = 15;

/** One attention in one pass, beside the first attention measured. */
interface Series {
  readonly attention: string;
  readonly pass: Pass;
  readonly title: string;
  readonly colour: string;
  readonly times: readonly TimePoint[];
  /** Null for the first attention itself, and where no context has both. */
  readonly against: {
    readonly last: { readonly context: number; readonly speedup: number };
    readonly crossing: TimePoint | null;
    /** Becoming faster: somewhere, before the first context, or not at all. */
    readonly faster: "crossing" | "always" | "never";
  } | null;
}

function seriesOf({ rows }: AttentionSpeed): Series[] {
  const attentions = [...new Set(rows.map(({ attention }) => attention))];
  const titles = attentionTitles(attentions);
  const colours = attentionColours(attentions);
  return PASSES.flatMap((pass) =>
    attentions.map((attention, i): Series => {
      const times = timesOf(rows, attention, pass);
      const { speedups, crossing } = compareTimes(timesOf(rows, attentions[0]!, pass), times);
      const last = speedups.at(-1);
      const faster = crossing ? "crossing" : last && last.speedup > 1 ? "always" : "never";
      return {
        attention,
        pass,
        title: titles.get(attention)!,
        colour: colours.get(attention)!,
        times,
        against: i > 0 && last ? { last, crossing, faster } : null,
      };
    }),
  );
}

/** A context for people: 8k, 1M, and 3.1k where lines cross. */
export function contextText(tokens: number): string {
  const [unit, suffix] = tokens >= 2 ** 20 ? [2 ** 20, "M"] : tokens >= 1024 ? [1024, "k"] : [1, ""];
  return `${Number((tokens / unit).toPrecision(3))}${suffix}`;
}

const speedupText = (speedup: number) => `${formatNumber(speedup, speedup < 10 ? 2 : 3)}x`;

/** What the measurement says, a sentence for each pass of each attention, and what was not measured. */
export function speedReading(speed: AttentionSpeed): string[] {
  const all = seriesOf(speed);
  const baseline = all[0]?.title.toLowerCase();
  const sentences = all.flatMap(({ pass, title, against, times }) => {
    if (!against) return [];
    const { last, crossing, faster } = against;
    const where = {
      crossing: crossing && `faster than ${baseline} from about ${contextText(crossing.context)} tokens on`,
      always: `faster than ${baseline} at every context from ${contextText(times[0]!.context)} on`,
      never: `not faster than ${baseline} at any context up to ${contextText(last.context)}`,
    }[faster];
    return [
      `${PANELS[pass]}: ${title} is ${where}; ${speedupText(last.speedup)} its speed at ${contextText(last.context)}.`,
    ];
  });
  const titles = new Map(all.map(({ attention, title }) => [attention, title]));
  const endings = speed.endings.map(
    ({ attention, pass, context, because }) =>
      `${PANELS[pass]}: ${titles.get(attention) ?? attention} ends before ${contextText(context)}: ${because}.`,
  );
  return [...sentences, ...endings];
}

/** Times, rates of attended pairs, speed against the first attention, memory beside inputs and outputs. */
export function speedTable(speed: AttentionSpeed): Table {
  const { rows, shape } = speed;
  const first = rows[0]?.attention;
  const rate = (row: (typeof rows)[number], pass: Pass) => {
    const ms = pass === "forward" ? row.forward_ms : row.training_ms;
    return ms === null ? null : attendedOperations(row, shape, pass) / ms / 1e9;
  };
  const most = Math.max(0, ...rows.map((row) => rate(row, "forward")!));
  const [unit, scale] = most < 1 ? ["GFLOP/s", 1000] : ["TFLOP/s", 1];
  const cell = (value: number | null, text: (value: number) => string) =>
    value === null ? "-" : text(value);
  const ms = (value: number | null) => cell(value, (value) => formatNumber(value, 3));
  return {
    columns: [
      { title: "attention", align: "left" },
      ...["context", "fwd ms", "+bwd", unit!, "+bwd", `vs ${first}`, "+bwd", "MiB", "+bwd"].map((title) => ({
        title,
        align: "right" as const,
      })),
    ],
    rows: rows.map((row) => {
      const speedup = (pass: Pass) => {
        const at = ({ context }: TimePoint) => context === row.context;
        const [base, own] = [first!, row.attention].map((label) => timesOf(rows, label, pass).find(at)?.ms);
        if (row.attention === first) return "";
        return base && own ? speedupText(base / own) : "-";
      };
      const rates = PASSES.map((pass) => cell(rate(row, pass), (value) => formatNumber(value * scale!, 3)));
      const memory = [row.forward_memory, row.training_memory].map((bytes) =>
        cell(bytes, (bytes) => formatNumber(bytes / 2 ** 20, 2)),
      );
      return [
        row.attention,
        contextText(row.context),
        ms(row.forward_ms),
        ms(row.training_ms),
        ...rates,
        ...PASSES.map(speedup),
        ...memory,
      ];
    }),
  };
}

/** Two panels, forward and training: time against context, log-log, with the speed-up where both lines end. */
export function speedChart(speed: AttentionSpeed): Chart {
  const all = seriesOf(speed).filter(({ times }) => times.length > 0);
  const times = all.flatMap(({ times }) => times);
  const contexts = [...new Set(times.map(({ context }) => context))].sort((a, b) => a - b);
  const passes = PASSES.filter((pass) => all.some((series) => series.pass === pass));
  const cell = (WIDTH - MARGIN.marginLeft - MARGIN.marginRight - GAP * (passes.length - 1)) / passes.length;
  const inner = HEIGHT - MARGIN.marginTop - MARGIN.marginBottom;
  // Room beside the last points for their labels.
  const x: Interval = [
    contexts[0]! / 1.15,
    contexts.at(-1)! * (contexts.at(-1)! / contexts[0]!) ** 0.14 * 1.15,
  ];
  const [least, most] = [Math.min(...times.map(({ ms }) => ms)), Math.max(...times.map(({ ms }) => ms))];
  const bottom = floor125(least / 1.2);
  // Above the lines a panel's words have a line each, and one as its title.
  const top = (2 + new Set(all.map(({ attention }) => attention)).size) * LINE;
  const y: Interval = [bottom, bottom * (most / bottom) ** (inner / (inner - top))];
  const placeOf = ({ context, ms }: TimePoint): Place => ({
    x: (cell * Math.log(context / x[0])) / Math.log(x[1] / x[0]),
    y: (inner * Math.log(y[1] / ms)) / Math.log(y[1] / y[0]),
  });

  const marks: Plot.Markish[] = [
    ...axisMarks({
      axis: "x",
      ticks: { labelled: spaced(contexts, x, cell), minor: contexts },
      label: "context, tokens",
      fontSize: FONT,
      labelOffset: 42,
      format: contextText,
    }),
    ...axisMarks({
      axis: "y",
      ticks: logTicks(y, inner, () => FONT * 1.6),
      label: "time, ms",
      fontSize: FONT,
      labelOffset: 54,
      format: (value) => value.toLocaleString("en"),
    }),
  ];
  const text = (fx: number, words: string, options: Plot.TextOptions) =>
    Plot.text([{ fx, words }], {
      fx: "fx",
      text: "words",
      fontSize: FONT,
      stroke: "#ffffff",
      strokeWidth: 3,
      ...options,
    } as Plot.TextOptions);
  for (const [fx, pass] of passes.entries()) {
    const panel = all.filter((series) => series.pass === pass);
    const lines: { words: string; fill: string; fontWeight?: string }[] = [
      { words: PANELS[pass], fill: INK, fontWeight: "bold" },
    ];
    const labels: { point: TimePoint; words: string; fill: string }[] = [];
    for (const { title, colour, times, against } of panel) {
      const points = times.map((point) => ({
        ...point,
        fx,
        said: `${title}, ${PANELS[pass].toLowerCase()}, ${contextText(point.context)}: ${formatNumber(point.ms)} ms`,
      }));
      const at = { fx: "fx", x: "context", y: "ms" };
      marks.push(
        Plot.line(points, { ...at, z: null, stroke: colour, strokeWidth: 1.6, className: "curve" }),
        Plot.dot(points, { ...at, r: 2.6, fill: colour, title: "said" }),
      );
      if (!against) {
        lines.push({ words: title, fill: colour });
        continue;
      }
      const { last, crossing, faster } = against;
      const point = times.find(({ context }) => context === last.context)!;
      const words = speedupText(last.speedup);
      labels.push({ point, words, fill: colour });
      if (crossing) {
        marks.push(Plot.dot([{ ...crossing, fx }], { ...at, r: 5, stroke: INK, className: "crossing" }));
      }
      const from = {
        crossing: crossing && `faster from ${contextText(crossing.context)} on`,
        always: "faster throughout",
        never: "not faster",
      }[faster];
      lines.push({ words: `${title}: ${from}, ${words} at ${contextText(last.context)}`, fill: colour });
    }
    for (const [row, { words, ...look }] of lines.entries()) {
      marks.push(text(fx, words, { frameAnchor: "top-left", dx: 8, dy: 8 + row * LINE, ...look }));
    }
    const curves = panel.map(({ times }) => times.map(placeOf));
    const taken: Box[] = [];
    for (const { point, words, fill } of labels.sort((a, b) => placeOf(a.point).y - placeOf(b.point).y)) {
      const { box, ...place } = labelPlace(placeOf(point), textWidth(words, FONT), {
        curves,
        taken,
        frame: { left: 0, right: cell, top, bottom: inner },
      });
      taken.push(box);
      marks.push(
        text(fx, words, { x: () => point.context, y: () => point.ms, fontWeight: "bold", fill, ...place }),
      );
    }
  }
  marks.push(Plot.frame({ stroke: INK }));
  return {
    name: "attention",
    title: "Time of an attention layer against context",
    description: speedReading(speed).join(" "),
    notes: [],
    width: WIDTH,
    height: HEIGHT,
    rows: all.flatMap(({ title, colour, pass, times }) =>
      times.map(
        ({ context, ms }): ChartRow => ({
          series: `${title}, ${PANELS[pass].toLowerCase()}`,
          kind: "final",
          colour,
          x: context,
          y: ms,
          facet: { fx: passes.indexOf(pass) },
        }),
      ),
    ),
    columns: { x: "context, tokens", y: "time, ms" },
    plot: {
      ...MARGIN,
      x: { type: "log", domain: x },
      y: { type: "log", domain: y },
      fx: { axis: null, padding: GAP / (cell + GAP), round: false },
      marks,
    },
  };
}

/** In pixels inside the frame. */
interface Place {
  readonly x: number;
  readonly y: number;
}

interface Box {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** Whether a line, its points in order of x, comes within two pixels of a box. */
function comesNear(line: readonly Place[], box: Box): boolean {
  return line.slice(1).some((b, i) => {
    const a = line[i]!;
    const [from, to] = [Math.max(a.x, box.left), Math.min(b.x, box.right)];
    if (from > to) return false;
    const [first, last] = [from, to].map((x) => a.y + ((b.y - a.y) * (x - a.x)) / (b.x - a.x)) as [
      number,
      number,
    ];
    return Math.max(first, last) > box.top - 2 && Math.min(first, last) < box.bottom + 2;
  });
}

/** Right of a point and below it, or left and above, as near as lines and other labels leave room. */
function labelPlace(
  { x, y }: Place,
  width: number,
  { curves, taken, frame }: { curves: readonly (readonly Place[])[]; taken: readonly Box[]; frame: Box },
) {
  const candidate = (away: number, side: 1 | -1) => {
    const [near, far] = [x + 7 * side, x + (7 + width) * side];
    const middle = y + side * (4 + away);
    const box: Box = {
      left: Math.min(near, far),
      right: Math.max(near, far),
      top: middle - FONT / 2,
      bottom: middle + FONT / 2,
    };
    const textAnchor: "start" | "end" = side > 0 ? "start" : "end";
    return { box, textAnchor, dx: 7 * side, dy: side * (4 + away) };
  };
  const isClear = ({ box }: { box: Box }) =>
    box.left >= frame.left &&
    box.right <= frame.right &&
    box.top >= frame.top &&
    box.bottom <= frame.bottom &&
    !curves.some((curve) => comesNear(curve, box)) &&
    taken.every(
      (other) =>
        other.right < box.left ||
        other.left > box.right ||
        other.bottom < box.top - 2 ||
        other.top > box.bottom + 2,
    );
  for (let away = 0; away < frame.bottom; away += 2) {
    const clear = [candidate(away, 1), candidate(away, -1)].find(isClear);
    if (clear) return clear;
  }
  return candidate(0, 1);
}

/** Those of the contexts whose labels keep apart: all, or every second, third ... counted from the last. */
function spaced(contexts: readonly number[], [low, high]: Interval, length: number): number[] {
  const position = (value: number) => (Math.log(value / low) / Math.log(high / low)) * length;
  for (let every = 1; ; every++) {
    const chosen = contexts.filter((_, i) => (contexts.length - 1 - i) % every === 0);
    const apart = chosen.every(
      (value, i) =>
        i === 0 || position(value) - position(chosen[i - 1]!) > textWidth(contextText(value), FONT) + 6,
    );
    if (apart) return chosen;
  }
}

/** Writes attention.json, attention.svg and attention.png; the JSON is `facts` and the measurement. */
export function writeSpeed(folder: string, speed: AttentionSpeed, facts: object): string {
  const json = `${JSON.stringify({ ...facts, ...speed, reading: speedReading(speed) }, null, 2)}\n`;
  inFolder(folder, () => {
    writeWhole(join(folder, "attention.json"), json);
    if (speed.rows.length === 0) return;
    const svg = chartSvg(speedChart(speed));
    writeWhole(join(folder, "attention.svg"), svg);
    writeWhole(join(folder, "attention.png"), chartPng(svg));
  });
  return json;
}
