/** Legends as a Plot mark: samples of line or symbol with their words, in the frame's corner or above the frame. */
import type * as Plot from "@observablehq/plot";
import { INK, type SvgElement, textWidth } from "./chart.ts";

export interface LegendEntry {
  readonly label: string;
  readonly colour: string;
  readonly sample: "line" | "dashes" | "ring" | "dot" | "square";
}

/** What Plot hands to a mark that is a function. */
type RenderArguments = [
  index: unknown,
  scales: unknown,
  values: unknown,
  dimensions: {
    width: number;
    height: number;
    marginLeft: number;
    marginRight: number;
    marginTop: number;
    marginBottom: number;
  },
  context: { ownerSVGElement: SvgElement },
];

const SWATCH = { line: 34, dashes: 34, ring: 10, dot: 10, square: 10 };

/** As many entries as there is room for: the first ones, the last, and in words how many are left out. */
function cut(entries: readonly LegendEntry[], room: number): LegendEntry[] {
  if (entries.length <= room) return [...entries];
  const kept = [...entries.slice(0, Math.max(0, room - 2)), entries.at(-1)!];
  return [...kept, { label: `and ${entries.length - kept.length} more`, colour: "none", sample: "line" }];
}

/** The share of the frame's height that a legend inside it may take. */
const MOST_OF_FRAME = 0.45;

/** Top right inside the frame, on white so that the grid does not run through the words. */
export function cornerLegend(all: readonly LegendEntry[], fontSize: number): Plot.Markish {
  return mark((create, dimensions) => {
    const lineHeight = fontSize * 1.65;
    const inside = dimensions.height - dimensions.marginTop - dimensions.marginBottom;
    const entries = cut(all, Math.floor((MOST_OF_FRAME * inside) / lineHeight));
    const swatch = Math.max(...entries.map((entry) => SWATCH[entry.sample]));
    const width = Math.ceil(
      swatch + Math.max(...entries.map((entry) => textWidth(entry.label, fontSize))) + 28,
    );
    const left = dimensions.width - dimensions.marginRight - width - 10;
    const top = dimensions.marginTop + 10;
    return [
      create("rect", {
        x: left,
        y: top,
        width,
        height: Math.round(entries.length * lineHeight + 10),
        rx: 3,
        fill: "#ffffff",
        stroke: "#c9ced5",
      }),
      ...entries.flatMap((entry, i) =>
        drawEntry(create, entry, {
          left: left + 10,
          swatch,
          middle: top + 5 + (i + 0.5) * lineHeight,
          fontSize,
        }),
      ),
    ];
  });
}

/** Pixels between the entries of a row. */
const GAP = 16;

function widthIn(fontSize: number): (entry: LegendEntry) => number {
  return ({ sample, label }) => SWATCH[sample] + 8 + textWidth(label, fontSize) + GAP;
}

/** The entries in as many rows as they need, where a chart has room for several. */
export function legendRows(all: readonly LegendEntry[], fontSize: number, width: number): LegendEntry[][] {
  const widthOf = widthIn(fontSize);
  const rows: LegendEntry[][] = [];
  let left = 0;
  for (const entry of all) {
    left -= widthOf(entry);
    if (rows.length === 0 || left < -GAP) {
      rows.push([]);
      left = width - widthOf(entry);
    }
    rows.at(-1)!.push(entry);
  }
  return rows;
}

/** One row above the frame, flush right; it may begin left of the frame. `lift` pixels higher than the lowest. */
export function rowLegend(all: readonly LegendEntry[], fontSize: number, lift = 0): Plot.Markish {
  return mark((create, dimensions) => {
    const widthOf = widthIn(fontSize);
    const available = dimensions.width - dimensions.marginRight + GAP;
    const fits = (some: LegendEntry[]) => some.reduce((sum, one) => sum + widthOf(one), 0) <= available;
    let room = all.length;
    while (room > 2 && !fits(cut(all, room))) room--;
    const entries = cut(all, room);
    const widths = entries.map(widthOf);
    let left = dimensions.width - dimensions.marginRight - widths.reduce((sum, width) => sum + width, -GAP);
    return entries.flatMap((entry, i) => {
      const swatch = SWATCH[entry.sample];
      const middle = dimensions.marginTop - 14 - lift;
      const drawn = drawEntry(create, entry, { left, swatch, middle, fontSize });
      left += widths[i]!;
      return drawn;
    });
  });
}

/** A line for each attention. */
export function attentionEntries(
  attentions: readonly string[],
  titles: ReadonlyMap<string, string>,
  colours: ReadonlyMap<string, string>,
): LegendEntry[] {
  return attentions.map((attention) => ({
    label: titles.get(attention)!,
    colour: colours.get(attention)!,
    sample: "line",
  }));
}

export function attentionLegend(...attentions: Parameters<typeof attentionEntries>): Plot.Markish {
  return rowLegend(attentionEntries(...attentions), 13);
}

type Create = (name: string, attributes: Record<string, string | number>, text?: string) => SvgElement;

function mark(draw: (create: Create, dimensions: RenderArguments[3]) => SvgElement[]): Plot.Markish {
  // Plot calls a mark once for each facet, with the size of that; the legend belongs to the chart.
  const drawn = new WeakSet<object>();
  const render = (...[, , , dimensions, { ownerSVGElement }]: RenderArguments) => {
    if (drawn.has(ownerSVGElement)) return null;
    drawn.add(ownerSVGElement);
    const { ownerDocument } = ownerSVGElement;
    const width = Number(ownerSVGElement.getAttribute("width"));
    const create: Create = (name, attributes, text) => {
      const element = ownerDocument.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
      if (text !== undefined) element.textContent = text;
      return element;
    };
    const group = create("g", { class: "legend" });
    for (const element of draw(create, { ...dimensions, width })) group.appendChild(element);
    return group;
  };
  return render as unknown as Plot.Markish;
}

function drawEntry(
  create: Create,
  entry: LegendEntry,
  at: { left: number; swatch: number; middle: number; fontSize: number },
): SvgElement[] {
  const round = (value: number) => Number(value.toFixed(1));
  const y = round(at.middle);
  const { colour, sample } = entry;
  const centre = round(at.left + at.swatch / 2);
  let symbol: SvgElement;
  if (sample === "line" || sample === "dashes") {
    symbol = create("line", {
      x1: round(at.left),
      x2: round(at.left + at.swatch),
      y1: y,
      y2: y,
      stroke: colour,
      "stroke-width": sample === "dashes" ? 1.9 : 1.3,
      ...(sample === "dashes" ? { "stroke-dasharray": "7 4" } : {}),
    });
  } else if (sample === "square") {
    symbol = create("rect", {
      x: centre - 3.5,
      y: round(y - 3.5),
      width: 7,
      height: 7,
      fill: colour,
    });
  } else {
    symbol = create("circle", {
      cx: centre,
      cy: y,
      r: 3.6,
      stroke: colour,
      "stroke-width": 1.4,
      fill: sample === "ring" ? "#ffffff" : colour,
    });
  }
  const text = {
    x: round(at.left + at.swatch + 8),
    y,
    dy: "0.35em",
    "text-anchor": "start",
    "font-size": at.fontSize,
    fill: INK,
  };
  return [symbol, create("text", text, entry.label)];
}
