import { spawnSync } from "node:child_process";
import {
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { attendedPairs, causalPairs } from "../../src/attention/pairs.ts";
import { InputError, RunError } from "../../src/errors.ts";
import { nonEmbeddingParameters } from "../../src/model/config.ts";
import type { Backend } from "../../src/ops/contract.ts";
import { evaluateCheckpoint } from "../../src/train/evaluate-checkpoint.ts";
import { readEvaluations, readMetrics, readStatus } from "../../src/train/records.ts";
import { type TrainOptions, train } from "../../src/train/run.ts";
import { readTruncated } from "../../src/train/truncated.ts";
import { makeStudyFolder, openBackend, outcomeOf } from "./run-folder.ts";
import { tinyConfig } from "./tiny.ts";

/** A change of attention on the way, two passes a step, a checkpoint every three steps. */
const config = tinyConfig({ attention: "moba-b8-k2+full@0.6" });
const steps = 12;

let study: Awaited<ReturnType<typeof makeStudyFolder>>;
let whole: string;
beforeAll(async () => {
  study = await makeStudyFolder(config.context);
  whole = study.run("whole", config);
  await trainOnce(whole);
});
afterAll(() => study.remove());

async function trainOnce(runFolder: string, options: Partial<TrainOptions> = {}) {
  const backend = options.backend ?? openBackend();
  try {
    return await train(runFolder, { ...options, backend });
  } finally {
    backend.close();
  }
}

/** Trains and aborts as soon as `step` is done. */
function trainUntil(runFolder: string, step: number, resume = false) {
  const abort = new AbortController();
  return trainOnce(runFolder, {
    resume,
    signal: abort.signal,
    onProgress: (progress) => progress.step === step && abort.abort(),
  });
}

async function failure(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    () => expect.unreachable("it should have failed"),
    (error) => error,
  );
}

describe("an uninterrupted run", () => {
  test("writes every step once, and its loss falls", () => {
    const metrics = readMetrics(join(whole, "metrics.jsonl"));
    expect(metrics.map(({ step }) => step)).toEqual(Array.from({ length: steps }, (_, i) => i + 1));
    expect(metrics.map(({ tokens }) => tokens)).toEqual(metrics.map(({ step }) => step * 64));
    expect(Math.abs(metrics[0].loss / Math.log(256) - 1)).toBeLessThan(0.05);
    expect(metrics.at(-1)!.loss).toBeLessThan(metrics[0].loss - 0.2);
  });

  test("counts compute from the documents of its batches and the attention of each step", () => {
    const { shape } = config;
    const N = nonEmbeddingParameters(shape);
    const stream = study.dataset.trainingStream(config.context, config.seed);
    let blind = 0;
    let attended = 0;
    let pairs = 0;
    let causal = 0;
    for (let i = 0; i < steps * 2; i++) {
      const { offsets } = stream.batch(i, 1);
      const isFull = Math.floor(i / 2) >= 0.6 * steps;
      blind += 6 * N * 32;
      attended += 6 * (N + 256 * 16) * 32;
      for (let d = 1; d < offsets.length; d++) {
        const length = offsets[d] - offsets[d - 1];
        const moba = { kind: "moba", blockSize: 8, topK: 2 } as const;
        // Blocks 1, 2 and 3 of 8 queries each score the blocks before them.
        let scores = 0;
        for (let t = 0; t < length; t++) scores += Math.floor(t / 8);
        const done = isFull ? causalPairs(length) : attendedPairs(moba, length);
        attended += 2 * (12 * 8 * 2 * done + (isFull ? 0 : 2 * 8 * 2 * scores));
        pairs += done;
        causal += causalPairs(length);
      }
    }
    const last = readMetrics(join(whole, "metrics.jsonl")).at(-1)!;
    expect(last.pflops_days * 8.64e19).toBeCloseTo(blind, 0);
    expect(last.pflops_days_attended * 8.64e19).toBeCloseTo(attended, 0);
    expect(readStatus(whole)!.sparsity).toBeCloseTo(1 - pairs / causal, 12);
  });

  test("evaluates at the end, by bucket and document, and says it is finished", () => {
    const last = readEvaluations(join(whole, "eval.jsonl")).at(-1)!;
    const { windows, leftOut } = study.dataset.evaluationWindows(config.context);
    expect(last).toMatchObject({ step: steps, final: true, predicted_tokens: windows.length * 32 });
    expect(last.buckets.map((b) => [b.position_start, b.position_end, b.predicted_tokens])).toEqual(
      [0, 8, 16, 24].map((start) => [start, start + 8, windows.length * 8]),
    );
    // One token is one byte.
    expect(last.bits_per_byte).toBeCloseTo(last.lm_loss / Math.LN2, 12);
    const status = readStatus(whole)!;
    expect(status).toMatchObject({
      state: "finished",
      step: steps,
      steps,
      attempt: 1,
      windowsLeftOut: leftOut,
    });
  });

  test("measures the ends of a quarter of the windows with less of them before", () => {
    const { windows } = study.dataset.evaluationWindows(config.context);
    const truncated = readTruncated(whole)!;
    expect(truncated.contexts).toEqual([2, 4, 8, 16, 32]);
    expect(truncated.windows).toBe(Math.ceil(windows.length / 4));
    expect(truncated.predicted_tokens).toBe(2 * truncated.windows);
    const { documents, lm_loss } = readEvaluations(join(whole, "eval.jsonl")).at(-1)!;
    expect(documents.map(({ document }) => document)).toEqual(
      expect.arrayContaining(truncated.documents.map(({ document }) => document)),
    );
    for (const loss of truncated.lm_loss) expect(Math.abs(loss - lm_loss)).toBeLessThan(1);
  });

  test("leaves one checkpoint and nothing else", () => {
    expect(readdirSync(whole).sort()).toEqual([
      "checkpoint",
      "config.json",
      "eval.jsonl",
      "metrics.jsonl",
      "status.json",
      "truncated.json",
    ]);
    expect(readdirSync(join(whole, "checkpoint")).sort()).toEqual([
      "config.json",
      "model.safetensors",
      "optimizer.safetensors",
      "state.json",
    ]);
  });

  test("its checkpoint evaluates to the very same loss, and to another with another attention", () => {
    const backend = openBackend();
    const last = readEvaluations(join(whole, "eval.jsonl")).at(-1)!;
    const again = evaluateCheckpoint(whole, study.dataset, { backend, buckets: 4 });
    expect(again.lm_loss).toBe(last.lm_loss);
    expect(again.documents).toEqual(last.documents);
    const moba = evaluateCheckpoint(whole, study.dataset, { backend, buckets: 4, attention: "moba-b8-k1" });
    expect(moba.buckets[0].lm_loss).toBe(again.buckets[0].lm_loss); // the own block is all there is
    expect(moba.buckets[3].lm_loss).not.toBe(again.buckets[3].lm_loss);
    expect(() =>
      evaluateCheckpoint(whole, study.dataset, { backend, buckets: 4, attention: "moba-b8-k2+full@0.5" }),
    ).toThrow(/expected one attention/);
    backend.close();
  });
});

describe("resume", () => {
  test.each([1, 3, 5, 8, 11])("after step %d: the same bits as without interruption", async (step) => {
    const folder = study.run(`until-${step}`, config);
    expect((await trainUntil(folder, step)).outcome).toBe("interrupted");
    expect(readStatus(folder)).toMatchObject({
      state: "running",
      step,
      message: expect.stringMatching(/interrupted/),
    });
    expect((await trainOnce(folder, { resume: true })).outcome).toBe("finished");
    expect(outcomeOf(folder)).toEqual(outcomeOf(whole));
    expect(readMetrics(join(folder, "metrics.jsonl")).map(({ attempt }) => attempt)).toEqual(
      Array.from({ length: steps }, (_, i) => (i < step ? 1 : 2)),
    );
    expect(readStatus(folder)).toMatchObject({ state: "finished", attempt: 2 });
  });

  test("with another number of threads: the same bits", async () => {
    const folder = study.run("threads", config);
    await trainUntil(folder, 4);
    await trainOnce(folder, { resume: true, backend: openBackend(3) });
    expect(outcomeOf(folder)).toEqual(outcomeOf(whole));
  });

  test("a finished run is left as it is", async () => {
    const before = readdirSync(whole).map((name) =>
      name === "checkpoint" ? name : readFileSync(join(whole, name), "utf8"),
    );
    const result = await trainOnce(whole, { resume: true });
    expect(result).toMatchObject({ outcome: "already finished", step: steps, evaluation: { final: true } });
    const after = readdirSync(whole).map((name) =>
      name === "checkpoint" ? name : readFileSync(join(whole, name), "utf8"),
    );
    expect(after).toEqual(before);
  });

  test("an empty run folder starts from the beginning", async () => {
    const folder = study.run("empty", tinyConfig({ horizon: { steps: 1 } }));
    expect((await trainOnce(folder, { resume: true })).outcome).toBe("finished");
  });

  test("falls back on checkpoint.old when the process died between two renames", async () => {
    const folder = study.run("between", config);
    await trainUntil(folder, 5);
    renameSync(join(folder, "checkpoint"), join(folder, "checkpoint.old"));
    await trainOnce(folder, { resume: true });
    expect(readMetrics(join(folder, "metrics.jsonl")).map(({ attempt }) => attempt)[4]).toBe(1);
    expect(outcomeOf(folder)).toEqual(outcomeOf(whole));
    expect(existsSync(join(folder, "checkpoint.old"))).toBe(false);
  });
});

describe("refuses with one sentence", () => {
  test("to start in a folder that holds a run", async () => {
    const error = await failure(trainOnce(whole));
    expect(error).toBeInstanceOf(InputError);
    expect(error.message).toMatch(
      /already holds a run \(finished, step 12 of 12\): continue it with --resume/,
    );
  });

  test("to resume with another configuration, naming the field", async () => {
    const folder = study.run("changed", config);
    await trainUntil(folder, 2);
    const optimizer = { ...config.optimizer, learningRate: 1 };
    writeFileSync(join(folder, "config.json"), JSON.stringify({ ...config, optimizer }));
    const error = await failure(trainOnce(folder, { resume: true }));
    expect(error).toBeInstanceOf(InputError);
    expect(error.message).toMatch(/optimizer.learningRate 0.003 instead of 1/);
  });

  test("a corrupt checkpoint, naming the file", async () => {
    const folder = study.run("corrupt", config);
    await trainUntil(folder, 2);
    for (const name of ["optimizer.safetensors", "model.safetensors", "state.json"]) {
      const file = join(folder, "checkpoint", name);
      const content = readFileSync(file);
      writeFileSync(file, content.subarray(0, content.length / 2));
      const error = await failure(trainOnce(folder, { resume: true }));
      expect(error).toBeInstanceOf(InputError);
      expect(error.message).toContain(name);
      writeFileSync(file, content);
    }
    expect((await trainOnce(folder, { resume: true })).outcome).toBe("finished");
  });

  test("a dataset without a full window, leaving nothing behind", async () => {
    const folder = study.run("long", tinyConfig({ context: 4096 }));
    expect(await failure(trainOnce(folder))).toBeInstanceOf(InputError);
    expect(readdirSync(folder)).toEqual(["config.json"]);
  });
});

describe("work that fails", () => {
  /** The backend, whose optimizer puts `value` into the last parameter (the final norm) at its `call`-th step. */
  function poisoned(call: number, value: number): Backend {
    const backend = openBackend();
    let calls = 0;
    const poison: Backend["adamw"] = (master, weights, ...rest) => {
      backend.adamw(master, weights, ...rest);
      calls++;
      if (calls === call) backend.write(backend.view(master, master.length - 1, [1]), [value]);
    };
    return Object.assign(Object.create(backend), { adamw: poison, close: () => backend.close() });
  }

  test("a non-finite loss: step, tensor and last good checkpoint are named", async () => {
    const folder = study.run("poisoned", config);
    const error = await failure(trainOnce(folder, { backend: poisoned(4, Number.POSITIVE_INFINITY) }));
    expect(error).toBeInstanceOf(RunError);
    expect(error.message).toMatch(/the (loss|gradient norm) of step 5 is (NaN|-?Infinity)/);
    expect(error.message).toContain("parameter model.norm.weight");
    expect(error.message).toContain(`the last good checkpoint is ${join(folder, "checkpoint")}, step 3`);
    expect(readStatus(folder)).toMatchObject({ state: "failed", message: error.message });
    expect(readMetrics(join(folder, "metrics.jsonl")).length).toBe(4);
    await trainOnce(folder, { resume: true });
    expect(outcomeOf(folder)).toEqual(outcomeOf(whole));
  });

  test("a checkpoint is never made of weights that are not finite", async () => {
    const folder = study.run("poisoned-checkpoint", tinyConfig({ evaluations: 1 }));
    const error = await failure(trainOnce(folder, { backend: poisoned(6, Number.NaN) }));
    expect(error.message).toMatch(/parameter model.norm.weight holds a value that is not finite.* step 3$/);
    expect(JSON.parse(readFileSync(join(folder, "checkpoint", "state.json"), "utf8")).step).toBe(3);
  });

  test.skipIf(!existsSync("/dev/full"))(
    "a full disk takes no records: file and reason are named",
    async () => {
      const folder = study.run("no-records", config);
      const metrics = join(folder, "metrics.jsonl");
      const fill = ({ step }: { step: number }) => {
        if (step !== 4) return;
        renameSync(metrics, join(folder, "kept"));
        symlinkSync("/dev/full", metrics);
      };
      const error = await failure(trainOnce(folder, { onProgress: fill }));
      expect(error).toBeInstanceOf(RunError);
      expect(error.message).toMatch(
        /cannot write .*metrics\.jsonl: ENOSPC.*the last good checkpoint is .*, step 3$/,
      );
      renameSync(join(folder, "kept"), metrics);
      await trainOnce(folder, { resume: true });
      expect(outcomeOf(folder)).toEqual(outcomeOf(whole));
    },
  );

  test("a full disk takes no checkpoint: the last one is intact, and nothing half-written stays", async ({
    skip,
  }) => {
    const folder = study.run("small-disk", config);
    const size = readdirSync(join(whole, "checkpoint"))
      .map((name) => statSync(join(whole, "checkpoint", name)).size)
      .reduce((a, b) => a + b);
    const mount = (options: string) =>
      spawnSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", folder]).status === 0;
    // Room for one checkpoint and the records, not for two checkpoints.
    if (!mount(`size=${Math.round(size * 1.6)}`)) skip("needs the right to mount a tmpfs");
    try {
      writeFileSync(join(folder, "config.json"), JSON.stringify(config));
      const error = await failure(trainOnce(folder));
      expect(error).toBeInstanceOf(RunError);
      expect(error.message).toMatch(
        /cannot write .*checkpoint.*: ENOSPC.*the last good checkpoint is .*, step 3$/,
      );
      expect(readStatus(folder)).toMatchObject({ state: "failed", message: error.message });
      expect(readdirSync(folder).filter((name) => name.startsWith("checkpoint"))).toEqual(["checkpoint"]);
      expect(mount(`remount,size=${10 * size}`)).toBe(true);
      await trainOnce(folder, { resume: true });
      expect(outcomeOf(folder)).toEqual(outcomeOf(whole));
    } finally {
      spawnSync("umount", [folder]);
    }
  });
});
