/**
 * The dashboard's server under load: a study of 100 runs, half of them finished, and 1,000,000 recorded steps.
 * Milliseconds from start to everything read, of the answers that a page opens with, and from a line appended to its
 * event at a client; resident memory of the server, a process of its own. Writes bench/results/serve_<cpu>_<date>.json.
 *
 *   npm run build && npm --prefix bench run serve [-- --runs 100 --steps 10000 --updates 200]
 */
import { type ChildProcess, spawn } from "node:child_process";
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import type { Overview } from "../src/server/api.ts";
import { makeLoadStudy, runNames, stepLine } from "./load-study.ts";
import { rounded, writeResult } from "./results.ts";

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "100" },
    steps: { type: "string", default: "10000" },
    updates: { type: "string", default: "200" },
  },
});
const [runs, steps, updates] = [values.runs, values.steps, values.updates].map(Number);

const folder = mkdtempSync(join(tmpdir(), "mobalab-serve-"));
const names = runNames(runs);
let server: ChildProcess | null = null;
try {
  const bytes = makeLoadStudy(folder, runs, steps);
  const began = performance.now();
  server = spawn(process.execPath, ["dist/cli/main.js", "serve", folder, "--port", "0"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [url] = await firstLine(server);
  const listening = performance.now() - began;
  const early = await timed(`${url}api/studies`);
  let ready = 0;
  while (ready === 0) {
    const overview = (await (await fetch(`${url}api/studies`)).json()) as Overview;
    if (overview.studies.every((study) => !study.loading)) ready = performance.now() - began;
    else await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const loaded = memory();
  // Laws of the runs that finished are fitted in a thread, beside the answers below.
  const { id } = ((await (await fetch(`${url}api/studies`)).json()) as Overview).studies[0];
  const answers: Record<string, { first_ms: number; median_ms: number; bytes: number }> = {};
  for (const [name, path] of Object.entries({
    overview: "api/studies",
    metrics_500: `api/studies/${id}/metrics?points=500`,
    metrics_200: `api/studies/${id}/metrics?points=200`,
    one_run_4000: `api/studies/${id}/metrics?run=${names[0]}&points=4000`,
    evaluations: `api/studies/${id}/evaluations`,
  })) {
    const times = [];
    for (let i = 0; i < 10; i++) times.push(await timed(url + path));
    const first = times[0];
    answers[name] = {
      first_ms: rounded(first.ms),
      median_ms: rounded(median(times.map((t) => t.ms))),
      bytes: first.bytes,
    };
  }
  const latencies = await updateLatencies(url);
  const figures = {
    runs,
    points: runs * steps,
    metrics_mib: rounded(bytes / 2 ** 20),
    listening_ms: rounded(listening),
    overview_while_reading_ms: rounded(early.ms),
    all_read_ms: rounded(ready),
    answers,
    update_ms: {
      updates,
      median: rounded(median(latencies)),
      p99: rounded(latencies.sort((a, b) => a - b)[Math.floor(0.99 * (latencies.length - 1))]),
      largest: rounded(Math.max(...latencies)),
    },
    memory_mib: {
      after_reading: rounded(loaded.now),
      at_end: rounded(memory().now),
      largest: rounded(memory().most),
    },
  };
  console.log(JSON.stringify(figures, null, 2));
  writeResult("serve", figures);
} finally {
  server?.kill("SIGTERM");
  rmSync(folder, { recursive: true, force: true });
}

/** Appends a line to one run after another, each when the one before has arrived; milliseconds until its event. */
async function updateLatencies(url: string): Promise<number[]> {
  const response = await fetch(`${url}api/events`);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  const arrival = async (mark: string) => {
    while (!text.includes(mark)) text += (await reader.read()).value ?? "";
    text = "";
    return performance.now();
  };
  await arrival("retry");
  const latencies: number[] = [];
  for (let i = 0; i < updates; i++) {
    const run = i % runs;
    const s = steps + 1 + Math.floor(i / runs);
    const began = performance.now();
    appendFileSync(join(folder, "runs", names[run], "metrics.jsonl"), stepLine(run, s, steps));
    latencies.push((await arrival(`"run":"${names[run]}","recorded":${s},`)) - began);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await reader.cancel();
  return latencies;
}

async function timed(url: string): Promise<{ ms: number; bytes: number }> {
  const began = performance.now();
  const body = await (await fetch(url)).arrayBuffer();
  return { ms: performance.now() - began, bytes: body.byteLength };
}

function median(times: number[]): number {
  return [...times].sort((a, b) => a - b)[times.length >> 1];
}

/** MiB of the server that are resident, now and at most. */
function memory(): { now: number; most: number } {
  const status = readFileSync(`/proc/${server!.pid}/status`, "utf8");
  const mib = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(status)![1]) / 1024;
  return { now: mib("VmRSS"), most: mib("VmHWM") };
}

async function firstLine(child: ChildProcess): Promise<string[]> {
  for await (const line of createInterface({ input: child.stdout! })) return [line];
  throw new Error("the server ended without a line");
}
