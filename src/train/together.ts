/**
 * One run as several processes of this machine, one for each card: starts them, tells them to stop, and when one
 * fails sees to it that all end, with one sentence that says which and why.
 */
import { type ChildProcess, fork } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InputError, RunError } from "../errors.ts";
import { findCheckpoint, readState } from "./checkpoint.ts";
import { rankEnvironment } from "./meeting.ts";
import { checkShares } from "./peers.ts";
import { readStatus, writeStatus } from "./records.ts";
import { inspectRunFolder } from "./start.ts";
import type { RunProgress } from "./types.ts";

export interface TogetherOptions {
  /** The program of each process, and its arguments. */
  readonly entry: string;
  readonly arguments: readonly string[];
  readonly count: number;
  readonly resume: boolean;
  /** Process 0 may write to this process's standard output. */
  readonly output?: boolean;
  /** Of process 0. */
  readonly onProgress?: (progress: RunProgress) => void;
  /** When it aborts, all stop after the same step, with a checkpoint. */
  readonly signal?: AbortSignal;
}

interface Failure {
  readonly rank: number;
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Its last line on standard error; empty when it said nothing. */
  readonly said: string;
}

/** How a process speaks that failed because of another. */
const CONSEQUENCE = /\b(lost a|another) process\b/;

/** What the others have to notice that one has failed, write what they know and end. */
const GRACE_SECONDS = 10;

/**
 * Trains the run in `runFolder`; resolves when all processes have ended well. Throws the first failure as the process
 * itself would have: `InputError` or `RunError`.
 */
export async function trainTogether(runFolder: string, options: TogetherOptions): Promise<void> {
  const { count, signal } = options;
  // What is wrong with the run is said once, before anything starts.
  checkShares(inspectRunFolder(runFolder, options.resume).config, count);
  const meeting = mkdtempSync(join(tmpdir(), "mobalab-meeting-"));
  const children = Array.from({ length: count }, (_, rank) => start(rank, meeting, options));
  const stop = () => {
    for (const child of children) if (child.connected) child.disconnect();
  };
  signal?.addEventListener("abort", stop);
  const failures: Failure[] = [];
  let grace: NodeJS.Timeout | undefined;
  const fail = (failure: Failure) => {
    failures.push(failure);
    rmSync(meeting, { recursive: true, force: true });
    grace ??= setTimeout(() => {
      for (const child of children) child.kill("SIGKILL");
    }, 1000 * GRACE_SECONDS);
  };
  try {
    await Promise.all(children.map((child, rank) => ended(child, rank, fail)));
  } finally {
    clearTimeout(grace);
    signal?.removeEventListener("abort", stop);
    rmSync(meeting, { recursive: true, force: true });
  }
  if (failures.length > 0) throw failureOf(runFolder, failures, signal?.aborted ?? false);
}

function start(rank: number, meeting: string, options: TogetherOptions): ChildProcess {
  const { entry, count, output, onProgress } = options;
  const child = fork(entry, options.arguments, {
    env: { ...process.env, ...rankEnvironment(meeting, rank, count) },
    stdio: ["ignore", rank === 0 && output ? "inherit" : "ignore", "pipe", "ipc"],
  });
  if (rank === 0) child.on("message", (progress) => onProgress?.(progress as RunProgress));
  return child;
}

/**
 * Resolves when the process has ended, after telling if it failed. Its `close` event would not come once this side
 * has disconnected.
 */
function ended(child: ChildProcess, rank: number, fail: (failure: Failure) => void): Promise<void> {
  return new Promise((resolve) => {
    let errors = "";
    let exit: Pick<Failure, "code" | "signal"> | null = null;
    const end = () => {
      if (!exit || !child.stderr!.closed) return;
      const said = errors.trim().split("\n").at(-1)!;
      if (exit.code !== 0) fail({ rank, ...exit, said: said.replace(/^mobalab: /, "") });
      resolve();
    };
    child.stderr!.on("data", (chunk) => {
      errors = (errors + chunk).slice(-4000);
    });
    child.on("error", ({ message }) => {
      // Of a process that never was; the others end.
      if (child.pid !== undefined) return;
      fail({ rank, code: null, signal: null, said: `cannot start its process: ${message}` });
      resolve();
    });
    child.stderr!.on("close", end);
    child.on("exit", (code, signal) => {
      exit = { code, signal };
      end();
    });
  });
}

/** The error of a run whose processes failed in this order; the status says it too when process 0 could not. */
function failureOf(runFolder: string, failures: readonly Failure[], aborted: boolean): Error {
  // Others fail because of the first, and may be seen to end before it.
  const first =
    failures.find(({ rank, said }) => (aborted ? rank === 0 : !CONSEQUENCE.test(said))) ?? failures[0];
  const { rank, code, signal, said } = first;
  if (code === 2) return new InputError(rank === 0 ? said : `rank ${rank}: ${said}`);
  let message = rank === 0 ? said : `rank ${rank}: ${said}`;
  if (signal !== null || said === "") {
    const end = signal === null ? `ended with code ${code}` : `was ended by ${signal}`;
    message = `lost a process of this run: rank ${rank} ${end}; ${lastCheckpoint(runFolder)}`;
  }
  const status = readStatus(runFolder);
  const silent = failures.some((failure) => failure.rank === 0 && failure.signal !== null);
  if (status && silent) writeStatus(runFolder, { ...status, state: "failed", message });
  return new RunError(message);
}

function lastCheckpoint(runFolder: string): string {
  const checkpoint = findCheckpoint(runFolder);
  return checkpoint
    ? `the last good checkpoint is ${checkpoint}, step ${readState(checkpoint).step}`
    : "there is no checkpoint yet";
}
