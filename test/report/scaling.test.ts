/** The scaling chart against the published one, and its structure on made-up studies. */

import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { fit as fitLaws, readCurves } from "../../src/fit/index.ts";
import type { CurvePoint } from "../../src/fit/types.ts";
import { attentionColours, attentionTitles } from "../../src/report/labels.ts";
import { rowLegend } from "../../src/report/legend.ts";
import { bucketPanels } from "../../src/report/panels.ts";
import { chartPng, chartSvg, renderScalingChart } from "../../src/report/render.ts";
import { scalingChart } from "../../src/report/scaling.ts";
import { madeUpCurves } from "./fixture.ts";
import { darkPixels, overlap, parseSvg, pathPoints, pngPixels, textBoxes } from "./svg.ts";

const REPORT = fileURLToPath(new URL("../../../shared/data/fits/moba-report-curves.csv", import.meta.url));
const BLUE = "#1f4fd0";
const RED = "#d0222b";

/** Centre and text of every label of an axis. */
function labels(svg: ReturnType<typeof parseSvg>, axis: "x" | "y"): { text: string; at: number }[] {
  return [...svg.querySelectorAll(`[aria-label="${axis}-axis tick label"] text`)].map((text) => {
    const [, x, y] = /translate\(([\d.]+),([\d.]+)\)/.exec(text.getAttribute("transform"))!;
    return { text: text.textContent, at: Number(axis === "x" ? x : y) };
  });
}

function frame(svg: ReturnType<typeof parseSvg>): { x: number; y: number; width: number; height: number } {
  const rect = svg.querySelector('[aria-label="frame"]');
  const at = (name: string) => Number(rect.getAttribute(name));
  return { x: at("x"), y: at("y"), width: at("width"), height: at("height") };
}

function strokes(svg: ReturnType<typeof parseSvg>, className: string): string[] {
  return [...svg.querySelectorAll(`.${className}`)].map(
    (mark) => mark.getAttribute("stroke") ?? mark.querySelector("[stroke]").getAttribute("stroke"),
  );
}

describe.skipIf(!existsSync(REPORT))("the published chart (needs ../shared/data)", () => {
  const points = readCurves(REPORT);
  const text = renderScalingChart(points, fitLaws(points));
  const svg = parseSvg(text);
  const box = frame(svg);

  it("has ten solid curves, five blue and five red", () => {
    const colours = strokes(svg, "curve");
    expect(colours.filter((colour) => colour === BLUE)).toHaveLength(5);
    expect(colours.filter((colour) => colour === RED)).toHaveLength(5);
    expect(colours).toHaveLength(10);
    for (const curve of svg.querySelectorAll(".curve"))
      expect(curve.outerHTML).not.toContain("stroke-dasharray");
  });

  it("has two dashed projections over the whole width, a band each and dots at the final losses", () => {
    const projections = [...svg.querySelectorAll(".projection")];
    expect(projections).toHaveLength(2);
    expect(strokes(svg, "projection").sort()).toEqual([BLUE, RED].sort());
    for (const projection of projections) {
      expect(projection.outerHTML).toContain("stroke-dasharray");
      const line = pathPoints(projection.querySelector("path").getAttribute("d"));
      expect(line[0]!.x).toBeCloseTo(box.x, 0);
      expect(line.at(-1)!.x).toBeCloseTo(box.x + box.width, 0);
    }
    expect(svg.querySelectorAll(".band")).toHaveLength(2);
    expect(svg.querySelectorAll(".final-points circle")).toHaveLength(10);
  });

  it("has plain log axes from 0.02 to 50 and from 1 to 6, named as published", () => {
    const x = labels(svg, "x");
    const y = labels(svg, "y");
    expect(x[0]).toEqual({ text: "0.02", at: box.x });
    expect(x.at(-1)).toEqual({ text: "50", at: box.x + box.width });
    expect(y.map(({ text: label }) => label)).toEqual(["1", "2", "3", "4", "5", "6"]);
    // Log: equal ratios are equal distances.
    const at = (label: string) => x.find((tick) => tick.text === label)!.at;
    expect(at("1") - at("0.1")).toBeCloseTo(at("10") - at("1"), 1);
    expect(text).toContain(">PFLOP/s-days<");
    expect(text).toContain(">LM loss 10k-12k<");
  });

  it("draws the projections where the lines of Table 3 are", () => {
    // 10-12K as drawn in the figure: 1.7210 C^-0.0918 and 1.6973 C^-0.0891.
    for (const [colour, a, b] of [
      [BLUE, 1.721, -0.0918],
      [RED, 1.6973, -0.0891],
    ] as const) {
      const mark = svg.querySelectorAll(".projection")[strokes(svg, "projection").indexOf(colour)];
      for (const point of pathPoints(mark.querySelector("path").getAttribute("d"))) {
        const c = 0.02 * (50 / 0.02) ** ((point.x - box.x) / box.width);
        const loss = 6 * (1 / 6) ** ((point.y - box.y) / box.height);
        if (c > 0.3 && c < 6) expect(Math.abs(loss / (a * c ** b) - 1)).toBeLessThan(0.015);
      }
    }
  });

  it("names the projections in a legend top right that no curve runs through", () => {
    const legend = svg.querySelector(".legend");
    expect([...legend.querySelectorAll("text")].map((entry) => entry.textContent)).toEqual([
      "MoBA projection",
      "Full attention projection",
    ]);
    expect([...legend.querySelectorAll("line")].map((line) => line.getAttribute("stroke"))).toEqual([
      BLUE,
      RED,
    ]);
    const rect = legend.querySelector("rect");
    const left = Number(rect.getAttribute("x"));
    const bottom = Number(rect.getAttribute("y")) + Number(rect.getAttribute("height"));
    expect(left + Number(rect.getAttribute("width"))).toBeLessThan(box.x + box.width);
    for (const path of svg.querySelectorAll(".curve path, .projection path")) {
      const through = pathPoints(path.getAttribute("d")).filter((p) => p.x > left && p.y > 0 && p.y < bottom);
      expect(through).toEqual([]);
    }
  });

  it("keeps the true shape: every point lies on its drawn curve to half a pixel's column", () => {
    const curve = svg.querySelectorAll(".curve path")[0];
    const drawn = pathPoints(curve.getAttribute("d"));
    const bucket = points.filter((p) => p.position_start === 10240);
    const run = bucket.filter((p) => p.attention === bucket[0]!.attention && p.model === bucket[0]!.model);
    for (const { pflops_days, lm_loss } of run) {
      const x = box.x + (Math.log(pflops_days! / 0.02) / Math.log(50 / 0.02)) * box.width;
      const y = box.y + (Math.log(6 / lm_loss) / Math.log(6)) * box.height;
      const near = drawn.filter((p) => Math.abs(p.x - x) <= 1.1).map((p) => p.y);
      expect(Math.min(...near)).toBeLessThanOrEqual(y + 0.2);
      expect(Math.max(...near)).toBeGreaterThanOrEqual(y - 0.2);
    }
  });

  it("draws sixteen panels of ten curves, each with its ratio, in less than 500 kB", () => {
    const panels = chartSvg(bucketPanels(points, fitLaws(points))!);
    expect(panels.length).toBeLessThan(500_000);
    expect(text.length).toBeLessThan(100_000);
    const parsed = parseSvg(panels);
    expect(parsed.querySelectorAll(".curve path")).toHaveLength(160);
    expect(parsed.querySelectorAll(".projection path")).toHaveLength(32);
    expect(panels.match(/>ratio \d\.\d{3}</g)).toHaveLength(16);
    expect(panels).toContain(">30k-32k<");
  });
});

describe("every bucket on a page", () => {
  it.each([280, 360, 760, 900])("says which colour is which attention, %i pixels wide", (width) => {
    for (const attentions of [
      ["full", "moba-b128-k4"],
      ["full", "moba-b128-k4", "moba-b64-k8/full@3", "window-512", "sink-16-512", "another"],
    ]) {
      const points = madeUpCurves({ attentions, buckets: 8 });
      const svg = parseSvg(chartSvg(bucketPanels(points, fitLaws(points), "6ND", { width })!));
      const titles = attentionTitles(attentions);
      const legend = textBoxes(svg, ".legend");
      expect(legend.map(({ text }) => text).sort()).toEqual([...titles.values()].sort());
      const top = Number(svg.querySelector("[aria-label=frame] rect").getAttribute("y"));
      const samples = [...svg.querySelectorAll(".legend line")].map((line) => ({
        left: Number(line.getAttribute("x1")),
        right: Number(line.getAttribute("x2")),
        top: Number(line.getAttribute("y1")) - 1,
        bottom: Number(line.getAttribute("y1")) + 1,
        colour: line.getAttribute("stroke"),
      }));
      for (const [i, box] of legend.entries()) {
        expect(box.left).toBeGreaterThan(0);
        expect(box.right).toBeLessThanOrEqual(width);
        expect(box.bottom).toBeLessThan(top);
        expect([...legend, ...samples].filter((other) => overlap(box, other))).toEqual([box]);
        const [label] = [...titles].find(([, title]) => title === box.text)!;
        expect(samples[i]!.colour).toBe(attentionColours(attentions).get(label));
      }
    }
  });
});

describe("scaling chart", () => {
  const points = madeUpCurves();

  it("is the same text each time, also after other charts were drawn", () => {
    const first = renderScalingChart(points, fitLaws(points));
    chartSvg(bucketPanels(points, fitLaws(points))!);
    expect(renderScalingChart(points, fitLaws(points))).toBe(first);
    expect(chartPng(first).equals(chartPng(first))).toBe(true);
  });

  it("keeps its height when a run diverges", () => {
    const wild = points
      .filter(({ model }) => model === "d2")
      .map((p) => ({ ...p, model: "d1", run: "wild" }));
    const domain = (rows: typeof points) =>
      (scalingChart(rows, fitLaws(points)).plot.y as { domain: unknown }).domain;
    const diverged = wild.map((point, i) => (i % 24 > 12 ? { ...point, lm_loss: 5e6 } : point));
    expect(domain([...points, ...diverged])).toEqual(domain(points));
    // One that has a single, early loss is out of sight.
    const lost = { ...wild[0]!, lm_loss: 5e6, pflops_days: 1e-6 * wild[0]!.pflops_days! };
    expect(chartPng(chartSvg(scalingChart([...points, lost], fitLaws(points)))).length).toBeGreaterThan(
      10_000,
    );
  });

  it.each([{ xDomain: [1, 2] }, { yDomain: [1, 1.1] }] as const)("has nothing in sight with %o", (limits) => {
    const svg = renderScalingChart(points, fitLaws(points), limits as object);
    expect(chartPng(svg).length).toBeGreaterThan(10_000);
    expect(parseSvg(svg).querySelectorAll(".curve path")).toHaveLength(0);
  });

  it("does not take the last loss of a run on its way for a final one", () => {
    const rows = points.filter(({ model }) => model === "d2" || model === "d3");
    const runs = rows.map(({ run }) => run!);
    const notes = (unfinished: readonly string[]) =>
      scalingChart(
        rows,
        { laws: [], comparisons: [], warnings: [], reading: [], reading_parts: [] },
        {
          unfinished: new Set(unfinished),
        },
      ).notes;
    expect(notes(runs)).toEqual(
      ["Full attention", "MoBA"].map(
        (title) =>
          `${title} has no projection: a law goes through final losses, and no run of it has finished.`,
      ),
    );
    expect(notes(runs.filter((run) => run.includes("d3"))).join()).toMatch(
      /one size gives .*one size gives /,
    );
    expect(notes([]).join()).toMatch(/through its 2 sizes.*through its 2 sizes/);
  });

  it("writes tiny budgets as powers of ten and small buckets as plain numbers", () => {
    const text = renderScalingChart(points, fitLaws(points));
    expect(text).toContain(">10⁻⁹<");
    expect(text).toContain(">LM loss 1536-2048<");
    expect(text).not.toMatch(/>[\d.]+e-?\d+</);
  });

  it("takes axis limits and the other convention", () => {
    const svg = parseSvg(
      renderScalingChart(points, fitLaws(points), {
        axis: "attended",
        xDomain: [1e-12, 1e-6],
        yDomain: [2, 8],
      }),
    );
    expect(labels(svg, "x")[0]!.text).toBe("10⁻¹²");
    expect(labels(svg, "x").at(-1)!.text).toBe("10⁻⁶");
    expect(labels(svg, "y").at(-1)!.text).toBe("8");
    // By 6ND both attentions end together; as attended MoBA ends at 0.7 of full attention's compute.
    const ends = [...svg.querySelectorAll(".final-points")].map((dots) =>
      Math.max(...[...dots.querySelectorAll("circle")].map((dot) => Number(dot.getAttribute("cx")))),
    );
    const decade = frame(svg).width / 6;
    expect(Math.abs(ends[0]! - ends[1]!)).toBeCloseTo(-Math.log10(0.7) * decade, 0);
  });

  it("gives further attentions their own hues and keeps full attention red", () => {
    const many = madeUpCurves({ attentions: ["window-b128-k4", "moba-b64-k8", "full", "moba-b16-k4"] });
    const svg = parseSvg(renderScalingChart(many, fitLaws(many)));
    const entries = [...svg.querySelectorAll(".legend text")].map((entry) => entry.textContent);
    expect(entries).toEqual([
      "Sliding window projection",
      "MoBA b64 k8 projection",
      "MoBA b16 k4 projection",
      "Full attention projection",
    ]);
    const colours = [...svg.querySelectorAll(".legend line")].map((line) => line.getAttribute("stroke"));
    // As first named; the first MoBA is blue.
    expect(colours[1]).toBe(BLUE);
    expect(colours[3]).toBe(RED);
    expect(new Set(colours).size).toBe(4);
  });

  it("cuts the legend of fifty attentions, full attention kept, and says how many are left out", () => {
    const moba = Array.from({ length: 49 }, (_, i) => `moba-b${16 * (i + 1)}-k3`);
    const many = madeUpCurves({ attentions: ["full", ...moba], models: ["d2"], buckets: 1 });
    const svg = parseSvg(chartSvg(scalingChart(many, fitLaws(many))));
    const entries = [...svg.querySelectorAll(".legend text")].map((entry) => entry.textContent);
    expect(entries.slice(-2)).toEqual(["Full attention", `and ${50 - (entries.length - 1)} more`]);
    const rect = svg.querySelector(".legend rect");
    expect(Number(rect.getAttribute("height"))).toBeLessThan(frame(svg).height / 2);
    const lines = moba.slice(0, 12).map((attention) => {
      return { label: `a long name of ${attention}`, colour: "#000000", sample: "line" as const };
    });
    const plot = { width: 600, height: 200, marks: [rowLegend(lines, 12)] };
    const row = parseSvg(chartSvg({ ...scalingChart(many, fitLaws(many)), width: 600, height: 200, plot }));
    const texts = [...row.querySelectorAll(".legend text")];
    expect(texts.at(-1).textContent).toBe(`and ${12 - (texts.length - 1)} more`);
    for (const text of texts) expect(Number(text.getAttribute("x"))).toBeGreaterThan(40);
  });

  it("draws a MoBA study without full attention in blue", () => {
    const only = madeUpCurves({ attentions: ["moba-b128-k4"] });
    const chart = scalingChart(only, fitLaws(only));
    expect(new Set(strokes(parseSvg(chartSvg(chart)), "curve"))).toEqual(new Set([BLUE]));
    expect(chart.notes.join(" ")).toContain("Only one attention (MoBA)");
  });

  it("draws curves without projections when there is one size, and says so", () => {
    const one = madeUpCurves({ models: ["d4"] });
    const chart = scalingChart(one, fitLaws(one));
    const svg = parseSvg(chartSvg(chart));
    expect(svg.querySelectorAll(".curve")).toHaveLength(2);
    expect(svg.querySelectorAll(".projection")).toHaveLength(0);
    expect(chart.notes.join(" ")).toContain("a law needs three sizes");
    expect([...svg.querySelectorAll(".legend text")].map((entry) => entry.textContent)).toEqual([
      "MoBA",
      "Full attention",
    ]);
  });

  it("draws an empty frame for an empty table, one point, or rows without compute", () => {
    const nothing = { laws: [], comparisons: [], warnings: [], reading: [], reading_parts: [] };
    const row: CurvePoint = {
      ...points[0]!,
      pflops_days: null,
      parameters: undefined,
      position_start: null,
      position_end: null,
    };
    for (const rows of [[], [row], [{ ...row, pflops_days: 0 }]]) {
      const chart = scalingChart(rows, nothing);
      expect(chart.notes.join(" ")).toContain("nothing to draw");
      expect(chartPng(chartSvg(chart)).length).toBeGreaterThan(1000);
    }
    const single = scalingChart([{ ...row, pflops_days: 0.3 }], nothing);
    expect(parseSvg(chartSvg(single)).querySelectorAll("circle")).toHaveLength(1);
  });

  it("puts text into the PNG without a font on the machine", () => {
    const svg = renderScalingChart(points, fitLaws(points));
    const image = pngPixels(chartPng(svg));
    const bare = pngPixels(chartPng(svg.replace(/<text[^>]*>[^<]*<\/text>/g, "")));
    expect(image.width).toBe(2 * 860);
    const box = frame(parseSvg(svg));
    const below = { x: 0, y: 2 * (box.y + box.height) + 14, width: image.width, height: 60 };
    const left = { x: 0, y: 2 * box.y, width: 2 * box.x - 16, height: 2 * box.height };
    for (const strip of [below, left]) {
      expect(darkPixels(image, strip)).toBeGreaterThan(200);
      expect(darkPixels(bare, strip)).toBe(0);
    }
  });
});
