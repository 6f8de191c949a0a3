/** `mobalab train --gpus` with a process for each card, through the command line and the mock driver. */
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ladderModel } from "../../src/model/config.ts";
import { readMetrics, readStatus } from "../../src/train/records.ts";
import type { StandIn } from "../ops/cuda/stand-in.ts";
import { processOfRank } from "../train/ranks.ts";
import { makeStudyFolder } from "../train/run-folder.ts";
import { tinyConfig } from "../train/tiny.ts";
import { ran } from "./ran.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const STAND_IN = new URL("../ops/cuda/stand-in.ts", import.meta.url).href;
const config = tinyConfig({
  shape: { ...ladderModel(1, { headDim: 64, vocabulary: 256 }), feedForward: 64 },
  attention: "moba-b16-k2",
  ...{ evaluations: 1, checkpointEvery: 2 },
});

let study: Awaited<ReturnType<typeof makeStudyFolder>>;
beforeAll(async () => {
  study = await makeStudyFolder(config.context);
});
afterAll(() => study.remove());

function start(run: string, standIn: StandIn, ...options: string[]) {
  const args = ["--import", import.meta.resolve("tsx"), "--import", STAND_IN, MAIN, "train", run];
  const child = spawn(process.execPath, [...args, "--device", "cuda", "--gpus", "2", ...options], {
    env: {
      ...process.env,
      STAND_IN: JSON.stringify({ ...standIn, sums: mkdtempSync(join(study.folder, "sums-")) }),
      XDG_CACHE_HOME: join(study.folder, "cache"),
    },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const ended = ran(child).then(({ code, stderr: said }) => ({ code, said }));
  return { pid: child.pid!, kill: child.kill.bind(child), ended };
}

const two: StandIn = { mock: { cards: 2 } };

/** Waits until the status says that step or a later one. */
async function reaches(run: string, step: number): Promise<void> {
  for (let waited = 0; (readStatus(run)?.step ?? 0) < step; waited++) {
    expect(waited, `${run} reaches step ${step}`).toBeLessThan(600);
    await setTimeout(50);
  }
}

test("what is missing: code 2, one sentence", async () => {
  const cases: [standIn: StandIn, options: string[], says: RegExp][] = [
    [{ mock: {} }, [], /: --gpus 2 with --device cuda: expected 2 CUDA cards, this machine has 1$/m],
    [two, ["--device", "cuda:1"], /expected 2 CUDA cards from cuda:1 on, this machine has 2$/m],
    [{ ...two, missing: ["libnccl"] }, [], /: --gpus 2: libnccl\.so\.2 was not found .* nvidia-nccl-cu13$/m],
  ];
  const run = study.run("missing", config);
  for (const [standIn, options, says] of cases) {
    const { code, said } = await start(run, standIn, ...options).ended;
    expect(said).toMatch(/^mobalab: [^\n]+\n$/);
    expect(said).toMatch(says);
    expect(code).toBe(2);
  }
});

test("a whole run, and ones that are killed or stopped and go on", async () => {
  const whole = study.run("whole", config);
  expect(await start(whole, two).ended).toEqual({ code: 0, said: "" });
  expect(readStatus(whole)).toMatchObject({ state: "finished", step: 12 });
  expect(readMetrics(join(whole, "metrics.jsonl")).map(({ step }) => step)).toEqual(
    Array.from({ length: 12 }, (_, i) => i + 1),
  );

  const long = { ...config, horizon: { steps: 100_000 } };
  const run = study.run("long", long);
  let reached = 0;
  for (const rank of [1, 0]) {
    const killed = start(run, two, "--resume");
    await reaches(run, reached + 4);
    const began = performance.now();
    process.kill(processOfRank(killed.pid, rank), "SIGKILL");
    const { code, said } = await killed.ended;
    expect(said).toMatch(
      new RegExp(
        `^mobalab: lost a process of this run: rank ${rank} was ended by SIGKILL; the last good checkpoint is .*, step \\d+\n$`,
      ),
    );
    expect(code).toBe(1);
    expect(performance.now() - began).toBeLessThan(8000);
    expect(readStatus(run)!.state).toBe("failed");
    reached = readStatus(run)!.step;
  }
  const stopped = start(run, two, "--resume");
  await reaches(run, reached + 4);
  stopped.kill("SIGTERM");
  const { code, said } = await stopped.ended;
  expect(said).toMatch(/^mobalab: interrupted at step \d+: mobalab train .* --resume continues\n$/);
  expect(code).toBe(1);
  expect(readStatus(run)).toMatchObject({ state: "running", message: expect.stringMatching(/^interrupted/) });
}, 120_000);

test("NCCL that cannot connect the cards: code 1, what it says", async () => {
  const run = study.run("unconnected", config);
  const { code, said } = await start(run, { mock: { cards: 2, fail: { ncclCommInitRank: 2 } } }).ended;
  expect(said).toMatch(
    /^mobalab: (rank 1: )?connecting 2 cards by NCCL failed: a call to the operating system failed/,
  );
  expect(code).toBe(1);
});
