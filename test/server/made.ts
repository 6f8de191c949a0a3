/** Study folders made by hand, and clients that say exactly what they send. */
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { parseAttention } from "../../src/attention/attention.ts";
import { saveModel } from "../../src/model/checkpoint.ts";
import { ladderModel } from "../../src/model/config.ts";
import { Model } from "../../src/model/model.ts";
import { createCpuBackend } from "../../src/ops/cpu/index.ts";
import type { Change } from "../../src/server/api.ts";
import type { RunConfig } from "../../src/train/types.ts";
import { OPTIMIZER, randomNumbers } from "../train/tiny.ts";

export const CONFIG: RunConfig = {
  model: "d2",
  shape: ladderModel(2, { headDim: 8, vocabulary: 256 }),
  attention: "full",
  dataset: "../../data",
  context: 64,
  sequencesPerStep: 1,
  sequencesPerPass: 1,
  horizon: { steps: 100 },
  optimizer: { ...OPTIMIZER, learningRate: 1e-3 },
  buckets: 2,
  evaluations: 2,
  checkpointEvery: 0,
  recompute: false,
  seed: 1,
};

export function makeStudy(folder: string, name = "by-hand"): void {
  mkdirSync(join(folder, "runs"), { recursive: true });
  const host = { processor: "Test CPU", cores: 2, memory_gb: 8, node: "v20.20.0", device: "cpu" };
  const study = {
    ...{ format: 1, name, created: "2026-01-02T03:04:05.000Z", mobalab: "0.1.0", commit: null, host },
    ...{ preset: "quick", command: "mobalab study quick", context: 64, buckets: 2, tokenizer: "byte" },
    ...{ source: "demo", rule: "a rule", runs: [] },
  };
  writeFileSync(join(folder, "study.json"), JSON.stringify(study));
}

/** A run of `steps` steps; returns its folder. */
export function makeRun(study: string, name: string, steps: number, config: object = CONFIG): string {
  const run = join(study, "runs", name);
  mkdirSync(run, { recursive: true });
  writeFileSync(join(run, "config.json"), JSON.stringify(config));
  if (steps > 0) {
    writeFileSync(
      join(run, "metrics.jsonl"),
      Array.from({ length: steps }, (_, i) => stepLine(i + 1)).join(""),
    );
    setStatus(run, { state: "running", step: steps });
  }
  return run;
}

/** A run with a checkpoint of weights that are random, so that every layer does something; returns its folder. */
export function makeTrainedRun(study: string, name: string, config: RunConfig): string {
  const run = makeRun(study, name, 3, config);
  const { shape, context } = config;
  const attention = new Array(shape.layers).fill(parseAttention(config.attention));
  const backend = createCpuBackend({ threads: 1 });
  const model = new Model(backend, shape, { tokens: context, maxDocuments: 1, training: false, attention });
  model.initialize(3);
  const random = randomNumbers(3);
  for (const parameter of model.parameters.named) {
    if (!/(o|down)_proj/.test(parameter.name)) continue;
    model.writeParameter(
      parameter,
      Float32Array.from({ length: parameter.length }, () => random() - 0.5),
    );
  }
  saveModel(model, join(run, "checkpoint"), context);
  backend.close();
  writeFileSync(join(run, "checkpoint", "state.json"), "{}");
  return run;
}

export function setStatus(run: string, status: object): void {
  const facts = {
    steps: 100,
    attempt: 1,
    parameters: 9,
    windowsLeftOut: 0,
    epochs: 1,
    memory: 8,
    sparsity: 0,
  };
  writeFileSync(join(run, "status.json"), JSON.stringify({ ...facts, ...status }));
}

export function stepLine(step: number, change: object = {}): string {
  return `${JSON.stringify({
    ...{ step, tokens: step * 64, attempt: 1, loss: 5 / step, gradNorm: 1, learningRate: 1e-3 },
    ...{
      tokensPerSecond: 640,
      time_s: step / 10,
      pflops_days: step * 1e-12,
      pflops_days_attended: step * 2e-12,
    },
    ...change,
  })}\n`;
}

export function evaluationLine(step: number, losses: readonly number[], change: object = {}): string {
  const buckets = losses.map((lm_loss, i) => ({
    ...{ position_start: i * 32, position_end: (i + 1) * 32, lm_loss, predicted_tokens: 32 },
  }));
  const lm_loss = losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
  return `${JSON.stringify({
    ...{ step, tokens: step * 64, attempt: 1, split: "held-out", lm_loss, predicted_tokens: 64, buckets },
    ...{ documents: [], pflops_days: step * 1e-12, pflops_days_attended: step * 2e-12, time_s: 1 },
    ...{ tokensPerSecond: 640, final: false, ...change },
  })}\n`;
}

export function append(run: string, file: string, text: string): void {
  appendFileSync(join(run, file), text);
}

/** Sends these bytes and returns everything that comes back until the server closes, or for `ms`. */
export function exchange(port: number, text: string, ms = 10_000): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    let answer = "";
    const timer = setTimeout(() => socket.destroy(), ms);
    socket.on("connect", () => socket.write(text));
    socket.on("data", (data) => {
      answer += data;
    });
    socket.on("error", () => {});
    socket.on("close", () => {
      clearTimeout(timer);
      resolve(answer);
    });
  });
}

export interface Answer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Record<string, string>;
  readonly body: string;
}

/** A request whose path and headers are sent as they are given; `Host` is the server's own unless given. */
export async function ask(
  port: number,
  path: string,
  headers: Record<string, string> = {},
  method = "GET",
): Promise<Answer> {
  const all = { Host: `127.0.0.1:${port}`, Connection: "close", ...headers };
  const head = Object.entries(all).map(([name, content]) => `${name}: ${content}\r\n`);
  const text = await exchange(port, `${method} ${path} HTTP/1.1\r\n${head.join("")}\r\n`);
  const [top, ...rest] = text.split("\r\n\r\n");
  const [first, ...lines] = top.split("\r\n");
  return {
    status: Number(first.split(" ")[1]),
    headers: Object.fromEntries(
      lines.map((line) => {
        const colon = line.indexOf(":");
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
      }),
    ),
    body: rest.join("\r\n\r\n"),
  };
}

/** Listens to the events after a cursor. */
export async function events(url: string, cursor: string, lastEventId?: string) {
  const abort = new AbortController();
  const response = await fetch(`${url}api/events?cursor=${cursor}`, {
    signal: abort.signal,
    headers: lastEventId === undefined ? {} : { "Last-Event-ID": lastEventId },
  });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const waiting: { id: string; change: Change }[] = [];
  let text = "";
  return {
    /** The next change of a kind; those before it are passed over. */
    async next<Kind extends Change["kind"]>(kind: Kind) {
      for (;;) {
        for (let event = waiting.shift(); event; event = waiting.shift()) {
          if (event.change.kind === kind)
            return event as { id: string; change: Extract<Change, { kind: Kind }> };
        }
        const { value, done } = await reader.read();
        if (done) throw new Error(`the events ended before one of kind ${kind}`);
        text += value;
        const parts = text.split("\n\n");
        text = parts.pop()!;
        for (const part of parts) {
          const match = /^id: (.*)\nevent: (.*)\ndata: (.*)$/.exec(part);
          if (match) waiting.push({ id: match[1], change: JSON.parse(match[3]) });
        }
      }
    },
    close: () => abort.abort(),
  };
}
