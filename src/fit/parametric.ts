/**
 * The parametric law `L(N, D) = E + A N^-alpha + B D^-beta` (Hoffmann et al., arXiv 2203.15556, approach 3): sum of
 * Huber(1e-3) on log residuals, multi-start to convergence.
 */
import { OPERATIONS_PER_PFLOPS_DAY } from "../compute/compute.ts";
import { InputError } from "../errors.ts";
import type { LawKey } from "./law.ts";
import { minimizeFrom } from "./minimize.ts";
import { bucketLabel, type FinalPoint } from "./points.ts";
import { mean } from "./regression.ts";
import type { ParametricLaw } from "./types.ts";

const HUBER_DELTA = 1e-3;
/** Five parameters need more points than that to be determined at all. */
const FEWEST_POINTS = 8;

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

/** Fits the final points of one attention and bucket, one per run. Throws InputError for fewer than 8 or without N. */
export function fitParametric(key: LawKey, finals: readonly FinalPoint[]): ParametricLaw {
  if (finals.length < FEWEST_POINTS) {
    throw new InputError(
      `form is parametric, but ${key.attention} has ${finals.length} runs at ${bucketLabel(key)}; its five parameters` +
        ` need at least ${FEWEST_POINTS}`,
    );
  }
  const shapes = finals.map(shapeOf);
  const logN = shapes.map(({ N }) => Math.log(N));
  const logD = shapes.map(({ D }) => Math.log(D));
  const y = finals.map((final) => Math.log(final.lm_loss));
  if (new Set(logN).size < 2 || new Set(logD).size < 2) {
    throw new InputError(
      `form is parametric, but the runs of ${key.attention} share one size or one token count; both must vary`,
    );
  }
  // Terms at the centers of the data: N^-alpha and its factor are then nearly independent, which the search needs.
  const centerN = mean(logN);
  const centerD = mean(logD);
  const objective = ([e, a, alpha, b, beta]: readonly number[], gradient: number[]) => {
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
      sum += size <= HUBER_DELTA ? 0.5 * residual * residual : HUBER_DELTA * (size - 0.5 * HUBER_DELTA);
      const scale = Math.max(-HUBER_DELTA, Math.min(HUBER_DELTA, residual)) / loss;
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
  const best = minimizeFrom(objective, starts);
  const [e, a, alpha, b, beta] = best.x;
  return {
    ...key,
    form: "parametric",
    E: Math.exp(e),
    A: Math.exp(a + alpha * centerN),
    B: Math.exp(b + beta * centerD),
    alpha,
    beta,
    objective: best.value,
    converged: best.converged,
    points: finals.length,
  };
}
