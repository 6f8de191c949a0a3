/** Small models, batches and numbers for the tests of this room. */

import { Random } from "../../src/data/random.ts";
import type { Batch } from "../../src/data/types.ts";
import type { ModelOptions } from "../../src/model/buffers.ts";
import type { LayerAttention, ModelConfig } from "../../src/model/config.ts";
import { Model } from "../../src/model/model.ts";
import type { Backend, Tensor } from "../../src/ops/contract.ts";

export const TINY: ModelConfig = {
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 4,
  modelDim: 12,
  feedForward: 10,
  vocabulary: 11,
  ropeTheta: 100,
  normEpsilon: 1e-5,
  tiedOutput: false,
  keyConvolution: 0,
};

export const FULL = { kind: "full" } as const;
export const MOBA = { kind: "moba", blockSize: 3, topK: 2 } as const;

export function full(config: ModelConfig): LayerAttention {
  return new Array(config.layers).fill(FULL);
}

/** A batch of packed documents of the given lengths; the last token of each has no target. */
export function randomBatch(vocabulary: number, lengths: readonly number[], seed = 1): Batch {
  const random = new Random(seed);
  const offsets = [0];
  for (const length of lengths) offsets.push(offsets.at(-1)! + length);
  const tokens = Int32Array.from({ length: offsets.at(-1)! }, () => random.below(vocabulary));
  const targets = Int32Array.from(tokens, (_, t) => (offsets.includes(t + 1) ? -1 : tokens[t + 1]));
  return { tokens, targets, offsets };
}

/** Parameters of order one everywhere (gains and key convolutions too), so that no gradient is tiny. */
export function randomize(model: Model, seed = 5): void {
  model.parameters.named.forEach((parameter, index) => {
    const random = new Random(seed, index);
    const scale = parameter.shape.length === 2 ? 1.2 / Math.sqrt(parameter.shape[1]) : 0.4;
    const mean = parameter.name.endsWith("norm.weight") ? 1 : 0;
    model.writeParameter(
      parameter,
      Float64Array.from({ length: parameter.length }, () => mean + scale * random.gaussian()),
    );
  });
}

export function makeModel(
  backend: Backend,
  config: ModelConfig,
  batch: Batch,
  options: Partial<ModelOptions> = {},
): Model {
  const model = new Model(backend, config, {
    tokens: batch.tokens.length,
    maxDocuments: batch.offsets.length - 1,
    training: true,
    attention: full(config),
    ...options,
  });
  model.loadBatch(batch);
  return model;
}

export function scalar(backend: Backend, value: number): Tensor {
  const tensor = backend.tensor([1], "float");
  backend.write(tensor, [value]);
  return tensor;
}

export function sum(values: ArrayLike<number>): number {
  let total = 0;
  for (let i = 0; i < values.length; i++) total += values[i];
  return total;
}
