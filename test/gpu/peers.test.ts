/**
 * Several cards: NCCL with one process on one card; and with two cards the losses of one card with all passes, tokens
 * per second at 541M parameters, and what becomes of a run when one of its processes is killed.
 *
 *   npm run build && npm run build:cuda && npm run build:gpu && test/gpu/run.sh peers
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { ladderModel } from "../../src/model/config.ts";
import { createCudaBackend, cudaFacts, type Meeting } from "../../src/ops/cuda/index.ts";
import { readMetrics, readStatus } from "../../src/train/records.ts";
import { Trainer } from "../../src/train/trainer.ts";
import type { MetricsRecord, RunConfig } from "../../src/train/types.ts";
import { ran } from "../cli/ran.ts";
import { processOfRank } from "../train/ranks.ts";
import { OPTIMIZER } from "../train/tiny.ts";
import { skip } from "./card.ts";
import { makeStudy } from "./study.ts";

const { cards, nccl, libraries } = cudaFacts();
const noNccl = nccl === null && `no NCCL: ${libraries.find(({ name }) => name === "nccl")?.problem}`;
const few = cards.length < 2 && `${cards.length} card, two are needed`;

const MAIN = "dist/cli/main.js";
const SMALL: RunConfig = {
  model: "d4",
  shape: ladderModel(4, { headDim: 64, vocabulary: 256 }),
  attention: "moba-b64-k3",
  dataset: "../data",
  ...{ context: 8192, sequencesPerStep: 4, sequencesPerPass: 1, horizon: { steps: 200 } },
  optimizer: { ...OPTIMIZER, learningRate: 2e-3 },
  ...{ buckets: 4, evaluations: 1, checkpointEvery: 20, recompute: false, seed: 7 },
};
/** 541 million parameters outside the embeddings; a pass is four windows of 8k tokens. */
const LARGE: RunConfig = {
  ...SMALL,
  model: "d14",
  shape: ladderModel(14, { headDim: 128, vocabulary: 32_768 }),
  attention: "full",
  ...{ sequencesPerStep: 8, sequencesPerPass: 4, horizon: { steps: 40 } },
  ...{ checkpointEvery: 0, evaluationWindows: 8 },
  optimizer: { ...SMALL.optimizer, learningRate: 4e-4 },
};

function start(...args: readonly string[]) {
  const child = spawn(process.execPath, [MAIN, "train", ...args, "--device", "cuda"], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  const ended = ran(child).then(({ code, stderr: said }) => ({ code, said }));
  return { pid: child.pid!, kill: child.kill.bind(child), ended };
}

const metricsOf = (folder: string) => readMetrics(join(folder, "metrics.jsonl"));

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

/** Largest distance in nats of the first 50 steps, and that of the means of the last quarter. */
function apart(a: readonly MetricsRecord[], b: readonly MetricsRecord[]) {
  const mean = (records: readonly MetricsRecord[]) =>
    records.reduce((sum, { loss }) => sum + loss, 0) / records.length;
  const last = Math.ceil(a.length / 4);
  return {
    steps: Math.max(...a.slice(0, 50).map(({ loss }, i) => Math.abs(loss - b[i].loss))),
    end: Math.abs(mean(a.slice(-last)) - mean(b.slice(-last))),
  };
}

describe("one process with NCCL", { skip: skip || noNccl }, () => {
  const meeting: Meeting = { rank: 0, count: 1, share: (bytes) => bytes!, lost: () => null };

  test("sums, plain and recorded, between operations", (t) => {
    console.log(`  NCCL ${nccl}`);
    const backend = createCudaBackend({ meeting });
    t.after(() => backend.close());
    const peers = backend.peers!;
    const length = 20_000_000;
    const [x, y] = [backend.tensor([length], "float"), backend.tensor([length], "float")];
    const replay = backend.record(() => {
      backend.copy(y, x);
      peers.sum(y, 0, 1000);
      peers.sum(y, 1000, length);
      peers.join();
      backend.copy(x, y);
    });
    const before = backend.memory();
    for (const value of [3, 5]) {
      backend.write(x, new Float32Array(length).fill(value));
      peers.sum(x, 1, 2);
      peers.join();
      replay();
      assert.ok(backend.read(x).every((v) => v === value));
    }
    assert.equal(backend.memory(), before);
  });

  test("a step of the trainer gives the bits of one without NCCL", (t) => {
    const layers = new Array(4).fill({ kind: "full" });
    const config = { ...SMALL, context: 1024 };
    const random = Int32Array.from({ length: 1024 }, (_, i) => (i * 7919) % 256);
    const batch = { tokens: random, targets: random.map((id) => (id * 31 + 5) % 256), offsets: [0, 1024] };
    const results = [createCudaBackend(), createCudaBackend({ meeting })].map((backend) => {
      t.after(() => backend.close());
      const trainer = new Trainer(backend, config, 1, layers);
      trainer.model.initialize(1);
      const losses = [1, 2, 3].map((step) => trainer.step(step, [batch, batch]).loss);
      return { losses, weights: backend.read(trainer.model.master) };
    });
    assert.deepEqual(results[1], results[0]);
  });

  test("a process that has ended is noticed, and closing does not wait for it", async () => {
    let lost: string | null = null;
    const backend = createCudaBackend({ meeting: { ...meeting, lost: () => lost } });
    const x = backend.tensor([50_000_000], "float");
    const replay = backend.record(() => {
      for (let i = 0; i < 100; i++) backend.zero(x);
      backend.peers!.sum(x, 0, x.length);
      backend.peers!.join();
    });
    for (let i = 0; i < 20; i++) replay();
    lost = "rank 1 has ended";
    await setTimeout(30);
    for (let i = 0; i < 20; i++) replay();
    assert.throws(() => backend.synchronize(), { message: "lost a process of this run: rank 1 has ended" });
    const began = performance.now();
    backend.close();
    const seconds = (performance.now() - began) / 1000;
    console.log(`  closed after ${seconds.toFixed(2)} s`);
    assert.ok(seconds < 5);
  });
});

describe("two cards", { skip: skip || noNccl || few }, () => {
  let study: Awaited<ReturnType<typeof makeStudy>>;
  before(async () => {
    study = await makeStudy(SMALL.context, 4_000_000);
  });
  after(() => study.remove());

  /** The records of the run on one card and on two. */
  async function both(name: string, config: RunConfig): Promise<MetricsRecord[][]> {
    const records: MetricsRecord[][] = [];
    for (const gpus of ["1", "2"]) {
      const folder = study.run(`${name}-${gpus}`, config);
      assert.deepEqual(await start(folder, "--gpus", gpus).ended, { code: 0, said: "" });
      records.push(metricsOf(folder));
      rmSync(join(folder, "checkpoint"), { recursive: true });
    }
    return records;
  }

  test("the losses of one card with twice the accumulation", async () => {
    const [one, two] = await both("small", SMALL);
    assert.equal(two.length, 200);
    const { steps, end } = apart(one, two);
    console.log(
      `  loss ${one[0].loss.toFixed(3)} to ${one.at(-1)!.loss.toFixed(4)} on one card, ${two.at(-1)!.loss.toFixed(4)} on two; at most ${steps.toFixed(4)} nats apart in 50 steps, last quarter ${end.toFixed(5)}`,
    );
    assert.ok(steps <= 0.02 && end <= 0.005 * two.at(-1)!.loss, `${steps} and ${end} nats apart`);
  });

  test("541M, four windows of 8k tokens a card: at least 1.85 times the tokens of one card", async () => {
    const records = await both("large", LARGE);
    const [one, two] = records.map((all) => median(all.slice(15).map((record) => record.tokensPerSecond)));
    const { steps } = apart(records[0], records[1]);
    console.log(
      `  ${(one / 1000).toFixed(1)} k tokens/s on one card, ${(two / 1000).toFixed(1)} k on two: ${(two / one).toFixed(3)} times; at most ${steps.toFixed(4)} nats apart in 40 steps`,
    );
    assert.ok(steps <= 0.02, `${steps} nats apart`);
    assert.ok(two / one >= 1.85, `${two / one} times the tokens`);
  });

  test("a killed process, either: code 1, one sentence, and the checkpoint goes on; so does one told to stop", async () => {
    const folder = study.run("killed", { ...SMALL, horizon: { steps: 100_000 } });
    let reached = 0;
    const steps = async (count: number) => {
      const until = reached + count;
      for (let waited = 0; reached < until; waited++) {
        assert.ok(waited < 1200, `no step ${until} within two minutes`);
        await setTimeout(100);
        reached = metricsOf(folder).at(-1)?.step ?? 0;
      }
    };
    for (const rank of [1, 0]) {
      const run = start(folder, "--gpus", "2", "--resume");
      await steps(60);
      const began = performance.now();
      process.kill(processOfRank(run.pid, rank), "SIGKILL");
      const { code, said } = await run.ended;
      const seconds = (performance.now() - began) / 1000;
      console.log(`  ${seconds.toFixed(1)} s after the kill: ${said.trim()}`);
      assert.match(
        said,
        new RegExp(
          `^mobalab: lost a process of this run: rank ${rank} was ended by SIGKILL; the last good checkpoint is .*, step \\d+\n$`,
        ),
      );
      assert.equal(code, 1);
      assert.ok(seconds < 15, `${seconds} s`);
      assert.equal(readStatus(folder)!.state, "failed");
    }
    const run = start(folder, "--gpus", "2", "--resume");
    await steps(30);
    run.kill("SIGTERM");
    const { code, said } = await run.ended;
    console.log(`  ${said.trim()}`);
    assert.match(said, /^mobalab: interrupted at step \d+: .* --resume continues\n$/);
    assert.equal(code, 1);
    // One card goes on where two stopped.
    const alone = start(folder, "--resume");
    await steps(30);
    alone.kill("SIGTERM");
    assert.match((await alone.ended).said, /interrupted at step/);
  });
});
