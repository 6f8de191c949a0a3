/** Single sizes against the baseline's law as attended, from planted laws. */
import { describe, expect, it } from "vitest";
import { type CurvePoint, fit as fitTable } from "../../src/fit/index.ts";
import { end, normals } from "./made.ts";

const BUCKET = { position_start: 1024, position_end: 2048 };
const lawAt = (attended: number) => 2 * attended ** -0.1;

/** A final evaluation in the bucket; all sizes train for budgets of their own by 6ND. */
function ends(
  attention: string,
  i: number,
  attended: number | undefined,
  loss: number,
  seed = 1,
): CurvePoint {
  const more = { ...BUCKET, seed, run: `${attention} ${i} ${seed}`, pflops_days_attended: attended };
  return end(attention, `d${i}`, 3 ** i, loss, more);
}

/** Log losses 0.1, -0.2 and 0.1 % off the line: no slope. */
const OFF = [0.001, -0.002, 0.001];
const full = OFF.map((off, i) => ends("full", i, 10 * 3 ** i, lawAt(10 * 3 ** i) * Math.exp(off)));
const fitted = (more: readonly CurvePoint[]) => fitTable([...full, ...more], { bootstrap: 0 });
const told = (more: readonly CurvePoint[]) =>
  fitted(more).reading.filter((words) => words.startsWith("Against what the law"));

describe("an attention at one size", () => {
  // s = sqrt(6) x 0.1 % with 1 degree of freedom: at the middle 12.706 s sqrt(1 + 1/3) is 3.594 % each way.
  const HALF = 0.03594;
  const window = ends("window-b512-k3", 2, 30, 0.9 * lawAt(30));

  it("has the offset from the baseline's law at its own budget, with the law's prediction interval", () => {
    const { law_ratios: ratios } = fitted([window]);
    expect(ratios).toHaveLength(1);
    const [found] = ratios!;
    expect(found).toMatchObject({ ...BUCKET, baseline: "full", other: "window-b512-k3", model: "d2" });
    expect(found).toMatchObject({ seeds: 1, pflops_days: 30, loss: 0.9 * lawAt(30), inside: true });
    expect(found.predicted).toBeCloseTo(lawAt(30), 12);
    expect(found.ratio).toBeCloseTo(0.9, 12);
    for (const [i, sign] of [-1, 1].entries()) {
      expect(Math.log(found.prediction_interval[i] / found.predicted)).toBeCloseTo(sign * HALF, 4);
      expect(Math.log(found.interval[i] / found.ratio)).toBeCloseTo(sign * HALF, 4);
    }
  });

  it("is told with its loss and the law's, and whether they can be told apart", () => {
    const near = [1, 2].map((seed) => ends("moba-b512-k3", 1, 30, (0.99 + 0.01 * seed) * lawAt(30), seed));
    expect(told([window, ...near])).toEqual([
      "Against what the law of full attention at 1k-2k says of one run of the same budget as attended (attention " +
        "counted as done): window-b512-k3 at d2 (30 PFLOP/s-days) ends at 1.281, 10.0 % lower than the law's 1.423 (95 % interval -13.2 % " +
        "to -6.7 %); MoBA at d1 (30 PFLOP/s-days) ends at 1.430, 0.5 % higher than the law's 1.423 (95 % interval -3.0 % " +
        "to +4.2 %, so not distinguishable).",
    ]);
    expect(fitted([window, ...near]).law_ratios![1].seeds).toBe(2);
  });

  it("is set against a law a little beyond its budgets, which is said, and not further", () => {
    const at = (attended: number) => [ends("window-b512-k3", 0, attended, 1)];
    for (const near of [7, 130]) {
      expect(told(at(near))[0]).toContain(`(${near} PFLOP/s-days, outside the law's sizes)`);
      expect(fitted(at(near)).law_ratios![0].inside).toBe(false);
    }
    for (const far of [6, 140]) expect(fitted(at(far))).not.toHaveProperty("law_ratios");
  });

  it("is not where it is compared, where budgets are unknown, or where the baseline has no law as attended", () => {
    const ladder = (attended?: (i: number) => number) =>
      OFF.map((off, i) => ends("moba", i, attended?.(i), 2 * Math.exp(-0.1 * i - off)));
    expect(fitted(ladder((i) => 12 * 3 ** i))).not.toHaveProperty("law_ratios");
    expect(told(ladder((i) => 12 * 3 ** i))).toEqual([]);
    expect(fitted(ladder())).not.toHaveProperty("law_ratios");
    const two = fitTable([...full.slice(1), window], { bootstrap: 0 });
    expect(two).not.toHaveProperty("law_ratios");
    const by6ND = full.map(({ pflops_days_attended: _, ...point }) => point);
    expect(fitTable([...by6ND, window], { bootstrap: 0 })).not.toHaveProperty("law_ratios");
    // Compared by 6ND alone, a size that has its operations is set against the law.
    const partly = [...ladder().slice(0, 2), ends("moba", 2, 40, 1.5)];
    expect(fitted(partly).comparisons.map(({ convention }) => convention)).toEqual(["6ND"]);
    expect(fitted(partly).law_ratios).toMatchObject([{ model: "d2", pflops_days: 40 }]);
  });

  it("follows a law with a floor in a fit of that form", () => {
    const floored = (attended: number) => 1.5 + 0.9 * attended ** -0.2;
    const base = Array.from({ length: 8 }, (_, i) => ends("full", i, 3 ** i, floored(3 ** i)));
    const one = ends("window-b512-k3", 2, 20, 0.95 * floored(20));
    const [found] = fitTable([...base, one], { form: "floored", bootstrap: 0 }).law_ratios!;
    expect(found.ratio).toBeCloseTo(0.95, 4);
  });

  it("counts the sizes that a sentence leaves out", () => {
    const many = Array.from({ length: 8 }, (_, i) => ends(`window-b${i + 1}-k3`, 2, 30, 1.3));
    expect(told(many)[0].match(/ ends at /g)).toHaveLength(6);
    expect(told(many)[0]).toMatch(/\); 2 more sizes\.$/);
  });
});

it("holds the truth in 95 % of studies: the ratio to the law of a run that scatters as the baseline's do", () => {
  const normal = normals(20250218);
  const [trials, noise, truth] = [1500, 0.01, 0.95];
  let held = 0;
  for (let trial = 0; trial < trials; trial++) {
    const scattered = (loss: number) => loss * Math.exp(noise * normal());
    const base = [10, 30, 90, 270, 810].map((budget, i) => ends("full", i, budget, scattered(lawAt(budget))));
    const one = ends("window-b512-k3", 2, 40, scattered(truth * lawAt(40)));
    const [{ interval }] = fitTable([...base, one], { bootstrap: 0 }).law_ratios!;
    if (interval[0] <= truth && truth <= interval[1]) held++;
  }
  expect(Math.abs(held / trials - 0.95), `${held / trials}`).toBeLessThan(0.0225);
});
