/** Which blocks sparse layers attend to: the chart and the table beside recall, seeds together, and none without any. */
import { describe, expect, it } from "vitest";
import { attendedTable, type RunRecall, routingChart } from "../../src/report/recall.ts";

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
      ["MoBA d4", "32-64", "0.600", "0.200", "0.900", "0.800", "0.300"],
    ]);
  });

  it("is absent where nothing is left out", () => {
    expect(routingChart([runs[2]!], every)).toBeNull();
    expect(attendedTable([runs[2]!], every)).toBeNull();
  });
});
