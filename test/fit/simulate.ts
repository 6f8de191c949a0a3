/**
 * Simulated studies with known laws: how often the 95 % intervals of a fit hold the truth. Used by the coverage test
 * and, at full size, by bench/fit-coverage.ts.
 */
import { type CurvePoint, fit as fitCurves, predict } from "../../src/fit/index.ts";
import { end, normals } from "./made.ts";

/** `L = floor + coefficient C^exponent`, the exponent another from a break on. */
interface TrueLaw {
  readonly floor: number;
  readonly coefficient: number;
  readonly exponent: number;
  readonly break?: { readonly pflops_days: number; readonly change: number };
}

type Kind = "power" | "attended" | "floored" | "broken";

interface Study {
  readonly budgets: readonly number[];
  /** How many times MoBA's compute full attention takes, by attended compute; absent where both take the same. */
  readonly saving?: (size: number) => number;
  readonly full: TrueLaw;
  readonly moba: TrueLaw;
}

const BROKEN = { floor: 0, coefficient: 2, exponent: -0.12, break: { pflops_days: 0.5, change: 0.04 } };
const STRAIGHT = {
  budgets: [0.1, 0.3, 1, 3, 10],
  full: { floor: 0, coefficient: 2, exponent: -0.08 },
  moba: { floor: 0, coefficient: 2.03, exponent: -0.075 },
};
const STUDIES: Record<Kind, Study> = {
  power: STRAIGHT,
  attended: { ...STRAIGHT, saving: (size) => 1.6 - 0.1 * size },
  floored: {
    budgets: [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
    full: { floor: 1.5, coefficient: 0.9, exponent: -0.21 },
    moba: { floor: 1.52, coefficient: 0.93, exponent: -0.2 },
  },
  broken: { budgets: [0.01, 0.02, 0.05, 0.1, 0.3, 1, 3, 10, 30, 100], full: BROKEN, moba: BROKEN },
};

export interface Scenario {
  /**
   * Straight laws of 5 sizes, the same by attended compute (the budgets of a pair then differ), floored ones of 8, and
   * broken ones of 10, which are not compared.
   */
  readonly laws: Kind;
  /** Standard deviation of the log of a run's final loss. */
  readonly noise: number;
  /** Correlation of the two runs of a pair. */
  readonly correlation: number;
}

export const SCENARIOS: readonly Scenario[] = (["power", "attended", "floored", "broken"] as const).flatMap(
  (laws) =>
    [0.001, 0.005, 0.02].flatMap((noise) =>
      (laws === "broken" ? [0] : [0, 0.9]).map((correlation) => ({ laws, noise, correlation })),
    ),
);

export interface Coverage extends Scenario {
  readonly trials: number;
  /** Share of the trials whose interval holds the truth, by quantity. */
  readonly share: Record<string, number>;
  /** Share of the trials in which the multiplier's set is not bounded: it holds the truth, and says little. */
  readonly unboundedMultiplier: number;
}

function lossOf({ floor, coefficient, exponent, break: turn }: TrueLaw, c: number): number {
  // The turn is rounded as in src/fit/broken.ts.
  const past = turn ? (1 + (c / turn.pflops_days) ** 5) ** (turn.change / 5) : 1;
  return floor + coefficient * c ** exponent * past;
}
const budgetOf = ({ floor, coefficient, exponent }: TrueLaw, loss: number) =>
  ((loss - floor) / coefficient) ** (1 / exponent);

export function simulate(scenario: Scenario, trials: number, seed: number): Coverage {
  const { budgets, saving, full, moba } = STUDIES[scenario.laws];
  const convention = saving ? "attended" : "6ND";
  const { noise, correlation } = scenario;
  const normal = normals(seed);
  const held = new Map<string, number>();
  const count = (name: string, [low, high]: readonly [number, number], truth: number) =>
    held.set(name, (held.get(name) ?? 0) + (low <= truth && truth <= high ? 1 : 0));
  const pair = () => {
    const shared = Math.sqrt(correlation) * normal();
    const own = () => Math.exp(noise * (shared + Math.sqrt(1 - correlation) * normal()));
    return [own(), own()];
  };
  let unbounded = 0;
  for (let trial = 0; trial < trials; trial++) {
    const points: CurvePoint[] = budgets.flatMap((budget, i) => {
      const [f, m] = pair();
      const own = budget * (saving?.(i) ?? 1);
      const attended = (value: number) => (saving ? { pflops_days_attended: value } : {});
      return [
        end("full", `m${i}`, budget, lossOf(full, own) * f, attended(own)),
        end("moba", `m${i}`, budget, lossOf(moba, budget) * m, attended(budget)),
      ];
    });
    const form = scenario.laws === "attended" ? "power" : scenario.laws;
    const result = fitCurves(points, { form, bootstrap: 0 });
    const laws = result.laws.filter((one) => one.convention === convention);
    const comparisons = result.comparisons.filter((one) => one.convention === convention);
    const law = laws[0];
    if (law.form === "parametric") throw new Error("form");
    count("exponent", law.exponent_interval, full.exponent);
    if (law.break && full.break) {
      count("exponent after", law.break.exponent_after_interval, full.exponent + full.break.change);
      count("break", law.break.interval, full.break.pflops_days);
    }
    if (law.floor_interval) count("floor", law.floor_interval, full.floor);
    const { pflops_days, interval } = law.loss_at_mean_budget;
    count("loss at the mean budget", interval, lossOf(full, pflops_days));
    const far = law.projection.pflops_days;
    count("projection", predict(law, far).interval, lossOf(full, far));
    count("new run at 10 x", law.projection.prediction_interval, lossOf(full, far) * pair()[0]);
    if (form === "broken") continue;
    const [{ ratio_at, multiplier_at }] = comparisons;
    for (const [i, name] of ["smallest", "mean", "largest"].entries()) {
      const at = ratio_at[i];
      count(`ratio, ${name}`, at.interval, lossOf(moba, at.pflops_days) / lossOf(full, at.pflops_days));
      const c = at.pflops_days;
      const truth = budgetOf(moba, lossOf(full, c)) / c;
      const multiplier = multiplier_at.find((entry) => entry.pflops_days === c);
      if (multiplier === undefined && name === "mean") unbounded++;
      count(`multiplier, ${name}`, multiplier?.interval ?? [0, Infinity], truth);
    }
  }
  return {
    ...scenario,
    trials,
    share: Object.fromEntries([...held].map(([name, hits]) => [name, hits / trials])),
    unboundedMultiplier: unbounded / trials,
  };
}
