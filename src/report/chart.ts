/** One chart description (Observable Plot options and words), drawn in the document of a file or of a browser. */
import * as Plot from "@observablehq/plot";
import type { Interval } from "../fit/types.ts";
import { logTicks, type Ticks } from "./axes.ts";
import { escapeHtml } from "./escape.ts";
import { tickLabel } from "./labels.ts";

export interface Chart {
  /** File name without its ending, and prefix of the ids inside the SVG: unique on a page. */
  readonly name: string;
  /** What the chart is, in a few words, and what it shows: read aloud in place of the picture. */
  readonly title: string;
  readonly description: string;
  /** What could not be drawn, and why: sentences for the caption. */
  readonly notes: readonly string[];
  /** In CSS pixels. */
  readonly width: number;
  readonly height: number;
  readonly plot: Plot.PlotOptions;
  /** The values drawn, for a crosshair and as a table, and what the two axes are. */
  readonly rows: readonly ChartRow[];
  readonly columns: { readonly x: string; readonly y: string; readonly value?: string };
}

export interface ChartRow {
  /** What the value is of, in words, such as `MoBA d4`. */
  readonly series: string;
  readonly kind: "curve" | "recorded" | "projection" | "final" | "estimate";
  readonly colour: string;
  readonly x: number;
  readonly y: number;
  /** The 95 % interval. */
  readonly low?: number;
  readonly high?: number;
  /** What the colour of a cell shows, as a number and in words. */
  readonly value?: number;
  readonly state?: string;
  /** The position bucket in words, and the panel of it, where a chart has several. */
  readonly positions?: string;
  readonly facet?: { readonly fx?: number; readonly fy?: number };
}

/** What a screen asks of a chart, and a report leaves as it is. */
export interface ChartView {
  /** In pixels. */
  readonly width?: number;
  /** Attentions that count for colours and titles beside those drawn. */
  readonly attentions?: readonly string[];
  /** Attentions that are not drawn. */
  readonly hidden?: ReadonlySet<string>;
}

/** Width of a chart in a report, in pixels; a screen may ask for another. */
export const WIDTH = 860;

/** Below this width charts use smaller type and are taller than wide. */
export function isNarrow(width: number): boolean {
  return width < 560;
}

/** The height of a chart that is `usual` high at `WIDTH`. */
export function chartHeight(width: number, usual: number): number {
  return isNarrow(width) ? Math.round(Math.min(usual, 120 + width * 0.8)) : usual;
}

const FONT_STACK = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
export const INK = "#1c1f24";
const GRID = "#e3e6ea";
export const FAINT_INK = "#5a626c";

/**
 * The chart as an SVG element of the given document: no style sheet, no script, the same markup for the same chart.
 * `scale` tells where its values are drawn.
 */
export function drawChart(chart: Chart, document: object): DrawnChart {
  const svg = Plot.plot({
    ...chart.plot,
    document: document as never,
    width: chart.width,
    height: chart.height,
    figure: false,
  }) as unknown as DrawnChart;
  for (const style of svg.querySelectorAll("style")) style.remove();
  svg.removeAttribute("class");
  svg.removeAttribute("style");
  svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("color", INK);
  svg.setAttribute("font-family", FONT_STACK);
  svg.setAttribute("aria-labelledby", `${chart.name}-title ${chart.name}-description`);

  // Plot numbers its clip paths through the life of the process; count from 1 in every chart instead.
  const clipPaths = [...svg.querySelectorAll("clipPath")];
  for (const [index, clip] of clipPaths.entries()) {
    const id = clip.getAttribute("id")!;
    const renamed = `${chart.name}-clip-${index + 1}`;
    clip.setAttribute("id", renamed);
    for (const user of svg.querySelectorAll("[clip-path]")) {
      if (user.getAttribute("clip-path") === `url(#${id})`)
        user.setAttribute("clip-path", `url(#${renamed})`);
    }
  }
  // To cut one group away at the frame takes a PNG as long as to cut many: neighbours that are cut alike share one.
  for (const group of svg.querySelectorAll("g[clip-path]")) {
    const clip = group.getAttribute("clip-path")!;
    let shared = group.previousElementSibling;
    if (shared?.getAttribute("class") !== "clipped" || shared.getAttribute("clip-path") !== clip) {
      shared = svg.ownerDocument.createElementNS("http://www.w3.org/2000/svg", "g");
      shared.setAttribute("class", "clipped");
      shared.setAttribute("clip-path", clip);
      group.before(shared);
    }
    group.removeAttribute("clip-path");
    shared.appendChild(group);
  }
  // A tenth of a pixel is finer than any screen shows.
  for (const element of svg.querySelectorAll("path")) shorten(element, "d");
  for (const element of svg.querySelectorAll("[transform]")) shorten(element, "transform");
  // PNGs cannot be made of what is cut away whole and far from the chart.
  for (const shape of svg.querySelectorAll("[clip-path] path, [clip-path] circle"))
    if (isFar(shape, chart)) shape.remove();

  const { ownerDocument } = svg;
  const background = ownerDocument.createElementNS("http://www.w3.org/2000/svg", "rect");
  background.setAttribute("width", "100%");
  background.setAttribute("height", "100%");
  background.setAttribute("fill", "#ffffff");
  const description = ownerDocument.createElementNS("http://www.w3.org/2000/svg", "desc");
  description.setAttribute("id", `${chart.name}-description`);
  description.textContent = chart.description;
  const title = ownerDocument.createElementNS("http://www.w3.org/2000/svg", "title");
  title.setAttribute("id", `${chart.name}-title`);
  title.textContent = chart.title;
  svg.prepend(title, description, background);
  return svg;
}

/** The chart as an HTML figure: the SVG on a light card that scrolls sideways when narrow, then the caption. */
export function chartFigure(chart: Chart, svg: string, caption: string): string {
  const notes = chart.notes.map((note) => `<p class="note">${escapeHtml(note)}</p>`).join("");
  return `<figure><div class="card" tabindex="0">${svg.trim()}</div><figcaption><p>${escapeHtml(caption)}</p>${notes}</figcaption></figure>`;
}

/** The part of an SVG element that is used here (the project is compiled without the DOM library). */
export interface SvgElement {
  textContent: string | null;
  readonly outerHTML: string;
  readonly ownerDocument: { createElementNS(namespace: string, name: string): SvgElement };
  getAttribute(name: string): string | null;
  setAttribute(name: string, value: string): void;
  removeAttribute(name: string): void;
  readonly previousElementSibling: SvgElement | null;
  before(node: SvgElement): void;
  remove(): void;
  prepend(...nodes: SvgElement[]): void;
  appendChild(node: SvgElement): void;
  querySelectorAll(selector: string): Iterable<SvgElement>;
}

export type DrawnChart = SvgElement & Pick<Plot.Plot, "scale">;

/** Whether a path of straight segments or a circle lies beyond one edge, by more than the width or height of the chart. */
function isFar(shape: SvgElement, { width, height }: { width: number; height: number }): boolean {
  const path = shape.getAttribute("d") ?? `${shape.getAttribute("cx")},${shape.getAttribute("cy")}`;
  const numbers = (path.match(/-?[\d.]+/g) ?? []).map(Number);
  return [width, height].some((size, axis) => {
    const places = numbers.filter((_, i) => i % 2 === axis);
    return places.every((place) => place < -size) || places.every((place) => place > 2 * size);
  });
}

function shorten(element: SvgElement, attribute: string): void {
  const text = element.getAttribute(attribute);
  if (text)
    element.setAttribute(
      attribute,
      text.replace(/-?\d+\.\d+/g, (number) => String(Number(Number(number).toFixed(1)))),
    );
}

/** Width of a text in pixels, estimated on the wide side (DejaVu Sans is wider than most). */
export function textWidth(text: string, fontSize: number): number {
  let ems = 0;
  for (const char of text) {
    ems += /[ijltfrI1.,:;'|!()[\] -]/.test(char)
      ? 0.4
      : /[mwMW@%—]/.test(char)
        ? 0.95
        : /[⁻⁰¹²³⁴-⁹]/.test(char)
          ? 0.42
          : 0.62;
  }
  return ems * fontSize;
}

export interface AxisOptions {
  readonly axis: "x" | "y";
  readonly ticks: Ticks;
  readonly label: string | null;
  readonly fontSize: number;
  /** Distance of the axis label from the frame, in pixels. */
  readonly labelOffset: number;
  readonly format?: (value: number) => string;
}

/** An axis in the look of a printed figure: pale grid at the labelled ticks, short ticks between them. */
export function axisMarks(options: AxisOptions): Plot.Markish[] {
  const { axis, ticks, label, fontSize, labelOffset, format = tickLabel } = options;
  const grid = { stroke: GRID, strokeOpacity: 1, strokeWidth: 1 };
  const labelled = {
    ticks: ticks.labelled,
    // Not tickFormat: on log scales Plot leaves out labels it finds too many.
    text: (value: number) => format(value),
    fontSize,
    label,
    labelAnchor: "center" as const,
    labelArrow: "none" as const,
    labelOffset,
    tickSize: 5,
    color: INK,
  };
  const minor = { ticks: ticks.minor, fill: "none", stroke: INK, label: null, tickSize: 3 };
  return axis === "x"
    ? [Plot.gridX(ticks.labelled, grid), Plot.axisX(minor), Plot.axisX(labelled)]
    : [Plot.gridY(ticks.labelled, grid), Plot.axisY(minor), Plot.axisY(labelled)];
}

/** Two log axes. `inner` is the size inside the frame in pixels. */
export function logAxes(
  axes: {
    x: { domain: Interval; label: string; format?: (value: number) => string };
    y: { domain: Interval; label: string };
  },
  inner: { width: number; height: number },
  fontSize: number,
): Plot.Markish[] {
  const format = axes.x.format ?? tickLabel;
  const x = logTicks(axes.x.domain, inner.width, (value) => textWidth(format(value), fontSize) + 10);
  const y = logTicks(axes.y.domain, inner.height, () => fontSize * 1.6);
  return [
    ...axisMarks({ axis: "x", ticks: x, label: axes.x.label, fontSize, labelOffset: 46, format }),
    ...axisMarks({ axis: "y", ticks: y, label: axes.y.label, fontSize, labelOffset: 54 }),
  ];
}
