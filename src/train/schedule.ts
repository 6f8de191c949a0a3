/** When things happen in a run: its length in steps, the learning rate, the attention and the evaluations by step. */
import type { Attention } from "../attention/attention.ts";
import type { AttentionPhase } from "../attention/schedule.ts";
import { OPERATIONS_PER_PFLOPS_DAY } from "../compute/compute.ts";
import { nonEmbeddingParameters } from "../model/config.ts";
import type { RunConfig } from "./types.ts";

/**
 * Optimizer steps of the run: the horizon in tokens over the tokens of a step, to the nearest whole step, at least 1.
 * `pflopsDays` counts by the `6ND` convention; N are the non-embedding parameters.
 */
export function horizonSteps(
  config: Pick<RunConfig, "shape" | "context" | "sequencesPerStep" | "horizon">,
): number {
  const { horizon } = config;
  if ("steps" in horizon) return horizon.steps;
  const parameters = nonEmbeddingParameters(config.shape);
  const tokens =
    "tokens" in horizon
      ? horizon.tokens
      : "tokensPerParameter" in horizon
        ? horizon.tokensPerParameter * parameters
        : (horizon.pflopsDays * OPERATIONS_PER_PFLOPS_DAY) / (6 * parameters);
  return Math.max(1, Math.round(tokens / (config.context * config.sequencesPerStep)));
}

/**
 * Learning rate of step `step` (the first is 1) of a run of `steps`: linear warm-up to the peak, then down to
 * `finalShare` of it at the last step, along a half cosine, or (wsd) constant and linear over the last `decay` share.
 */
export function learningRate(optimizer: RunConfig["optimizer"], step: number, steps: number): number {
  const { learningRate: peak, finalShare } = optimizer;
  const warmup = Math.round(optimizer.warmup * steps);
  if (step <= warmup) return (peak * step) / warmup;
  const start = optimizer.schedule === "wsd" ? steps - Math.round(optimizer.decay * steps) : warmup;
  if (step <= start) return peak;
  const progress = (step - start) / (steps - start);
  const left = optimizer.schedule === "wsd" ? 1 - progress : (1 + Math.cos(Math.PI * progress)) / 2;
  return peak * (finalShare + (1 - finalShare) * left);
}

/** The attention of each layer in step `step` (the first is 1): the phase that holds the share of tokens seen before it. */
export function attentionAt(
  phases: readonly AttentionPhase[],
  step: number,
  steps: number,
): readonly Attention[] {
  // The slack keeps 0.07 * 100 = 7.000000000000001 from putting a change one step late.
  return phases.findLast((phase) => step - 1 >= phase.fromShare * steps - 1e-9)!.layers;
}

/** The first evaluation, as a share of the run. */
const FIRST_EVALUATION = 0.015;
/** A law is fitted to the mean of the evaluations in this last share of a run, so some of them are put there. */
const FINAL_SHARE = 0.03;

/**
 * The steps after which the held-out loss is measured: at most `evaluations`, ascending, the last step always among
 * them; spaced evenly in log steps from 1.5 % of the run on. From 8 evaluations on, three of them (as far as there
 * are steps) lie in the last 3 % of the run.
 */
export function evaluationSteps(steps: number, evaluations: number): number[] {
  const points = new Set([steps]);
  if (evaluations >= 8) {
    for (const share of [0.5, 0.95]) points.add(Math.ceil(steps * (1 - FINAL_SHARE * share)));
  }
  const spaced = evaluations - points.size;
  const first = Math.max(1, Math.round(FIRST_EVALUATION * steps));
  for (let i = 0; i < spaced; i++) points.add(Math.round(first * (steps / first) ** (i / spaced)));
  return [...points].sort((a, b) => a - b);
}
