/** `mobalab train`: one run, from its folder's config.json. `study` starts one such process per run. */
import { Command } from "commander";
import { RunError } from "../../errors.ts";
import { train } from "../../train/run.ts";
import { openBackend } from "../backend.ts";
import { duration, short } from "../format.ts";
import { deviceOption, jsonOption, threadsOption } from "../options.ts";

interface Options {
  resume?: boolean;
  threads: number;
  device: string;
  json?: boolean;
}

/** Seconds between two progress lines. */
const EVERY = 5;

export function trainCommand(): Command {
  return new Command("train")
    .description("train one run from the config.json in its folder")
    .argument("<folder>", "run folder; `mobalab study` makes them, docs/run.md describes config.json")
    .option("--resume", "continue from the last checkpoint, to the same result")
    .addOption(threadsOption())
    .addOption(deviceOption())
    .addOption(jsonOption())
    .addHelpText("after", "\nExample:\n  mobalab train studies/quick/runs/d4_full_s1 --resume")
    .action(run);
}

async function run(folder: string, options: Options): Promise<void> {
  const backend = openBackend(options.device, options.threads);
  const abort = new AbortController();
  const stop = () => abort.abort();
  process.once("SIGINT", stop);
  process.once("SIGTERM", stop);
  // A study that died takes its runs along: each leaves a checkpoint for the next attempt.
  process.once("disconnect", stop);
  let lastLine = 0;
  try {
    const result = await train(folder, {
      backend,
      resume: options.resume,
      signal: abort.signal,
      onProgress: (progress) => {
        if (process.connected) process.send?.(progress, () => {});
        const now = performance.now() / 1000;
        const due = now - lastLine >= EVERY || progress.step === progress.steps;
        if (process.send || options.json || !due) return;
        lastLine = now;
        const heldOut = progress.heldOut === undefined ? "" : `  held-out ${progress.heldOut.toFixed(3)}`;
        process.stdout.write(
          `step ${progress.step}/${progress.steps}  loss ${progress.loss.toFixed(3)}${heldOut}  ${short(progress.tokensPerSecond)} tok/s  ${duration(progress.secondsLeft)} left\n`,
        );
      },
    });
    if (result.outcome === "interrupted") {
      throw new RunError(`interrupted at step ${result.step}: mobalab train ${folder} --resume continues`);
    }
    if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
    else if (!process.send) process.stdout.write(`${folder}: ${result.outcome}\n`);
  } finally {
    backend.close();
    process.disconnect?.();
  }
}
