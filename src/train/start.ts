/** What a run folder and its dataset hold, checked before a run starts or continues. Nothing is written here. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Dataset } from "../data/types.ts";
import { InputError } from "../errors.ts";
import { findCheckpoint, type RunState, readState } from "./checkpoint.ts";
import { firstDifference, readRunConfig } from "./config.ts";
import { METRICS_FILE, readMetrics, readStatus } from "./records.ts";
import { horizonSteps } from "./schedule.ts";
import type { RunConfig } from "./types.ts";

export interface RunStart {
  readonly config: RunConfig;
  readonly steps: number;
  /** The number of the attempt about to start. */
  readonly attempt: number;
  readonly finished: boolean;
  /** Of the checkpoint to continue from; null: from the start. */
  readonly state: RunState | null;
}

/**
 * Throws `InputError` when the configuration is bad, when the folder holds a run that is not to be resumed, or when
 * its checkpoint is corrupt or of another configuration.
 */
export function inspectRunFolder(runFolder: string, resume: boolean): RunStart {
  const config = readRunConfig(runFolder);
  const steps = horizonSteps(config);
  const status = readStatus(runFolder);
  const metrics = join(runFolder, METRICS_FILE);
  const checkpoint = findCheckpoint(runFolder);
  if (!resume && (status || checkpoint || existsSync(metrics))) {
    const reached = status ? ` (${status.state}, step ${status.step} of ${status.steps})` : "";
    throw new InputError(
      `${runFolder} already holds a run${reached}: continue it with --resume, or choose a folder without one`,
    );
  }
  const state = checkpoint ? readState(checkpoint) : null;
  const difference = state && firstDifference(state.config, config);
  if (difference) {
    throw new InputError(
      `${checkpoint} was trained with ${difference} as in ${join(runFolder, "config.json")}; expected the same configuration when resuming`,
    );
  }
  let attempts = Math.max(status?.attempt ?? 0, state?.attempt ?? 0);
  for (const { attempt } of readMetrics(metrics)) attempts = Math.max(attempts, attempt);
  return {
    config,
    steps,
    attempt: attempts + 1,
    finished: status?.state === "finished" && status.steps === steps,
    state,
  };
}

/** Throws `InputError` when the model lacks tokens of the dataset, or the checkpoint was trained on another one. */
export function checkDataset({ config, state }: RunStart, dataset: Dataset): void {
  if (dataset.vocabulary > config.shape.vocabulary) {
    throw new InputError(
      `shape.vocabulary is ${config.shape.vocabulary}, expected at least the ${dataset.vocabulary} tokens of the dataset ${dataset.folder}`,
    );
  }
  const difference = state && firstDifference(state.dataset, datasetFacts(dataset));
  if (difference) {
    throw new InputError(
      `the dataset ${dataset.folder} has changed: the checkpoint was trained with ${difference}`,
    );
  }
}

/** What tells a dataset from another. */
export function datasetFacts(dataset: Dataset): RunState["dataset"] {
  const sum = (documents: Dataset["train"]) => documents.reduce((total, { tokens }) => total + tokens, 0);
  return {
    tokenizer: dataset.tokenizerName,
    trainTokens: sum(dataset.train),
    heldOutTokens: sum(dataset.heldOut),
  };
}
