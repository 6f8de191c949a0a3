/** A study folder for the browser's tests: finished, failed, resumed and hostile runs made by hand, and a real one. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ladderModel } from "../../src/model/config.ts";
import { append, CONFIG, evaluationLine, makeRun, makeStudy, setStatus, stepLine } from "../server/made.ts";
import { makeStudyFolder } from "../train/run-folder.ts";
import { randomNumbers, tinyConfig } from "../train/tiny.ts";

export const HOSTILE = '<img src=x onerror="window.hacked=1">';

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

export interface TestStudy {
  readonly folder: string;
  /** Starts the real run, and ends it. */
  train(): ChildProcess;
  remove(): void;
}

/** Four sizes of two attentions that follow a law, and what goes wrong in training. */
export async function makeTestStudy(): Promise<TestStudy> {
  const { folder } = await makeStudyFolder(64);
  makeStudy(folder, "test-study");
  const random = randomNumbers(5);
  for (const [index, attention] of ["full", "moba-b16-k2"].entries()) {
    for (const depth of [1, 2, 3, 4]) {
      const steps = 100 * depth ** 2;
      const run = finished(folder, `d${depth}_${attention}_s1`, attention, depth, steps);
      const budget = 1e-9 * depth ** 4;
      const final = 1.9 * budget ** -0.03 * (1 + index * 0.004) * (1 + (random() - 0.5) * 0.004);
      const lossAt = (step: number) => final * (steps / step) ** 0.18;
      const computeAt = (step: number) => {
        const share = (budget * step) / steps;
        return { pflops_days: share, pflops_days_attended: share * (index === 0 ? 1.6 : 1.2) };
      };
      writeFileSync(
        join(run, "metrics.jsonl"),
        Array.from({ length: steps }, (_, i) => {
          const loss = lossAt(i + 1) * (1 + (random() - 0.5) * 0.08);
          return stepLine(i + 1, { loss, ...computeAt(i + 1) });
        }).join(""),
      );
      for (const share of [0.05, 0.1, 0.2, 0.5, 1]) {
        const step = Math.ceil(steps * share);
        const loss = lossAt(step);
        append(
          run,
          "eval.jsonl",
          evaluationLine(step, [loss * 1.05, loss * 0.97], { final: share === 1, ...computeAt(step) }),
        );
      }
    }
  }
  for (const attention of ["full", "moba-b16-k2"]) {
    const bands = [8, 16, 32].map((start) => {
      return { distance_start: start, distance_end: 2 * start, answers: 100, right: 90 - start };
    });
    const routing = [1, 2, 3].map((blocks_back) => ({
      blocks_back,
      share: 0.6 / blocks_back,
      at_random: 0.3,
    }));
    const recall = { windows: 10, chance: 1 / 256, bands, ...(attention !== "full" && { routing }) };
    writeFileSync(join(folder, "runs", `d4_${attention}_s1`, "recall.json"), JSON.stringify(recall));
    const lm_loss = attention === "full" ? [2, 1.9, 1.85, 1.82, 1.8] : [2, 1.95, 1.92, 1.91, 1.9];
    const truncated = {
      windows: 3,
      contexts: [4, 8, 16, 32, 64],
      lm_loss,
      predicted_tokens: 12,
      documents: [],
    };
    writeFileSync(join(folder, "runs", `d4_${attention}_s1`, "truncated.json"), JSON.stringify(truncated));
  }
  // Resumed: steps 41 to 50 stand twice, the second attempt's count. A loss is not a number, one is infinite.
  const falling = (step: number) => 9 * step ** -0.2;
  const resumed = makeRun(folder, "resumed", 0, { ...CONFIG, model: "d2", horizon: { steps: 400 } });
  const first = Array.from({ length: 50 }, (_, i) => stepLine(i + 1, { loss: falling(i + 1) }));
  const second = Array.from({ length: 60 }, (_, i) =>
    stepLine(i + 41, { attempt: 2, loss: falling(i + 41) + 0.1 }),
  );
  second[30] = stepLine(71, { attempt: 2, loss: null });
  second[40] = stepLine(81, { attempt: 2, loss: "Infinity" });
  append(resumed, "metrics.jsonl", [...first, ...second].join(""));
  setStatus(resumed, { state: "running", step: 100, steps: 400, attempt: 2 });
  // Its process was killed long ago.
  for (const file of ["metrics.jsonl", "status.json"])
    utimesSync(join(resumed, file), new Date("2026-01-02T03:04:05Z"), new Date("2026-01-02T03:04:05Z"));
  const failed = makeRun(folder, "failed", 0, CONFIG);
  append(failed, "metrics.jsonl", first.slice(0, 20).join(""));
  setStatus(failed, { state: "failed", step: 20, message: `the loss is NaN at step 20 ${HOSTILE}` });
  const hostile = makeRun(folder, HOSTILE, 0, { ...CONFIG, model: HOSTILE });
  append(hostile, "metrics.jsonl", first.slice(0, 5).join(""));
  const planned = makeRun(folder, "planned", 0, CONFIG);
  writeFileSync(join(planned, "recall.json"), JSON.stringify({ bands: [null] }));
  const odd = { contexts: [4, 8, HOSTILE], lm_loss: [2, null, -1], documents: HOSTILE };
  writeFileSync(join(planned, "truncated.json"), JSON.stringify(odd));
  writeFileSync(
    join(failed, "truncated.json"),
    JSON.stringify({ contexts: [4, 8, 16], lm_loss: [2, 1] }).slice(0, -4),
  );

  const live = join(folder, "runs", "live");
  mkdirSync(live);
  const config = tinyConfig({
    ...{ attention: "full", context: 64, buckets: 2, dataset: "../../data", horizon: { steps: 1_000_000 } },
    ...{ evaluations: 40, checkpointEvery: 0 },
  });
  writeFileSync(join(live, "config.json"), JSON.stringify(config));
  let trainer: ChildProcess | null = null;
  return {
    folder,
    train() {
      trainer = spawn(
        process.execPath,
        ["--import", import.meta.resolve("tsx"), MAIN, "train", live, "--threads", "1"],
        {
          stdio: ["ignore", "ignore", "inherit"],
        },
      );
      return trainer;
    },
    remove() {
      trainer?.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

function finished(study: string, name: string, attention: string, depth: number, steps: number): string {
  const shape = ladderModel(depth, { headDim: 8, vocabulary: 256 });
  const config = { ...CONFIG, attention, model: `d${depth}`, shape, horizon: { steps } };
  const run = makeRun(study, name, 1, config);
  setStatus(run, { state: "finished", step: steps, steps });
  return run;
}
