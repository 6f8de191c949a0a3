/**
 * Makes what llama_heldout.py checks: a small model trained, evaluated and exported by the command line on the CPU, with
 * GQA, in .gpu/heldout: `model/` (the export) and `heldout.json` (the held-out windows, and `mobalab eval`'s mean loss).
 *
 *   npm run build && npx tsx test/gpu/make-heldout.ts
 */
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ladderModel } from "../../src/model/config.ts";
import type { RunConfig } from "../../src/train/types.ts";
import { OPTIMIZER } from "../train/tiny.ts";
import { makeStudy } from "./study.ts";

const folder = ".gpu/heldout";
const mobalab = (...args: string[]) =>
  execFileSync(process.execPath, ["dist/cli/main.js", ...args], { encoding: "utf8" });

const config: RunConfig = {
  model: "d4",
  shape: { ...ladderModel(4, { headDim: 16, vocabulary: 256 }), kvHeads: 2 },
  attention: "full",
  dataset: "../data",
  ...{ context: 256, sequencesPerStep: 8, sequencesPerPass: 8, horizon: { steps: 60 } },
  optimizer: { ...OPTIMIZER, learningRate: 4e-3 },
  ...{ buckets: 4, evaluations: 2, checkpointEvery: 0, recompute: false, seed: 7 },
};

rmSync(folder, { recursive: true, force: true });
const study = await makeStudy(config.context, 150_000, folder);
const run = study.run("run", config);
mobalab("train", run, "--device", "cpu");
const { lm_loss, predicted_tokens } = JSON.parse(mobalab("eval", run, "--device", "cpu", "--json"));
mobalab("export", run, join(folder, "model"), "--format", "hf");
const windows = study.dataset.evaluationWindows(config.context).windows.map(({ tokens }) => [...tokens]);
writeFileSync(join(folder, "heldout.json"), JSON.stringify({ lm_loss, predicted_tokens, windows }));
for (const made of ["text", "data", "run"]) rmSync(join(folder, made), { recursive: true });
console.log(
  `${folder}: held-out loss ${lm_loss.toFixed(5)} over ${predicted_tokens} tokens, ${windows.length} windows`,
);
