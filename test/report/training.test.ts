/** The chart of training curves: smoothed lines with their drops, many runs, and what it says of each. */
import { parseHTML } from "linkedom";
import { describe, expect, it } from "vitest";
import { suddenDrop } from "../../src/fit/drops.ts";
import { chartPng, chartSvg } from "../../src/report/render.ts";
import { dropTable, type TrainingCurve, trainingChart } from "../../src/report/training.ts";
import { randomNumbers } from "../train/tiny.ts";
import { overlap, parseSvg, textBoxes } from "./svg.ts";

const TOKENS = 300e6;
const STEPS = 3000;

/** The loss without its noise, which is of 10 % each way: a slow power law that loses a third from 100 M to 128 M tokens. */
function trend(tokens: number): number {
  const through = Math.min(1, Math.max(0, Math.log(tokens / 100e6) / 0.25));
  return 3 * (tokens / TOKENS) ** -0.09 * (1 - through / 3);
}

function run(model: string, attention: string, seed: number, share = 1): TrainingCurve {
  const uniform = randomNumbers(seed);
  const tokens = Float64Array.from({ length: share * STEPS }, (_, i) => ((i + 1) / STEPS) * TOKENS);
  const losses = tokens.map((at) => trend(at) * (0.9 + 0.2 * uniform()));
  const points = Array.from(losses, (lm_loss, i) => ({
    ...{ attention, model, position_start: null, position_end: null, pflops_days: null },
    ...{ tokens: tokens[i], lm_loss },
  })).slice(0.01 * STEPS);
  return {
    run: `${model}_${attention}_s${seed}`,
    attention,
    model,
    tokens,
    losses,
    drop: suddenDrop(points),
  };
}

function drawn(runs: readonly TrainingCurve[]) {
  const chart = trainingChart(runs)!;
  return { chart, document: parseHTML(chartSvg(chart)).document };
}

const pair = [run("d3", "full", 1), run("d3", "moba-b512-k3", 2, 0.25)];

describe("the chart of training curves", () => {
  it("draws the trend through the noise", () => {
    for (const { series, x, y } of drawn(pair).chart.rows) {
      // At a corner of the trend, and where few steps are averaged, the smoothed line is further off.
      if (series !== pair[0].run || x < 0.1 * TOKENS || Math.abs(Math.log(x / 113e6)) < 0.6) continue;
      expect(Math.abs(y / trend(x) - 1), `at ${x}`).toBeLessThan(0.03);
    }
  });

  it("takes its height from the lines, not from the noise", () => {
    const [low, high] = (drawn(pair).chart.plot.y as { domain: [number, number] }).domain;
    expect(low).toBeGreaterThan(0.93 * trend(TOKENS));
    expect(high).toBeLessThan(1.15 * trend(TOKENS / 300));
  });

  it("lets a run that diverges leave at the upper edge, with a mark, and its name inside the chart", () => {
    const wild = run("d2", "full", 3, 0.5);
    const losses = wild.losses.map((loss, i) => (i < 500 ? loss : loss * 1e5));
    const { chart, document } = drawn([...pair, { ...wild, losses }]);
    const [, high] = (chart.plot.y as { domain: [number, number] }).domain;
    expect(high).toBeLessThan(1.25 * trend(TOKENS / STEPS));
    expect(document.querySelectorAll(".edge path")).toHaveLength(1);
    expect([...document.querySelectorAll(".label text")].map(({ textContent }) => textContent)).toContain(
      "d2",
    );
  });

  it("does without a run that is far above from its beginning on", () => {
    const lost = run("d2", "full", 3, 0.5);
    const { chart } = drawn([...pair, { ...lost, losses: lost.losses.map(() => 1e9) }]);
    expect(chartPng(chartSvg(chart)).length).toBeGreaterThan(10_000);
  });

  it("rings each drop in its middle on the line", () => {
    const { chart, document } = drawn(pair);
    const rings = [...document.querySelectorAll(".mark circle")];
    expect(rings).toHaveLength(1);
    const [low, high] = (chart.plot.x as { domain: [number, number] }).domain;
    const inner = chart.width - chart.plot.marginLeft! - chart.plot.marginRight!;
    const share = (Number(rings[0].getAttribute("cx")) - chart.plot.marginLeft!) / inner;
    const tokens = low * (high / low) ** share;
    expect(tokens).toBeGreaterThan(0.88 * 113e6);
    expect(tokens).toBeLessThan(1.12 * 113e6);
  });

  it("names sizes at the ends of their lines, draws further seeds thin, and bands for few runs", () => {
    const few = drawn(pair).document;
    expect(few.querySelectorAll(".band path")).toHaveLength(2);
    expect(few.querySelectorAll(".label")).toHaveLength(0);
    const many = [1, 2, 3].flatMap((seed) => ["d3", "d4"].map((model) => run(model, "full", seed)));
    const { document, chart } = drawn(many);
    expect(document.querySelectorAll(".band path")).toHaveLength(0);
    expect([...document.querySelectorAll(".label")].map((label) => label.textContent).sort()).toEqual([
      "d3",
      "d4",
    ]);
    const widths = [...document.querySelectorAll(".curve")].map((line) => line.getAttribute("stroke-width"));
    expect(new Set(widths.slice(0, 2))).not.toEqual(new Set(widths.slice(2)));
    expect(new Set(widths.slice(2)).size).toBe(1);
    // What is drawn is as long as the chart is wide, not as the run.
    expect(chart.rows.length).toBeLessThan(many.length * 3 * chart.width);
  });

  it("writes no name across the frame, wherever runs end", () => {
    for (const share of [0.5, 0.8, 0.85, 0.9, 0.95, 0.98, 1]) {
      for (const name of ["d2", "a larger model"]) {
        const wild = run("d5", "full", 4, share);
        const runs = [
          ...[run("d3", "full", 1), run(name, "full", 3, share), run("d4", "full", 5, share)],
          { ...wild, losses: wild.losses.map((loss) => 100 * loss) },
        ];
        const svg = parseSvg(chartSvg(trainingChart(runs)!));
        const frame = svg.querySelector("[aria-label=frame]");
        const [left, top, width, height] = ["x", "y", "width", "height"].map((side) =>
          Number(frame.getAttribute(side)),
        ) as [number, number, number, number];
        const [right, bottom] = [left + width, top + height];
        const boxes = textBoxes(svg, ".label");
        expect(boxes.map(({ text }) => text).sort()).toEqual(["d3", name, "d4", "d5"].sort());
        for (const box of boxes) {
          expect(box.left >= right || box.right <= right, `${box.text} at ${share}`).toBe(true);
          if (box.left < right) {
            expect(box.top).toBeGreaterThan(top);
            expect(box.bottom).toBeLessThan(bottom);
          }
          expect(box.right).toBeLessThanOrEqual(Number(svg.getAttribute("width")));
          expect(boxes.filter((other) => overlap(box, other))).toEqual([box]);
        }
      }
    }
  });

  it("says where each run ends", () => {
    const table = dropTable(pair)!;
    expect(table.rows.map((row) => row.at(-1))).toEqual(["past it, at 300M", "before a drop, at 75M"]);
    const [, , , , , before, after] = table.rows[0];
    expect(Number(after) / Number(before)).toBeGreaterThan(0.6);
    expect(Number(after) / Number(before)).toBeLessThan(0.72);
    expect(dropTable([pair[1]])).toBeNull();
  });

  it("is of hundreds of runs", () => {
    const [one] = pair;
    const many = Array.from({ length: 400 }, (_, i) => ({ ...one, run: `d3_full_s${i}` }));
    const { rows, plot } = trainingChart(many)!;
    // More than a call takes as arguments.
    expect(rows.length).toBeGreaterThan(130_000);
    expect(plot.y).toEqual(trainingChart([one])!.plot.y);
  });

  it("cuts all lines at the frame at once", () => {
    const { document } = drawn([1, 2, 3].map((seed) => run("d4", "full", seed)));
    const cut = [...document.querySelectorAll("[clip-path]")];
    expect(cut).toHaveLength(1);
    expect(cut[0].querySelectorAll(".curve path").length).toBe(
      document.querySelectorAll(".curve path").length,
    );
  });

  it("is not drawn of nothing, and is of a single step", () => {
    const one = (loss: number) => ({ tokens: Float64Array.of(10), losses: Float64Array.of(loss) });
    expect(trainingChart([])).toBeNull();
    expect(trainingChart([{ ...pair[0], ...one(Number.NaN) }])).toBeNull();
    expect(trainingChart([{ ...pair[0], ...one(3), drop: null }])).not.toBeNull();
  });
});
