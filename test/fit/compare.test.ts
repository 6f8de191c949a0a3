import { describe, expect, test } from "vitest";
import { type CurvePoint, fit as fitCurves } from "../../src/fit/index.ts";
import { BUDGETS, end, ladder, wiggle } from "./made.ts";

function compared(points: CurvePoint[], options = {}) {
  const { comparisons } = fitCurves(points, options);
  expect(comparisons.length).toBe(1);
  return comparisons[0];
}

const judged = (points: CurvePoint[], options = {}) =>
  Object.fromEntries(compared(points, options).claims.map((claim) => [claim.claim, claim.judgement]));

describe("paired comparison", () => {
  test("a ratio law worked by hand", () => {
    // log C = -1, 0, 1 and log ratios 0, 0.03, 0.03: mean 0.02, slope 0.015, residuals -0.005, 0.01, -0.005,
    // s^2 = 1.5e-4 with 1 degree of freedom, t = 12.706.
    const ratios = [0, 0.03, 0.03];
    const points = ratios.flatMap((log, i) => {
      const budget = Math.exp(i - 1);
      const loss = 3 * budget ** -0.1;
      return [end("full", `m${i}`, budget, loss), end("moba", `m${i}`, budget, loss * Math.exp(log))];
    });
    const { ratio_law, ratio_at, fitted_range } = compared(points);
    expect(ratio_law).toMatchObject({ method: "paired", pairs: 3, degrees_of_freedom: 1 });
    expect(Math.log(ratio_law.ratio)).toBeCloseTo(0.02, 12);
    expect(ratio_law.exponent).toBeCloseTo(0.015, 12);
    const slopeHalf = 12.7062 * Math.sqrt(1.5e-4 / 2);
    expect(ratio_law.exponent_interval[1]).toBeCloseTo(0.015 + slopeHalf, 5);
    const meanHalf = 12.7062 * Math.sqrt(1.5e-4 / 3);
    expect(Math.log(ratio_law.ratio_interval[0])).toBeCloseTo(0.02 - meanHalf, 5);
    expect(ratio_at.map((at) => Math.log(at.pflops_days))).toEqual([
      expect.closeTo(-1, 10),
      expect.closeTo(0, 10),
      expect.closeTo(1, 10),
      0,
    ]);
    expect(Math.log(ratio_at[2].ratio)).toBeCloseTo(0.035, 12);
    expect(fitted_range[1]).toBeCloseTo(Math.E, 12);
  });

  test("higher and lower over the whole range", () => {
    const higher = compared(ladder(1.05, 0, wiggle(0.002)));
    expect(higher.verdict).toBe("other higher");
    expect(higher.crossing).toBeNull();
    expect(higher.differs_between).toEqual(higher.fitted_range);
    expect(judged(ladder(1.05, 0, wiggle(0.002)))).toEqual({
      cross: "refuted",
      "never cross": "supported",
      "lower throughout": "refuted",
      "the same": "refuted",
    });
    expect(compared(ladder(0.95, 0, wiggle(0.002))).verdict).toBe("other lower");
    expect(judged(ladder(0.95, 0, wiggle(0.002)))["lower throughout"]).toBe("supported");
  });

  test("a crossing is located where the ratio is 1", () => {
    const found = compared(ladder(1, 0.02, wiggle(0.002)));
    expect(found.verdict).toBe("crossing");
    expect(found.crossing!.inside_data).toBe(true);
    expect(found.crossing!.interval[0]).toBeLessThan(1);
    expect(found.crossing!.interval[1]).toBeGreaterThan(1);
    expect(judged(ladder(1, 0.02, wiggle(0.002)))).toEqual({
      cross: "supported",
      "never cross": "refuted",
      "lower throughout": "refuted",
      "the same": "refuted",
    });
    // Both ends differ: the wider stretch is reported, and ends where the crossing's interval begins or ends.
    const [from, to] = found.differs_between!;
    expect([from, to]).toContainEqual(expect.closeTo(found.crossing!.interval[from < 0.5 ? 0 : 1], 8));
  });

  test("a crossing beyond the data is not a verdict of crossing", () => {
    const found = compared(ladder(1.06, -0.01, wiggle(0.0005)));
    expect(found.crossing!.inside_data).toBe(false);
    expect(found.crossing!.pflops_days).toBeGreaterThan(100);
    expect(found.verdict).toBe("other higher");
  });

  test("the same, undecided, and the margin", () => {
    expect(judged(ladder(1.001, 0, wiggle(0.001)))["the same"]).toBe("supported");
    expect(judged(ladder(1.001, 0, wiggle(0.02)))).toEqual({
      cross: "undecided",
      "never cross": "undecided",
      "lower throughout": "undecided",
      "the same": "undecided",
    });
    expect(judged(ladder(1.02, 0, wiggle(0.001)), { margin: 0.03 })["the same"]).toBe("supported");
    expect(judged(ladder(1.02, 0, wiggle(0.001)))["the same"]).toBe("refuted");
  });

  test("identical losses are the same, and nothing crosses", () => {
    const found = compared(ladder(1, 0));
    expect(found.verdict).toBe("not distinguishable over the whole range");
    expect(found.ratio_law.ratio).toBe(1);
    expect(found.differs_between).toBeNull();
    expect(found.claims.find((claim) => claim.claim === "the same")!.judgement).toBe("supported");
  });

  test("an exactly constant ratio crosses nowhere", () => {
    const found = compared(ladder(1.05, 0));
    expect(found.verdict).toBe("other higher");
    expect(found.crossing).toBeNull();
    expect(JSON.parse(JSON.stringify(found))).toEqual(found);
  });

  test("the multiplier is the compute that makes up for the ratio", () => {
    // moba reaches with 1.3 C what full reaches with C: L = 2 (C / 1.3)^-0.08.
    const { multiplier_at } = compared(ladder(1.3 ** 0.08, 0, wiggle(1e-5)));
    for (const { multiplier, interval } of multiplier_at) {
      expect(multiplier).toBeCloseTo(1.3, 2);
      expect(interval[0]).toBeLessThan(multiplier);
      expect(interval[1]).toBeGreaterThan(multiplier);
    }
    const flat = ladder(1, 0).map((point, i) => ({ ...point, lm_loss: 2 + 0.01 * ((i * 7) % 5) }));
    expect(compared(flat).multiplier_at).toEqual([]);
  });
});

describe("joint comparison", () => {
  /** Attended compute: full's falls behind MoBA's as context weighs less in larger models. */
  const attended = (points: CurvePoint[]) =>
    points.map((point) => ({
      ...point,
      pflops_days_attended: point.pflops_days! * (point.attention === "full" ? 2 : 1.4),
    }));

  test("both conventions are fitted when the column is there", () => {
    const { laws, comparisons } = fitCurves(attended(ladder(1.02, 0, wiggle(0.002))));
    expect(laws.map((law) => `${law.convention} ${law.attention}`)).toEqual([
      "6ND full",
      "6ND moba",
      "attended full",
      "attended moba",
    ]);
    expect(comparisons.map((c) => [c.convention, c.ratio_law.method])).toEqual([
      ["6ND", "paired"],
      ["attended", "joint"],
    ]);
    // The cheaper attention's line moves left by log(2 / 1.4): its ratio at equal compute falls by that times 0.08.
    const [plain, joint] = comparisons;
    expect(Math.log(plain.ratio_law.ratio / joint.ratio_law.ratio)).toBeCloseTo(0.08 * Math.log(2 / 1.4), 3);
    const middle = plain.multiplier_at[1].multiplier / joint.multiplier_at[1].multiplier;
    expect(middle).toBeCloseTo(2 / 1.4, 1);
  });

  test("the fitted range is what both cover", () => {
    const [, joint] = fitCurves(attended(ladder(1.02, 0, wiggle(0.002)))).comparisons;
    expect(joint.fitted_range).toEqual([expect.closeTo(0.2, 10), expect.closeTo(14, 10)]);
  });
});

describe("properties", () => {
  const cases: [string, number, number, number][] = [
    ["higher", 1.05, 0, 0.002],
    ["lower", 0.97, 0.001, 0.004],
    ["crossing", 1, 0.02, 0.003],
    ["unclear", 1.003, 0.001, 0.02],
  ];
  test.each(cases)("scaling compute leaves verdicts alone: %s", (_, r, s, noise) => {
    const points = ladder(r, s, wiggle(noise));
    const before = compared(points);
    for (const factor of [1e-6, 0.3, 1e4]) {
      const after = compared(points.map((point) => ({ ...point, pflops_days: point.pflops_days! * factor })));
      expect(after.verdict).toBe(before.verdict);
      expect(after.claims.map((claim) => claim.judgement)).toEqual(
        before.claims.map((claim) => claim.judgement),
      );
      for (let i = 0; i < 3; i++) {
        expect(after.ratio_at[i].ratio).toBeCloseTo(before.ratio_at[i].ratio, 9);
        expect(after.ratio_at[i].interval[1]).toBeCloseTo(before.ratio_at[i].interval[1], 9);
      }
      expect(after.ratio_law.exponent).toBeCloseTo(before.ratio_law.exponent, 9);
      if (before.crossing) {
        expect(after.crossing!.pflops_days / factor).toBeCloseTo(before.crossing.pflops_days, 8);
      } else expect(after.crossing).toBeNull();
    }
  });

  test.each(cases)("swapping the attentions mirrors the verdict: %s", (_, r, s, noise) => {
    const points = ladder(r, s, wiggle(noise));
    const swapped = points.map((point) => ({
      ...point,
      attention: point.attention === "full" ? "moba" : "full",
    }));
    const [a, b] = [compared(points), compared(swapped)];
    const mirror = { "other higher": "other lower", "other lower": "other higher" } as Record<string, string>;
    expect(b.verdict).toBe(mirror[a.verdict] ?? a.verdict);
    for (let i = 0; i < 3; i++) expect(a.ratio_at[i].ratio * b.ratio_at[i].ratio).toBeCloseTo(1, 10);
    const same = (c: typeof a) => c.claims.find((claim) => claim.claim === "the same")!.judgement;
    expect(same(b)).toBe(same(a));
  });
});

describe("without each of its sizes", () => {
  const hinge = ladder(1.05, 0, wiggle(0.01));

  test("a comparison is what the table without that size would have given", () => {
    const { without, verdict } = compared(hinge);
    expect(verdict).toBe("other higher");
    expect(without!.map(({ model }) => model)).toEqual(["m0", "m1", "m2", "m3", "m4"]);
    for (const { model, ...left } of without!) {
      const [found] = fitCurves(hinge.filter((point) => point.model !== model)).comparisons;
      const { pflops_days, ratio, interval } = found.ratio_at[1];
      expect(left).toEqual({ pflops_days, ratio, interval, verdict: found.verdict, holds: true });
    }
  });

  test("a verdict hangs on a size whose line alone moves it, which is said behind it", () => {
    const words = (points: CurvePoint[]) => fitCurves(points).reading.join("\n");
    expect(words(hinge)).toContain("by 6ND: MoBA higher over the whole range.\n");
    // The second is 4 % above the others' line, so the first holds the line up at its end.
    const high = [-0.002, 0.04, 0.003, 0.005, -0.001];
    const pulled = ladder(1.05, 0, (i) => [0, high[i]]);
    const { verdict, without } = compared(pulled);
    expect(verdict).toBe("other higher");
    expect(without!.flatMap(({ model, holds }) => (holds ? [] : model))).toEqual(["m0"]);
    expect(words(pulled)).toContain(
      "by 6ND: MoBA higher over the whole range; it does not hold without m0.\n",
    );
    expect(words(pulled)).toContain(
      "with the interval of all sizes around it the verdict does not hold without m0, and by",
    );
    expect(words(hinge)).toMatch(
      /^Without any one size the ratio of MoBA to full attention at the mean budget by 6ND lies between 1\.048 and 1\.055, its interval above 1 each time; with the interval of all sizes around it the verdict holds each time, and by the intervals of one size fewer it is "not distinguishable over the whole range" without m0, m2, m3 or m4\.$/m,
    );
    const open = words(ladder(1.05, 0, wiggle(0.018)));
    expect(open).toContain(
      'its interval above 1 only without m1; by the intervals of one size fewer it is "MoBA higher over the whole range" without m1.',
    );
    const firm = words(ladder(1.05, 0, wiggle(0.002)));
    expect(firm).toMatch(
      /^Without any one size .*, its interval above 1 each time; with the interval of all sizes around it the verdict holds each time\.$/m,
    );
    expect(words(ladder(1.05, 0))).toContain("by 6ND is 1.050, its interval above 1 each time");
    const same = words(ladder(1, 0, wiggle(0.01)));
    expect(same).toMatch(
      /^Without any one size .*, its interval holding 1 each time; the verdict is the same each time\.$/m,
    );
  });

  test("only the headline bucket's, and not where fewer than 3 would be left", () => {
    const buckets = [0, 1024].flatMap((start) =>
      hinge.map((point) => ({ ...point, position_start: start, position_end: start + 1024 })),
    );
    const { comparisons } = fitCurves(buckets);
    expect(comparisons.map(({ without }) => without?.length)).toEqual([undefined, 5]);
    expect(compared(ladder(1.05, 0).slice(0, 6))).not.toHaveProperty("without");
  });
});

describe("baseline and pairs", () => {
  const renamed = (points: CurvePoint[]) =>
    points.map((point) => ({ ...point, attention: point.attention === "full" ? "window" : point.attention }));

  test("without full, the baseline must be named", () => {
    const points = renamed(ladder(1.05, 0, wiggle(0.002)));
    const unnamed = fitCurves(points);
    expect(unnamed.comparisons).toEqual([]);
    const short =
      "Nothing is compared, because no baseline is named and none of the attentions is full: name one ";
    expect(unnamed.reading[0]).toBe(`${short}with --baseline (window, moba).`);
    expect(compared(points, { baseline: "moba" })).toMatchObject({ other: "window", verdict: "other lower" });
    expect(() => fitCurves(points, { baseline: "sink" })).toThrow(/baseline "sink" is no attention/);
    const { warnings, comparisons } = fitCurves(ladder(1.05, 0), { baseline: "moba" });
    expect(warnings[0]).toBe(
      "baseline moba was not used: full is the baseline of every table that has it; to compare with moba, fit a table " +
        "without full",
    );
    expect(comparisons.map(({ baseline }) => baseline)).toEqual(["full"]);
  });

  test("seeds pair with themselves and are averaged; a lone seed is left out", () => {
    const points = BUDGETS.flatMap((budget, i) =>
      [1, 2].flatMap((seed) => {
        const loss = (2 + 0.1 * seed) * budget ** -0.08;
        return [
          end("full", `m${i}`, budget, loss, { seed }),
          ...(i === 2 && seed === 2 ? [] : [end("moba", `m${i}`, budget, loss * 1.03, { seed })]),
        ];
      }),
    );
    const { laws, comparisons, warnings } = fitCurves(points);
    const law = laws[0];
    if (law.form === "parametric") throw new Error("form");
    expect(law.points.map((point) => point.seeds)).toEqual([2, 2, 2, 2, 2]);
    expect(law.points[0].lm_loss).toBeCloseTo(2.15 * 0.1 ** -0.08, 12);
    expect(comparisons[0].ratio_law.pairs).toBe(5);
    expect(comparisons[0].ratio_law.degrees_of_freedom).toBe(3);
    // Were the lone seed's loss averaged in, the ratio of that size would be off 1.03.
    for (const { ratio } of comparisons[0].ratio_at) expect(ratio).toBeCloseTo(1.03, 12);
    expect(warnings.join()).toMatch(/for want of a run of the same model and seed: full m2 seed 2/);
  });

  test("too few pairs make no comparison, and say so", () => {
    const { comparisons, warnings, laws } = fitCurves(ladder(1.05, 0).slice(0, 4));
    expect(laws).toEqual([]);
    expect(comparisons).toEqual([]);
    expect(warnings.join()).toMatch(/no law for full, moba by 6ND: 2 sizes/);
    expect(warnings.join()).toMatch(/no comparison of moba with full by 6ND: 2 sizes in both/);
    const oneBudget = ladder(1.05, 0).map((point, i) => ({ ...point, pflops_days: 1 + i * 1e-15 }));
    expect(fitCurves(oneBudget)).toMatchObject({ laws: [], comparisons: [] });
  });
});
