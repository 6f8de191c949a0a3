/**
 * A training step of the CPU backend: tokens per second, share of our own GEMM rate, and where the time goes, by
 * operation. Run from the project root:
 *
 *   npx tsx bench/step.ts [--threads 1] [--context 2048] [--attention full] [--depth 4] [--head-dim 64]
 */
import { availableParallelism, cpus } from "node:os";
import { parseArgs } from "node:util";
import { parseAttention } from "../src/attention/attention.ts";
import { trainingOperations } from "../src/compute/compute.ts";
import { ladderModel, nonEmbeddingParameters } from "../src/model/config.ts";
import { Model } from "../src/model/model.ts";
import type { Backend } from "../src/ops/contract.ts";
import { createCpuBackend } from "../src/ops/cpu/index.ts";
import { median } from "./timing.ts";

const { values } = parseArgs({
  options: {
    threads: { type: "string", default: String(availableParallelism()) },
    context: { type: "string", default: "2048" },
    attention: { type: "string", default: "full" },
    depth: { type: "string", default: "4" },
    "head-dim": { type: "string", default: "64" },
    vocabulary: { type: "string", default: "256" },
    steps: { type: "string", default: "5" },
  },
});
const context = Number(values.context);
const attention = parseAttention(values.attention);
const steps = Number(values.steps);
const config = ladderModel(Number(values.depth), {
  headDim: Number(values["head-dim"]),
  vocabulary: Number(values.vocabulary),
});

/** Milliseconds of each operation in each step. */
const times = new Map<string, number[]>();
let current = -1;

function timed(backend: Backend): Backend {
  const wrapped = { ...backend } as unknown as Record<string, unknown>;
  for (const [name, operation] of Object.entries(backend)) {
    if (typeof operation !== "function") continue;
    wrapped[name] = (...args: unknown[]) => {
      const start = performance.now();
      const result = operation(...args);
      if (current >= 0) {
        let list = times.get(name);
        if (!list) times.set(name, (list = Array(steps).fill(0)));
        list[current] += performance.now() - start;
      }
      return result;
    };
  }
  return wrapped as unknown as Backend;
}

const backend = createCpuBackend({ threads: Number(values.threads) });

/** Operations per second of a 512^3 product on the same threads, in 1e9. */
function gemmRate(): number {
  const n = 512;
  const [out, x] = [backend.tensor([n, n], "activation"), backend.tensor([n, n], "activation")];
  const w = backend.tensor([n, n], "weight");
  const runs: number[] = [];
  for (let i = 0; i < 60; i++) {
    const start = performance.now();
    backend.linearForward(out, x, w);
    runs.push(performance.now() - start);
  }
  return (2 * n ** 3) / median(runs.slice(20)) / 1e6;
}
const gemm = gemmRate();

const ops = timed(backend);
const layers = Array.from({ length: config.layers }, () => attention);
const model = new Model(ops, config, {
  tokens: context,
  maxDocuments: 1,
  training: true,
  recompute: false,
  attention: layers,
});
model.initialize(1);
const batch = {
  tokens: Int32Array.from({ length: context }, (_, i) => (i * 7919) % config.vocabulary),
  targets: Int32Array.from({ length: context }, (_, i) => ((i + 1) * 7919) % config.vocabulary),
  offsets: [0, context],
};
const P = model.master.length;
const [m, v, norm] = [ops.tensor([P], "float"), ops.tensor([P], "float"), ops.tensor([1], "float")];
const [hyper, scale] = [ops.tensor([8], "float"), ops.tensor([1], "float")];
ops.write(hyper, [1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1]);
ops.write(scale, [1 / context]);

const whole: number[] = [];
for (let i = -2; i < steps; i++) {
  current = i;
  const start = performance.now();
  ops.zero(model.grads!);
  model.loadBatch(batch);
  ops.read(model.forwardBackward(scale));
  ops.gradNorm(norm, model.grads!);
  ops.adamw(model.master, model.weights, model.grads!, m, v, P, hyper, norm);
  if (i >= 0) whole.push(performance.now() - start);
}
const operations = trainingOperations(
  {
    nonEmbeddingParameters: nonEmbeddingParameters(config),
    modelDim: config.modelDim,
    vocabulary: config.vocabulary,
    heads: config.heads,
    kvHeads: config.kvHeads,
    headDim: config.headDim,
    attention: layers,
  },
  [context],
  "attended",
);
const step = median(whole);
const rate = operations / step / 1e6;
console.log(
  `${cpus()[0].model}, ${values.threads} threads, width ${config.modelDim}, ${config.layers} layers, context ${context}, ${values.attention}`,
);
console.log(
  `step ${step.toFixed(1)} ms, ${Math.round((context / step) * 1000)} tokens/s, ${rate.toFixed(1)} GFLOP/s ("attended"), ${((rate / gemm) * 100).toFixed(0)} % of our GEMM's ${gemm.toFixed(1)} GFLOP/s, memory ${(backend.memory() / 2 ** 20).toFixed(0)} MiB`,
);
for (const [name, list] of [...times].sort((a, b) => median(b[1]) - median(a[1]))) {
  console.log(
    `${name.padEnd(22)} ${median(list).toFixed(2).padStart(9)} ms ${((median(list) / step) * 100).toFixed(1).padStart(5)} %`,
  );
}
backend.close();
