/** `mobalab train`: one run, from its folder's config.json. `study` starts one such process per run. */
import { Command } from "commander";
import { InputError, RunError } from "../../errors.ts";
import { meetingFromEnvironment, type RankedMeeting } from "../../train/meeting.ts";
import { train } from "../../train/run.ts";
import { trainTogether } from "../../train/together.ts";
import type { RunProgress } from "../../train/types.ts";
import { openBackend, placesOf } from "../backend.ts";
import { duration, short } from "../format.ts";
import { deviceOption, gpusOption, jsonOption, threadsOption } from "../options.ts";
import { interruption } from "../progress.ts";

interface Options {
  resume?: boolean;
  threads: number;
  device: string;
  gpus: number;
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
    .addOption(gpusOption())
    .addOption(jsonOption())
    .addHelpText("after", "\nExample:\n  mobalab train studies/quick/runs/d4_full_s1 --resume")
    .action(run);
}

async function run(folder: string, options: Options): Promise<void> {
  const abort = interruption();
  const stop = () => abort.abort();
  // A study that died takes its runs along: each leaves a checkpoint for the next attempt.
  process.once("disconnect", stop);
  if (process.send && !process.connected) stop();
  const meeting = meetingFromEnvironment();
  if (meeting && options.gpus > 1) {
    throw new InputError(
      `--gpus ${options.gpus} in one of the ${meeting.count} processes that the environment has (WORLD_SIZE), expected one or the other`,
    );
  }
  try {
    await (options.gpus > 1 ? trainOnCards : trainHere)(folder, options, abort.signal, meeting);
  } finally {
    if (process.connected) process.disconnect();
  }
}

/** In this process, which may be one of several of the run. */
async function trainHere(
  folder: string,
  options: Options,
  signal: AbortSignal,
  meeting: RankedMeeting | null,
): Promise<void> {
  const backend = openBackend(options.device, options.threads, meeting ?? undefined);
  try {
    const { resume } = options;
    const result = await train(folder, { backend, resume, signal, onProgress: teller(options) });
    if (result.outcome === "interrupted") {
      throw new RunError(`interrupted at step ${result.step}: mobalab train ${folder} --resume continues`);
    }
    if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
    else if (!process.send) process.stdout.write(`${folder}: ${result.outcome}\n`);
  } finally {
    backend.close();
  }
}

/** In a process for each card. */
async function trainOnCards(folder: string, options: Options, signal: AbortSignal): Promise<void> {
  const { gpus, resume, threads, json } = options;
  const [first] = placesOf(options.device, gpus);
  await trainTogether(folder, {
    entry: process.argv[1],
    arguments: [
      ...["train", folder, "--device", first, "--threads", String(threads)],
      ...(resume ? ["--resume"] : []),
      ...(json ? ["--json"] : []),
    ],
    count: gpus,
    resume: resume ?? false,
    output: json,
    onProgress: teller(options),
    signal,
  });
  if (!json && !process.send) process.stdout.write(`${folder}: finished\n`);
}

/** Tells a parent process of every step, a person of some. */
function teller(options: Options): (progress: RunProgress) => void {
  let lastLine = 0;
  return (progress) => {
    if (process.connected) process.send?.(progress, () => {});
    const now = performance.now() / 1000;
    const due = now - lastLine >= EVERY || progress.step === progress.steps;
    if (process.send || options.json || !due) return;
    lastLine = now;
    const heldOut = progress.heldOut === undefined ? "" : `  held-out ${progress.heldOut.toFixed(3)}`;
    process.stdout.write(
      `step ${progress.step}/${progress.steps}  loss ${progress.loss.toFixed(3)}${heldOut}  ${short(progress.tokensPerSecond)} tok/s  ${duration(progress.secondsLeft)} left\n`,
    );
  };
}
