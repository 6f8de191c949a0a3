/** What a run's training losses and its configuration say beside its curve: where they drop, and of its learning rate. */
import { isUsual, type SuddenDrop } from "../fit/drops.ts";
import type { CurvePoint } from "../fit/types.ts";
import { nonEmbeddingParameters } from "../model/config.ts";
import { horizonSteps } from "../train/schedule.ts";
import type { MetricsRecord, RunConfig } from "../train/types.ts";
import { sizeOf, stepRule } from "./rule.ts";

/** Steps before this share of a run are the first descent. */
const DESCENT = 0.01;

/** The training losses after the first descent, in which drops and rises are looked for; of `fewerSteps`. */
export function trainingPoints(
  { attention, model }: Pick<RunConfig, "attention" | "model">,
  steps: readonly Pick<MetricsRecord, "step" | "tokens" | "loss">[],
): CurvePoint[] {
  const from = DESCENT * (steps.at(-1)?.tokens ?? 0);
  const everywhere = { position_start: null, position_end: null };
  return steps.flatMap(({ step, tokens, loss }) =>
    tokens < from || !Number.isFinite(loss)
      ? []
      : [{ attention, model, ...everywhere, pflops_days: null, lm_loss: loss, step, tokens }],
  );
}

/** What a finished run says of its learning rate. */
export interface Swept {
  /** Runs that differ in nothing but attention, learning rate and seed have one size. */
  readonly size: string;
  readonly learningRate: number;
  /** The rule's learning rate for it, that of factor 1. */
  readonly rule?: number;
  /**
   * Whether its training loss has a sudden drop, and ends in or just after it, so that its loss is not on its trend;
   * absent when that is not known.
   */
  readonly drop?: "none" | "at end" | "past";
}

/** Given the sudden drop of its training loss. */
export function sweptBy(config: RunConfig, drop: SuddenDrop | null | undefined): Swept {
  const { model, optimizer, shape, context } = config;
  const tokens = horizonSteps(config) * config.sequencesPerStep * context;
  const factors = { learningRateFactor: 1, batchFactor: 1 };
  const { learningRate: rule } = stepRule(6 * nonEmbeddingParameters(shape) * tokens, context, factors);
  return { size: sizeOf(model), learningRate: optimizer.learningRate, rule, drop: dropState(drop) };
}

export function dropState(drop: SuddenDrop | null | undefined): Swept["drop"] {
  return drop === undefined ? undefined : drop === null ? "none" : drop.atEnd ? "at end" : "past";
}

/** Why a run's loss is not on a trend. */
export type OffTrend = "in a drop" | "before the drop";

/** What tells of runs, each by its drop, whether they are off the trend that all of them should have. */
export function offTrend(all: readonly Swept["drop"][]): (drop: Swept["drop"]) => OffTrend | undefined {
  const known = all.filter((drop) => drop !== undefined);
  const usual = isUsual(known.filter((drop) => drop !== "none").length, known.length);
  return (drop) =>
    drop === "at end" ? "in a drop" : drop === "none" && usual ? "before the drop" : undefined;
}
