/** Charts as files: SVG text and PNG images. */
import { createRequire } from "node:module";
import { Resvg } from "@resvg/resvg-js";
import { parseHTML } from "linkedom";
import type { CurvePoint, FitResult } from "../fit/types.ts";
import { type Chart, drawChart } from "./chart.ts";
import { printable } from "./escape.ts";
import { type ScalingOptions, scalingChart } from "./scaling.ts";

/** The chart as a standalone SVG document, the same text for the same chart. */
export function chartSvg(chart: Chart): string {
  const { document } = parseHTML("<!doctype html><html><head></head><body></body></html>");
  return `${printable(drawChart(chart, document).outerHTML)}\n`;
}

/** The chart as PNG at twice its CSS size. Text is drawn with DejaVu Sans, so no font need be installed. */
export function chartPng(svg: string): Buffer {
  const require = createRequire(import.meta.url);
  const image = new Resvg(svg, {
    fitTo: { mode: "zoom", value: 2 },
    font: {
      loadSystemFonts: false,
      fontFiles: ["DejaVuSans.ttf", "DejaVuSans-Bold.ttf"].map((file) =>
        require.resolve(`dejavu-fonts-ttf/ttf/${file}`),
      ),
      defaultFontFamily: "DejaVu Sans",
      sansSerifFamily: "DejaVu Sans",
    },
  });
  return Buffer.from(image.render().asPng());
}

/** The scaling chart as SVG text. */
export function renderScalingChart(
  points: readonly CurvePoint[],
  fit: FitResult,
  options: ScalingOptions = {},
): string {
  return chartSvg(scalingChart(points, fit, options));
}
