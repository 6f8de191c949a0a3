import { describe, expect, test } from "vitest";
import type { Attention } from "../../src/attention/attention.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { Trainer } from "../../src/train/trainer.ts";
import { part, randomBatch, tinyConfig } from "./tiny.ts";

const context = 32;
const moba: Attention[] = new Array(2).fill({ kind: "moba", blockSize: 8, topK: 2 });

function makeTrainer(change: Parameters<typeof tinyConfig>[0]) {
  const config = tinyConfig({ context, sequencesPerStep: 4, ...change });
  const backend = createReferenceBackend();
  const trainer = new Trainer(backend, config, 2 * config.sequencesPerPass, moba);
  trainer.model.initialize(1);
  return { trainer, backend };
}

describe("gradient accumulation", () => {
  // Sequences of two documents each, with fewer targets than tokens: the mean is over targets of the step.
  const batch = randomBatch(4, context, 5, 11);
  const predicted = batch.targets.filter((target) => target >= 0).length;

  test.each([1, 2, 4])("passes of %d sequences give the gradients of one pass of 4", (sequencesPerPass) => {
    const gradients = [sequencesPerPass, 4].map((perPass) => {
      const { trainer, backend } = makeTrainer({ sequencesPerPass: perPass });
      const passes = Array.from({ length: 4 / perPass }, (_, i) =>
        part(batch, context, i * perPass, perPass),
      );
      const loss = trainer.accumulate(passes, predicted);
      return { loss, values: backend.read(trainer.model.grads!) };
    });
    const [several, one] = gradients;
    expect(several.loss).toBeCloseTo(one.loss, 12);
    let largest = 0;
    let difference = 0;
    for (const [i, value] of one.values.entries()) {
      largest = Math.max(largest, Math.abs(value));
      difference = Math.max(difference, Math.abs(value - several.values[i]));
    }
    expect(largest).toBeGreaterThan(1e-3);
    expect(difference).toBeLessThan(1e-12 * largest);
  });
});

test("the first step moves each weight by the learning rate against its gradient's sign, and decays matrices only", () => {
  const maxNorm = 0.25;
  const optimizer = { ...tinyConfig().optimizer, maxNorm };
  const { trainer, backend } = makeTrainer({ sequencesPerPass: 4, optimizer });
  const { model } = trainer;
  const rate = 3e-3; // peak: warm-up of 10 % of 12 steps is one step
  const before = backend.read(model.master);
  const { learningRate, gradNorm } = trainer.step(1, [randomBatch(4, context, 5)]);
  expect(learningRate).toBeCloseTo(rate, 12);
  const grads = backend.read(model.grads!);
  expect(gradNorm).toBeCloseTo(Math.hypot(...grads), 9);
  expect(gradNorm).toBeGreaterThan(maxNorm);
  const after = backend.read(model.master);
  const norms = model.parameters.named
    .filter(({ name }) => name.includes("norm"))
    .map(({ offset }) => offset);
  for (const [i, weight] of after.entries()) {
    // m / sqrt(v) of the first step is the gradient over its size; epsilon only matters beside tiny gradients.
    const gradient = (grads[i] * maxNorm) / gradNorm;
    const decay = i < Math.min(...norms) ? 0.1 * before[i] : 0;
    const expected = before[i] - rate * (gradient / (Math.abs(gradient) + 1e-8) + decay);
    expect(Math.abs(weight - expected)).toBeLessThan(1e-9);
  }
});

test("a model overfits one batch", () => {
  const steps = 80;
  const optimizer = { ...tinyConfig().optimizer, learningRate: 2e-2, weightDecay: 0 };
  const { trainer } = makeTrainer({
    sequencesPerPass: 2,
    sequencesPerStep: 2,
    horizon: { steps },
    optimizer,
  });
  const batch = randomBatch(2, context, 9);
  let last = Number.POSITIVE_INFINITY;
  for (let step = 1; step <= steps; step++) last = trainer.step(step, [batch]).loss;
  expect(last).toBeLessThan(0.5);
});
