/** The page's charts: which blocks each query of a text chose, and what its tokens cost with and without routing. */
import * as Plot from "@observablehq/plot";
import { linearTicks } from "../../src/report/axes.ts";
import {
  axisMarks,
  type Chart,
  type ChartRow,
  chartHeight,
  isNarrow,
  WIDTH,
} from "../../src/report/chart.ts";
import { formatFixed, tint } from "../../src/report/labels.ts";
import { rowLegend } from "../../src/report/legend.ts";
import { paddedRange } from "../../src/report/position.ts";
import { type LayerRouting, type Passage, queryRouting } from "./routed-model.ts";

export const OWN = "#1f4fd0";
export const CHOSEN = "#c77700";
export const PASSED = "#8a929c";

/** Steps of shade from the lowest gate score to the highest. */
const SHADES = 6;
const SVG = "http://www.w3.org/2000/svg";

/** A chart colour by where a gate score lies between the lowest (0) and the highest (1). */
export function shadeOf(chosen: boolean, share: number): string {
  const step = Math.min(SHADES - 1, Math.max(0, Math.floor(share * SHADES))) / (SHADES - 1);
  return chosen ? tint(CHOSEN, 0.35 + 0.65 * step) : tint(PASSED, 0.08 + 0.62 * step);
}

/** Where a score lies between those of all queries of a head, without the outermost hundredths. */
export function scoreScale(scores: Iterable<number>): (score: number) => number {
  const sorted = Float32Array.from([...scores].filter(Number.isFinite)).sort();
  if (sorted.length === 0) return () => 1;
  const low = sorted[Math.floor(0.01 * (sorted.length - 1))];
  const high = sorted[Math.ceil(0.99 * (sorted.length - 1))];
  return (score) => (Number.isNaN(score) || high === low ? 1 : (score - low) / (high - low));
}

/** The gate scores of one head, those of queries in order. */
export function* headScores(layer: LayerRouting, heads: number, head: number): Generator<number> {
  const { scores_TZB, gatingHeads: Z, scoredBlocks: B } = layer;
  const z = Math.floor((head * Z) / heads);
  for (let at = z * B; B > 0 && at < scores_TZB.length; at += Z * B) yield* scores_TZB.subarray(at, at + B);
}

export interface RoutingInput {
  readonly passage: Passage;
  readonly layer: number;
  readonly heads: number;
  readonly head: number;
  /** Full attention has no blocks: it is drawn with these. */
  readonly blockSize: number;
  /** Each token as it is shown. */
  readonly texts: readonly string[];
}

export function routingChart(input: RoutingInput, width = WIDTH): Chart {
  const { passage, heads, head, blockSize: B, texts } = input;
  const layer = passage.layers[input.layer];
  const T = passage.tokens.length;
  const share = scoreScale(headScores(layer, heads, head));
  const narrow = isNarrow(width);
  const fontSize = narrow ? 11 : 13;
  const margin = { marginLeft: narrow ? 60 : 78, marginRight: 14, marginTop: 34, marginBottom: 52 };
  const height = Math.round(Math.min(640, Math.max(300, 0.72 * width)));
  const rows: ChartRow[] = [];
  /** By colour, rectangles in tokens. */
  const paths = new Map<string, string[]>();
  /** By block, the colour that the last queries have and the first of them. */
  const runs: { colour: string; from: number }[] = [];
  const end = (block: number, query: number) => {
    const { colour, from } = runs[block];
    const list = paths.get(colour) ?? [];
    list.push(`M${block * B} ${from}h${B}V${query}h${-B}z`);
    paths.set(colour, list);
  };
  for (let query = 0; query < T; query++) {
    const { own, earlier } = queryRouting(layer, heads, head, query, B);
    const series = `${texts[query]} at ${query}`;
    for (const [block, { chosen, score, rank }] of earlier.entries()) {
      const colour = shadeOf(chosen, share(score));
      const run = runs[block];
      if (run?.colour !== colour) {
        if (run) end(block, query);
        runs[block] = { colour, from: query };
      }
      const state = `${chosen ? "chosen" : "not chosen"}${rank > 0 ? `, rank ${rank}` : ""}`;
      const value = Number.isNaN(score) ? undefined : score;
      rows.push({ series, kind: "curve", colour, x: block, y: query, value, state });
    }
    rows.push({ series, kind: "curve", colour: OWN, x: own, y: query, state: "own block" });
  }
  for (const block of runs.keys()) end(block, T);
  const owns: string[] = [];
  for (let start = 0; start < T; start += B) {
    const size = Math.min(B, T - start);
    owns.push(`M${start} ${start}${"h1v1".repeat(size)}H${start}z`);
  }
  paths.set(OWN, owns);

  const blocks = Math.ceil(T / B);
  const every = Math.max(1, Math.ceil((blocks * (narrow ? 26 : 30)) / (width - 82)));
  const labelled = Array.from({ length: Math.ceil(blocks / every) }, (_, i) => i * every);
  const down = Math.max(1, Math.ceil((blocks * fontSize * 1.6) / (height - 86)));
  const starts = Array.from({ length: Math.ceil(blocks / down) }, (_, i) => i * down * B);
  const { attention } = layer;
  const scored = layer.scoredBlocks > 0;
  return {
    name: `routing-layer-${input.layer + 1}-head-${head + 1}`,
    title: `Blocks that each query attends to, layer ${input.layer + 1}, head ${head + 1}`,
    description: `Queries of ${T} tokens down, blocks of ${B} keys across; own blocks, chosen earlier blocks and those passed over${scored ? ", darker with a higher gate score" : ""}.`,
    notes: [],
    width,
    height,
    plot: {
      ...margin,
      x: { type: "linear", domain: [-0.5, T / B - 0.5] },
      y: { type: "linear", domain: [T - 0.5, -0.5] },
      marks: [
        ...axisMarks({
          ...{ axis: "x", label: `block of ${B} tokens`, fontSize, labelOffset: 42 },
          ticks: { labelled, minor: [] },
          format: String,
        }),
        ...axisMarks({
          ...{ axis: "y", label: "query, token", fontSize, labelOffset: narrow ? 52 : 66 },
          ticks: { labelled: starts, minor: [] },
          format: String,
        }),
        cells(paths, T, margin, height / T > 1),
        rowLegend(
          [
            { label: "own block", colour: OWN, sample: "square" },
            { label: attention.kind === "full" ? "earlier" : "chosen", colour: CHOSEN, sample: "square" },
            ...(attention.kind === "full"
              ? []
              : [{ label: "not chosen", colour: PASSED, sample: "square" } as const]),
          ],
          fontSize,
        ),
      ],
    },
    rows,
    columns: { x: "block", y: "query", value: "gate score" },
  };
}

/** Squares of T x T tokens stretched over the frame; `crisp` where a query is at least a pixel high. */
function cells(
  paths: ReadonlyMap<string, readonly string[]>,
  T: number,
  margin: { marginLeft: number; marginTop: number; marginRight: number; marginBottom: number },
  crisp: boolean,
): Plot.Markish {
  const render: Plot.RenderFunction = (_index, _scales, _values, { width, height }, context) => {
    const create = (name: string, attributes: Record<string, string | number>) => {
      const element = context.ownerSVGElement.ownerDocument.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
      return element as SVGElement;
    };
    const inner = create("svg", {
      x: margin.marginLeft,
      y: margin.marginTop,
      width: width - margin.marginLeft - margin.marginRight,
      height: height - margin.marginTop - margin.marginBottom,
      viewBox: `0 0 ${T} ${T}`,
      preserveAspectRatio: "none",
      ...(crisp ? { "shape-rendering": "crispEdges" } : {}),
    });
    for (const [fill, list] of paths) inner.append(create("path", { fill, d: list.join("") }));
    return inner;
  };
  return render;
}

export interface CostLine {
  readonly title: string;
  readonly colour: string;
  readonly passage: Passage;
}

/** Mean loss of the tokens predicted from each block, a line for each way to attend. */
export function costChart(lines: readonly CostLine[], blockSize: number, width = WIDTH): Chart {
  const height = chartHeight(width, 340);
  const narrow = isNarrow(width);
  const fontSize = narrow ? 11 : 13;
  const rows: ChartRow[] = lines.flatMap(({ title, colour, passage: { losses } }) =>
    Array.from({ length: Math.ceil(losses.length / blockSize) }, (_, block): ChartRow => {
      const part = losses.subarray(block * blockSize, (block + 1) * blockSize);
      return { series: title, kind: "curve", colour, x: block, y: mean(part) };
    }),
  );
  const blocks = rows.length / lines.length;
  const every = Math.max(1, Math.ceil((blocks * 30) / (width - 90)));
  const domain = paddedRange(rows.map(({ y }) => y));
  const marks: Plot.Markish[] = [
    ...axisMarks({
      ...{ axis: "x", label: `block of ${blockSize} tokens`, fontSize, labelOffset: 42 },
      ticks: {
        labelled: Array.from({ length: Math.ceil(blocks / every) }, (_, i) => i * every),
        minor: [],
      },
      format: String,
    }),
    ...axisMarks({
      ...{ axis: "y", label: "loss, nats per token", fontSize, labelOffset: 54 },
      ticks: { labelled: linearTicks(domain, 6), minor: [] },
      format: (value) => String(Number(value.toPrecision(6))),
    }),
    ...lines.flatMap(({ title, colour }, i) => {
      const own = rows.filter(({ series }) => series === title);
      const dashes = i > 0 ? { strokeDasharray: "6 3" } : {};
      return [
        Plot.line(own, { x: "x", y: "y", stroke: colour, strokeWidth: 1.6, ...dashes }),
        Plot.dot(own, { x: "x", y: "y", stroke: colour, fill: i > 0 ? "#ffffff" : colour, r: 3 }),
      ];
    }),
    rowLegend(
      lines.map(({ title, colour }, i) => ({ label: title, colour, sample: i > 0 ? "dashes" : "line" })),
      fontSize,
    ),
  ];
  return {
    name: "routing-cost",
    title: "Loss of the text by block, routed and with full attention",
    description: lines
      .map(({ title, passage }) => `${title}: ${formatFixed(mean(passage.losses), 4)} nats per token`)
      .join("; "),
    notes: [],
    width,
    height,
    plot: {
      ...{ marginLeft: 68, marginRight: 16, marginTop: 34, marginBottom: 52 },
      x: { type: "linear", domain: [-0.5, Math.max(1, blocks) - 0.5] },
      y: { type: "linear", domain },
      marks,
    },
    rows,
    columns: { x: "block", y: "loss" },
  };
}

export function mean(values: Float32Array): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
