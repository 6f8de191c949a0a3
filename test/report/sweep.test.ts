import { describe, expect, it } from "vitest";
import { finestBuckets } from "../../src/report/curves.ts";
import { recallChart, recallTable } from "../../src/report/recall.ts";
import { chartSvg } from "../../src/report/render.ts";
import { sweepCaption, sweepChart, sweepsOf, sweepTable, sweepWords } from "../../src/report/sweep.ts";
import { parseSvg, textBoxes } from "./svg.ts";

/** Loss 3 at learning rate 2e-3, more by 0.1 per squared factor of e. */
const bowl = (learningRate: number) => 3 + 0.1 * Math.log(learningRate / 2e-3) ** 2;

describe("a sweep of the learning rate", () => {
  const run = (learningRate: number, attention = "full") => ({
    run: `d4_${attention}_${learningRate}`,
    attention,
    size: "d4",
    learningRate,
    loss: bowl(learningRate),
  });

  it("has its best rate where the parabola is lowest, between the rates tried", () => {
    const [sweep] = sweepsOf([5e-4, 1.1e-3, 2.7e-3, 6e-3].map((rate) => run(rate)));
    expect(sweep.best?.learningRate).toBeCloseTo(2e-3, 8);
    expect(sweep.best?.loss).toBeCloseTo(3, 10);
  });

  it("has none at an end of the rates tried, and needs two rates of one size and attention", () => {
    const sweeps = sweepsOf([run(3e-3), run(6e-3), run(3e-3, "moba-b512-k3")]);
    expect(sweeps).toHaveLength(1);
    expect(sweeps[0].best).toBeNull();
    expect(sweepTable(sweeps, ["full"]).rows[0].at(-1)).toBe("not bracketed");
    expect(sweepWords(sweeps, ["full"])).toEqual([
      "The best learning rate of Full attention at d4 is not bracketed: it takes 3 learning rates, not 2.",
    ]);
    expect(sweepWords(sweepsOf([3e-3, 4e-3, 6e-3].map((rate) => run(rate))), ["full"])).toEqual([
      "The best learning rate of Full attention at d4 is not bracketed: the lowest loss is at an end of the learning rates.",
    ]);
  });

  it("leaves out runs that end in their sudden drop, by name, and what is then not bracketed", () => {
    const dropped = { ...run(2.7e-3), loss: 5, drop: "at end" as const };
    const every = ["full"];
    // Between 1.1e-3 and the dropped run at 2.7e-3 a parabola would have its lowest point.
    const two = sweepsOf([run(5e-4), run(1.1e-3), dropped]);
    expect(two[0].best).toBeNull();
    expect(sweepTable(two, every).rows[0].slice(3)).toEqual(["5.0000 in a drop", "", "not bracketed"]);
    expect(sweepWords(two, every)).toEqual([
      "The best learning rate of Full attention at d4 is not bracketed: it takes 3 learning rates, not 2; " +
        "d4_full_0.0027 ends in or just after a sudden drop of the training loss and is left out.",
    ]);
    const [end] = sweepsOf([run(3e-4), run(5e-4), run(1.1e-3), dropped]);
    expect(end.best).toBeNull();
    // Of 1.1e-3, 1.5e-3 and 6e-3 the parabola is the bowl itself.
    const five = sweepsOf([run(1.1e-3), run(1.5e-3), dropped, run(6e-3)]);
    expect(five[0].best?.learningRate).toBeCloseTo(2e-3, 8);
    expect(sweepWords(five, every)).toEqual([
      "Of Full attention at d4, d4_full_0.0027 ends in or just after a sudden drop of the training loss and is left out.",
    ]);
    // Another seed of the rate ends past its drop: its loss is that of the rate.
    const seeds = sweepsOf([run(5e-4), run(1.1e-3), dropped, { ...run(2.7e-3), run: "second" }, run(6e-3)]);
    expect(seeds[0].points.map(({ y }) => y)).toEqual([5e-4, 1.1e-3, 2.7e-3, 6e-3].map(bowl));
    expect(seeds[0].best?.learningRate).toBeCloseTo(2e-3, 8);
    expect(sweepsOf([dropped, { ...run(6e-3), drop: "at end" as const }])[0].best).toBeNull();
  });

  it("leaves out runs without the drop that most others of their size have, of any attention", () => {
    const past = (rate: number, attention?: string) => ({ ...run(rate, attention), drop: "past" as const });
    const before = { ...run(6e-3), drop: "none" as const };
    const rates = [5e-4, 1.1e-3, 2.7e-3];
    const every = ["full", "moba-b512-k3"];
    const [end] = sweepsOf([
      past(5e-4),
      past(1.1e-3),
      { ...past(1.9e-3), loss: 2.9 },
      { ...before, loss: 4 },
    ]);
    expect(end.best).toBeNull();
    expect(end.beforeDrop).toEqual(["d4_full_0.006"]);
    expect(sweepTable([end], every).rows[0].slice(4)).toEqual([
      "4.0000 before the drop",
      "",
      "not bracketed",
    ]);
    expect(sweepWords([end], every)).toEqual([
      "The best learning rate of Full attention at d4 is not bracketed: the lowest loss is at an end of the learning " +
        "rates; d4_full_0.006 has no sudden drop of the training loss, which others of the size have, and is left out.",
    ]);
    expect(chartSvg(sweepChart([end])!).match(/<circle r="4"/g)).toHaveLength(3);
    expect(sweepCaption([end])).toMatch(
      /; without a ring, runs without the drop that others of their size have\.$/,
    );
    // Of another attention; but one that alone has it silences none.
    const some = [5e-4, 1.1e-3, 2.7e-3, 6e-3].map((rate) => ({ ...before, ...run(rate) }));
    const four = [5e-4, 1.1e-3, 2.7e-3, 6e-3].map((rate) => past(rate, "moba-b512-k3"));
    expect(sweepsOf([...some, ...four])[0].best).toBeNull();
    expect(sweepsOf([...some, four[0]])[0].best).not.toBeNull();
    // Where none of the size has it, all have their say, and where it is not known whether they do.
    for (const drop of ["none", undefined] as const) {
      const [all] = sweepsOf([...rates, 6e-3].map((rate) => ({ ...run(rate), drop })));
      expect(all.best?.learningRate).toBeCloseTo(2e-3, 8);
    }
    const elsewhere = { ...past(1e-3, "moba-b512-k3"), size: "d5" };
    expect(
      sweepsOf([...[...rates, 6e-3].map((rate) => ({ ...before, ...run(rate) })), elsewhere])[0].best,
    ).not.toBeNull();
  });

  it("says the best as a factor on the rule, and how far apart two attentions have it", () => {
    const tried = [5e-4, 1.1e-3, 2.7e-3, 6e-3];
    const slower = tried.map((rate) => ({ ...run(rate, "moba-b512-k3"), loss: bowl(rate / 2), rule: 0.01 }));
    const sweeps = sweepsOf([...tried.map((rate) => ({ ...run(rate), rule: 0.01 })), ...slower]);
    expect(sweepTable(sweeps, ["full", "moba-b512-k3"]).rows.map((row) => row.at(-2))).toEqual([
      "0.20",
      "0.40",
    ]);
    expect(sweepWords(sweeps, ["full", "moba-b512-k3"])).toEqual([
      "The best learning rates of Full attention, MoBA at d4 lie within a factor of 2.0.",
    ]);
  });

  it("averages seeds", () => {
    const two = [
      { ...run(1e-3), loss: 3 },
      { ...run(1e-3), loss: 3.2 },
      { ...run(2e-3), loss: 3 },
    ];
    expect(sweepsOf(two)[0].points[0].y).toBeCloseTo(3.1, 12);
  });
});

describe("buckets inside others", () => {
  it("stay, the wide ones go", () => {
    const row = (position_start: number | null, position_end: number | null) => ({
      position_start,
      position_end,
    });
    const rows = [row(null, null), row(0, 1024), row(1024, 2048), row(0, 2048), row(2048, 4096)];
    expect(finestBuckets(rows)).toEqual([row(null, null), row(0, 1024), row(1024, 2048), row(2048, 4096)]);
  });
});

describe("recall of several seeds", () => {
  const recall = (attention: string, right: number) => ({
    attention,
    model: "d4",
    result: {
      windows: 2,
      chance: 0.01,
      bands: [
        { distance_start: 32, distance_end: 64, answers: 10, right: 10, lm_loss: 0.1 },
        { distance_start: 64, distance_end: 128, answers: 10, right, lm_loss: 1 },
      ],
    },
  });
  const recalls = [recall("moba-b512-k3", 2), recall("full", 8), recall("full", 9)];

  it("is added up", () => {
    const { columns, rows } = recallTable(recalls, ["full", "moba-b512-k3"]);
    expect(columns.map(({ title }) => title)).toEqual(["tokens back", "Full attention d4", "MoBA d4"]);
    expect(rows).toEqual([
      ["32-64", "1.000", "1.000"],
      ["64-128", "0.850", "0.200"],
    ]);
    // The first one was not asked about the nearest.
    const { result, ...far } = recall("full", 3);
    const mixed = [{ ...far, result: { ...result, bands: result.bands.slice(1) } }, recalls[0]!];
    expect(recallTable(mixed, ["full", "moba-b512-k3"]).rows).toEqual([
      ["32-64", "", "1.000"],
      ["64-128", "0.300", "0.200"],
    ]);
  });

  it("is drawn as shares", () => {
    const chart = recallChart(recalls, ["full", "moba-b512-k3"]);
    expect(chart?.rows.map(({ y }) => y)).toEqual([1, 0.85, 1, 0.2]);
    expect(recallChart([], [])).toBeNull();
    // Nothing was asked: at no distance, or none of one.
    const { result, ...run } = recall("full", 0);
    const none = { distance_start: 16, distance_end: 32, answers: 0, right: 0, lm_loss: 0 };
    expect(recallChart([{ ...run, result: { ...result, bands: [] } }], [])).toBeNull();
    expect(recallChart([{ ...run, result: { ...result, bands: [none] } }], [])).toBeNull();
  });

  it.each([0, 10])(
    "names ten sizes beside the frame, none upon another, where all find %d of 10",
    (right) => {
      const sizes = Array.from({ length: 10 }, (_, i) => ({ ...recall("full", right), model: `d${i}` }));
      const svg = parseSvg(chartSvg(recallChart(sizes, ["full"])!));
      const frame = svg.querySelector('[aria-label="frame"]');
      const [top, height] = ["y", "height"].map((name) => Number(frame.getAttribute(name))) as [
        number,
        number,
      ];
      const names = textBoxes(svg, '[font-size="11"]').filter(({ text }) => /^d\d$/.test(text));
      expect(names).toHaveLength(10);
      const middles = names.map((box) => (box.top + box.bottom) / 2).sort((a, b) => a - b);
      for (const [i, middle] of middles.slice(1).entries())
        expect(middle - middles[i]!).toBeGreaterThanOrEqual(12);
      expect(middles[0]).toBeGreaterThan(top - 7);
      expect(middles.at(-1)).toBeLessThan(top + height + 7);
    },
  );
});
