/** Do 95 % intervals hold the truth in 95 % of cases? Simulated with a fixed seed. */
import { expect, test } from "vitest";
import { type CurvePoint, fit as fitCurves, predict } from "../../src/fit/index.ts";
import { BUDGETS, end, normals } from "./made.ts";

const TRIALS = 1500;
/** Four standard errors of a share of 0.95. */
const SLACK = 4 * Math.sqrt((0.95 * 0.05) / TRIALS);

const holds = ([low, high]: readonly [number, number], truth: number) =>
  low <= truth && truth <= high ? 1 : 0;

/** A trial: both attentions share the noise of their pair in part. */
function trial(normal: () => number): CurvePoint[] {
  return BUDGETS.flatMap((budget, i) => {
    const shared = 0.02 * normal();
    const full = 2 * budget ** -0.08 * Math.exp(shared + 0.005 * normal());
    const moba = 2.03 * budget ** -0.075 * Math.exp(shared + 0.005 * normal());
    // By attended compute the saving shrinks with size.
    const saving = 1.6 - 0.1 * i;
    return [
      end("full", `m${i}`, budget, full, { pflops_days_attended: budget * saving }),
      end("moba", `m${i}`, budget, moba, { pflops_days_attended: budget }),
    ];
  });
}

test("power law exponent, mean loss, projection, ratio, multiplier and crossing", () => {
  const normal = normals(20250218);
  const held = { exponent: 0, mean: 0, projection: 0, ratio: 0, far: 0, multiplier: 0 };
  for (let i = 0; i < TRIALS; i++) {
    const { laws, comparisons } = fitCurves(
      trial(normal).map((p) => ({ ...p, pflops_days_attended: undefined })),
    );
    const law = laws[0];
    if (law.form === "parametric") throw new Error("form");
    held.exponent += holds(law.exponent_interval, -0.08);
    const { pflops_days, interval } = law.loss_at_mean_budget;
    held.mean += holds(interval, 2 * pflops_days ** -0.08);
    const unseen = 2 * 100 ** -0.08 * Math.exp(Math.sqrt(0.02 ** 2 + 0.005 ** 2) * normal());
    held.projection += holds(predict(law, 100).prediction_interval, unseen);
    const [{ ratio_at, multiplier_at }] = comparisons;
    held.ratio += holds(ratio_at[1].interval, 1.015 * ratio_at[1].pflops_days ** 0.005);
    held.far += holds(ratio_at[2].interval, 1.015 * ratio_at[2].pflops_days ** 0.005);
    // Equal loss: 2.03 (m C)^-0.075 = 2 C^-0.08.
    const at = multiplier_at[1];
    held.multiplier += at ? holds(at.interval, (1.015 * at.pflops_days ** 0.005) ** (1 / 0.075)) : 1;
  }
  for (const count of Object.values(held)) expect(Math.abs(count / TRIALS - 0.95)).toBeLessThan(SLACK);
});

test("the ratio by attended compute, where the budgets of a pair differ", () => {
  const normal = normals(77);
  let middle = 0;
  let largest = 0;
  // Truth: laws in attended compute, so the losses are drawn from them at each run's own budget.
  const made = () =>
    trial(normal).map((point) => ({
      ...point,
      lm_loss: point.lm_loss * (point.pflops_days_attended! / point.pflops_days!) ** -0.08,
    }));
  for (let i = 0; i < TRIALS; i++) {
    const joint = fitCurves(made()).comparisons.find((c) => c.convention === "attended")!;
    expect(joint.ratio_law.method).toBe("joint");
    const truth = (c: number) => 1.015 * c ** 0.005;
    middle += holds(joint.ratio_at[1].interval, truth(joint.ratio_at[1].pflops_days));
    largest += holds(joint.ratio_at[2].interval, truth(joint.ratio_at[2].pflops_days));
  }
  // The covariance of the pairs is estimated, so coverage is only near 95 % here.
  expect(middle / TRIALS).toBeGreaterThan(0.92);
  expect(largest / TRIALS).toBeGreaterThan(0.92);
});
