/** One training step of a model, as a list of operations that can be recorded, for tests with and without a card. */
import type { Attention } from "../../../src/attention/attention.ts";
import type { ModelConfig } from "../../../src/model/config.ts";
import { Model } from "../../../src/model/model.ts";
import { type Backend, HYPER_LENGTH, Hyper, type Tensor } from "../../../src/ops/contract.ts";
import { randomBatch, randomize } from "../../model/helpers.ts";

export const SMALL: ModelConfig = {
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 64,
  modelDim: 128,
  feedForward: 192,
  vocabulary: 512,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
  tiedOutput: false,
  keyConvolution: 0,
};

export interface Step {
  readonly model: Model;
  /** Enqueues everything from the gradients' zeros to the updated weights. */
  readonly enqueue: () => void;
  readonly losses_T: Tensor;
  readonly norm_1: Tensor;
}

/** A model of random weights and documents of the given lengths, ready for its first step. */
export function makeStep(
  backend: Backend,
  config: ModelConfig,
  attention: Attention,
  lengths: readonly number[],
  recompute = false,
): Step {
  const batch = randomBatch(config.vocabulary, lengths);
  const model = new Model(backend, config, {
    ...{ tokens: batch.tokens.length, maxDocuments: lengths.length, training: true, recompute },
    attention: new Array<Attention>(config.layers).fill(attention),
  });
  randomize(model);
  model.loadBatch(batch);
  const flat = [model.parameters.length];
  const [m_P, v_P] = [backend.tensor(flat, "float"), backend.tensor(flat, "float")];
  const [scale_1, norm_1] = [backend.tensor([1], "float"), backend.tensor([1], "float")];
  const hyper = backend.tensor([HYPER_LENGTH], "float");
  backend.write(scale_1, [1 / batch.targets.filter((target) => target >= 0).length]);
  const values = new Array<number>(HYPER_LENGTH).fill(0);
  values[Hyper.learningRate] = 1e-3;
  values[Hyper.beta1] = 0.9;
  values[Hyper.beta2] = 0.95;
  values[Hyper.epsilon] = 1e-8;
  values[Hyper.weightDecay] = 0.1;
  values[Hyper.bias1] = 0.1;
  values[Hyper.bias2] = 0.05;
  values[Hyper.maxNorm] = 1;
  backend.write(hyper, values);
  let losses_T: Tensor | undefined;
  const enqueue = () => {
    backend.zero(model.grads!);
    losses_T = model.forwardBackward(scale_1);
    backend.gradNorm(norm_1, model.grads!);
    const { master, weights, grads } = model;
    backend.adamw(master, weights, grads!, m_P, v_P, model.parameters.decayed, hyper, norm_1);
  };
  return {
    model,
    enqueue,
    norm_1,
    get losses_T() {
      if (!losses_T) throw new RangeError("losses_T: no step has been enqueued");
      return losses_T;
    },
  };
}
