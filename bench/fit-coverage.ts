/**
 * How often the 95 % intervals of a fit hold the truth: simulated studies with known laws, at three noise levels, with
 * independent and with correlated arms. Prints a table and writes bench/results/fit-coverage_<cpu>_<date>.json.
 *
 *   npm --prefix bench run fit-coverage [-- --trials 4000 --seed 20250218]
 */
import { parseArgs } from "node:util";
import { SCENARIOS, simulate } from "../test/fit/simulate.ts";
import { writeResult } from "./results.ts";

const { values } = parseArgs({
  options: { trials: { type: "string", default: "4000" }, seed: { type: "string", default: "20250218" } },
});
const trials = Number(values.trials);
const rows = SCENARIOS.map((scenario, i) => {
  const coverage = simulate(scenario, trials, Number(values.seed) + i);
  const shares = Object.entries(coverage.share).map(([name, share]) => `${name} ${(100 * share).toFixed(1)}`);
  console.log(
    `${scenario.laws}, noise ${100 * scenario.noise} %, correlation ${scenario.correlation}: ${shares.join(", ")}`,
  );
  return coverage;
});
const all = rows.flatMap((row) => Object.values(row.share));
console.log(`from ${(100 * Math.min(...all)).toFixed(1)} % to ${(100 * Math.max(...all)).toFixed(1)} %`);
writeResult("fit-coverage", { trials, seed: Number(values.seed), rows });
