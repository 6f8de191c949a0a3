/**
 * How long the planned runs will take, from a short measurement: one training pass of each shape where that takes
 * about a second, else of a small proxy with the same attention, scaled by operations.
 */
import { parseSchedule } from "../attention/schedule.ts";
import { trainingOperations } from "../compute/compute.ts";
import {
  type LayerAttention,
  ladderModel,
  type ModelConfig,
  nonEmbeddingParameters,
} from "../model/config.ts";
import { Model } from "../model/model.ts";
import type { Backend } from "../ops/contract.ts";
import type { PlannedRun } from "./plan.ts";

/** A pass with more operations than this is estimated through the proxy. */
const DIRECT_OPERATIONS = 3e10;
const PROXY_CONTEXT = 2048;

export interface PassTime {
  /** Seconds of one forward and backward pass over a window of `context` tokens. */
  readonly seconds: number;
  /** Operations of that pass by `attended`. */
  readonly operations: number;
}

/** Times one training pass over one full window: the best of `repeats` after a warm-up. */
export function timePass(
  backend: Backend,
  shape: ModelConfig,
  attention: LayerAttention,
  context: number,
  repeats = 2,
): PassTime {
  const model = new Model(backend, shape, { tokens: context, maxDocuments: 1, training: true, attention });
  model.initialize(1);
  const tokens = Int32Array.from({ length: context }, (_, i) => (i * 7919) % shape.vocabulary);
  const targets = Int32Array.from(tokens, (_, i) => (i * 104_729) % shape.vocabulary);
  const scale = backend.tensor([1], "float");
  backend.write(scale, [1 / context]);
  model.loadBatch({ tokens, targets, offsets: [0, context] });
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i <= repeats; i++) {
    const start = performance.now();
    model.forwardBackward(scale);
    backend.synchronize();
    if (i > 0) best = Math.min(best, (performance.now() - start) / 1000);
  }
  const operations = trainingOperations(
    { nonEmbeddingParameters: nonEmbeddingParameters(shape), ...shape, attention },
    [context],
    "attended",
  );
  return { seconds: best, operations };
}

/**
 * Estimated seconds of each run on backends like the one `open` gives. Every measurement gets a fresh backend, so
 * that memory is given back.
 */
export function estimateSeconds(runs: readonly PlannedRun[], open: () => Backend): number[] {
  const measured = new Map<string, PassTime>();
  const measure = (shape: ModelConfig, attention: LayerAttention, context: number): PassTime => {
    const key = JSON.stringify([shape, attention, context]);
    let time = measured.get(key);
    if (!time) {
      const backend = open();
      try {
        time = timePass(backend, shape, attention, context, 1);
      } finally {
        backend.close();
      }
      measured.set(key, time);
    }
    return time;
  };
  return runs.map(({ config, parameters, tokens }) => {
    const { shape, context } = config;
    const phases = parseSchedule(config.attention, shape.layers);
    let seconds = 0;
    phases.forEach((phase, i) => {
      const windows = (((phases[i + 1]?.fromShare ?? 1) - phase.fromShare) * tokens) / context;
      const operations = trainingOperations(
        { nonEmbeddingParameters: parameters, ...shape, attention: phase.layers },
        [context],
        "attended",
      );
      if (operations <= DIRECT_OPERATIONS) {
        seconds += windows * measure(shape, phase.layers, context).seconds;
        return;
      }
      const proxyShape = {
        ...ladderModel(Math.max(1, Math.round(256 / shape.headDim)), {
          headDim: shape.headDim,
          vocabulary: 256,
        }),
        layers: 1,
      };
      const proxy = measure(proxyShape, [phase.layers[0]], Math.min(context, PROXY_CONTEXT));
      seconds += (windows * operations * proxy.seconds) / proxy.operations;
    });
    return seconds;
  });
}

/** Wall time of runs of the given lengths on `jobs` places, longest first. */
export function makespan(seconds: readonly number[], jobs: number): number {
  const busy = new Array<number>(Math.max(1, jobs)).fill(0);
  for (const s of [...seconds].sort((a, b) => b - a)) {
    busy.sort((a, b) => a - b);
    busy[0] += s;
  }
  return Math.max(...busy);
}
