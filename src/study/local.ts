/**
 * The local executor: each run is a process of its own, several at once without oversubscribing cores or memory. A
 * failed run does not stop the others.
 */
import { type ChildProcess, fork } from "node:child_process";
import { readStatus } from "../train/records.ts";
import type { RunProgress, RunStatus } from "../train/types.ts";

export type RunEvent =
  | { readonly kind: "start"; readonly run: string }
  | { readonly kind: "progress"; readonly run: string; readonly progress: RunProgress }
  | { readonly kind: "end"; readonly run: string; readonly error?: string; readonly interrupted?: boolean };

export interface LocalOptions {
  /** The command-line entry that each run's process starts with `train <folder>`. */
  readonly entry: string;
  readonly jobs: number;
  readonly threads: number;
  /** The place of each of the `jobs` runs: place `i` computes on device `i` modulo their number. */
  readonly devices: readonly string[];
  /** Cards of each run, from its device on. */
  readonly gpus: number;
  readonly onEvent: (event: RunEvent) => void;
  readonly signal?: AbortSignal;
}

export interface FailedRun {
  readonly run: string;
  readonly error: string;
  /** It was told to stop. */
  readonly interrupted: boolean;
}

export interface LocalRun {
  readonly name: string;
  readonly folder: string;
}

/**
 * Cores shared among runs on the CPU: as many runs at once as there are cores and as memory holds, each with its share
 * of the threads.
 */
export function sharing(
  runs: number,
  cores: number,
  memoryPerRun: readonly number[],
  memoryAvailable: number,
): { jobs: number; threads: number } {
  let jobs = Math.max(1, Math.min(runs, cores));
  const largest = [...memoryPerRun].sort((a, b) => b - a);
  const together = () => largest.slice(0, jobs).reduce((sum, bytes) => sum + bytes, 0);
  while (jobs > 1 && together() > memoryAvailable) jobs--;
  return { jobs, threads: Math.max(1, Math.floor(cores / jobs)) };
}

/** Runs them in the given order; resolves to the names that failed, with the reason. */
export async function runLocally(runs: readonly LocalRun[], options: LocalOptions): Promise<FailedRun[]> {
  const waiting = [...runs];
  const failed: FailedRun[] = [];
  const worker = async (_: unknown, place: number) => {
    const device = options.devices[place % options.devices.length];
    for (let run = waiting.shift(); run && !options.signal?.aborted; run = waiting.shift()) {
      options.onEvent({ kind: "start", run: run.name });
      const error = await runOne(run, device, options);
      const interrupted = error !== undefined && options.signal?.aborted === true;
      if (error !== undefined) failed.push({ run: run.name, error, interrupted });
      options.onEvent({ kind: "end", run: run.name, error, interrupted });
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, options.jobs) }, worker));
  return failed;
}

function runOne(run: LocalRun, device: string, options: LocalOptions): Promise<string | undefined> {
  return new Promise((resolve) => {
    const before = statusOf(run.folder);
    const child: ChildProcess = fork(
      options.entry,
      [
        ...["train", run.folder, "--resume", "--threads", String(options.threads)],
        ...["--device", device, "--gpus", String(options.gpus)],
      ],
      { stdio: ["ignore", "ignore", "pipe", "ipc"] },
    );
    let errors = "";
    child.stderr?.on("data", (chunk) => {
      errors = (errors + chunk).slice(-4000);
    });
    child.on("message", (progress) => {
      options.onEvent({ kind: "progress", run: run.name, progress: progress as RunProgress });
    });
    const stop = () => child.kill("SIGTERM");
    options.signal?.addEventListener("abort", stop);
    child.on("error", (error) => resolve(`cannot start its process: ${error.message}`));
    child.on("close", (code, signal) => {
      options.signal?.removeEventListener("abort", stop);
      if (code === 0) return resolve(undefined);
      const said = newFailure(before, statusOf(run.folder)) ?? lastWords(errors);
      resolve(
        said || (signal ? `its process was ended by ${signal}` : `its process ended with code ${code}`),
      );
    });
  });
}

/** What the run itself recorded of its failure, if that is no earlier attempt's. */
function newFailure(before: RunStatus | null, status: RunStatus | null): string | undefined {
  const isNew = status?.attempt !== before?.attempt || status?.message !== before?.message;
  return status?.state === "failed" && isNew ? status.message : undefined;
}

/** A process's sentence, which may quote lines of a file, else its last line. */
function lastWords(errors: string): string {
  const sentences = errors.trim().split(/^mobalab: /m);
  if (sentences.length > 1) return sentences.at(-1)!.replace(/\s+/g, " ");
  return sentences[0].split("\n").at(-1)!;
}

/** A status that cannot be read says nothing; the process did. */
function statusOf(runFolder: string): RunStatus | null {
  try {
    return readStatus(runFolder);
  } catch {
    return null;
  }
}
