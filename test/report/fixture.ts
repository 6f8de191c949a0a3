/** A small study made by formula, and a plain least-squares fit of it that knows nothing of src/fit. */
import type { Comparison, CurvePoint, FitResult, Interval, PowerLaw } from "../../src/fit/types.ts";

/** Laws by plain regression through each run's last point; one comparison per bucket with wide intervals. */
export function plainFit(points: readonly CurvePoint[]): FitResult {
  const groups = new Map<string, Map<string, CurvePoint>>();
  for (const p of points) {
    const key = JSON.stringify([p.position_start, p.position_end, p.attention]);
    const models = groups.get(key) ?? new Map<string, CurvePoint>();
    groups.set(key, models);
    models.set(p.model, p);
  }
  const laws: PowerLaw[] = [];
  for (const [key, models] of groups) {
    const [position_start, position_end, attention] = JSON.parse(key);
    const finals = [...models.values()].sort((a, b) => a.pflops_days! - b.pflops_days!);
    if (finals.length < 2) continue;
    const x = finals.map((p) => Math.log(p.pflops_days!));
    const y = finals.map((p) => Math.log(p.lm_loss));
    const mx = x.reduce((a, b) => a + b) / x.length;
    const my = y.reduce((a, b) => a + b) / y.length;
    const exponent =
      x.reduce((s, v, i) => s + (v - mx) * (y[i]! - my), 0) / x.reduce((s, v) => s + (v - mx) ** 2, 0);
    const coefficient = Math.exp(my - exponent * mx);
    laws.push({
      convention: "6ND",
      attention,
      position_start,
      position_end,
      form: "power",
      coefficient,
      exponent,
      coefficient_interval: [coefficient * 0.98, coefficient * 1.02],
      exponent_interval: [exponent - 0.01, exponent + 0.01],
      loss_at_mean_budget: {
        pflops_days: Math.exp(mx),
        loss: Math.exp(my),
        interval: [Math.exp(my) * 0.99, Math.exp(my) * 1.01],
      },
      points: finals.map((p) => ({
        model: p.model,
        pflops_days: p.pflops_days!,
        lm_loss: p.lm_loss,
        seeds: 1,
      })),
      objective: 1e-4,
      converged: true,
    });
  }
  const comparisons: Comparison[] = [];
  for (const full of laws.filter((law) => law.attention === "full")) {
    for (const other of laws) {
      if (other.attention === "full" || other.position_start !== full.position_start) continue;
      const range: Interval = [full.points[0]!.pflops_days, full.points.at(-1)!.pflops_days];
      const ratio = other.coefficient / full.coefficient;
      const exponent = other.exponent - full.exponent;
      const at = (c: number) => ratio * c ** exponent;
      const budgets = [range[0], full.loss_at_mean_budget.pflops_days, range[1]];
      const crossing = ratio ** (-1 / exponent);
      comparisons.push({
        convention: "6ND",
        position_start: full.position_start,
        position_end: full.position_end,
        baseline: "full",
        other: other.attention,
        ratio_law: {
          ratio,
          exponent,
          ratio_interval: [ratio - 0.01, ratio + 0.01],
          exponent_interval: [exponent - 0.01, exponent + 0.01],
          method: "paired",
          pairs: full.points.length,
          degrees_of_freedom: full.points.length - 2,
        },
        ratio_at: budgets.map((c) => ({
          pflops_days: c,
          ratio: at(c),
          interval: [at(c) - 0.01, at(c) + 0.01],
        })),
        multiplier_at: budgets.map((c) => {
          const m = at(c) ** (-1 / other.exponent);
          return { pflops_days: c, multiplier: m, interval: [m * 0.9, m * 1.1] as Interval };
        }),
        crossing:
          crossing > range[0] && crossing < range[1]
            ? { pflops_days: crossing, interval: [crossing / 2, crossing * 2], inside_data: true }
            : null,
        differs_between: null,
        fitted_range: range,
        verdict: "not distinguishable over the whole range",
        claims: (["cross", "never cross", "lower throughout", "the same"] as const).map((claim) => ({
          claim,
          judgement: "undecided",
          because: `the ratio at the mean budget is ${at(budgets[1]!).toFixed(3)}`,
        })),
      });
    }
  }
  return {
    laws,
    comparisons,
    warnings: ["Fewer than 6 sizes."],
    reading: ["Loss falls with compute.", "The two exponents cannot be told apart."],
  };
}

export interface StudyShape {
  readonly attentions?: readonly string[];
  readonly models?: readonly string[];
  readonly buckets?: number;
  readonly context?: number;
  /** Compute at the end of the smallest run; each size trebles it. */
  readonly smallest?: number;
}

/** Curves `L = 1.2 * (C / C_end)^-0.2` down to a final loss that follows `L = 3 (C / smallest)^-0.05`, rising by attention and falling by position. */
export function madeUpCurves(shape: StudyShape = {}): CurvePoint[] {
  const { attentions = ["full", "moba-b128-k4"], models = ["d2", "d3", "d4", "d5"] } = shape;
  const { buckets = 4, context = 2048, smallest = 1e-9 } = shape;
  const points: CurvePoint[] = [];
  for (const [a, attention] of attentions.entries()) {
    for (const [m, model] of models.entries()) {
      const end = smallest * 3 ** m;
      for (let b = 0; b < buckets; b++) {
        const final = 3 * 3 ** (-0.05 * m) * (1 + 0.004 * a * (b - 1)) * (1 - 0.02 * b);
        for (let step = 1; step <= 24; step++) {
          const share = (step / 24) ** 2;
          points.push({
            attention,
            model,
            position_start: (context / buckets) * b,
            position_end: (context / buckets) * (b + 1),
            pflops_days: end * share,
            pflops_days_attended: end * share * (attention === "full" ? 2 : 1.4),
            lm_loss: Math.min(5.54, final * share ** -0.12),
            seed: 1,
            run: `${attention}-${model}-s1`,
            step,
            tokens: Math.round(1e6 * 3 ** m * share),
            parameters: 1e5 * 2 ** m,
            split: "held-out",
          });
        }
      }
    }
  }
  return points;
}
