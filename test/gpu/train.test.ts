/**
 * The trainer on the card: the same losses as on the CPU from the same start and batches, recomputation, evaluation,
 * tokens per second, and how much of a step the host is busy.
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
import { evaluateCheckpoint } from "../../src/train/evaluate-checkpoint.ts";
import { train as trainRun } from "../../src/train/run.ts";
import { Trainer } from "../../src/train/trainer.ts";
import type { RunConfig } from "../../src/train/types.ts";
import { OPTIMIZER } from "../train/tiny.ts";
import { skip } from "./card.ts";
import { makeStudy } from "./study.ts";

const BASE: Omit<RunConfig, "attention"> = {
  model: "d2",
  shape: ladderModel(2, { headDim: 64, vocabulary: 256 }),
  dataset: "none",
  context: 1024,
  sequencesPerStep: 4,
  sequencesPerPass: 2,
  horizon: { steps: 200 },
  optimizer: { ...OPTIMIZER, learningRate: 2e-3 },
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

/** Counts the milliseconds in which the host only waits for the card. */
function watched(backend: Backend): { backend: Backend; waited: () => number } {
  let waited = 0;
  const timed =
    <Result>(read: () => Result) =>
    () => {
      const start = performance.now();
      const result = read();
      waited += performance.now() - start;
      return result;
    };
  const change: Partial<Backend> = {
    readLater: (tensor) => timed(backend.readLater(tensor)),
    sumLater: (tensor) => timed(backend.sumLater(tensor)),
  };
  return { backend: Object.assign(Object.create(backend), change), waited: () => waited };
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

  test("recomputed activations give the same bits in less memory", (t) => {
    for (const attention of ["full", "moba-b64-k3", "moba-b64-k3/full:1"]) {
      const shape = ladderModel(6, { headDim: 64, vocabulary: 256 });
      const config = { ...BASE, attention, shape, horizon: { steps: 8 }, sequencesPerPass: 4 };
      const runs = [false, true].map((recompute) => {
        const backend = createCudaBackend();
        t.after(() => backend.close());
        return { losses: train(backend, { ...config, recompute }), bytes: backend.memory() };
      });
      const [kept, recomputed] = runs;
      console.log(
        `  ${attention}: ${(kept.bytes / 1e6).toFixed(0)} MB with activations kept, ${(recomputed.bytes / 1e6).toFixed(0)} MB with activations recomputed`,
      );
      assert.deepEqual(recomputed.losses, kept.losses);
      assert.ok(recomputed.bytes < 0.7 * kept.bytes, `${recomputed.bytes} bytes instead of ${kept.bytes}`);
    }
  });

  test("held-out loss by position is that of the CPU", async (t) => {
    const study = await makeStudy(1024, 400_000);
    t.after(study.remove);
    const open = () => {
      const backend = createCudaBackend();
      t.after(() => backend.close());
      return backend;
    };
    for (const attention of ["full", "moba-b64-k3"]) {
      const config: RunConfig = { ...BASE, dataset: "../data", attention, horizon: { steps: 60 } };
      const folder = study.run(attention, config);
      await trainRun(folder, { backend: open() });
      const cpu = createCpuBackend();
      t.after(() => cpu.close());
      const [expected, got] = [cpu, open()].map((backend) =>
        evaluateCheckpoint(folder, study.dataset, { backend, buckets: 16 }),
      );
      const apart = got.buckets.map(({ lm_loss }, i) => Math.abs(lm_loss - expected.buckets[i].lm_loss));
      const mean = Math.abs(got.lm_loss - expected.lm_loss);
      console.log(
        `  ${attention}: held-out loss ${expected.lm_loss.toFixed(4)} on the CPU, ${got.lm_loss.toFixed(4)} on the card; buckets at most ${Math.max(...apart).toFixed(5)} apart`,
      );
      assert.equal(got.predicted_tokens, expected.predicted_tokens);
      assert.ok(expected.lm_loss < 4, `the model has learned nothing: ${expected.lm_loss}`);
      // bf16 has 8 bits: means over thousands of tokens are far better than single logits.
      assert.ok(mean <= 2e-3, `mean losses are ${mean} nats apart, at most 0.002 allowed`);
      assert.ok(Math.max(...apart) <= 5e-3, `buckets are ${apart} nats apart, at most 0.005 allowed`);
    }
  });

  // 2.2 million parameters outside the embeddings, eight sequences of 16k tokens.
  for (const attention of ["full", "moba-b512-k3"]) {
    test(`speed of a run at 2.2M, 8 x 16k tokens, ${attention}`, async (t) => {
      const config: RunConfig = {
        ...BASE,
        attention,
        model: "2.2M",
        shape: {
          ...{ layers: 5, heads: 3, kvHeads: 3, headDim: 64, modelDim: 192, feedForward: 512 },
          ...{ vocabulary: 8192, ropeTheta: 10_000, normEpsilon: 1e-5, tiedOutput: false, keyConvolution: 0 },
        },
        ...{ dataset: "../data", horizon: { steps: 80 } },
        ...{ context: 16_384, sequencesPerStep: 8, sequencesPerPass: 8 },
      };
      const study = await makeStudy(config.context, 8_000_000);
      t.after(study.remove);
      const card = createCudaBackend();
      t.after(() => card.close());
      const { backend, waited } = watched(card);
      /** Waiting is for the card, or for a batch. */
      const now = () => ({
        time: performance.now(),
        waited: waited() + performance.eventLoopUtilization().idle,
        memory: card.memory(),
      });
      // The first steps compile the host code too; the last one evaluates.
      const [first, last] = [45, 79];
      const at = new Map<number, ReturnType<typeof now>>();
      await trainRun(study.run("run", config), { backend, onProgress: ({ step }) => at.set(step, now()) });
      const [start, end] = [at.get(first)!, at.get(last)!];
      const steps = last - first;
      const total = (end.time - start.time) / steps;
      const host = total - (end.waited - start.waited) / steps;
      assert.equal(end.memory, start.memory, "memory after the first steps");
      console.log(
        `  ${attention}: ${total.toFixed(2)} ms a step, ${((8 * 16_384) / total).toFixed(0)} k tokens/s, host busy ${host.toFixed(2)} ms (${((100 * host) / total).toFixed(1)} %), ${(end.memory / 1e9).toFixed(2)} GB`,
      );
      assert.ok(host < 0.05 * total, `the host was busy for ${host} of ${total} ms, at most 5 % allowed`);
    });
  }
});
