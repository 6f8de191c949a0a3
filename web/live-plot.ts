/**
 * Curves that grow while they are watched, on a canvas (uPlot: frame, axes, cursor, selection). Both axes are log: uPlot is
 * given the logarithms, as its own log axes have no labels past 1e17.
 * Lines are drawn here, so that each run keeps its own steps and what is not finite leaves a gap and a mark.
 */
import uPlot from "uplot";
import type { Interval } from "../src/fit/types.ts";
import { logTicks } from "../src/report/axes.ts";
import { chartHeight, isNarrow } from "../src/report/chart.ts";
import { thinByColumn } from "../src/report/thin.ts";
import { shade } from "./theme.ts";

/** Its values do not change: an update brings a new one. */
export interface LiveLine {
  readonly run: string;
  /** As on white paper. */
  readonly colour: string;
  readonly x: ArrayLike<number>;
  /** As recorded. */
  readonly raw: ArrayLike<number>;
  /** The line: a mean, or what was recorded, without the values that are away; then it is the array `raw` if none is. */
  readonly smoothed: ArrayLike<number>;
  readonly smooths: boolean;
  /** Where the recorded value is not finite or far from all others, ascending. */
  readonly away: readonly number[];
  readonly step: ArrayLike<number>;
  readonly attempt: ArrayLike<number>;
}

export interface LiveView {
  readonly lines: readonly LiveLine[];
  readonly x: {
    readonly domain: Interval;
    readonly label: string;
    readonly format: (value: number) => string;
  };
  readonly y: {
    readonly domain: Interval;
    readonly label: string;
    readonly format: (value: number) => string;
  };
}

/** A value of a line: what the crosshair is on. */
export interface LivePoint {
  readonly line: LiveLine;
  readonly at: number;
}

export interface LiveEvents {
  readonly onZoom: (domains: { x: Interval; y: Interval } | null) => void;
  readonly onPoint: (point: LivePoint | null) => void;
}

const FONT = "12px system-ui, sans-serif";

export class LivePlot {
  readonly #holder: HTMLElement;
  readonly #events: LiveEvents;
  #plot: uPlot | null = null;
  #view: LiveView | null = null;
  #look = "";
  #ring: HTMLElement | null = null;
  #point: LivePoint | null = null;

  constructor(holder: HTMLElement, events: LiveEvents) {
    this.#holder = holder;
    this.#events = events;
  }

  destroy(): void {
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** Draws the view at a width; the plot itself is only made again when its size, labels or colours change. */
  show(view: LiveView, width: number, isDark: boolean): void {
    this.#view = view;
    const look = JSON.stringify([width, isDark, view.x.label, view.y.label]);
    if (look !== this.#look || !this.#plot) {
      this.#look = look;
      this.destroy();
      this.#plot = this.#make(view, width);
    } else {
      this.#plot.setData(this.#frame(view));
    }
    // The same run and step as before, in the new arrays.
    const before = this.#point;
    const line = before && view.lines.find((one) => one.run === before.line.run);
    const at = line ? Array.prototype.indexOf.call(line.step, before.line.step[before.at]) : -1;
    this.#choose(line && at >= 0 ? { line, at } : null, false);
  }

  #frame(view: LiveView): uPlot.AlignedData {
    return [view.x.domain.map(Math.log10), [null, null]];
  }

  #make(view: LiveView, width: number): uPlot {
    const ink = shade("#1c1f24");
    const grid = { stroke: shade("#e3e6ea"), width: 1 };
    const room = (text: string) => text.length * 7.5 + 14;
    const labels = { x: new Map<number, string>(), y: new Map<number, string>() };
    const axis = (side: "x" | "y"): uPlot.Axis => ({
      scale: side,
      label: view[side].label,
      labelFont: FONT,
      font: FONT,
      stroke: ink,
      grid,
      ticks: { stroke: shade("#8a929c"), width: 1, size: 5 },
      size: side === "x" ? 30 : isNarrow(width) ? 50 : 58,
      labelSize: 20,
      splits: (plot) => {
        const { domain, format } = this.#view![side];
        const length = (side === "x" ? plot.bbox.width : plot.bbox.height) / devicePixelRatio;
        const ticks = logTicks(domain, length, (value) => (side === "x" ? room(format(value)) : 22));
        labels[side] = new Map(ticks.labelled.map((value) => [Math.log10(value), format(value)]));
        return [...labels[side].keys()];
      },
      filter: (_, splits) => splits,
      values: (plot, splits) =>
        splits.map((at) => {
          const text = labels[side].get(at) ?? "";
          if (side === "y") return text;
          // None is cut off by the right edge.
          const middle = plot.bbox.left / devicePixelRatio + plot.valToPos(at, "x");
          return middle + room(text) / 2 - 7 > width ? "" : text;
        }),
    });
    const scale = (side: "x" | "y"): uPlot.Scale => ({
      time: false,
      range: () => this.#view![side].domain.map(Math.log10) as [number, number],
    });
    const plot = new uPlot(
      {
        width,
        height: chartHeight(width, 480),
        legend: { show: false },
        padding: [12, isNarrow(width) ? 8 : 16, 0, 0],
        cursor: {
          points: { show: false },
          drag: { x: true, y: true, setScale: false, uni: 20 },
          bind: {
            dblclick: () => () => {
              this.#events.onZoom(null);
              return null;
            },
          },
        },
        scales: { x: scale("x"), y: scale("y") },
        axes: [axis("x"), axis("y")],
        series: [{}, { scale: "y", points: { show: false } }],
        hooks: {
          draw: [(drawn) => this.#draw(drawn)],
          setCursor: [(moved) => this.#moved(moved)],
          setSelect: [(selected) => this.#selected(selected)],
        },
      },
      this.#frame(view),
      this.#holder,
    );
    this.#ring = document.createElement("div");
    this.#ring.className = "ring";
    plot.over.append(this.#ring);
    return plot;
  }

  /** Pixels of the canvas from values, by the view's log axes. */
  #pixels(plot: uPlot) {
    const { x, y } = this.#view!;
    const { left, top, width, height } = plot.bbox;
    const xSpan = Math.log(x.domain[1] / x.domain[0]);
    const ySpan = Math.log(y.domain[1] / y.domain[0]);
    return {
      x: (value: number) => left + (Math.log(value / x.domain[0]) / xSpan) * width,
      y: (value: number) => top + height - (Math.log(value / y.domain[0]) / ySpan) * height,
    };
  }

  #draw(plot: uPlot): void {
    const { ctx, bbox } = plot;
    const pixel = this.#pixels(plot);
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineJoin = "round";
    const { x, y } = this.#view!;
    const place = [x.domain, y.domain, bbox.left, bbox.top, bbox.width, bbox.height].join();
    const draw = (line: LiveLine, which: "raw" | "smoothed", width: number, opacity: number) => {
      let known = paths.get(line);
      if (known?.place !== place) paths.set(line, (known = { place }));
      ctx.globalAlpha = opacity;
      ctx.lineWidth = width * ratio;
      ctx.strokeStyle = shade(line.colour);
      ctx.stroke((known[which] ??= pathOf(line.x, line[which], pixel)));
    };
    for (const line of this.#view!.lines) if (line.raw !== line.smoothed) draw(line, "raw", 1, 0.22);
    for (const line of this.#view!.lines) draw(line, "smoothed", 1.3, 0.95);
    ctx.globalAlpha = 1;
    for (const line of this.#view!.lines) this.#drawMarks(plot, line, pixel);
    ctx.restore();
    ctx.strokeStyle = shade("#8a929c");
    ctx.lineWidth = ratio;
    ctx.strokeRect(bbox.left, bbox.top, bbox.width, bbox.height);
  }

  /** Crosses for NaN, open triangles at the edge beyond which a value lies, filled ones where a run was resumed. */
  #drawMarks(plot: uPlot, line: LiveLine, pixel: { x: (value: number) => number }): void {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    const size = 4 * ratio;
    ctx.strokeStyle = ctx.fillStyle = shade(line.colour);
    ctx.lineWidth = 1.6 * ratio;
    const bottom = bbox.top + bbox.height;
    /** A triangle with its point at `tip` and its base at `base`. */
    const triangle = (x: number, tip: number, base: number) => {
      ctx.beginPath();
      ctx.moveTo(x, tip);
      ctx.lineTo(x + size, base);
      ctx.lineTo(x - size, base);
      ctx.closePath();
    };
    for (let i = 0; i < line.x.length; i++) {
      if (!(line.x[i]! > 0) || !isResume(line, i)) continue;
      triangle(pixel.x(line.x[i]!), bottom, bottom - 2 * size);
      ctx.fill();
    }
    const taken = new Map<EdgeMark, number>();
    for (const i of line.away) {
      const mark = edgeOf(line.raw[i]!, this.#view!.y.domain);
      if (!(line.x[i]! > 0) || mark === null) continue;
      const x = pixel.x(line.x[i]!);
      if (x - (taken.get(mark) ?? Number.NEGATIVE_INFINITY) < 2 * size) continue;
      taken.set(mark, x);
      const y = bbox.top + 2 * size;
      if (mark === "NaN") {
        ctx.beginPath();
        ctx.moveTo(x - size, y - size);
        ctx.lineTo(x + size, y + size);
        ctx.moveTo(x + size, y - size);
        ctx.lineTo(x - size, y + size);
      } else if (mark === "above") triangle(x, y - size, y + size);
      else triangle(x, bottom - size, bottom - 3 * size);
      ctx.stroke();
    }
  }

  #selected(plot: uPlot): void {
    const { left, top, width, height } = plot.select;
    if (width < 6 || height < 6) return;
    const valueAt = (pixels: number, side: "x" | "y") => 10 ** plot.posToVal(pixels, side);
    const x: Interval = [valueAt(left, "x"), valueAt(left + width, "x")];
    const y: Interval = [valueAt(top + height, "y"), valueAt(top, "y")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.#events.onZoom({ x, y });
  }

  #moved(plot: uPlot): void {
    const { left = -1, top = -1, event } = plot.cursor;
    // Moved by the arrow keys: the point is known.
    if (!event) return;
    this.#choose(left < 0 || top < 0 ? null : this.#nearest(plot, left, top), false);
  }

  /** The recorded value next to a place inside the axes, in CSS pixels; within 50 of it. */
  #nearest(plot: uPlot, left: number, top: number): LivePoint | null {
    const { x: xAxis, y: yAxis } = this.#view!;
    const { width, height } = plot.over.getBoundingClientRect();
    const scaleX = width / Math.log(xAxis.domain[1] / xAxis.domain[0]);
    const scaleY = height / Math.log(yAxis.domain[1] / yAxis.domain[0]);
    const here = xAxis.domain[0] * Math.exp(left / scaleX);
    let best: LivePoint | null = null;
    let distance = 50 ** 2;
    for (const line of this.#view!.lines) {
      const from = search(line.x, here * Math.exp(-50 / scaleX));
      const to = search(line.x, here * Math.exp(50 / scaleX));
      for (let at = from; at < to; at++) {
        const dx = Math.log(line.x[at]! / here) * scaleX;
        const value = line.smoothed[at]!;
        const edge = Number.isNaN(value) ? edgeOf(line.raw[at]!, yAxis.domain) : null;
        const y =
          edge === null
            ? height - Math.log((Number.isNaN(value) ? line.raw[at]! : value) / yAxis.domain[0]) * scaleY
            : markAt(edge, height);
        const d = dx * dx + (y - top) ** 2;
        if (d < distance) {
          distance = d;
          best = { line, at };
        }
      }
    }
    return best;
  }

  /** Puts the crosshair on a point; by keyboard the cursor's lines move there too. */
  #choose(point: LivePoint | null, byKey: boolean): void {
    const plot = this.#plot;
    if (!plot) return;
    if (point?.line !== this.#point?.line || point?.at !== this.#point?.at) this.#events.onPoint(point);
    this.#point = point;
    const ring = this.#ring!;
    ring.hidden = point === null;
    if (!point) return;
    const { line, at } = point;
    const pixel = this.#pixels(plot);
    const ratio = devicePixelRatio;
    const x = (pixel.x(line.x[at]!) - plot.bbox.left) / ratio;
    const value = line.smoothed[at]!;
    const edge = Number.isNaN(value) ? edgeOf(line.raw[at]!, this.#view!.y.domain) : null;
    const y =
      edge === null
        ? (pixel.y(Number.isNaN(value) ? line.raw[at]! : value) - plot.bbox.top) / ratio
        : markAt(edge, plot.bbox.height / ratio);
    ring.style.transform = `translate(${x - 6}px, ${y - 6}px)`;
    ring.style.borderColor = shade(line.colour);
    if (byKey) plot.setCursor({ left: x, top: y });
  }

  /** Arrow keys, Home, End, Escape, + and -, 0. False when the key means nothing here. */
  key(event: KeyboardEvent): boolean {
    const { lines, x } = this.#view!;
    const now = this.#point;
    if (event.key === "Escape") this.#choose(null, true);
    else if (event.key === "0") this.#events.onZoom(null);
    else if (event.key === "+" || event.key === "-") {
      const centre = now ? now.line.x[now.at]! : Math.sqrt(x.domain[0] * x.domain[1]);
      const half = Math.sqrt(x.domain[1] / x.domain[0]) ** (event.key === "+" ? 0.5 : 2);
      this.#events.onZoom({ x: [centre / half, centre * half], y: this.#view!.y.domain });
    } else if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) {
      if (!now) {
        const line = lines.find((one) => one.x.length > 0);
        if (line) this.#choose({ line, at: Math.min(line.x.length - 1, search(line.x, x.domain[0])) }, true);
        return true;
      }
      const { line, at } = now;
      const last = line.x.length - 1;
      const far = event.shiftKey ? 10 : 1;
      if (event.key === "ArrowUp" || event.key === "ArrowDown") {
        const next = lines[lines.indexOf(line) + (event.key === "ArrowUp" ? -1 : 1)];
        if (next && next.x.length > 0)
          this.#choose({ line: next, at: Math.min(next.x.length - 1, search(next.x, line.x[at]!)) }, true);
      } else {
        const to =
          event.key === "Home"
            ? 0
            : event.key === "End"
              ? last
              : at + (event.key === "ArrowRight" ? far : -far);
        this.#choose({ line, at: Math.min(last, Math.max(0, to)) }, true);
      }
    } else return false;
    return true;
  }
}

/** A mark at the edge of the axes, for a value that has no place on them. */
export type EdgeMark = "NaN" | "above" | "below";

/** Null when the value is within the limits. */
export function edgeOf(value: number, [low, high]: Interval): EdgeMark | null {
  if (Number.isNaN(value)) return "NaN";
  return value > high ? "above" : value < low ? "below" : null;
}

/** The middle of such a mark in CSS pixels from the top. */
const markAt = (mark: EdgeMark, height: number) => (mark === "below" ? height - 8 : 8);

/** Whether a run goes on here with a new attempt. */
export function isResume(line: Pick<LiveLine, "attempt">, i: number): boolean {
  return i > 0 && line.attempt[i]! > line.attempt[i - 1]!;
}

/** The first index whose value is not below. */
export function search(values: ArrayLike<number>, value: number): number {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The paths of lines on axes of one place: of an update most lines are as they were. */
const paths = new WeakMap<LiveLine, { place: string; raw?: Path2D; smoothed?: Path2D }>();

/** A line through the finite values, broken at the others, thinned to what a pixel column can show. */
function pathOf(
  x: ArrayLike<number>,
  values: ArrayLike<number>,
  pixel: { x: (value: number) => number; y: (value: number) => number },
): Path2D {
  const path = new Path2D();
  let xs: number[] = [];
  let ys: number[] = [];
  const flush = () => {
    for (const [n, i] of thinByColumn(xs, ys, 1).entries()) {
      if (n === 0) path.moveTo(xs[i]!, ys[i]!);
      // A single value between gaps is a dot.
      path.lineTo(xs[i]! + (xs.length === 1 ? 1 : 0), ys[i]!);
    }
    xs = [];
    ys = [];
  };
  for (let i = 0; i < x.length; i++) {
    const value = values[i]!;
    if (x[i]! > 0 && value > 0 && Number.isFinite(value)) {
      xs.push(pixel.x(x[i]!));
      ys.push(pixel.y(value));
    } else flush();
  }
  flush();
  return path;
}
