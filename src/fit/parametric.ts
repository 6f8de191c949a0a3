/**
 * The parametric law `L(N, D) = E + A N^-alpha + B D^-beta` (Hoffmann et al., arXiv 2203.15556, approach 3): sum of
 * Huber(1e-3) on log residuals, multi-start to convergence.
 */
import { OPERATIONS_PER_PFLOPS_DAY } from "../compute/compute.ts";
import { InputError } from "../errors.ts";
import type { LawKey } from "./law.ts";
import { minimize, minimizeFrom, type Objective } from "./minimize.ts";
import { bucketLabel, type FinalPoint } from "./points.ts";
import { fitLine, mean } from "./regression.ts";
import type { OptimalSize, ParametricLaw } from "./types.ts";

const HUBER_DELTA = 1e-3;
/** Five parameters need more points than that to be determined at all. */
export const FEWEST_POINTS = 8;

/** A final point's parameters and tokens; tokens from 6ND when not given. */
function shapeOf(final: FinalPoint): { N: number; D: number } {
  const N = final.parameters;
  if (N === undefined || !(N > 0)) {
    throw new InputError(
      `parameters of run ${final.name} is ${N ?? "empty"}; form parametric needs each run's parameter count`,
    );
  }
  return { N, D: final.tokens ?? (final.pflops_days * OPERATIONS_PER_PFLOPS_DAY) / (6 * N) };
}

type SurfaceOfLoss = Pick<ParametricLaw, "E" | "A" | "B" | "alpha" | "beta">;

/** The search's own parameters: logs of floor and of both terms at the centers of the data, and the two exponents. */
interface Surface {
  readonly objective: Objective;
  readonly starts: number[][];
  readonly startFrom: (law: SurfaceOfLoss) => number[];
  readonly law: (x: readonly number[]) => SurfaceOfLoss;
}

/** `counts` is how often each point was drawn in a resample; once each when absent. */
function surface(finals: readonly FinalPoint[], counts?: readonly number[]): Surface {
  const shapes = finals.map(shapeOf);
  const logN = shapes.map(({ N }) => Math.log(N));
  const logD = shapes.map(({ D }) => Math.log(D));
  const y = finals.map((final) => Math.log(final.lm_loss));
  // Terms at the centers of the data: N^-alpha and its factor are then nearly independent, which the search needs.
  const centerN = mean(logN);
  const centerD = mean(logD);
  const objective: Objective = ([e, a, alpha, b, beta], gradient) => {
    const floor = Math.exp(e);
    let sum = 0;
    for (let i = 0; i < y.length; i++) {
      const dN = logN[i] - centerN;
      const dD = logD[i] - centerD;
      const termN = Math.exp(a - alpha * dN);
      const termD = Math.exp(b - beta * dD);
      const loss = floor + termN + termD;
      const residual = Math.log(loss) - y[i];
      const size = Math.abs(residual);
      const times = counts?.[i] ?? 1;
      sum +=
        times * (size <= HUBER_DELTA ? 0.5 * residual * residual : HUBER_DELTA * (size - 0.5 * HUBER_DELTA));
      const scale = (times * Math.max(-HUBER_DELTA, Math.min(HUBER_DELTA, residual))) / loss;
      gradient[0] += scale * floor;
      gradient[1] += scale * termN;
      gradient[2] -= scale * termN * dN;
      gradient[3] += scale * termD;
      gradient[4] -= scale * termD * dD;
    }
    return sum;
  };
  const typical = mean(finals.map((final) => final.lm_loss));
  const starts: number[][] = [];
  for (const floorShare of [0.3, 0.7]) {
    for (const shareN of [0.25, 0.75]) {
      for (const alpha of [0.2, 0.6]) {
        for (const beta of [0.2, 0.6]) {
          const rest = typical * (1 - floorShare);
          const terms = [rest * shareN, rest * (1 - shareN)].map(Math.log);
          starts.push([Math.log(typical * floorShare), terms[0], alpha, terms[1], beta]);
        }
      }
    }
  }
  const law = ([e, a, alpha, b, beta]: readonly number[]) => ({
    E: Math.exp(e),
    A: Math.exp(a + alpha * centerN),
    B: Math.exp(b + beta * centerD),
    alpha,
    beta,
  });
  const startFrom = ({ E, A, B, alpha, beta }: SurfaceOfLoss) => [
    Math.log(E),
    Math.log(A) - alpha * centerN,
    alpha,
    Math.log(B) - beta * centerD,
    beta,
  ];
  return { objective, starts, startFrom, law };
}

/**
 * The valley of the surface: `N = G (K C)^(beta / (alpha + beta))` and `D = (K C)^(alpha / (alpha + beta)) / G`, where
 * `K C = N D` and `G = (alpha A / (beta B))^(1 / (alpha + beta))` (Hoffmann et al., equation 4).
 */
function valley({ A, B, alpha, beta }: SurfaceOfLoss): OptimalSize {
  const logG = Math.log((alpha * A) / (beta * B)) / (alpha + beta);
  const logProduct = Math.log(OPERATIONS_PER_PFLOPS_DAY / 6);
  const power = (sign: 1 | -1, exponent: number) => ({
    coefficient: Math.exp(sign * logG + exponent * logProduct),
    exponent,
    coefficient_interval: null,
    exponent_interval: null,
  });
  return {
    method: "direct",
    parameters: power(1, beta / (alpha + beta)),
    tokens: power(-1, alpha / (alpha + beta)),
  };
}

/** Fits the final points of one attention and bucket, one per run. Throws InputError for fewer than 8 or without N. */
export function fitParametric(key: LawKey, finals: readonly FinalPoint[]): ParametricLaw {
  if (finals.length < FEWEST_POINTS) {
    throw new InputError(
      `form is parametric, but ${key.attention} has ${finals.length} runs at ${bucketLabel(key)}; its five parameters` +
        ` need at least ${FEWEST_POINTS}`,
    );
  }
  if (!spansBoth(finals)) {
    throw new InputError(
      `form is parametric, but the runs of ${key.attention} share one size or one token count; both must vary`,
    );
  }
  const { objective, starts, law } = surface(finals);
  const best = minimizeFrom(objective, starts);
  const found = law(best.x);
  return {
    ...key,
    form: "parametric",
    ...found,
    objective: best.value,
    objectives: best.values,
    converged: best.converged,
    points: finals.length,
    optimal_size: valley(found),
  };
}

function spansBoth(finals: readonly FinalPoint[]): boolean {
  const shapes = finals.map(shapeOf);
  return new Set(shapes.map(({ N }) => N)).size > 1 && new Set(shapes.map(({ D }) => D)).size > 1;
}

/** Log sizes and log token counts that lie this close to a line (R^2) leave the surface's two terms to each other. */
const LOCKSTEP = 0.98;

/** Whether size and training tokens rise together, as in a ladder with a fixed number of tokens per parameter. */
export function inLockstep(finals: readonly FinalPoint[]): boolean {
  const shapes = finals.map(shapeOf);
  const logD = shapes.map(({ D }) => Math.log(D));
  const line = fitLine(
    shapes.map(({ N }) => Math.log(N)),
    logD,
  );
  const total = logD.reduce((sum, value) => sum + (value - line.value) ** 2, 0);
  return line.sumOfSquaredResiduals < (1 - LOCKSTEP) * total;
}

/** Enough, from the law of all runs, for percentiles of the resamples to settle to three digits. */
const RESAMPLE_ITERATIONS = 40;

/**
 * The law of a resample, drawn by index, searched from the law of all runs; null when it has one size or token count.
 */
export function refitParametric(
  finals: readonly FinalPoint[],
  drawn: Iterable<number>,
  from: SurfaceOfLoss,
): SurfaceOfLoss | null {
  const times = new Map<number, number>();
  for (const i of drawn) times.set(i, (times.get(i) ?? 0) + 1);
  const chosen = [...times.keys()].map((i) => finals[i]);
  if (!spansBoth(chosen)) return null;
  const { objective, startFrom, law } = surface(chosen, [...times.values()]);
  return law(minimize(objective, startFrom(from), RESAMPLE_ITERATIONS).x);
}
