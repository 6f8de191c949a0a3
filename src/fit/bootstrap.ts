/**
 * Percentile intervals from resampled runs (never points of one run). The draws are the same for every law with the
 * same number of runs, so that attentions and buckets are resampled together.
 */
import { bestBroken } from "./broken.ts";
import { bestFloored } from "./floored.ts";
import { envelopeOf, isoflopOptima } from "./optimum.ts";
import { refitParametric } from "./parametric.ts";
import { budgetOf, type FinalPoint, type RunCurve, type RunPair, sameBudget } from "./points.ts";
import { fitLine, valueAt } from "./regression.ts";
import type { Comparison, Interval, ParametricLaw, PowerLaw } from "./types.ts";

/** With fewer runs the percentile interval covers too little: about 90 % with 5, 65 % with 3. */
export const RUNS_TO_RESAMPLE = 8;
const SEED = 20250218;

const drawn = new Map<string, Uint16Array[]>();

/** Indices of runs, `n` for each of `resamples`: a 32-bit xorshift from a fixed seed. */
function draws(n: number, resamples: number): Uint16Array[] {
  const key = `${n} ${resamples}`;
  let found = drawn.get(key);
  if (found) return found;
  let state = SEED;
  const index = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return Math.floor(((state >>> 0) / 2 ** 32) * n);
  };
  found = Array.from({ length: resamples }, () => Uint16Array.from({ length: n }, index));
  drawn.set(key, found);
  return found;
}

/** The 2.5 % and 97.5 % points of sorted values. */
function percentiles(sorted: Float64Array): Interval {
  const at = (share: number) => {
    const position = share * (sorted.length - 1);
    const i = Math.floor(position);
    const next = sorted[Math.min(i + 1, sorted.length - 1)];
    return sorted[i] + (position - i) * (next - sorted[i]);
  };
  return [at(0.025), at(0.975)];
}

/**
 * Intervals of several statistics of `n` runs, or null for fewer than 8. `statistic` gets the indices of a resample
 * and returns null where it is not defined (one budget drawn n times); null as well when that is so in one of ten.
 */
function bootstrap(
  n: number,
  resamples: number,
  statistic: (runs: Uint16Array) => readonly number[] | null,
): Interval[] | null {
  if (n < RUNS_TO_RESAMPLE || resamples === 0) return null;
  const values: number[][] = [];
  for (const runs of draws(n, resamples)) {
    const value = statistic(runs);
    if (value?.every(Number.isFinite)) values.push([...value]);
  }
  if (values.length < 0.9 * resamples) return null;
  return values[0].map((_, i) => percentiles(Float64Array.from(values, (row) => row[i]).sort()));
}

/** A line through the drawn cases, or null when they share one budget. */
function drawnLine(x: readonly number[], y: readonly number[], runs: Uint16Array) {
  if (runs.every((run) => sameBudget(Math.exp(x[run]), Math.exp(x[runs[0]])))) return null;
  return fitLine(
    Array.from(runs, (run) => x[run]),
    Array.from(runs, (run) => y[run]),
  );
}

/** The exponent's interval of a law, from its runs. */
export function bootstrapLaw(
  law: PowerLaw,
  finals: readonly FinalPoint[],
  curves: readonly RunCurve[],
  resamples: number,
): Interval | undefined {
  const known = finals.filter((final) => (budgetOf(final, law.convention) ?? 0) > 0);
  const ends = known.map((final) => ({
    pflops_days: budgetOf(final, law.convention)!,
    lm_loss: final.lm_loss,
  }));
  const x = ends.map((end) => Math.log(end.pflops_days));
  const y = ends.map((end) => Math.log(end.lm_loss));
  const lineThrough = (points: readonly { readonly pflops_days: number; readonly lm_loss: number }[]) =>
    points.length < 3
      ? null
      : [
          fitLine(
            points.map((p) => Math.log(p.pflops_days)),
            points.map((p) => Math.log(p.lm_loss)),
          ).slope,
        ];
  const distinct = (runs: Uint16Array) => new Set(Array.from(runs, (run) => x[run])).size;
  let statistic: (runs: Uint16Array) => readonly number[] | null;
  let n = known.length;
  if (law.form === "envelope") {
    const envelope = envelopeOf(curves, law.window!);
    n = curves.length;
    statistic = (runs) => lineThrough(envelope(runs).map(({ point }) => point));
  } else if (law.form === "isoflop") {
    statistic = (runs) =>
      lineThrough(isoflopOptima(Array.from(runs, (run) => known[run])).optima.map(({ point }) => point));
  } else if (law.form === "floored") {
    statistic = (runs) =>
      distinct(runs) < 4 ? null : [bestFloored(Array.from(runs, (run) => ends[run])).exponent];
  } else if (law.form === "broken") {
    statistic = (runs) => {
      const best = bestBroken(Array.from(runs, (run) => ends[run]));
      return best && [best.exponent];
    };
  } else {
    statistic = (runs) => {
      const line = drawnLine(x, y, runs);
      return line && [line.slope];
    };
  }
  return bootstrap(n, resamples, statistic)?.[0];
}

const SURFACE = ["E", "A", "B", "alpha", "beta", "parameters_exponent"] as const;

/** Intervals of the parameters of a surface, from its runs. */
export function bootstrapParametric(
  law: ParametricLaw,
  finals: readonly FinalPoint[],
  resamples: number,
): ParametricLaw["bootstrap_interval"] {
  const intervals = bootstrap(finals.length, resamples, (runs) => {
    const found = refitParametric(finals, runs, law);
    return (
      found && [found.E, found.A, found.B, found.alpha, found.beta, found.beta / (found.alpha + found.beta)]
    );
  });
  if (intervals === null) return undefined;
  return Object.fromEntries(
    SURFACE.map((name, i) => [name, intervals[i]]),
  ) as ParametricLaw["bootstrap_interval"];
}

/** The comparison with intervals from its pairs of runs, resampled together; as it is for fewer than 8 pairs. */
export function bootstrapComparison(
  comparison: Comparison,
  runs: readonly RunPair[],
  resamples: number,
): Comparison {
  const xB = runs.map(({ baseline }) => Math.log(baseline.pflops_days));
  const xO = runs.map(({ other }) => Math.log(other.pflops_days));
  const yB = runs.map(({ baseline }) => Math.log(baseline.lm_loss));
  const yO = runs.map(({ other }) => Math.log(other.lm_loss));
  const at = comparison.ratio_at.map(({ pflops_days }) => Math.log(pflops_days));
  const intervals = bootstrap(runs.length, resamples, (drawnRuns) => {
    const baseline = drawnLine(xB, yB, drawnRuns);
    const other = drawnLine(xO, yO, drawnRuns);
    if (baseline === null || other === null) return null;
    return [
      other.slope - baseline.slope,
      ...at.map((x) => Math.exp(valueAt(other, x) - valueAt(baseline, x))),
    ];
  });
  if (intervals === null) return comparison;
  const [exponent, ...ratios] = intervals;
  return {
    ...comparison,
    ratio_law: { ...comparison.ratio_law, bootstrap_interval: exponent },
    ratio_at: comparison.ratio_at.map((entry, i) => ({ ...entry, bootstrap_interval: ratios[i] })),
  };
}
