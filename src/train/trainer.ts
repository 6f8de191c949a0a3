/** A model and its optimizer: one step, and their tensors in a checkpoint. */
import { join } from "node:path";
import type { Batch } from "../data/types.ts";
import { InputError, RunError } from "../errors.ts";
import { loadWeights, saveModel } from "../model/checkpoint.ts";
import type { LayerAttention } from "../model/config.ts";
import { Model } from "../model/model.ts";
import { openSafetensors, readSafetensor, writeSafetensors } from "../model/safetensors.ts";
import { type Backend, HYPER_LENGTH, Hyper, type Tensor } from "../ops/contract.ts";
import { horizonSteps, learningRate } from "./schedule.ts";
import type { RunConfig } from "./types.ts";

const OPTIMIZER_FILE = "optimizer.safetensors";

export interface StepResult {
  /** Mean loss of the step's predicted tokens, nats. */
  readonly loss: number;
  /** Before clipping. */
  readonly gradNorm: number;
  readonly learningRate: number;
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
  }

  /**
   * Gradients of the mean loss over all passes into `model.grads`; returns that mean. Packing more or fewer sequences
   * into a pass changes nothing but rounding.
   */
  accumulate(passes: Iterable<Batch>, predictedTokens: number): number {
    const { model } = this;
    this.#backend.zero(model.grads!);
    this.#backend.write(this.#scale_1, [1 / predictedTokens]);
    let sum = 0;
    for (const batch of passes) {
      model.loadBatch(batch);
      for (const loss of this.#backend.read(model.forwardBackward(this.#scale_1))) sum += loss;
    }
    return sum / predictedTokens;
  }

  /**
   * Optimizer step number `step` (the first is 1). Throws `RunError` naming the step and the tensor when the loss or
   * the gradient norm is not finite; the weights are then those before the step.
   */
  step(step: number, passes: readonly Batch[]): StepResult {
    let predictedTokens = 0;
    for (const { targets } of passes) for (const target of targets) if (target >= 0) predictedTokens++;
    const loss = this.accumulate(passes, predictedTokens);
    const { model } = this;
    const rate = learningRate(this.#optimizer, step, this.steps);
    this.#backend.gradNorm(this.#norm_1, model.grads!);
    const gradNorm = this.#backend.read(this.#norm_1)[0];
    if (!Number.isFinite(loss) || !Number.isFinite(gradNorm)) {
      const [what, value] = Number.isFinite(loss) ? ["gradient norm", gradNorm] : ["loss", loss];
      throw new RunError(
        `the ${what} of step ${step} is ${value}, expected a finite number; first tensor with such a value: ${model.findNonFinite() ?? "none"}`,
      );
    }
    this.#backend.write(this.#hyper, this.#hyperAt(step, rate));
    this.#backend.adamw(
      model.master,
      model.weights,
      model.grads!,
      this.#m_P,
      this.#v_P,
      model.parameters.decayed,
      this.#hyper,
      this.#norm_1,
    );
    return { loss, gradNorm, learningRate: rate };
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
