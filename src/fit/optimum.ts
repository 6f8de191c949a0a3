/**
 * Compute-optimal training (Hoffmann et al., arXiv 2203.15556): approach 1, the lower envelope of the training curves,
 * and approach 2, IsoFLOP, with the direct fit of the surface beside it. Each ends in a law of the lowest loss and, where
 * parameters are known, of the best size.
 */
import { OPERATIONS_PER_PFLOPS_DAY } from "../compute/compute.ts";
import { InputError } from "../errors.ts";
import { exponentials, type LawKey } from "./law.ts";
import { invert } from "./minimize.ts";
import { FEWEST_POINTS, fitParametric } from "./parametric.ts";
import { bucketLabel, type FinalPoint, type RunCurve } from "./points.ts";
import { fitPower } from "./power.ts";
import { fitLine, intervalAt, mean, slopeInterval, valueAt } from "./regression.ts";
import type { FittedPoint, Interval, OptimalSize, PowerLaw, PowerOfCompute } from "./types.ts";
import { formatBudget } from "./words.ts";

/** Budgets at which the envelope is read, evenly spaced in log C (as many as Hoffmann et al.). */
const READINGS = 1500;
/** IsoFLOP: a gap in budgets wider than this factor starts another budget. */
const ONE_BUDGET = 1.1;
const FEWEST_BUDGETS = 3;

/** A fitted point and, where known, the size that reached it. */
export interface Optimum {
  readonly point: FittedPoint;
  readonly parameters: number | undefined;
}

function powerOfCompute(pflopsDays: readonly number[], values: readonly number[]): PowerOfCompute {
  const line = fitLine(pflopsDays.map(Math.log), values.map(Math.log));
  return {
    coefficient: Math.exp(valueAt(line, 0)),
    exponent: line.slope,
    coefficient_interval: exponentials(intervalAt(line, 0)),
    exponent_interval: slopeInterval(line),
  };
}

function optimalSize(method: "quadratic" | "envelope", optima: readonly Optimum[]): OptimalSize | null {
  const known = optima.filter((optimum) => optimum.parameters !== undefined);
  if (known.length < FEWEST_BUDGETS) return null;
  const budgets = known.map(({ point }) => point.pflops_days);
  return {
    method,
    parameters: powerOfCompute(
      budgets,
      known.map(({ parameters }) => parameters!),
    ),
    tokens: powerOfCompute(
      budgets,
      known.map(({ point, parameters }) => (point.pflops_days * OPERATIONS_PER_PFLOPS_DAY) / 6 / parameters!),
    ),
  };
}

/** A run's log loss at the readings between two budgets; NaN where it has none. */
function readings(curve: RunCurve, [from, to]: readonly [number, number]): Float64Array {
  const x: number[] = [];
  const y: number[] = [];
  for (const { pflops_days, lm_loss } of curve.points) {
    if (!(pflops_days !== null && pflops_days > 0)) continue;
    const at = Math.log(pflops_days);
    if (x.length > 0 && at <= x.at(-1)!) continue;
    x.push(at);
    y.push(Math.log(lm_loss));
  }
  const values = new Float64Array(READINGS).fill(Number.NaN);
  let next = 0;
  for (let i = 0; i < READINGS; i++) {
    const at = from + ((to - from) * i) / (READINGS - 1);
    while (next < x.length && x[next] < at - 1e-9) next++;
    if (next === x.length) break;
    if (next === 0) {
      if (x[0] <= at + 1e-9) values[i] = y[0];
      continue;
    }
    const share = (at - x[next - 1]) / (x[next] - x[next - 1]);
    values[i] = y[next - 1] + share * (y[next] - y[next - 1]);
  }
  return values;
}

/**
 * The lower envelope of the curves of one attention and bucket between two budgets: one point for each run that forms a
 * part of it, at the mean of that part in log-log. The grid's points of one run are not independent, so that a
 * regression through all of them, the usual fit, has intervals far too narrow. Returns the envelope of any selection
 * of the curves, by index.
 */
export function envelopeOf(
  curves: readonly RunCurve[],
  window: Interval,
): (selected: Iterable<number>) => Optimum[] {
  const range: [number, number] = [Math.log(window[0]), Math.log(window[1])];
  const values = curves.map((curve) => readings(curve, range));
  return (selected) => {
    const chosen = [...new Set(selected)];
    const parts = new Map<number, { steps: number; y: number; count: number }>();
    for (let i = 0; i < READINGS; i++) {
      let lowest = -1;
      for (const run of chosen) {
        if (values[run][i] < (lowest < 0 ? Infinity : values[lowest][i])) lowest = run;
      }
      if (lowest < 0) continue;
      const part = parts.get(lowest) ?? { steps: 0, y: 0, count: 0 };
      part.steps += i;
      part.y += values[lowest][i];
      part.count++;
      parts.set(lowest, part);
    }
    return [...parts]
      .map(([run, { steps, y, count }]) => ({
        point: {
          model: curves[run].model,
          pflops_days: Math.exp(range[0] + ((range[1] - range[0]) * steps) / count / (READINGS - 1)),
          lm_loss: Math.exp(y / count),
          seeds: 1,
        },
        parameters: curves[run].points.at(-1)!.parameters,
      }))
      .sort((a, b) => a.point.pflops_days - b.point.pflops_days);
  };
}

/** From the end of the shortest run to the end of the longest. */
export function envelopeWindow(finals: readonly FinalPoint[]): Interval {
  const ends = finals.map((final) => final.pflops_days);
  return [Math.min(...ends), Math.max(...ends)];
}

/** The law of the lower envelope. Throws InputError when fewer than 3 runs form it. */
export function fitEnvelope(key: LawKey, curves: readonly RunCurve[], window: Interval): PowerLaw {
  const optima = envelopeOf(curves, window)(curves.keys());
  if (optima.length < FEWEST_BUDGETS) {
    const [from, to] = window.map(formatBudget);
    throw new InputError(
      `form is envelope, but ${optima.length} run${optima.length === 1 ? " forms" : "s form"} the lower envelope of` +
        ` ${key.attention} at ${bucketLabel(key)} from ${from} to ${to} PFLOP/s-days; a law needs ${FEWEST_BUDGETS}`,
    );
  }
  const size = optimalSize("envelope", optima);
  const law = fitPower(
    key,
    optima.map(({ point }) => point),
    "envelope",
  );
  return { ...law, window, ...(size ? { optimal_size: [size] } : {}) };
}

/** Runs of one budget. */
function byBudget(finals: readonly FinalPoint[]): FinalPoint[][] {
  const groups: FinalPoint[][] = [];
  for (const final of [...finals].sort((a, b) => a.pflops_days - b.pflops_days)) {
    const group = groups.at(-1);
    if (group && final.pflops_days <= ONE_BUDGET * group.at(-1)!.pflops_days) group.push(final);
    else groups.push([final]);
  }
  return groups;
}

/**
 * The lowest loss of each budget: the vertex of a parabola in log N through the losses of its runs. Budgets with fewer
 * than 3 sizes, or whose vertex lies outside the sizes trained, are left out and named.
 */
export function isoflopOptima(finals: readonly FinalPoint[]): { optima: Optimum[]; leftOut: string[] } {
  const optima: Optimum[] = [];
  const leftOut: string[] = [];
  for (const group of byBudget(finals)) {
    const budget = Math.exp(mean(group.map((final) => Math.log(final.pflops_days))));
    const x = group.map((final) => Math.log(final.parameters!));
    if (new Set(x).size < 3) {
      leftOut.push(`${formatBudget(budget)} (fewer than 3 sizes)`);
      continue;
    }
    const center = mean(x);
    const rows = x.map((xi) => [1, xi - center, (xi - center) ** 2]);
    const normal = [0, 1, 2].map((i) =>
      [0, 1, 2].map((j) => rows.reduce((s, row) => s + row[i] * row[j], 0)),
    );
    const right = [0, 1, 2].map((i) => rows.reduce((s, row, k) => s + row[i] * group[k].lm_loss, 0));
    const [level, slope, curvature] = invert(normal)?.map((row) =>
      row.reduce((s, v, j) => s + v * right[j], 0),
    ) ?? [0, 0, 0];
    const vertex = center - slope / (2 * curvature);
    if (!(curvature > 0 && vertex >= Math.min(...x) && vertex <= Math.max(...x))) {
      leftOut.push(`${formatBudget(budget)} (no lowest loss inside its sizes)`);
      continue;
    }
    optima.push({
      point: {
        model: `lowest of ${group.length} sizes`,
        pflops_days: budget,
        lm_loss: level - slope ** 2 / (4 * curvature),
        seeds: 1,
      },
      parameters: Math.exp(vertex),
    });
  }
  return { optima, leftOut };
}

/** The law of the lowest losses over budgets. Throws InputError for fewer than 3 budgets with a lowest loss, or without N. */
export function fitIsoflop(key: LawKey, finals: readonly FinalPoint[]): { law: PowerLaw; leftOut: string[] } {
  const without = finals.find((final) => !((final.parameters ?? 0) > 0));
  if (without) {
    throw new InputError(
      `parameters of run ${without.name} is ${without.parameters ?? "empty"}; form isoflop needs each run's parameter count`,
    );
  }
  const { optima, leftOut } = isoflopOptima(finals);
  if (optima.length < FEWEST_BUDGETS) {
    throw new InputError(
      `form is isoflop, but ${key.attention} has ${optima.length} budget${optima.length === 1 ? "" : "s"} at` +
        ` ${bucketLabel(key)} with a lowest loss inside its sizes; a law needs ${FEWEST_BUDGETS}` +
        (leftOut.length > 0 ? ` (left out: ${leftOut.slice(0, 3).join(", ")})` : ""),
    );
  }
  const law = fitPower(
    key,
    optima.map(({ point }) => point),
    "isoflop",
  );
  const sizes = [optimalSize("quadratic", optima)!];
  if (finals.length >= FEWEST_POINTS) sizes.push(fitParametric(key, finals).optimal_size);
  return { law: { ...law, optimal_size: sizes }, leftOut };
}
