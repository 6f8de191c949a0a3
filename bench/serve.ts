/**
 * The dashboard's server under load: a study of 100 runs, half of them finished, and 1,000,000 recorded steps.
 * Milliseconds from start to everything read, of the answers that a page opens with, and from a line appended to its
 * event at a client; resident memory of the server, a process of its own. Writes bench/results/serve_<cpu>_<date>.json.
 *
 *   npm run build && npm --prefix bench run serve [-- --runs 100 --steps 10000 --updates 200]
 */
import { type ChildProcess, spawn } from "node:child_process";
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import type { Overview } from "../src/server/api.ts";
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
const names = Array.from(
  { length: runs },
  (_, i) => `d${2 + (i >> 1)}_${i % 2 ? "moba-b128-k4" : "full"}_s1`,
);
let server: ChildProcess | null = null;
try {
  const bytes = makeStudy();
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

/** Records as a run writes them. Returns the bytes of all metrics. */
function makeStudy(): number {
  const host = { processor: "bench", cores: 2, memory_gb: 8, node: process.version, device: "cpu" };
  writeFileSync(
    join(folder, "study.json"),
    JSON.stringify({
      ...{ format: 1, name: "load", created: new Date().toISOString(), mobalab: "0", commit: null, host },
      ...{ preset: "quick", command: "bench", context: 2048, buckets: 16, tokenizer: "byte", source: "made" },
      ...{ rule: "none", runs: names },
    }),
  );
  let bytes = 0;
  for (const [i, name] of names.entries()) {
    const run = join(folder, "runs", name);
    mkdirSync(run, { recursive: true });
    writeFileSync(join(run, "config.json"), JSON.stringify(configOf(i)));
    const lines = Array.from({ length: steps }, (_, s) => step(i, s + 1));
    const text = lines.join("");
    writeFileSync(join(run, "metrics.jsonl"), text);
    bytes += text.length;
    const evaluations = Array.from({ length: 16 }, (_, e) =>
      evaluation(i, Math.round(steps ** ((e + 1) / 16))),
    );
    writeFileSync(join(run, "eval.jsonl"), evaluations.join(""));
    const facts = { parameters: 1e6, windowsLeftOut: 0, epochs: 1, memory: 1e8, sparsity: 0.5 };
    writeFileSync(
      join(run, "status.json"),
      JSON.stringify({
        ...(i < runs / 2 ? { state: "finished", steps } : { state: "running", steps: 2 * steps }),
        ...{ step: steps, attempt: 1, ...facts },
      }),
    );
  }
  return bytes;
}

function configOf(i: number): object {
  const depth = 2 + (i >> 1);
  return {
    model: `d${depth}`,
    shape: {
      ...{
        layers: depth,
        heads: depth,
        kvHeads: depth,
        headDim: 24,
        modelDim: 24 * depth,
        feedForward: 64 * depth,
      },
      ...{ vocabulary: 256, ropeTheta: 10000, normEpsilon: 1e-5, tiedOutput: false, keyConvolution: 0 },
    },
    ...{ attention: i % 2 ? "moba-b128-k4" : "full", dataset: "../../data", context: 2048 },
    ...{ sequencesPerStep: 1, sequencesPerPass: 1, horizon: { steps: 2 * steps } },
    optimizer: {
      ...{ learningRate: 0.01, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, maxNorm: 1 },
      ...{ schedule: "cosine", warmup: 0.05, decay: 0.2, finalShare: 0.05 },
    },
    ...{ buckets: 16, evaluations: 8, checkpointEvery: 100, recompute: false, seed: 1 },
  };
}

function step(i: number, s: number): string {
  const noise = Math.sin(s * 12.9898 + i) * 0.1;
  return `${JSON.stringify({
    step: s,
    tokens: s * 2048,
    attempt: 1,
    loss: 2 + 4 * s ** -0.3 + noise,
    gradNorm: 1.2345678901234 + noise,
    learningRate: 0.01 * (1 - s / (3 * steps)),
    tokensPerSecond: 20000.123456789 + 100 * noise,
    time_s: s * 0.1024123456789,
    pflops_days: s * 1.23456789e-9,
    pflops_days_attended: s * 2.3456789e-9,
  })}\n`;
}

function evaluation(i: number, s: number): string {
  const buckets = Array.from({ length: 16 }, (_, b) => ({
    ...{
      position_start: b * 128,
      position_end: (b + 1) * 128,
      lm_loss: 2 + i / 100 + 4 * s ** -0.3 - b / 50,
    },
    predicted_tokens: 1000,
  }));
  return `${JSON.stringify({
    ...{ step: s, tokens: s * 2048, attempt: 1, split: "held-out", lm_loss: 2 + 4 * s ** -0.3 },
    ...{
      predicted_tokens: 16000,
      buckets,
      documents: [],
      pflops_days: s * 1e-9,
      pflops_days_attended: s * 2e-9,
    },
    ...{ time_s: s * 0.1, tokensPerSecond: 20000, final: false },
  })}\n`;
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
    appendFileSync(join(folder, "runs", names[run], "metrics.jsonl"), step(run, s));
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
