/** Steps enqueued ahead of their results, as on a card: the same records and weights, and the right step is blamed. */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RunError } from "../../src/errors.ts";
import { ladderModel } from "../../src/model/config.ts";
import type { Backend } from "../../src/ops/contract.ts";
import { createNullBackend } from "../../src/ops/cuda/null.ts";
import { readMetrics, readStatus } from "../../src/train/records.ts";
import { train } from "../../src/train/run.ts";
import { Trainer } from "../../src/train/trainer.ts";
import { makeStudyFolder, openBackend, outcomeOf } from "./run-folder.ts";
import { randomBatch, tinyConfig } from "./tiny.ts";

const config = tinyConfig({ attention: "moba-b8-k2+full@0.6" });

/** The CPU backend, treated as one whose operations are still under way when they return. */
function openAhead(change: (backend: Backend) => Partial<Backend> = () => ({})): Backend {
  const backend = openBackend();
  return Object.assign(Object.create(backend), { asynchronous: true, ...change(backend) });
}

/** A NaN in the embeddings of the pass of these tokens, each time that it runs. */
function badBatch(bad: ArrayLike<number>) {
  return (backend: Backend): Partial<Backend> => ({
    embeddingForward(out_TC, table_VC, tokens_T) {
      backend.embeddingForward(out_TC, table_VC, tokens_T);
      if (`${backend.read(tokens_T)}` === `${bad}`) backend.write(backend.view(out_TC, 3, [1]), [Number.NaN]);
    },
  });
}

describe("a run", () => {
  let study: Awaited<ReturnType<typeof makeStudyFolder>>;
  let whole: string;
  beforeAll(async () => {
    study = await makeStudyFolder(config.context);
    whole = study.run("whole", config);
    const backend = openBackend();
    await train(whole, { backend });
    backend.close();
  });
  afterAll(() => study.remove());

  test("leaves the same records and the same bits, interrupted or not", async () => {
    for (const until of [3, 4, 5, 8, 12]) {
      const folder = study.run(`until-${until}`, config);
      const abort = new AbortController();
      const backend = openAhead();
      const onProgress = ({ step }: { step: number }) => step === until && abort.abort();
      await train(folder, { backend, signal: abort.signal, onProgress });
      expect(readStatus(folder)!.step).toBe(until);
      expect(readMetrics(join(folder, "metrics.jsonl")).length).toBe(until);
      const { time_s } = readMetrics(join(folder, "metrics.jsonl")).at(-1)!;
      expect(time_s).toBeGreaterThan(0);
      await train(folder, { backend, resume: true });
      backend.close();
      expect(outcomeOf(folder)).toEqual(outcomeOf(whole));
    }
  });

  test("a bad batch: its step and tensor are named, with the records and the checkpoint of before", async () => {
    const stream = study.dataset.trainingStream(config.context, config.seed);
    const bad = stream.batch((5 - 1) * 2 + 1, 1).tokens;
    const folder = study.run("bad-batch", config);
    const error = await train(folder, { backend: openAhead(badBatch(bad)) }).then(
      () => expect.unreachable("it should have failed"),
      (error) => error,
    );
    expect(error).toBeInstanceOf(RunError);
    expect(error.message).toMatch(
      /the loss of step 5 is NaN, .*: embedding; the last good checkpoint is .*, step 3$/,
    );
    expect(readMetrics(join(folder, "metrics.jsonl")).length).toBe(4);
    const backend = openAhead();
    await train(folder, { backend, resume: true });
    backend.close();
    expect(outcomeOf(folder)).toEqual(outcomeOf(whole));
  });
});

describe("a trainer", () => {
  test("leaves the weights as they were before a bad step, though the next is under way", () => {
    const batches = Array.from({ length: 4 }, (_, i) => randomBatch(2, 32, i + 1));
    const make = (backend: Backend) => {
      const trainer = new Trainer(backend, tinyConfig({ sequencesPerPass: 2 }), 2, [
        { kind: "full" },
        { kind: "full" },
      ]);
      trainer.model.initialize(1);
      return trainer;
    };
    const good = openBackend();
    const expected = make(good);
    for (const step of [1, 2]) expected.step(step, [batches[step - 1]]);
    const backend = openAhead(badBatch(batches[2].tokens));
    const trainer = make(backend);
    expect(trainer.advance(1, [batches[0]])).toBe(null);
    expect(trainer.advance(2, [batches[1]])).toMatchObject({ step: 1 });
    expect(trainer.advance(3, [batches[2]])).toMatchObject({ step: 2 });
    expect(() => trainer.advance(4, [batches[3]])).toThrow(/of step 3 is NaN.*: embedding$/);
    expect(trainer.pending).toBe(false);
    expect(backend.read(trainer.model.master)).toEqual(good.read(expected.model.master));
    backend.close();
    good.close();
  });

  test("waits for the step before only after its passes are enqueued, and a step allocates nothing", () => {
    const backend = createNullBackend();
    const shape = ladderModel(2, { headDim: 64, vocabulary: 256 });
    const attention = new Array(2).fill({ kind: "moba", blockSize: 16, topK: 2 });
    const trainer = new Trainer(backend, tinyConfig({ shape, context: 64 }), 1, attention);
    trainer.setAttention(new Array(2).fill({ kind: "full" }));
    trainer.setAttention(attention);
    const passes = [1, 2].map((seed) => randomBatch(1, 64, seed));
    trainer.advance(1, passes);
    trainer.advance(2, passes);
    const before = backend.memory();
    backend.mock.calls.length = 0;
    expect(trainer.advance(3, passes)).toMatchObject({ step: 2, loss: 0, gradNorm: 0 });
    const told = backend.mock.calls.filter((call) => /Launch|Synchronize|Alloc|Capture/.test(call));
    expect(told).toEqual([
      // Each pass, and the sum of its losses.
      ...["cuGraphLaunch", "cuLaunchKernel", "cuGraphLaunch", "cuLaunchKernel"],
      // Two losses and a norm of the step before.
      ...["cuEventSynchronize", "cuEventSynchronize", "cuEventSynchronize"],
      "cuGraphLaunch",
    ]);
    expect(() => trainer.setAttention(attention)).toThrow("step 3 is pending");
    trainer.settle();
    backend.mock.calls.length = 0;
    trainer.setAttention(new Array(2).fill({ kind: "full" }));
    trainer.step(4, passes);
    expect(backend.mock.calls.join()).not.toMatch(/Capture|Alloc|StreamSynchronize/);
    expect(backend.memory()).toBe(before);
    backend.close();
  });
});
