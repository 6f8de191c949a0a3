/** Times training steps of a model on the CPU backend, as a whole and by operation. */
import type { Attention } from "../src/attention/attention.ts";
import { trainingOperations } from "../src/compute/compute.ts";
import { type ModelConfig, nonEmbeddingParameters } from "../src/model/config.ts";
import { Model } from "../src/model/model.ts";
import type { Backend } from "../src/ops/contract.ts";
import { createCpuBackend } from "../src/ops/cpu/index.ts";
import { median } from "./timing.ts";

export interface StepFigures {
  readonly milliseconds: number;
  readonly tokensPerSecond: number;
  /** By the convention `attended`. */
  readonly gflops: number;
  /** Of a 512^3 product on the same threads, measured just before. */
  readonly gemmGflops: number;
  readonly memoryMiB: number;
  /** Milliseconds by operation, largest first. */
  readonly operations: { readonly name: string; readonly milliseconds: number }[];
}

/** One sequence of one document, `steps` steps after two that are not counted; medians. */
export function measureStep(
  config: ModelConfig,
  attention: Attention,
  context: number,
  threads: number,
  steps: number,
): StepFigures {
  const backend = createCpuBackend({ threads });
  const gemmGflops = gemmRate(backend);
  const times = new Map<string, number[]>();
  let step = -2;
  const ops = timed(backend, (name, milliseconds) => {
    if (step < 0) return;
    let list = times.get(name);
    if (!list) times.set(name, (list = Array(steps).fill(0)));
    list[step] += milliseconds;
  });

  const layers = Array.from({ length: config.layers }, () => attention);
  const options = { tokens: context, maxDocuments: 1, training: true, recompute: false, attention: layers };
  const model = new Model(ops, config, options);
  model.initialize(1);
  const token = (i: number) => (i * 7919) % config.vocabulary;
  const batch = {
    tokens: Int32Array.from({ length: context }, (_, i) => token(i)),
    targets: Int32Array.from({ length: context }, (_, i) => token(i + 1)),
    offsets: [0, context],
  };
  const P = model.master.length;
  const [m, v, norm] = [ops.tensor([P], "float"), ops.tensor([P], "float"), ops.tensor([1], "float")];
  const [hyper, scale] = [ops.tensor([8], "float"), ops.tensor([1], "float")];
  ops.write(hyper, [1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1]);
  ops.write(scale, [1 / context]);
  const whole: number[] = [];
  for (; step < steps; step++) {
    const start = performance.now();
    ops.zero(model.grads!);
    model.loadBatch(batch);
    ops.read(model.forwardBackward(scale));
    ops.gradNorm(norm, model.grads!);
    ops.adamw(model.master, model.weights, model.grads!, m, v, P, hyper, norm);
    if (step >= 0) whole.push(performance.now() - start);
  }
  const memoryMiB = backend.memory() / 2 ** 20;
  backend.close();

  const milliseconds = median(whole);
  const shape = {
    nonEmbeddingParameters: nonEmbeddingParameters(config),
    modelDim: config.modelDim,
    vocabulary: config.vocabulary,
    heads: config.heads,
    kvHeads: config.kvHeads,
    headDim: config.headDim,
    attention: layers,
  };
  return {
    milliseconds,
    tokensPerSecond: (context / milliseconds) * 1000,
    gflops: trainingOperations(shape, [context], "attended") / milliseconds / 1e6,
    gemmGflops,
    memoryMiB,
    operations: [...times]
      .map(([name, list]) => ({ name, milliseconds: median(list) }))
      .sort((a, b) => b.milliseconds - a.milliseconds),
  };
}

function gemmRate(backend: Backend): number {
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

/** The backend with a stopwatch around every operation. */
function timed(backend: Backend, report: (name: string, milliseconds: number) => void): Backend {
  const wrapped: Record<string, unknown> = { ...backend };
  for (const [name, operation] of Object.entries(backend)) {
    if (typeof operation !== "function") continue;
    wrapped[name] = (...args: unknown[]) => {
      const start = performance.now();
      const result = operation(...args);
      report(name, performance.now() - start);
      return result;
    };
  }
  return wrapped as unknown as Backend;
}
