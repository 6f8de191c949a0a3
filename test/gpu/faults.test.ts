/**
 * What goes wrong on a card, through the command line of the build in dist/: exit code, one sentence, and a checkpoint
 * that goes on. test/cli/cuda-faults.test.ts has the same and more with the mock.
 *
 *   npm run build && npm run build:gpu && test/gpu/run.sh faults
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { ladderModel } from "../../src/model/config.ts";
import { createCudaBackend, cudaFacts } from "../../src/ops/cuda/index.ts";
import { readMetrics, readStatus } from "../../src/train/records.ts";
import { train } from "../../src/train/run.ts";
import type { RunConfig } from "../../src/train/types.ts";
import { ran } from "../cli/ran.ts";
import type { StandIn } from "../ops/cuda/stand-in.ts";
import { OPTIMIZER } from "../train/tiny.ts";
import { skip } from "./card.ts";
import { makeStudy } from "./study.ts";

const MAIN = "dist/cli/main.js";
const STAND_IN = new URL("../ops/cuda/stand-in.js", import.meta.url).href;

/** About 6 GB on the card, most of it activations. */
const config: RunConfig = {
  model: "d4",
  shape: ladderModel(4, { headDim: 64, vocabulary: 256 }),
  attention: "moba-b64-k3",
  dataset: "../data",
  ...{ context: 4096, sequencesPerStep: 32, sequencesPerPass: 32, horizon: { steps: 20 } },
  optimizer: { ...OPTIMIZER, learningRate: 1e-3 },
  ...{ buckets: 4, evaluations: 1, checkpointEvery: 5, recompute: false, seed: 7 },
};

async function mobalab(args: readonly string[], standIn: StandIn = {}, env: NodeJS.ProcessEnv = {}) {
  const child = spawn(process.execPath, ["--import", STAND_IN, MAIN, ...args], {
    env: { ...process.env, STAND_IN: JSON.stringify(standIn), ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const { code, stdout: out, stderr: said } = await ran(child);
  return { code, out, said };
}

/** One sentence, without a stack trace. */
function sentence({ said }: { said: string }, expected: RegExp): void {
  console.log(`  ${said.trim()}`);
  assert.match(said, /^mobalab: [^\n]+\n$/);
  assert.match(said, expected);
}

describe("faults", { skip }, () => {
  let study: Awaited<ReturnType<typeof makeStudy>>;
  before(async () => {
    study = await makeStudy(config.context, 2_000_000);
  });
  after(() => study.remove());

  test("a part of the environment is missing: code 2", async () => {
    const cases: readonly [what: string, standIn: StandIn, env: NodeJS.ProcessEnv, expected: RegExp][] = [
      ["no-card", {}, { CUDA_VISIBLE_DEVICES: "" }, /--device cuda: no CUDA card was found$/m],
      ["no-driver", { missing: ["libcuda"] }, {}, /libcuda\.so\.1 was not found .* the NVIDIA driver$/m],
      ["no-blas", { missing: ["libcublasLt"] }, {}, /libcublasLt\.so\.13 was not found .* linear layers/],
    ];
    for (const [what, standIn, env, expected] of cases) {
      const ran = await mobalab(["train", study.run(what, config), "--device", "cuda"], standIn, env);
      sentence(ran, expected);
      assert.equal(ran.code, 2, what);
    }
  });

  test("a model larger than the card: code 1, what was asked for and what is free", async () => {
    const shape = { ...ladderModel(100, { headDim: 128, vocabulary: 256 }), layers: 60 };
    const ran = await mobalab(["train", study.run("giant", { ...config, shape }), "--device", "cuda"]);
    sentence(
      ran,
      /out of memory on the card: a tensor of shape .* GB\) was asked for, .* are free; there is no checkpoint yet$/m,
    );
    assert.equal(ran.code, 1);
  });

  test("no memory left when a run is resumed: code 1, and the checkpoint goes on once there is", async () => {
    const folder = study.run("resumed", config);
    const abort = new AbortController();
    const backend = createCudaBackend();
    const result = await train(folder, {
      backend,
      signal: abort.signal,
      onProgress: ({ step }) => step === 7 && abort.abort(),
    });
    const needed = backend.memory();
    backend.close();
    assert.deepEqual([result.outcome, result.step], ["interrupted", 7]);

    const hog = createCudaBackend();
    const { totalBytes } = cudaFacts().cards[0];
    const piece = 2 ** 30;
    // What is left is half of what the run needs, less what its context and cuBLASLt take.
    for (let taken = 0; taken < totalBytes - needed / 2 - 1.5 * piece; taken += piece) {
      try {
        hog.tensor([piece / 4], "float");
      } catch {
        break;
      }
    }
    const refused = await mobalab(["train", folder, "--device", "cuda", "--resume"]);
    hog.close();
    sentence(
      refused,
      /out of memory on the card: .* was asked for, .* are free; the last good checkpoint is .*, step 7$/m,
    );
    assert.equal(refused.code, 1);
    assert.equal(readStatus(folder)!.state, "failed");

    const resumed = await mobalab(["train", folder, "--device", "cuda", "--resume"]);
    assert.equal(resumed.said, "");
    assert.equal(resumed.code, 0);
    const steps = readMetrics(`${folder}/metrics.jsonl`).map(({ step }) => step);
    assert.deepEqual(
      steps,
      Array.from({ length: 20 }, (_, i) => i + 1),
    );
    const { code, out } = await mobalab(["eval", folder, "--device", "cuda", "--json"]);
    assert.equal(code, 0);
    assert.ok(JSON.parse(out).lm_loss < 5, "the held-out loss of the finished run");
  });

  test("a loss that is not finite: code 1, naming the step", async () => {
    // Infinite in f32: the first step leaves weights that are.
    const optimizer = { ...config.optimizer, learningRate: 1e39, warmup: 0, maxNorm: 0 };
    const change = { optimizer, checkpointEvery: 0, sequencesPerStep: 4, sequencesPerPass: 4 };
    const ran = await mobalab(["train", study.run("nan", { ...config, ...change }), "--device", "cuda"]);
    sentence(
      ran,
      /(loss|gradient norm) of step \d+ is (NaN|-?Infinity), expected a finite number; first tensor .*: \w.*; there is no checkpoint yet$/m,
    );
    assert.equal(ran.code, 1);
  });
});
