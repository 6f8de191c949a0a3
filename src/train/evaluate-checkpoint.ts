/** The held-out loss of a checkpoint by position, on any dataset and with any attention. */
import { parseSchedule } from "../attention/schedule.ts";
import type { Dataset } from "../data/types.ts";
import { InputError } from "../errors.ts";
import { readModelFolder } from "../model/checkpoint.ts";
import type { Backend } from "../ops/contract.ts";
import { findCheckpoint } from "./checkpoint.ts";
import { evaluate, type HeldOutLoss } from "./evaluate.ts";
import { loadModel } from "./load.ts";
import { evaluateRecall } from "./recall.ts";
import type { RecallResult } from "./types.ts";

export interface EvaluateOptions {
  readonly backend: Backend;
  /** Window length; the checkpoint's when left out. */
  readonly context?: number;
  readonly buckets: number;
  /** A label, with `/full:<layers>` if need be; the checkpoint's when left out. */
  readonly attention?: string;
}

export interface CheckpointEvaluation extends HeldOutLoss {
  readonly context: number;
  readonly windows: number;
  /** Windows that are not full. */
  readonly windowsLeftOut: number;
}

/**
 * Evaluates the checkpoint in `folder`: a run's folder, its `checkpoint`, or a Hugging Face Llama folder. Throws
 * `InputError` naming what is wrong with the folder, the dataset or an option.
 */
export function evaluateCheckpoint(
  folder: string,
  dataset: Dataset,
  options: EvaluateOptions,
): CheckpointEvaluation {
  const { model, stored, context, windows, leftOut } = open(folder, dataset, options);
  const loss = evaluate(model, dataset, windows, context, options.buckets, `of ${stored.folder}`);
  return { ...loss, context, windows: windows.length, windowsLeftOut: leftOut };
}

/** Recall by distance, with the model and errors of `evaluateCheckpoint`. */
export function recallOfCheckpoint(
  folder: string,
  dataset: Dataset,
  options: Omit<EvaluateOptions, "buckets">,
): RecallResult {
  const { model, context, windows } = open(folder, dataset, options);
  return evaluateRecall(model, windows, context);
}

/** The checkpoint's model, for passes of one window, and the windows. */
function open(folder: string, dataset: Dataset, options: Omit<EvaluateOptions, "buckets">) {
  const stored = readModelFolder(findCheckpoint(folder) ?? folder);
  const context = options.context ?? stored.context;
  if (dataset.vocabulary > stored.config.vocabulary) {
    throw new InputError(
      `${stored.folder} has a vocabulary of ${stored.config.vocabulary}, expected at least the ${dataset.vocabulary} tokens of the dataset ${dataset.folder}`,
    );
  }
  const { windows, leftOut } = dataset.evaluationWindows(context);
  const model = loadModel(options.backend, stored, {
    tokens: context,
    maxDocuments: 1,
    attention: options.attention ? oneAttention(options.attention, stored.config.layers) : undefined,
  });
  return { model, stored, context, windows, leftOut };
}

function oneAttention(spelling: string, layers: number) {
  let phases: ReturnType<typeof parseSchedule>;
  try {
    phases = parseSchedule(spelling, layers);
  } catch (error) {
    throw new InputError((error as Error).message);
  }
  if (phases.length > 1) {
    throw new InputError(
      `attention is "${spelling}", expected one attention without changes over time, such as moba-b128-k4/full:2`,
    );
  }
  return phases[0].layers;
}
