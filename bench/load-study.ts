/** The study that the dashboard is loaded with: runs of two attentions, half of them finished, as a trainer writes them. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** The names of the runs, in order. */
export function runNames(runs: number): string[] {
  return Array.from({ length: runs }, (_, i) => `d${2 + (i >> 1)}_${i % 2 ? "moba-b128-k4" : "full"}_s1`);
}

/** Records as a run writes them. Returns the bytes of all metrics. */
export function makeLoadStudy(folder: string, runs: number, steps: number): number {
  const names = runNames(runs);
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
    writeFileSync(join(run, "config.json"), JSON.stringify(configOf(i, steps)));
    const lines = Array.from({ length: steps }, (_, s) => stepLine(i, s + 1, steps));
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

function configOf(i: number, steps: number): object {
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

/** Step `s` of run `i`, of `steps` steps in all, as a line of its metrics. */
export function stepLine(i: number, s: number, steps: number): string {
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
