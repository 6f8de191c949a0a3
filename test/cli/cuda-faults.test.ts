/** What goes wrong on a card, through the command line and the mock driver: exit code, one sentence, checkpoint intact. */
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ladderModel } from "../../src/model/config.ts";
import { builtImage, kernelFiles } from "../../src/ops/cuda/compile.ts";
import { readMetrics, readStatus } from "../../src/train/records.ts";
import type { StandIn } from "../ops/cuda/stand-in.ts";
import { makeStudyFolder } from "../train/run-folder.ts";
import { tinyConfig } from "../train/tiny.ts";
import { ran } from "./ran.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const STAND_IN = new URL("../ops/cuda/stand-in.ts", import.meta.url).href;
const config = tinyConfig({
  shape: ladderModel(2, { headDim: 64, vocabulary: 256 }),
  attention: "moba-b16-k2",
  horizon: { steps: 8 },
  ...{ evaluations: 1, checkpointEvery: 2 },
});

let study: Awaited<ReturnType<typeof makeStudyFolder>>;
beforeAll(async () => {
  study = await makeStudyFolder(config.context);
});
afterAll(() => study.remove());

/** `mobalab train` of a new run, or of one to be resumed. */
async function train(run: string, standIn: StandIn, ...options: string[]) {
  const { code, said } = await mobalab(["train", run, "--device", "cuda", ...options], standIn);
  return { code, said };
}

async function mobalab(command: readonly string[], standIn: StandIn, env: NodeJS.ProcessEnv = {}) {
  const args = ["--import", import.meta.resolve("tsx"), "--import", STAND_IN, MAIN, ...command];
  const child = spawn(process.execPath, args, {
    env: {
      ...process.env,
      STAND_IN: JSON.stringify(standIn),
      // Where kernels "compiled" by the stand-in go.
      XDG_CACHE_HOME: join(study.folder, "cache"),
      ...env,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const { code, stdout: printed, stderr: said } = await ran(child);
  return { code, said, printed };
}

/** One sentence, without a stack trace. */
function sentence(said: string, expected: RegExp): void {
  expect(said).toMatch(/^mobalab: [^\n]+\n$/);
  expect(said).toMatch(expected);
}

const environment: readonly [what: string, standIn: StandIn, expected: RegExp][] = [
  [
    "no driver",
    { missing: ["libcuda"] },
    /: --device cuda: libcuda\.so\.1 was not found .* needed for anything on the card and comes with the NVIDIA driver/,
  ],
  ["no card", { mock: { cards: 0 } }, /: --device cuda: no CUDA card was found$/m],
  [
    "a driver too old",
    { mock: { driverVersion: 11_080 } },
    /: --device cuda: the CUDA driver supports CUDA 11\.8, expected 12\.0 or newer$/m,
  ],
  [
    "a card too old",
    { mock: { capability: 75, name: "Tesla T4" } },
    /: --device cuda: cuda:0 \(Tesla T4\) has compute capability 7\.5, expected 8\.0 or newer$/m,
  ],
  [
    "no cuBLASLt",
    { mock: {}, missing: ["libcublasLt"] },
    /: --device cuda: libcublasLt\.so\.13 was not found .* needed for linear layers on the card and comes with/,
  ],
  [
    "no NVRTC where kernels must be compiled",
    { mock: { capability: 121 }, missing: ["libnvrtc"] },
    /: --device cuda: libnvrtc\.so\.13 was not found .* needed for compiling kernels at first use/,
  ],
  [
    "kernels that the driver does not take",
    { mock: { fail: { cuModuleLoadData: 209 } } },
    /: the kernel file .*\.cu does not run on this card with this driver \(CUDA 13\.0\): CUDA_ERROR_NO_BINARY_FOR_GPU/,
  ],
];

/** Then NVRTC is not needed. */
const compiledAhead = kernelFiles().every((file) => builtImage(file, 121) !== null);

describe.each(environment)("%s", (what, standIn, expected) => {
  test.skipIf(what.includes("NVRTC") && compiledAhead)("code 2, one sentence", async () => {
    const run = study.run(what.replaceAll(" ", "-"), config);
    const { code, said } = await train(run, standIn);
    sentence(said, expected);
    expect(code).toBe(2);
  });
});

test("a library that is there but does not open: a short sentence, and doctor says which files", async () => {
  const toolkit = join(study.folder, "toolkit");
  mkdirSync(join(toolkit, "lib64"), { recursive: true });
  const files = ["libcublasLt.so.13", "libcublasLt.so.12"].map((name) => join(toolkit, "lib64", name));
  for (const file of files) writeFileSync(file, "");
  const standIn = { mock: {}, missing: ["libcublasLt"] };
  const { code, said, printed } = await mobalab(["doctor"], standIn, { CUDA_HOME: toolkit });
  expect(code).toBe(2);
  expect(said).toBe("mobalab: CUDA is missing, needed for --device cuda\n");
  // Lines are broken where the names need it.
  const words = printed.replace(/\s+/g, " ");
  expect(words.match(/libcublasLt\.so\.13 was not found/g)).toHaveLength(1);
  for (const file of files) expect(words).toContain(`there, but does not open: ${file} `);
  expect(words).toContain(`in ${join(toolkit, "lib64")} `);
});

test("faults of a run: code 1, one sentence, and its checkpoint goes on to the same end", async () => {
  const whole = study.run("whole", config);
  expect(await train(whole, { mock: {} })).toEqual({ code: 0, said: "" });
  const run = study.run("run", config);
  const checkpoint = (step: number) => `the last good checkpoint is ${join(run, "checkpoint")}, step ${step}`;
  const faults: readonly [StandIn, options: string[], says: string, lastStep: number][] = [
    // Two passes a step.
    [{ mock: {}, nan: 2 * 5 }, [], "the loss of step 5 is NaN, expected a finite number", 4],
    [
      { mock: { totalBytes: 4_000_000 } },
      ["--resume"],
      "out of memory on the card: a tensor of shape [", // bytes asked and free: below
      4,
    ],
    [
      { mock: { fail: { cuGraphLaunch: 700 } } },
      ["--resume"],
      "replaying recorded operations failed: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)",
      4,
    ],
    [{ mock: {}, nan: 2 * 3 - 1 }, ["--resume"], "the loss of step 7 is NaN", 6],
  ];
  for (const [standIn, options, says, lastStep] of faults) {
    const { code, said } = await train(run, standIn, ...options);
    sentence(said, /./);
    expect(said).toContain(says);
    expect(said).toContain(checkpoint(lastStep));
    if (says.startsWith("out of memory"))
      expect(said).toMatch(/\([\d.]+ [kMG]B\) was asked for, [\d.]+ [kM]?B are free/);
    expect(code).toBe(1);
    expect(readStatus(run)).toMatchObject({ state: "failed", message: said.slice("mobalab: ".length, -1) });
  }
  expect(await train(run, { mock: {} }, "--resume")).toEqual({ code: 0, said: "" });
  const weights = (folder: string) => readFileSync(join(folder, "checkpoint", "model.safetensors"));
  expect(weights(run).equals(weights(whole))).toBe(true);
  expect(readMetrics(join(run, "metrics.jsonl")).map(({ step }) => step)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
});

test("out of memory before the first step: nothing but the sentence", async () => {
  const run = study.run("giant", {
    ...config,
    shape: { ...ladderModel(40, { headDim: 128, vocabulary: 256 }) },
  });
  const { code, said } = await train(run, { mock: { totalBytes: 10e9, stored: false } });
  sentence(
    said,
    /out of memory on the card: a tensor of shape \[\d+\] \([\d.]+ GB\) was asked for, [\d.]+ GB are free; there is no checkpoint yet$/m,
  );
  expect(code).toBe(1);
});
