/** Which blocks sparse layers attend to: the chart and the table beside recall, seeds together, and none without any. */
import { describe, expect, it } from "vitest";
import { attendedTable, routingChart } from "../../src/report/recall.ts";
import { chartSvg } from "../../src/report/render.ts";
import type { RunRecall } from "../../src/study/recall-sizes.ts";
import { rotaryScores } from "../../src/study/routing-expected.ts";
import { parseSvg, pathPoints } from "./svg.ts";

const run = (attention: string, share: number, sparse = true): RunRecall => ({
  ...{ attention, model: "d4" },
  result: {
    ...{ windows: 2, chance: 0.01 },
    bands: [
      {
        ...{ distance_start: 32, distance_end: 64, answers: 10, right: 3, lm_loss: 1 },
        ...(sparse && { attended: { heads: share, heads_at_random: 0.2, any: 0.9, any_at_random: 0.8 } }),
      },
    ],
    ...(sparse && {
      routing: [
        { blocks_back: 1, share, at_random: 0.2 },
        { blocks_back: 2, share: share / 2, at_random: 0.1 },
      ],
    }),
  },
});
const every = ["full", "moba-b512-k3"];
const runs = [run("moba-b512-k3", 0.4), run("moba-b512-k3", 0.8), run("full", 0, false)];

describe("routing", () => {
  it("is drawn by blocks back, the mean of the seeds", () => {
    const chart = routingChart(runs, every)!;
    const rows = chart.rows.map(({ series, x, y }) => [series, x, Number(y.toFixed(6))]);
    expect(rows).toEqual([
      ["MoBA d4", 1, 0.6],
      ["MoBA d4", 2, 0.3],
    ]);
  });

  it("stands beside what drawing at random would give", () => {
    expect(attendedTable(runs, every)!.rows).toEqual([
      ["MoBA d4", "32-64", "0.600", "", "0.200", "0.900", "0.800", "0.300"],
    ]);
    // A window of 64 tokens has one record, and its value some blocks of 8 before the query.
    const { result } = run("moba-b8-k2", 0.5);
    const routing = [1, 2, 3, 4, 5, 6, 7].map((blocks_back) => ({
      blocks_back,
      share: 0.25,
      at_random: 0.1,
    }));
    const bands = result.bands.map((band) => ({ ...band, answers: 1 }));
    const config = { attention: "moba-b8-k2", context: 64, shape: { vocabulary: 100 } };
    const short = {
      ...{ attention: "moba-b8-k2", model: "d1", config },
      result: { ...result, windows: 1, routing, bands },
    };
    const table = attendedTable([short], ["moba-b8-k2"])!;
    expect(table.columns[3]!.title).toBe("any as far back");
    expect(table.rows[0]![3]).toBe("0.250");
  });

  /** Blocks of 128 tokens, so many, of which fewer and fewer heads attend to those further back. */
  const long = (blocks: number, model: string, parameters: number): RunRecall => {
    const { result } = run("moba-b128-k8", 0.4);
    const routing = Array.from({ length: blocks }, (_, i) => {
      return { blocks_back: i + 1, share: 0.8 / (i + 1), at_random: 0.1 };
    });
    return {
      ...{ attention: "moba-b128-k8", model, parameters, result: { ...result, routing } },
      config: { attention: "moba-b128-k8", shape: { headDim: 64, ropeTheta: 1e4 } },
    };
  };
  const both = ["moba-b128-k8", "moba-b512-k3"];
  const drawn = (all: readonly RunRecall[]) => parseSvg(chartSvg(routingChart(all, both)!));

  it("has a panel for each attention, the largest size last, and dots where there is room for them", () => {
    const chart = routingChart([long(33, "d8", 8), long(33, "d3", 3), runs[0]!], both)!;
    const series = new Map(chart.rows.map(({ series, facet }) => [series, facet!.fy]));
    expect([...series]).toEqual([
      ["MoBA b128 k8 d3", 0],
      ["MoBA b128 k8 d8", 0],
      ["MoBA b512 k3 d4", 1],
    ]);
    const svg = drawn([long(33, "d8", 8), runs[0]!]);
    expect([...svg.querySelectorAll("circle")]).toHaveLength(2);
    expect([...drawn([long(32, "d8", 8)]).querySelectorAll("circle")]).toHaveLength(32);
    expect(svg.textContent).toContain("MoBA b128 k8 d8");
    expect(drawn([long(33, "d8", 8), long(33, "d3", 3)]).textContent).toContain("d3, d8, pale to dark");
  });

  it("has what the rotary embedding alone would favour, brought to the range of the shares", () => {
    const svg = drawn([long(31, "d8", 8)]);
    const line = pathPoints(svg.querySelector(".rotary path").getAttribute("d"));
    const scores = rotaryScores({ headDim: 64, ropeTheta: 1e4 }, 128, 16);
    expect(line).toHaveLength(16);
    const [low, high] = [Math.min(...scores), Math.max(...scores)];
    const frame = svg.querySelector('[aria-label="frame"] rect');
    const [top, height] = ["y", "height"].map((name) => Number(frame.getAttribute(name))) as [number, number];
    for (const [i, score] of scores.entries()) {
      const share = 0.05 + ((score - low) / (high - low)) * 0.75;
      expect(Math.abs(line[i]!.y - (top + (1 - share) * height))).toBeLessThan(1);
    }
    expect(svg.textContent).toMatch(/rank correlation \d\.\d\d/);
    // Which nearness alone orders.
    expect(svg.textContent).not.toContain("taken out");
    const { result, ...rest } = long(31, "d8", 8);
    const routing = result.routing!.map((row, i) => ({ ...row, share: i === 3 ? 0.3 : row.share }));
    expect(drawn([{ ...rest, result: { ...result, routing } }]).textContent).toMatch(/taken out -?\d\.\d\d/);
    expect(drawn([runs[0]!]).textContent).not.toMatch(/rotary|correlation/);
  });

  it("is absent where nothing is left out", () => {
    expect(routingChart([runs[2]!], every)).toBeNull();
    expect(attendedTable([runs[2]!], every)).toBeNull();
  });
});
