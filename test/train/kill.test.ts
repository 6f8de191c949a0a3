import { fork } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { readMetrics, readStatus } from "../../src/train/records.ts";
import { train } from "../../src/train/run.ts";
import { makeStudyFolder, openBackend, outcomeOf } from "./run-folder.ts";
import { tinyConfig } from "./tiny.ts";

const KILLS = 20;
const steps = 150;
const config = tinyConfig({
  attention: "moba-b8-k2+full@0.5",
  horizon: { steps },
  evaluations: 20,
  checkpointEvery: 2,
});

const child = fileURLToPath(new URL("kill-child.ts", import.meta.url));
const root = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Resumes the run in a process of its own and, `delay` ms after its first step, kills it with SIGKILL. Resolves to
 * whether the kill came before the run had finished; without a delay, waits for the end.
 */
function attempt(runFolder: string, delay?: number): Promise<boolean> {
  return new Promise((done, failed) => {
    const run = fork(child, [runFolder], { cwd: root, execArgv: ["--import", "tsx"], silent: true });
    let errors = "";
    run.stderr!.on("data", (text) => (errors += text));
    if (delay !== undefined) run.once("message", () => setTimeout(() => run.kill("SIGKILL"), delay));
    run.on("close", (code, signal) => {
      if (code !== 0 && signal !== "SIGKILL") failed(new Error(`ended with ${code ?? signal}: ${errors}`));
      else done(signal === "SIGKILL");
    });
  });
}

test("killed at 20 random moments, resumed each time: the same bits, every step exactly once", {
  timeout: 180_000,
}, async () => {
  const study = await makeStudyFolder(config.context);
  try {
    const whole = study.run("whole", config);
    const backend = openBackend();
    const began = performance.now();
    await train(whole, { backend });
    backend.close();
    const duration = performance.now() - began;

    const killed = study.run("killed", config);
    const reached: number[] = [];
    for (let i = 0; i < KILLS; i++) {
      // Twice this is more than a twentieth of the run, yet steps since the last checkpoint are done again.
      if (await attempt(killed, Math.random() * 1.5 * (duration / KILLS)))
        reached.push(readStatus(killed)!.step);
    }
    await attempt(killed);

    // The kills fell into the run and not all behind its end.
    expect(reached.filter((step) => step < steps).length).toBeGreaterThanOrEqual(KILLS / 2);
    expect(new Set(reached).size).toBeGreaterThan(5);
    const metrics = readMetrics(join(killed, "metrics.jsonl"));
    expect(metrics.map(({ step }) => step)).toEqual(Array.from({ length: steps }, (_, i) => i + 1));
    expect(outcomeOf(killed)).toEqual(outcomeOf(whole));
    expect(readStatus(killed)).toMatchObject({ state: "finished", step: steps });
  } finally {
    study.remove();
  }
});
