/** A model and its optimizer: its steps, enqueued ahead of their results, and their tensors in a checkpoint. */
import { join } from "node:path";
import { attentionLabel } from "../attention/attention.ts";
import type { Batch } from "../data/types.ts";
import { InputError, RunError } from "../errors.ts";
import { loadWeights, saveModel } from "../model/checkpoint.ts";
import type { LayerAttention } from "../model/config.ts";
import { Model } from "../model/model.ts";
import { openSafetensors, readSafetensor, writeSafetensors } from "../model/safetensors.ts";
import { type Backend, HYPER_LENGTH, Hyper, type Tensor } from "../ops/contract.ts";
import { anyOf, backwardTogether, ownPasses } from "./peers.ts";
import { horizonSteps, learningRate } from "./schedule.ts";
import type { RunConfig } from "./types.ts";

const OPTIMIZER_FILE = "optimizer.safetensors";

export interface StepResult {
  readonly step: number;
  readonly passes: readonly Batch[];
  /** Mean loss of the step's predicted tokens, nats. */
  readonly loss: number;
  /** Before clipping. */
  readonly gradNorm: number;
  readonly learningRate: number;
  /** A process of the run wished to stop when it enqueued the step. */
  readonly stop: boolean;
}

/** A step that has been enqueued whole, and how to read what came of it. */
interface PendingStep {
  readonly step: number;
  readonly passes: readonly Batch[];
  readonly predictedTokens: number;
  readonly learningRate: number;
  readonly loss: () => number;
  readonly gradNorm: () => ArrayLike<number>;
  readonly stop: () => boolean;
}

/** What a step enqueues between its inputs, recorded. */
interface Recording {
  readonly pass: () => void;
  /** The last pass of a step: with peers, the gradients are summed as they become final. */
  readonly last: () => void;
  /** Gradient norm and AdamW. */
  readonly update: () => void;
}

export class Trainer {
  readonly model: Model;
  readonly steps: number;
  readonly #backend: Backend;
  readonly #optimizer: RunConfig["optimizer"];
  readonly #context: number;
  readonly #m_P: Tensor;
  readonly #v_P: Tensor;
  readonly #hyper: Tensor;
  readonly #norm_1: Tensor;
  readonly #scale_1: Tensor;
  readonly #stop_1: Tensor;
  /** By the labels of the layers' attention. */
  readonly #recordings = new Map<string, Recording>();
  #recording: Recording;
  #pending: PendingStep | null = null;

  /** `maxDocuments`: the most documents packed in a pass. */
  constructor(backend: Backend, config: RunConfig, maxDocuments: number, attention: LayerAttention) {
    this.#backend = backend;
    this.#optimizer = config.optimizer;
    this.#context = config.context;
    this.steps = horizonSteps(config);
    this.model = new Model(backend, config.shape, {
      tokens: config.sequencesPerPass * config.context,
      maxDocuments,
      training: true,
      recompute: config.recompute,
      attention,
    });
    const parameters = [this.model.parameters.length];
    this.#m_P = backend.tensor(parameters, "float");
    this.#v_P = backend.tensor(parameters, "float");
    this.#hyper = backend.tensor([HYPER_LENGTH], "float");
    this.#norm_1 = backend.tensor([1], "float");
    this.#scale_1 = backend.tensor([1], "float");
    this.#stop_1 = backend.tensor([1], "float");
    this.#recording = this.#record();
  }

  /** A step has been enqueued and not been looked at. */
  get pending(): boolean {
    return this.#pending !== null;
  }

  /**
   * Changes the attention of the layers, while no step is pending. Memory is allocated and the step recorded the first
   * time that an attention is set, so a schedule sets each of its attentions once in front of the first step.
   */
  setAttention(attention: LayerAttention): void {
    if (this.#pending) throw new RangeError(`setAttention: step ${this.#pending.step} is pending`);
    this.model.setAttention(attention);
    this.#recording = this.#record();
  }

  /** The recording for the model's attention. */
  #record(): Recording {
    const label = this.model.attention.map(attentionLabel).join();
    let recording = this.#recordings.get(label);
    if (!recording) {
      const { model } = this;
      const backend = this.#backend;
      const { peers } = backend;
      const pass = backend.record(() => model.forwardBackward(this.#scale_1));
      recording = {
        pass,
        last: peers ? backend.record(() => backwardTogether(peers, model, this.#scale_1)) : pass,
        update: backend.record(() => {
          const { master, weights, grads, parameters } = model;
          backend.gradNorm(this.#norm_1, grads!);
          const moments = [this.#m_P, this.#v_P] as const;
          backend.adamw(master, weights, grads!, ...moments, parameters.decayed, this.#hyper, this.#norm_1);
        }),
      };
      this.#recordings.set(label, recording);
    }
    return recording;
  }

  /**
   * Gradients of the mean loss over all passes into `model.grads`; returns that mean. Packing more or fewer sequences
   * into a pass changes nothing but rounding, and so does sharing the passes among processes.
   */
  accumulate(passes: readonly Batch[], predictedTokens: number): number {
    return this.#enqueuePasses(passes, predictedTokens)();
  }

  /** What is returned waits for the passes, and gives their mean loss. */
  #enqueuePasses(passes: readonly Batch[], predictedTokens: number): () => number {
    const { model } = this;
    const { peers } = this.#backend;
    const own = ownPasses(passes, peers);
    this.#backend.write(this.#scale_1, [1 / predictedTokens]);
    this.#backend.zero(model.grads!);
    const losses = own.map((batch, i) => {
      model.loadBatch(batch);
      if (i < own.length - 1) this.#recording.pass();
      else this.#recording.last();
      peers?.sum(model.losses, 0, model.tokens);
      peers?.join();
      return this.#backend.sumLater(model.losses);
    });
    return () => losses.reduce((sum, read) => sum + read(), 0) / predictedTokens;
  }

  /**
   * Optimizer step number `step` (the first is 1), waiting for its result. Throws `RunError` naming the step and the
   * tensor when the loss or the gradient norm is not finite.
   */
  step(step: number, passes: readonly Batch[]): StepResult {
    this.settle();
    this.advance(step, passes);
    return this.settle()!;
  }

  /**
   * Enqueues a step without waiting for it, and returns the result of the one before if that was pending. Throws as
   * `settle` does for that one. The weights change only once the step before is known to be good, and the passes,
   * which take longest, have then been enqueued already: the device goes on with them while the host looks. Every
   * process of a run gives all passes, takes its own, and gets the same result.
   */
  advance(step: number, passes: readonly Batch[], stop = false): StepResult | null {
    const predictedTokens = passes.reduce((sum, batch) => sum + countTargets(batch), 0);
    const loss = this.#enqueuePasses(passes, predictedTokens);
    const anyStop = anyOf(this.#backend, this.#stop_1, stop);
    const before = this.settle();
    const rate = learningRate(this.#optimizer, step, this.steps);
    this.#backend.write(this.#hyper, this.#hyperAt(step, rate));
    this.#recording.update();
    const gradNorm = this.#backend.readLater(this.#norm_1);
    this.#pending = { step, passes, predictedTokens, learningRate: rate, loss, gradNorm, stop: anyStop };
    return before;
  }

  /**
   * Waits for the pending step and returns its result, null when none is pending. Throws `RunError` naming the step
   * and the tensor when its loss or gradient norm is not finite.
   */
  settle(): StepResult | null {
    const pending = this.#pending;
    if (!pending) return null;
    this.#pending = null;
    const { step, passes, learningRate } = pending;
    const loss = pending.loss();
    const gradNorm = pending.gradNorm()[0];
    if (!Number.isFinite(loss) || !Number.isFinite(gradNorm)) {
      const [what, value] = Number.isFinite(loss) ? ["gradient norm", gradNorm] : ["loss", loss];
      throw new RunError(
        `the ${what} of step ${step} is ${value}, expected a finite number; first tensor with such a value: ${this.#findNonFinite(pending) ?? "none"}`,
      );
    }
    return { step, passes, loss, gradNorm, learningRate, stop: pending.stop() };
  }

  /**
   * Runs the passes of a step again, as those of the next may have taken the place of its activations and gradients.
   * They give what they gave: AdamW leaves the weights as they are when the norm is not finite.
   */
  #findNonFinite({ passes, predictedTokens }: PendingStep): string | null {
    const { model } = this;
    this.#backend.write(this.#scale_1, [1 / predictedTokens]);
    this.#backend.zero(model.grads!);
    for (const batch of passes) {
      model.loadBatch(batch);
      this.#recording.pass();
      const found = model.findNonFinite();
      if (found) return found;
    }
    return null;
  }

  /**
   * Writes the model as a Hugging Face folder and the optimizer's moments beside it, each in f32: every bit, unless
   * the backend computes in f64. Throws `RunError` naming the file when it cannot be written, or the parameter when
   * one is not finite.
   */
  save(folder: string): void {
    const { model } = this;
    for (const parameter of model.parameters.named) {
      if (!model.readParameter(parameter).every(Number.isFinite)) {
        throw new RunError(
          `parameter ${parameter.name} holds a value that is not finite, expected finite numbers in a checkpoint`,
        );
      }
    }
    saveModel(model, folder, this.#context);
    writeSafetensors(
      join(folder, OPTIMIZER_FILE),
      this.#moments().map(({ name, shape, view }) => ({
        name,
        shape,
        values: () => this.#backend.read(view),
      })),
    );
  }

  /** Reads what `save` wrote. Throws `InputError` naming the file and the tensor that is missing or of another shape. */
  load(folder: string): void {
    loadWeights(this.model, folder);
    const file = openSafetensors(join(folder, OPTIMIZER_FILE));
    for (const { name, shape, view } of this.#moments()) {
      const stored = file.tensors.get(name)?.shape;
      if (stored?.join() !== shape.join()) {
        throw new InputError(
          `${file.path}: tensor "${name}" ${stored ? `has shape [${stored}]` : "is missing"}, expected shape [${shape}]`,
        );
      }
      this.#backend.write(view, readSafetensor(file, name));
    }
  }

  #moments(): { name: string; shape: readonly number[]; view: Tensor }[] {
    return [
      { moment: "m", flat_P: this.#m_P },
      { moment: "v", flat_P: this.#v_P },
    ].flatMap(({ moment, flat_P }) =>
      this.model.parameters.named.map(({ name, offset, shape }) => ({
        name: `${moment}.${name}`,
        shape,
        view: this.#backend.view(flat_P, offset, shape),
      })),
    );
  }

  #hyperAt(step: number, rate: number): number[] {
    const { beta1, beta2, epsilon, weightDecay, maxNorm } = this.#optimizer;
    const hyper = new Array<number>(HYPER_LENGTH).fill(0);
    hyper[Hyper.learningRate] = rate;
    hyper[Hyper.beta1] = beta1;
    hyper[Hyper.beta2] = beta2;
    hyper[Hyper.epsilon] = epsilon;
    hyper[Hyper.weightDecay] = weightDecay;
    hyper[Hyper.bias1] = 1 - beta1 ** step;
    hyper[Hyper.bias2] = 1 - beta2 ** step;
    hyper[Hyper.maxNorm] = maxNorm;
    return hyper;
  }
}

function countTargets({ targets, counted }: Batch): number {
  if (counted) return counted.predicted;
  let count = 0;
  for (let t = 0; t < targets.length; t++) if (targets[t] >= 0) count++;
  return count;
}
