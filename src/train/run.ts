/**
 * One run as one process: trains what `config.json` of the run's folder says, and leaves `metrics.jsonl`,
 * `eval.jsonl`, `status.json` and `checkpoint/` there. A resumed run continues to the same result, bit for bit where
 * the backend computes in f32 or less: batches and schedules are pure functions of the step, and the checkpoint holds
 * every bit of the weights and the optimizer.
 */
import { join, resolve } from "node:path";
import { type AttentionPhase, parseSchedule } from "../attention/schedule.ts";
import { openDataset } from "../data/dataset.ts";
import { withRecall } from "../data/recall.ts";
import type { Batch, BatchQueue, Dataset, TrainingStream } from "../data/types.ts";
import { RunError } from "../errors.ts";
import { writeWhole } from "../files.ts";
import { type LayerAttention, totalParameters } from "../model/config.ts";
import { planMemory } from "../model/memory.ts";
import type { Model } from "../model/model.ts";
import type { Backend } from "../ops/contract.ts";
import { findCheckpoint, replaceCheckpoint, tidyCheckpoints } from "./checkpoint.ts";
import { evaluate, spreadWindows } from "./evaluate.ts";
import { checkSameStart, checkShares, meetAll } from "./peers.ts";
import { evaluateRecall, RECALL_FILE } from "./recall.ts";
import { EVALUATIONS_FILE, METRICS_FILE, RecordWriter, readEvaluations, writeStatus } from "./records.ts";
import { attentionAt, evaluationSteps } from "./schedule.ts";
import { checkDataset, datasetFacts, inspectRunFolder, type RunStart } from "./start.ts";
import { Tally } from "./tally.ts";
import { type StepResult, Trainer } from "./trainer.ts";
import { evaluateTruncated, isComparable, TRUNCATED_FILE } from "./truncated.ts";
import type { EvaluationRecord, RunProgress, RunStatus } from "./types.ts";

export interface TrainOptions {
  readonly backend: Backend;
  /** Continue from the folder's checkpoint (from the start when there is none yet); else the folder must hold no run. */
  readonly resume?: boolean;
  readonly onProgress?: (progress: RunProgress) => void;
  /**
   * When it aborts, the step is finished, a checkpoint is written, and `train` returns "interrupted"; with peers, in
   * all processes after the same step.
   */
  readonly signal?: AbortSignal;
}

export interface TrainResult {
  readonly outcome: "finished" | "already finished" | "interrupted";
  readonly step: number;
  readonly steps: number;
  /** The last evaluation so far. */
  readonly evaluation: EvaluationRecord | null;
}

/** Records are written, and the status renewed, at least this often. */
const FLUSH_SECONDS = 1;

/**
 * Trains the run in `runFolder`. Throws `InputError` for a bad configuration, dataset or folder, and `RunError` when
 * the work fails; `status.json` then says why, and the last checkpoint is intact. A finished run is left as it is.
 */
export async function train(runFolder: string, options: TrainOptions): Promise<TrainResult> {
  const { peers } = options.backend;
  // Process 0 may have begun to write what the others find.
  const start = inspectRunFolder(runFolder, options.resume || (peers?.rank ?? 0) > 0);
  const { config, steps, state } = start;
  if (peers) checkShares(config, peers.count);
  const reached = start.finished ? steps : (state?.step ?? 0);
  const evaluation =
    readEvaluations(join(runFolder, EVALUATIONS_FILE)).findLast(({ step }) => step <= reached) ?? null;
  if (start.finished) return { outcome: "already finished", step: steps, steps, evaluation };
  const dataset = openDataset(resolve(runFolder, config.dataset));
  checkDataset(start, dataset);
  const { context, seed, recall, shape } = config;
  const stream = withRecall(dataset.trainingStream(context, seed), {
    share: recall ?? 0,
    vocabulary: shape.vocabulary,
    seed,
  });
  const heldOut = dataset.evaluationWindows(context);
  const run = new Run(runFolder, start, dataset, stream, heldOut, evaluation, options);
  try {
    return await run.train();
  } catch (error) {
    throw run.fail(error);
  } finally {
    run.close();
  }
}

class Run {
  readonly #folder: string;
  readonly #start: RunStart;
  readonly #phases: readonly AttentionPhase[];
  readonly #dataset: Dataset;
  readonly #stream: TrainingStream;
  readonly #heldOut: ReturnType<Dataset["evaluationWindows"]>;
  readonly #options: TrainOptions;
  /** This process writes and evaluates: the others of the run do not. */
  readonly #writes: boolean;
  readonly #metrics: RecordWriter;
  readonly #evaluations: RecordWriter;
  readonly #tally: Tally;
  #batches: BatchQueue | null = null;
  /** The last evaluation. */
  #evaluation: EvaluationRecord | null;
  #checkpointStep: number;
  #status: RunStatus;
  #flushed = 0;
  /** The last step with a record; what the last record of this attempt says. */
  #recorded: number;
  #known: Pick<RunProgress, "loss" | "tokensPerSecond"> | null = null;
  /** When the step whose result comes next began: after the one before had ended, or with nothing under way. */
  #clock = 0;
  /** A process of the run wishes to stop, and all know. */
  #stop = false;
  /** Seconds of a recent step, and of the last evaluation: what the time left is guessed from. */
  #stepSeconds = 0;
  #evaluationSeconds = 0;

  constructor(
    folder: string,
    start: RunStart,
    dataset: Dataset,
    stream: TrainingStream,
    heldOut: ReturnType<Dataset["evaluationWindows"]>,
    evaluation: EvaluationRecord | null,
    options: TrainOptions,
  ) {
    const { config, steps, state } = start;
    this.#folder = folder;
    this.#phases = parseSchedule(config.attention, config.shape.layers);
    this.#start = start;
    this.#dataset = dataset;
    this.#stream = stream;
    this.#heldOut = heldOut;
    this.#evaluation = evaluation;
    this.#options = options;
    this.#writes = (options.backend.peers?.rank ?? 0) === 0;
    this.#metrics = new RecordWriter(join(folder, METRICS_FILE));
    this.#evaluations = new RecordWriter(join(folder, EVALUATIONS_FILE));
    this.#tally = new Tally(config.shape);
    if (state) this.#tally.restore(state);
    this.#checkpointStep = state?.step ?? 0;
    this.#recorded = this.#checkpointStep;
    this.#status = {
      state: "running",
      step: this.#checkpointStep,
      steps,
      attempt: start.attempt,
      parameters: totalParameters(config.shape),
      windowsLeftOut: heldOut.leftOut,
      epochs: (steps * config.sequencesPerStep) / stream.sequencesPerEpoch,
      memory: 0,
      sparsity: 0,
    };
  }

  /**
   * The batches of all passes to come. Beside a card they are made ahead, in room for the pending step, the one that
   * is being enqueued and one more; the CPU's threads have enough to do.
   */
  #queue(): BatchQueue {
    const { sequencesPerStep, sequencesPerPass } = this.#start.config;
    let first = this.#checkpointStep * sequencesPerStep;
    if (this.#options.backend.asynchronous) {
      const places = (3 * sequencesPerStep) / sequencesPerPass + 1;
      return this.#stream.ahead(first, this.#start.steps * sequencesPerStep, sequencesPerPass, places);
    }
    const next = async () => {
      const batch = this.#stream.batch(first, sequencesPerPass);
      first += sequencesPerPass;
      return batch;
    };
    return { next, release() {}, close() {} };
  }

  close(): void {
    this.#batches?.close();
  }

  async train(): Promise<TrainResult> {
    const { backend, onProgress, signal } = this.#options;
    const { config, steps } = this.#start;
    const batches = (this.#batches = this.#queue());
    const trainer = this.#open();
    const points = evaluationSteps(steps, config.evaluations);
    for (let step = this.#checkpointStep + 1; step <= steps; step++) {
      const attention = this.#attentionAt(step);
      if (attention !== this.#attentionAt(Math.max(1, step - 1))) {
        this.#settle(trainer);
        trainer.setAttention(attention);
      }
      await this.#step(trainer, batches, step);
      if (points.includes(step)) this.#evaluate(trainer, step);

      const due = config.checkpointEvery > 0 && step % config.checkpointEvery === 0;
      if (due || step === steps) this.#checkpoint(trainer, step);
      else if (performance.now() - this.#flushed > 1000 * FLUSH_SECONDS) this.#flush();
      const evaluationsLeft = points.filter((point) => point > step).length;
      onProgress?.({
        step,
        steps,
        ...this.#known!,
        secondsLeft: (steps - step) * this.#stepSeconds + evaluationsLeft * this.#evaluationSeconds,
        ...(this.#evaluation ? { heldOut: this.#evaluation.lm_loss } : {}),
      });
      // Signals are heard here, between steps.
      await new Promise(setImmediate);
      if ((backend.peers ? this.#stop : signal?.aborted) && step < steps) {
        if (this.#checkpointStep < step) this.#checkpoint(trainer, step);
        this.#setStatus({
          message: `interrupted after step ${step}; --resume continues from its checkpoint`,
        });
        if (backend.peers) meetAll(backend);
        return { outcome: "interrupted", step, steps, evaluation: this.#evaluation };
      }
    }
    if (this.#writes) this.#measure(trainer.model);
    this.#setStatus({ state: "finished" });
    if (backend.peers) meetAll(backend);
    return { outcome: "finished", step: steps, steps, evaluation: this.#evaluation };
  }

  /** The error to throw, after `status.json` has it and the records so far are on disk (as far as they can be). */
  fail(error: unknown): unknown {
    const checkpoint = findCheckpoint(this.#folder);
    const last = checkpoint
      ? `the last good checkpoint is ${checkpoint}, step ${this.#checkpointStep}`
      : "there is no checkpoint yet";
    const failure =
      error instanceof RunError ? new RunError(`${error.message}; ${last}`, { cause: error }) : error;
    const message = failure instanceof Error ? failure.message : String(failure);
    if (!this.#writes) return failure;
    try {
      this.#metrics.flush();
      this.#evaluations.flush();
      this.#setStatus({ state: "failed", message });
    } catch {
      // The failure itself is what must be told; a full disk takes no records and no status either.
    }
    return failure;
  }

  #attentionAt(step: number): LayerAttention {
    return attentionAt(this.#phases, step, this.#start.steps);
  }

  /** Allocates everything, with the weights of the checkpoint or new ones, ready for the next step. */
  #open(): Trainer {
    const { backend } = this.#options;
    const { config, steps, state } = this.#start;
    const { shape, context, sequencesPerPass, recompute } = config;
    const phases = this.#phases;
    const attention = this.#attentionAt(Math.min(this.#checkpointStep + 1, steps));
    const maxDocuments = sequencesPerPass * this.#stream.maxDocuments;
    const plans = phases.map(({ layers }) =>
      planMemory(
        shape,
        { tokens: sequencesPerPass * context, maxDocuments, training: true, recompute, attention: layers },
        (role) => backend.dtype(role),
      ),
    );
    const later = plans.slice(1).reduce((sum, plan) => sum + plan.attentionStates, 0);
    if (this.#writes) tidyCheckpoints(this.#folder);
    this.#setStatus({ memory: plans[0].total + later });
    const trainer = new Trainer(backend, config, maxDocuments, attention);
    // Once with each attention, so that no step allocates.
    for (const { layers } of phases) trainer.setAttention(layers);
    trainer.setAttention(attention);
    if (state) trainer.load(findCheckpoint(this.#folder)!);
    else trainer.model.initialize(config.seed);
    if (backend.peers) checkSameStart(backend.peers, trainer.model);
    return trainer;
  }

  /**
   * Enqueues a step. What came of it is known a step later, so that the device never waits for the host; at once where
   * operations are done when they return, and for the first step, so that there is something to tell.
   */
  async #step(trainer: Trainer, batches: BatchQueue, step: number): Promise<void> {
    const { sequencesPerStep, sequencesPerPass } = this.#start.config;
    const { backend, signal } = this.#options;
    if (!trainer.pending) this.#clock = performance.now();
    const passes: Batch[] = [];
    for (let i = 0; i < sequencesPerStep; i += sequencesPerPass) passes.push(await batches.next());
    this.#keep(trainer.advance(step, passes, signal?.aborted));
    if (!backend.asynchronous || this.#known === null) this.#settle(trainer);
  }

  /** Waits for the step that is still under way, and records it. */
  #settle(trainer: Trainer): void {
    this.#keep(trainer.settle());
  }

  #keep(result: StepResult | null): void {
    if (!result) return;
    const { step, passes, stop, ...figures } = result;
    this.#stop = stop;
    const { config } = this.#start;
    const now = performance.now();
    const seconds = (now - this.#clock) / 1000;
    this.#clock = now;
    const tokensPerSecond = (config.sequencesPerStep * config.context) / seconds;
    this.#stepSeconds = this.#stepSeconds === 0 ? seconds : 0.9 * this.#stepSeconds + 0.1 * seconds;
    this.#tally.add(passes, this.#attentionAt(step), seconds);
    this.#batches?.release(passes.length);
    const record = {
      step,
      tokens: this.#tally.tokens,
      attempt: this.#start.attempt,
      ...figures,
      tokensPerSecond,
      time_s: this.#tally.seconds,
      ...this.#tally.compute(),
    };
    if (this.#writes) this.#metrics.append(record);
    this.#known = { loss: figures.loss, tokensPerSecond };
    this.#recorded = step;
  }

  #evaluate(trainer: Trainer, step: number): void {
    this.#settle(trainer);
    if (!this.#writes) return;
    const began = performance.now();
    const { context, buckets } = this.#start.config;
    const { tokens, seconds } = this.#tally;
    this.#evaluation = {
      step,
      tokens,
      attempt: this.#start.attempt,
      split: "held-out",
      ...evaluate(trainer.model, this.#dataset, this.#windows(), context, buckets, `after step ${step}`),
      ...this.#tally.compute(),
      time_s: seconds,
      tokensPerSecond: tokens / seconds,
      evaluation_s: (performance.now() - began) / 1000,
      final: step === this.#start.steps,
    };
    this.#evaluations.append(this.#evaluation);
    this.#evaluationSeconds = this.#evaluation.evaluation_s ?? 0;
  }

  /** The held-out windows of each evaluation. */
  #windows() {
    return spreadWindows(this.#heldOut.windows, this.#start.config.evaluationWindows);
  }

  /** What is measured once, at the end. */
  #measure(model: Model): void {
    const { context, recall } = this.#start.config;
    const { windows } = this.#heldOut;
    const write = (name: string, result: unknown) =>
      writeWhole(join(this.#folder, name), `${JSON.stringify(result, null, 2)}\n`);
    const truncated = evaluateTruncated(model, this.#dataset, windows, context);
    if (truncated && isComparable(truncated)) write(TRUNCATED_FILE, truncated);
    if (recall !== undefined) write(RECALL_FILE, evaluateRecall(model, windows, context));
  }

  #checkpoint(trainer: Trainer, step: number): void {
    this.#settle(trainer);
    if (!this.#writes) {
      this.#checkpointStep = step;
      return;
    }
    this.#flush();
    const { tokens, seconds, operations, pairs } = this.#tally;
    const { config, attempt } = this.#start;
    const dataset = datasetFacts(this.#dataset);
    replaceCheckpoint(
      this.#folder,
      { step, tokens, attempt, time_s: seconds, operations, pairs, config, dataset },
      (folder) => trainer.save(folder),
    );
    this.#checkpointStep = step;
  }

  /** Records must be on disk before a checkpoint that covers their steps. */
  #flush(): void {
    if (!this.#writes) return;
    this.#metrics.flush();
    this.#evaluations.flush();
    this.#setStatus({ step: this.#recorded });
    this.#flushed = performance.now();
  }

  #setStatus(change: Partial<RunStatus>): void {
    if (!this.#writes) return;
    this.#status = { ...this.#status, ...change, sparsity: this.#tally.sparsity() };
    writeStatus(this.#folder, this.#status);
  }
}
