/** A run small enough to train in a second, for the tests of this room. */
import type { Batch, EvaluationWindow } from "../../src/data/types.ts";
import { ladderModel } from "../../src/model/config.ts";
import type { RunConfig } from "../../src/train/types.ts";

export const OPTIMIZER: RunConfig["optimizer"] = {
  learningRate: 3e-3,
  beta1: 0.9,
  beta2: 0.95,
  epsilon: 1e-8,
  weightDecay: 0.1,
  maxNorm: 1,
  schedule: "cosine",
  warmup: 0.1,
  decay: 0.2,
  finalShare: 0.1,
};

export function tinyConfig(change: Partial<RunConfig> = {}): RunConfig {
  return {
    model: "d2",
    shape: { ...ladderModel(2, { headDim: 8, vocabulary: 256 }), feedForward: 32 },
    attention: "moba-b8-k2",
    dataset: "../data",
    context: 32,
    sequencesPerStep: 2,
    sequencesPerPass: 1,
    horizon: { steps: 12 },
    optimizer: OPTIMIZER,
    buckets: 4,
    evaluations: 4,
    checkpointEvery: 3,
    recompute: false,
    seed: 7,
    ...change,
  };
}

/** Numbers in [0, 1), the same for the same seed. */
export function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** `count` sequences of `context` random tokens, each cut in two documents at `cut` (whole when 0). */
export function randomBatch(count: number, context: number, seed: number, cut = 0): Batch {
  const random = randomNumbers(seed);
  const tokens = Int32Array.from({ length: count * context }, () => Math.floor(random() * 256));
  const targets = Int32Array.from(tokens, (_, i) => {
    const position = i % context;
    return position === context - 1 || (cut > 0 && position === cut - 1) ? -1 : tokens[i + 1];
  });
  const offsets = [0];
  for (let i = 0; i < count; i++) {
    if (cut > 0) offsets.push(i * context + cut);
    offsets.push((i + 1) * context);
  }
  return { tokens, targets, offsets };
}

/** The sequences `first .. first + count - 1` of a batch, as a batch of their own. */
export function part(batch: Batch, context: number, first: number, count: number): Batch {
  const [from, to] = [first * context, (first + count) * context];
  return {
    tokens: batch.tokens.slice(from, to),
    targets: batch.targets.slice(from, to),
    offsets: batch.offsets.filter((offset) => offset >= from && offset <= to).map((offset) => offset - from),
  };
}

export function randomWindow(document: number, context: number, seed: number): EvaluationWindow {
  return { document, tokens: randomBatch(1, context + 1, seed).tokens };
}
