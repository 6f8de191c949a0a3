/**
 * How long the planned runs will take, from a short measurement: on a card one training pass of each shape; on the CPU
 * too where that takes about a second, else of a small proxy with the same attention, scaled by operations.
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

/** A pass with more operations than this is estimated through the proxy on the CPU; a card takes minutes for none. */
const DIRECT_OPERATIONS = { cpu: 3e10, card: 1e16 };
const PROXY_CONTEXT = 2048;
/** A forward pass, as a share of a training pass. */
const FORWARD_SHARE = 1 / 3;

export interface PassTime {
  /** Seconds of one forward and backward pass over `windows` windows of `context` tokens. */
  readonly seconds: number;
  /** Operations of that pass by `attended`. */
  readonly operations: number;
}

/** Times one training pass over full windows, replayed as the trainer does: the best of `repeats` after a warm-up. */
export function timePass(
  backend: Backend,
  shape: ModelConfig,
  attention: LayerAttention,
  context: number,
  repeats = 2,
  windows = 1,
): PassTime {
  const length = windows * context;
  const model = new Model(backend, shape, {
    tokens: length,
    maxDocuments: windows,
    training: true,
    attention,
  });
  model.initialize(1);
  const tokens = Int32Array.from({ length }, (_, i) => (i * 7919) % shape.vocabulary);
  const targets = Int32Array.from(tokens, (_, i) => (i * 104_729) % shape.vocabulary);
  const scale = backend.tensor([1], "float");
  backend.write(scale, [1 / length]);
  const offsets = Array.from({ length: windows + 1 }, (_, i) => i * context);
  model.loadBatch({ tokens, targets, offsets });
  const pass = backend.record(() => model.forwardBackward(scale));
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i <= repeats; i++) {
    const start = performance.now();
    pass();
    backend.synchronize();
    if (i > 0) best = Math.min(best, (performance.now() - start) / 1000);
  }
  const operations = trainingOperations(
    { nonEmbeddingParameters: nonEmbeddingParameters(shape), ...shape, attention },
    new Array(windows).fill(context),
    "attended",
  );
  return { seconds: best, operations };
}

/**
 * Estimated seconds of each run, evaluations included, on backends like the one `open` gives. Every measurement gets a
 * fresh backend, so that memory is given back.
 */
export function estimateSeconds(runs: readonly PlannedRun[], open: () => Backend): number[] {
  const measured = new Map<string, PassTime>();
  let limit = DIRECT_OPERATIONS.cpu;
  const measure = (shape: ModelConfig, attention: LayerAttention, context: number, windows = 1): PassTime => {
    const key = JSON.stringify([shape, attention, context, windows]);
    let time = measured.get(key);
    if (!time) {
      const backend = open();
      try {
        time = timePass(backend, shape, attention, context, backend.asynchronous ? 5 : 1, windows);
      } finally {
        backend.close();
      }
      measured.set(key, time);
    }
    return time;
  };
  if (runs.length > 0) {
    const backend = open();
    limit = backend.asynchronous ? DIRECT_OPERATIONS.card : DIRECT_OPERATIONS.cpu;
    backend.close();
  }
  return runs.map(({ config, parameters, tokens, evaluationTokens }) => {
    const { shape, context, sequencesPerPass } = config;
    const phases = parseSchedule(config.attention, shape.layers);
    let seconds = 0;
    phases.forEach((phase, i) => {
      const share = (phases[i + 1]?.fromShare ?? 1) - phase.fromShare;
      const windows = (share * (tokens + FORWARD_SHARE * evaluationTokens)) / context;
      const operations = trainingOperations(
        { nonEmbeddingParameters: parameters, ...shape, attention: phase.layers },
        [context],
        "attended",
      );
      if (operations <= limit) {
        const pass = measure(shape, phase.layers, context, sequencesPerPass);
        seconds += (windows / sequencesPerPass) * pass.seconds;
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

/** Wall time of runs of the given lengths on `jobs` places, longest first or in the order given. */
export function makespan(seconds: readonly number[], jobs: number, inOrder = false): number {
  const busy = new Array<number>(Math.max(1, jobs)).fill(0);
  for (const s of inOrder ? seconds : [...seconds].sort((a, b) => b - a)) {
    busy.sort((a, b) => a - b);
    busy[0] += s;
  }
  return Math.max(...busy);
}
