/** Forms beside the power law, and what the runs say beside the form. Figures "by scipy": least_squares and brentq on the profile. */
import { describe, expect, test } from "vitest";
import { InputError } from "../../src/errors.ts";
import { type CurvePoint, fit as fitCurves, type PowerLaw, predict } from "../../src/fit/index.ts";
import { end, normals } from "./made.ts";

function powerLaw(points: readonly CurvePoint[], options: Parameters<typeof fitCurves>[1]): PowerLaw {
  const [law] = fitCurves(points, options).laws;
  if (law.form === "parametric") throw new Error("form");
  return law;
}

const ladder = (budgets: readonly number[], loss: (budget: number, i: number) => number) =>
  budgets.map((budget, i) => end("full", `m${i}`, budget, loss(budget, i)));

describe("floored", () => {
  const losses = [3.8989, 3.3451, 2.9646, 2.6529, 2.3957, 2.2127, 2.0384, 1.9388];
  const law = powerLaw(
    ladder([0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30], (_, i) => losses[i]),
    { form: "floored" },
  );

  test("intervals follow the profile, by scipy to 1 % of their width", () => {
    const close = ([low, high]: readonly number[], expected: readonly [number, number]) => {
      const width = expected[1] - expected[0];
      expect(Math.abs(low - expected[0]) / width).toBeLessThan(0.01);
      expect(Math.abs(high - expected[1]) / width).toBeLessThan(0.01);
    };
    close(law.exponent_interval, [-0.23843342552, -0.19263783189]);
    close(law.floor_interval!, [1.39444951476, 1.61417106565]);
    close(law.coefficient_interval.map(Math.log), [-0.26706352349, 0.00966764085]);
    close(law.projection.prediction_interval, [1.71985211524, 1.82244036078]);
    close(predict(law, 300).interval, [1.72750520955, 1.813527995247]);
    expect(law.projection.loss).toBeCloseTo(1.77137513811, 6);
  });

  test("an exponent that the sizes leave open has an open interval", () => {
    const normal = normals(5);
    const flat = ladder(
      [0.1, 0.2, 0.4, 0.8, 1.6, 3.2],
      (c) => (2 + 0.02 * c ** -0.3) * Math.exp(0.02 * normal()),
    );
    const open = powerLaw(flat, { form: "floored" });
    expect(Math.max(...open.exponent_interval.map(Math.abs))).toBe(Number.MAX_VALUE);
    expect(open.converged).toBe(false);
  });
});

describe("broken", () => {
  const budgets = [0.01, 0.02, 0.05, 0.1, 0.3, 1, 3, 10, 30, 100];
  const losses = [3.4798, 3.1886, 2.8712, 2.6381, 2.3071, 2.1073, 1.9854, 1.8745, 1.7669, 1.6681];
  const points = ladder(budgets, (_, i) => losses[i]);
  const law = powerLaw(points, { form: "broken" });

  test("the best fit and its intervals, by scipy", () => {
    expect(law.objective).toBeCloseTo(3.5790997112e-5, 12);
    expect(law.exponent).toBeCloseTo(-0.12051865, 6);
    expect(law.break!.pflops_days).toBeCloseTo(0.473520642, 5);
    expect(law.break!.exponent_after).toBeCloseTo(-0.12051865 + 0.06990572, 6);
    expect(law.break!.located).toBe(true);
    expect(law.exponent_interval[0]).toBeCloseTo(-0.12292138514, 4);
    expect(law.exponent_interval[1]).toBeCloseTo(-0.11816695458, 4);
    expect(Math.log(law.break!.interval[0])).toBeCloseTo(-0.87331874, 3);
    expect(Math.log(law.break!.interval[1])).toBeCloseTo(-0.62286567, 3);
  });

  test("says so in words, and asks for 7 budgets", () => {
    expect(fitCurves(points, { form: "broken" }).reading[0]).toMatch(
      /^At all positions, the loss of full attention follows C\^-0.1205 .* up to 0.474 PFLOP\/s-days .* and C\^-0.0506/,
    );
    expect(() => fitCurves(points.slice(0, 6), { form: "broken" })).toThrow(InputError);
    expect(() => fitCurves(points.slice(0, 6), { form: "broken" })).toThrow(
      /6 distinct budgets .* at least 7/,
    );
  });

  test("a straight line has no located break", () => {
    const normal = normals(8);
    const straight = powerLaw(
      ladder(budgets, (c) => 2 * c ** -0.1 * Math.exp(0.004 * normal())),
      { form: "broken" },
    );
    expect(straight.break!.located).toBe(false);
  });

  test("auto takes the form that predicts the largest size best", () => {
    expect(powerLaw(points, { form: "auto" }).form).toBe("broken");
    const exact = ladder(budgets, (c) => 1.5 + 0.9 * c ** -0.2);
    const result = fitCurves(exact, { form: "auto" });
    expect(result.laws[0].form).toBe("floored");
    expect(result.forms!.map(({ form }) => form)).toEqual(["floored", "broken", "power"]);
    expect(result.forms![0].holdout_error).toBeLessThan(1e-6);
    expect(result.reading.join(" ")).toMatch(
      /best predicted from the others by form floored \(0.00 % off\), then/,
    );
    expect(powerLaw(exact.slice(0, 5), { form: "auto" }).form).toBe("power");
  });
});

/** Runs on `L(N, D) = 1.7 + 400 N^-alpha + 410 D^-beta`, each of one size at one budget. */
function isoflop(alpha: number, beta: number, around: (budget: number) => number): CurvePoint[] {
  return [1e18, 4e18, 1.6e19, 6.4e19].flatMap((operations) => {
    const budget = operations / 8.64e19;
    return [-3, -2, -1, 0, 1, 2, 3].map((k) => {
      const N = around(operations) * 1.5 ** k;
      const D = operations / (6 * N);
      const loss = 1.7 + 400 * N ** -alpha + 410 * D ** -beta;
      return end("full", `${N.toPrecision(3)}`, budget, loss, {
        parameters: N,
        tokens: D,
        run: `${operations} ${k}`,
      });
    });
  });
}

describe("compute-optimal size", () => {
  /** Hoffmann et al., equation 4. */
  const best = (alpha: number, beta: number) => (operations: number) =>
    ((alpha * 400) / (beta * 410)) ** (1 / (alpha + beta)) * (operations / 6) ** (beta / (alpha + beta));

  test("parabolas are exact on a symmetric surface, the direct fit on any", () => {
    const even = powerLaw(isoflop(0.3, 0.3, best(0.3, 0.3)), { form: "isoflop" });
    const [quadratic, direct] = even.optimal_size!;
    expect(quadratic.method).toBe("quadratic");
    expect(quadratic.parameters.exponent).toBeCloseTo(0.5, 8);
    expect(quadratic.parameters.coefficient / best(0.3, 0.3)(8.64e19)).toBeCloseTo(1, 6);
    expect(direct.parameters.exponent).toBeCloseTo(0.5, 4);
    expect(even.points.length).toBe(4);

    // On an uneven surface sampled off its optimum, parabolas lean (the reason for the direct fit).
    const uneven = powerLaw(
      isoflop(0.34, 0.28, (c) => 1.6 * best(0.34, 0.28)(c)),
      { form: "isoflop" },
    );
    const truth = 0.28 / 0.62;
    expect(uneven.optimal_size![1].parameters.exponent).toBeCloseTo(truth, 4);
    expect(uneven.optimal_size![1].tokens.exponent).toBeCloseTo(1 - truth, 4);
    const lean = Math.abs(uneven.optimal_size![0].parameters.coefficient / best(0.34, 0.28)(8.64e19) - 1);
    expect(lean).toBeGreaterThan(0.002);
    expect(lean).toBeLessThan(0.05);
  });

  test("budgets without a lowest loss inside are left out, and said", () => {
    const points = isoflop(0.3, 0.3, best(0.3, 0.3));
    const cut = points.filter(({ pflops_days, parameters }) =>
      pflops_days! < 0.5 ? true : parameters! < best(0.3, 0.3)(6.4e19) / 2,
    );
    expect(fitCurves(cut, { form: "isoflop" }).warnings.join("\n")).toMatch(
      /budgets left out of the IsoFLOP law of full at all positions: 0.741 \((no lowest loss|fewer than 3)/,
    );
    expect(() => fitCurves(points.slice(0, 14), { form: "isoflop" })).toThrow(/has 2 budgets .* needs 3/);
    const bare = points.map((point) => ({ ...point, parameters: undefined }));
    expect(() => fitCurves(bare, { form: "isoflop" })).toThrow(
      /form isoflop needs each run's parameter count/,
    );
  });

  test("the lower envelope follows the surface's valley", () => {
    const [alpha, beta] = [0.34, 0.28];
    const curves = Array.from({ length: 12 }, (_, i) => 1e7 * 1.6 ** i).flatMap((N) =>
      Array.from({ length: 120 }, (_, k) => {
        const D = 2 * N * 1.045 ** (k + 1);
        return end(
          "full",
          N.toPrecision(3),
          (6 * N * D) / 8.64e19,
          1.7 + 400 * N ** -alpha + 410 * D ** -beta,
          {
            parameters: N,
            tokens: D,
          },
        );
      }),
    );
    const law = powerLaw(curves, { form: "envelope", window: [0.002, 0.5] });
    expect(law.window).toEqual([0.002, 0.5]);
    const { parameters, tokens } = law.optimal_size![0];
    expect(Math.abs(parameters.exponent - beta / (alpha + beta))).toBeLessThan(0.03);
    expect(parameters.exponent + tokens.exponent).toBeCloseTo(1, 9);
    const at = 0.03 * 8.64e19;
    const loss =
      1.7 + 400 * best(alpha, beta)(at) ** -alpha + 410 * (at / 6 / best(alpha, beta)(at)) ** -beta;
    expect(predict(law, 0.03).loss / loss - 1).toBeLessThan(0.02);
    expect(law.bootstrap_interval![0]).toBeLessThan(law.exponent);
    // Exponents of envelopes differ otherwise than lines through the final losses do.
    const shrunk = curves.map((point) => ({ ...point, attention: "moba", lm_loss: point.lm_loss - 0.5 }));
    expect(fitCurves([...curves, ...shrunk], { form: "envelope", bootstrap: 0 }).reading.join("\n")).toMatch(
      /than that of full attention: by straight lines through the final losses of their pairs, the exponents differ by /,
    );
    // Another attention with one run is left out by name.
    const lone = curves.slice(0, 120).map((point) => ({ ...point, attention: "moba" }));
    const { laws, warnings } = fitCurves([...curves, ...lone], { form: "envelope", bootstrap: 0 });
    expect(laws.map(({ attention }) => attention)).toEqual(["full"]);
    expect(warnings.join("\n")).toMatch(
      /^no law: form is envelope, but 1 run forms the lower envelope of moba at all positions from .* a law needs 3$/m,
    );
    expect(() => fitCurves(curves, { form: "envelope", window: [0.0001, 0.0002] })).toThrow(
      /1 run forms the lower envelope of full at all positions from .* a law needs 3/,
    );
  });
});

describe("parametric", () => {
  test("a ladder with one number of tokens per parameter does not determine it, and that is said", () => {
    const rungs = Array.from({ length: 9 }, (_, i) => {
      const N = 1e7 * 2 ** i;
      const D = 20 * N * (1 + 0.01 * (i % 3));
      const loss = 1.7 + 400 * N ** -0.34 + 410 * D ** -0.28;
      return end("full", `m${i}`, (6 * N * D) / 8.64e19, loss, { parameters: N, tokens: D });
    });
    const said = (points: CurvePoint[]) =>
      fitCurves(points, { form: "parametric", bootstrap: 0 }).warnings.join("\n");
    expect(said(rungs)).toMatch(/sizes and token counts of full rise together/);
    expect(said(isoflop(0.3, 0.3, (c) => 0.3 * Math.sqrt(c)))).not.toMatch(/rise together/);
  });
});

describe("run bootstrap", () => {
  const budgets = Array.from({ length: 10 }, (_, i) => 0.1 * 2 ** i);
  const noisy = (seed: number, attentions: readonly string[] = ["full", "moba"]) => {
    const normal = normals(seed);
    return budgets.flatMap((budget, i) => {
      const shared = 0.02 * normal();
      return attentions.map((attention) =>
        end(attention, `m${i}`, budget, 2 * budget ** -0.08 * Math.exp(shared + 0.001 * normal())),
      );
    });
  };

  test("from 8 runs on, near the interval of the regression, the same each time", () => {
    const points = noisy(11);
    const law = powerLaw(points, {});
    const width = ([low, high]: readonly number[]) => high - low;
    expect(width(law.bootstrap_interval!) / width(law.exponent_interval)).toBeGreaterThan(0.5);
    expect(width(law.bootstrap_interval!) / width(law.exponent_interval)).toBeLessThan(1.3);
    expect(powerLaw(points, {})).toEqual(law);
    expect(powerLaw(points, { bootstrap: 0 }).bootstrap_interval).toBeUndefined();
    expect(powerLaw(points.slice(0, 14), {}).bootstrap_interval).toBeUndefined();
  });

  test("attentions are resampled in pairs: noise that they share drops out of the ratio", () => {
    const [{ ratio_law, ratio_at }] = fitCurves(noisy(12)).comparisons;
    const law = powerLaw(noisy(12), {});
    const width = ([low, high]: readonly number[]) => high - low;
    expect(width(ratio_law.bootstrap_interval!)).toBeLessThan(0.2 * width(law.bootstrap_interval!));
    expect(ratio_at.every((at) => at.bootstrap_interval![0] < at.bootstrap_interval![1])).toBe(true);
  });

  test("floored, broken, IsoFLOP and parametric laws have theirs", () => {
    const bent = noisy(13, ["full"]).map((point) => ({ ...point, lm_loss: 1.5 + 0.5 * point.lm_loss }));
    for (const form of ["floored", "broken"] as const) {
      const { exponent, bootstrap_interval } = powerLaw(bent, { form, bootstrap: 100 });
      expect(bootstrap_interval![0]).toBeLessThan(exponent);
      expect(bootstrap_interval![1]).toBeGreaterThan(exponent);
    }
    const normal = normals(14);
    const surface = isoflop(0.34, 0.28, (c) => 0.3 * Math.sqrt(c)).map((point) => ({
      ...point,
      lm_loss: point.lm_loss * Math.exp(0.001 * normal()),
    }));
    const [law] = fitCurves(surface, { form: "parametric", bootstrap: 100 }).laws;
    if (law.form !== "parametric") throw new Error("form");
    expect(law.objectives.length).toBe(16);
    expect(law.objectives[0]).toBe(law.objective);
    const { alpha, parameters_exponent } = law.bootstrap_interval!;
    expect(alpha[0]).toBeLessThan(law.alpha);
    expect(alpha[1]).toBeGreaterThan(law.alpha);
    expect(parameters_exponent[0]).toBeLessThan(law.optimal_size.parameters.exponent);
  });
});

describe("seeds", () => {
  test("the noise floor is the pooled scatter within sizes, by hand", () => {
    // Deviations of +-1 % in two sizes, one degree of freedom each: sqrt((2 * 0.01^2 + 2 * 0.01^2) / 2).
    const points = [1, 4, 16].flatMap((budget) =>
      (budget < 16 ? [-0.01, 0.01] : [0]).map((noise, seed) =>
        end("full", `m${budget}`, budget, 3 * budget ** -0.1 * Math.exp(noise), { seed }),
      ),
    );
    const law = powerLaw(points, {});
    expect(law.seed_noise).toBeCloseTo(Math.SQRT2 * 0.01, 10);
    expect(fitCurves(points).reading.join(" ")).toMatch(
      /The noise floor of full attention, the scatter between seeds of one size, is 1.41 % of the loss \(up to 2 seeds\)/,
    );
  });
});
