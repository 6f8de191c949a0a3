/**
 * The trainer on the card: the same losses as on the CPU from the same start and batches, tokens per second, and how
 * much of a step the host is busy.
 *
 *   npm run build && npm run build:gpu && test/gpu/run.sh train
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { parseSchedule } from "../../src/attention/schedule.ts";
import { Random } from "../../src/data/random.ts";
import type { Batch } from "../../src/data/types.ts";
import { ladderModel } from "../../src/model/config.ts";
import type { Backend } from "../../src/ops/contract.ts";
import { createCpuBackend } from "../../src/ops/cpu/index.ts";
import { createCudaBackend } from "../../src/ops/cuda/index.ts";
import { Trainer } from "../../src/train/trainer.ts";
import type { RunConfig } from "../../src/train/types.ts";
import { skip } from "./card.ts";

const BASE: Omit<RunConfig, "attention"> = {
  model: "d2",
  shape: ladderModel(2, { headDim: 64, vocabulary: 256 }),
  dataset: "none",
  context: 1024,
  sequencesPerStep: 4,
  sequencesPerPass: 2,
  horizon: { steps: 200 },
  optimizer: {
    ...{ learningRate: 2e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, maxNorm: 1 },
    ...{ schedule: "cosine", warmup: 0.1, decay: 0.2, finalShare: 0.1 },
  },
  ...{ buckets: 4, evaluations: 1, checkpointEvery: 0, recompute: false, seed: 7 },
};

/** Sequences of a chain in which a few tokens can follow each token, some more often: something to learn. */
function chainBatch({ shape, context }: Omit<RunConfig, "attention">, count: number, index: number): Batch {
  const random = new Random(11, index);
  const { vocabulary } = shape;
  const tokens = Int32Array.from({ length: count * context }, () => random.below(vocabulary));
  const targets = new Int32Array(tokens.length).fill(-1);
  for (let t = 1; t < tokens.length; t++) {
    if (t % context === 0) continue;
    const branch = Math.min(random.below(5), 3);
    tokens[t] = targets[t - 1] = (tokens[t - 1] * 31 + branch * branch * 57 + 17) % vocabulary;
  }
  return { tokens, targets, offsets: Array.from({ length: count + 1 }, (_, i) => i * context) };
}

function makeTrainer(backend: Backend, config: RunConfig): Trainer {
  const [{ layers }] = parseSchedule(config.attention, config.shape.layers);
  const trainer = new Trainer(backend, config, config.sequencesPerPass, layers);
  trainer.model.initialize(config.seed);
  return trainer;
}

/** The loss of every step. */
function train(backend: Backend, config: RunConfig): number[] {
  const trainer = makeTrainer(backend, config);
  const losses: number[] = [];
  const passes = config.sequencesPerStep / config.sequencesPerPass;
  for (let step = 1; step <= trainer.steps; step++) {
    const batches = Array.from({ length: passes }, (_, i) =>
      chainBatch(config, config.sequencesPerPass, step * passes + i),
    );
    const before = trainer.advance(step, batches);
    if (before) losses.push(before.loss);
  }
  losses.push(trainer.settle()!.loss);
  return losses;
}

const mean = (values: readonly number[]) => values.reduce((sum, x) => sum + x, 0) / values.length;

/** Counts the milliseconds spent in waiting for values: all of the time in late reads but what a finished one takes. */
function watched(backend: Backend): { backend: Backend; waited: () => number; reset: () => void } {
  let waited = 0;
  const finished = new Map<number, number>();
  const readLater: Backend["readLater"] = (tensor) => {
    if (!finished.has(tensor.length)) {
      // The first calls are slower than later ones.
      for (let i = 0; i < 20; i++) {
        const read = backend.readLater(tensor);
        backend.synchronize();
        const start = performance.now();
        read();
        finished.set(tensor.length, performance.now() - start);
      }
    }
    const read = backend.readLater(tensor);
    return () => {
      const start = performance.now();
      const values = read();
      waited += Math.max(0, performance.now() - start - finished.get(tensor.length)!);
      return values;
    };
  };
  const reset = () => {
    waited = 0;
  };
  return { backend: Object.assign(Object.create(backend), { readLater }), waited: () => waited, reset };
}

describe("trainer", { skip }, () => {
  for (const attention of ["full", "moba-b64-k3"]) {
    test(`200 steps of ${attention} give the losses of the CPU`, (t) => {
      const config = { ...BASE, attention };
      const [cpu, card] = [createCpuBackend(), createCudaBackend()].map((backend) => {
        t.after(() => backend.close());
        return train(backend, config);
      });
      const apart = cpu.map((loss, i) => Math.abs(loss - card[i]));
      const early = Math.max(...apart.slice(0, 50));
      const [late, lateCard] = [mean(cpu.slice(-50)), mean(card.slice(-50))];
      console.log(
        `  ${attention}: loss ${cpu[0].toFixed(3)} to ${late.toFixed(4)} on the CPU, ${lateCard.toFixed(4)} on the card (${((lateCard / late - 1) * 100).toFixed(3)} %); at most ${early.toFixed(4)} nats apart in steps 1 to 50, ${Math.max(...apart).toFixed(4)} in all`,
      );
      assert.ok(late < cpu[0] - 2, `the loss falls from ${cpu[0]} to ${late} only`);
      assert.ok(early <= 0.02, `${early} nats apart in the first 50 steps, at most 0.02 allowed`);
      assert.ok(Math.abs(lateCard / late - 1) <= 0.005, `last 50 steps: ${lateCard} instead of ${late}`);
    });
  }

  // 2.2 million parameters outside the embeddings, eight sequences of 16k tokens.
  for (const attention of ["full", "moba-b512-k3"]) {
    test(`speed at 2.2M, 8 x 16k tokens, ${attention}`, (t) => {
      const config: RunConfig = {
        ...BASE,
        attention,
        model: "2.2M",
        shape: {
          ...{ layers: 5, heads: 3, kvHeads: 3, headDim: 64, modelDim: 192, feedForward: 512 },
          ...{ vocabulary: 8192, ropeTheta: 10_000, normEpsilon: 1e-5, tiedOutput: false, keyConvolution: 0 },
        },
        ...{ context: 16_384, sequencesPerStep: 8, sequencesPerPass: 8 },
      };
      const card = createCudaBackend();
      t.after(() => card.close());
      const { backend, waited, reset } = watched(card);
      const trainer = makeTrainer(backend, config);
      const batches = Array.from({ length: 4 }, (_, i) => chainBatch(config, 8, i));
      let step = 0;
      const run = (steps: number) => {
        for (let i = 0; i < steps; i++, step++) trainer.advance(step + 1, [batches[step % 4]]);
        trainer.settle();
      };
      // So many that the host code is compiled too.
      run(40);
      const before = card.memory();
      reset();
      const steps = 30;
      const start = performance.now();
      run(steps);
      const total = (performance.now() - start) / steps;
      const host = total - waited() / steps;
      assert.equal(card.memory(), before, "memory after the first steps");
      console.log(
        `  ${attention}: ${total.toFixed(2)} ms a step, ${((8 * 16_384) / total).toFixed(0)} k tokens/s, host busy ${host.toFixed(2)} ms (${((100 * host) / total).toFixed(1)} %), ${(before / 1e9).toFixed(2)} GB`,
      );
      assert.ok(host < 0.05 * total, `the host was busy for ${host} of ${total} ms, at most 5 % allowed`);
    });
  }
});
