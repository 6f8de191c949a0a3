/** Do 95 % intervals hold the truth in 95 % of cases? Simulated with a fixed seed; bench/fit-coverage.ts is the full study. */
import { expect, test } from "vitest";
import { SCENARIOS, simulate } from "./simulate.ts";

const TRIALS = { power: 1500, attended: 600, floored: 300, broken: 300 };
/** 95 %, as wide a band about it as 93 to 97 % in the full study, and four standard errors of so few trials. */
const slack = (trials: number) => Math.max(0.02, 4 * Math.sqrt((0.95 * 0.05) / trials));

// The noise scales the draws and little else where laws are straight: its middle level stands for all.
const chosen = SCENARIOS.filter(({ laws, noise }) => noise === (laws === "floored" ? 0.02 : 0.005));

test.each(chosen)("$laws laws, noise $noise, arms correlated by $correlation", (scenario) => {
  const trials = TRIALS[scenario.laws];
  const { share, unboundedMultiplier } = simulate(scenario, trials, 20250218);
  expect(Object.keys(share).length).toBeGreaterThanOrEqual(6);
  for (const [name, held] of Object.entries(share)) {
    expect(Math.abs(held - 0.95), `${name}: ${held}`).toBeLessThan(slack(trials));
  }
  expect(unboundedMultiplier).toBeLessThan(0.05);
});
