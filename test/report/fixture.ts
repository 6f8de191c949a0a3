/** A small study made by formula. */
import type { CurvePoint } from "../../src/fit/types.ts";

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
