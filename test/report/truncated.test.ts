import { describe, expect, it } from "vitest";
import { chartSvg } from "../../src/report/render.ts";
import { truncatedChart, truncatedTable } from "../../src/report/truncated.ts";
import { overlap, parseSvg, textBoxes } from "./svg.ts";

const every = ["full", "moba-b512-k3"];
const run = (attention: string, lm_loss: number[], contexts = [1024, 2048, 4096]) => ({
  attention,
  model: "d4",
  result: { contexts, lm_loss },
});
const runs = [
  run("moba-b512-k3", [2, 1.9, 1.88]),
  run("full", [1.9, 1.8, 1.7]),
  run("full", [2.1, 1.84, 1.7]),
];

describe("the same tokens with less context", () => {
  it("in figures: seeds are averaged, changes are between neighbours", () => {
    const { columns, rows } = truncatedTable(runs, every);
    const steps = ["1k to 2k", "2k to 4k"];
    expect(columns.map(({ title }) => title)).toEqual(["attention", "size", "1k", "2k", "4k", ...steps]);
    expect(rows).toEqual([
      ["Full attention", "d4", "2.0000", "1.8200", "1.7000", "-9.00 %", "-6.59 %"],
      ["MoBA", "d4", "2.0000", "1.9000", "1.8800", "-5.00 %", "-1.05 %"],
    ]);
  });

  it("drawn against the least context", () => {
    const chart = truncatedChart(runs, every)!;
    const expected = [0, -9, -15, 0, -5, -6];
    for (const [i, { x, y }] of chart.rows.entries()) {
      expect(x).toBe([1024, 2048, 4096][i % 3]);
      expect(y).toBeCloseTo(expected[i], 10);
    }
    const svg = chartSvg(chart);
    for (const text of ["change of loss against 1k, %", ">1k<", ">4k<"]) expect(svg).toContain(text);
    expect(truncatedChart([], every)).toBeNull();
  });

  it("keeps apart runs that kept other contexts", () => {
    const mixed = [...runs, run("full", [3, 2.4, 1.2], [512, 1000, 1024])];
    const { columns, rows } = truncatedTable(mixed, every);
    expect(columns.slice(2).map(({ title }) => title)).toEqual([
      ...["512", "1000", "1k", "2k", "4k"],
      ...["1k to 2k", "2k to 4k", "512 to 1000", "1000 to 1k"],
    ]);
    expect(rows).toHaveLength(3);
    expect(rows[0].slice(2)).toEqual(["", "", "2.0000", "1.8200", "1.7000", "-9.00 %", "-6.59 %", "", ""]);
    expect(rows[1].slice(2)).toEqual(["3.0000", "2.4000", "1.2000", "", "", "", "", "-20.00 %", "-50.00 %"]);
    const chart = truncatedChart(mixed, every)!;
    expect(chart.rows.map(({ y }) => Math.round(y))).toEqual([0, -9, -15, 0, -20, -60, 0, -5, -6]);
    expect(chartSvg(chart)).toContain("change of loss against the least context, %");
  });

  it("has no texts one over the other, wide and narrow, with many lines that end at one place", () => {
    const contexts = [1000, 1024, 2048, 4096, 8192, 16384];
    const many = every.flatMap((attention) =>
      ["d3", "d4", "d5", "d6", "d8"].map((model) => ({
        ...run(attention, [2, 2, 1.9, 1.85, 1.84, 1.83], contexts),
        model,
      })),
    );
    for (const width of [860, 320]) {
      const boxes = textBoxes(parseSvg(chartSvg(truncatedChart(many, every, width)!)), "svg > g");
      expect(boxes.filter(({ text }) => /^d\d$/.test(text))).toHaveLength(10);
      const touching = boxes.flatMap((a, i) =>
        boxes.slice(i + 1).flatMap((b) => (overlap(a, b) ? [[a, b]] : [])),
      );
      expect(touching).toEqual([]);
    }
  });
});
