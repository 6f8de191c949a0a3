/** The curves table of a study: every held-out evaluation of every run, over all positions and by bucket. */
import { join } from "node:path";
import type { CurvePoint } from "../fit/types.ts";
import { nonEmbeddingParameters } from "../model/config.ts";
import { readRunConfig } from "../train/config.ts";
import { EVALUATIONS_FILE, readEvaluations } from "../train/records.ts";
import type { EvaluationRecord, RunConfig } from "../train/types.ts";
import { readRuns, type UnreadableRun } from "./folder.ts";

/** Rows in run order, then as `runPoints`, and the runs that cannot be read. Runs without an evaluation add none. */
export function studyCurves(folder: string): { points: CurvePoint[]; unreadable: UnreadableRun[] } {
  const { runs, unreadable } = readRuns(folder, (run, name) =>
    runPoints(name, readRunConfig(run), readEvaluations(join(run, EVALUATIONS_FILE))),
  );
  return { points: runs.flat(), unreadable };
}

/** A run's rows by step, all positions first and then the buckets; a loss that is not finite has none. */
export function runPoints(
  run: string,
  config: RunConfig,
  evaluations: readonly EvaluationRecord[],
): CurvePoint[] {
  const points: CurvePoint[] = [];
  const parameters = nonEmbeddingParameters(config.shape);
  for (const record of evaluations) {
    const shared = {
      attention: config.attention,
      model: config.model,
      seed: config.seed,
      run,
      step: record.step,
      tokens: record.tokens,
      parameters,
      pflops_days: record.pflops_days,
      pflops_days_attended: record.pflops_days_attended,
      split: record.split,
      time_s: record.time_s,
      tokens_per_second: record.tokensPerSecond,
    };
    points.push({
      ...shared,
      position_start: null,
      position_end: null,
      lm_loss: record.lm_loss,
      predicted_tokens: record.predicted_tokens,
      bits_per_byte: record.bits_per_byte,
    });
    for (const bucket of record.buckets) points.push({ ...shared, ...bucket });
  }
  return points.filter(({ lm_loss }) => lm_loss > 0 && Number.isFinite(lm_loss));
}

/** Steps of a run that are drawn and kept, at most. */
const MOST_STEPS = 500;

/**
 * At most 500 records, of every so many steps the last one with the mean of their losses; of 500 and fewer, those. Reports
 * use them, so that what is kept of a study without its checkpoints gives the same report.
 */
export function fewerSteps<Step extends { readonly loss: number }>(steps: readonly Step[]): readonly Step[] {
  const every = Math.ceil(steps.length / MOST_STEPS);
  if (every <= 1) return steps;
  const fewer: Step[] = [];
  for (let end = steps.length; end > 0; end -= every) {
    const group = steps.slice(Math.max(0, end - every), end);
    const loss = group.reduce((sum, step) => sum + step.loss, 0) / group.length;
    fewer.push({ ...group.at(-1)!, loss });
  }
  return fewer.reverse();
}
