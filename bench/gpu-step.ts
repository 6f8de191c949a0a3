/**
 * Whole training steps on a CUDA card at the shapes of the peers' figures: the trainer's own steps, enqueued one ahead
 * of their results. "Outside": the same step with attention replaced by copies (one forward, three backward, as
 * torch_step.py does), less the time of those copies. Share: all operations, attention as done, over 790 TFLOP/s, the
 * largest bf16 product's rate on an H200. Writes gpu-step.json into $OUT, or bench/results/ with the card's name and the
 * date. On a GPU machine, after `npm run build:gpu` and `build:cuda`:
 *
 *   node build/gpu/bench/gpu-step.js [--shapes "2.2M,541M 32k"] [--attentions full,moba-b512-k3] [--seconds 1.5]
 *     [--torch FILE]              figures that torch_step.py wrote, beside ours
 *     [--general]                 attention by the kernels of all cards, also on Hopper
 *     [--profile "541M 32k"]      time by kernel of a step of that shape, with each attention, instead
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { parseAttention } from "../src/attention/attention.ts";
import { attendedPairs } from "../src/attention/pairs.ts";
import { trainingOperations } from "../src/compute/compute.ts";
import { Random } from "../src/data/random.ts";
import type { Batch } from "../src/data/types.ts";
import { type ModelConfig, nonEmbeddingParameters } from "../src/model/config.ts";
import type { Backend, Tensor } from "../src/ops/contract.ts";
import { createCudaBackend, cudaFacts } from "../src/ops/cuda/index.ts";
import { createNullBackend } from "../src/ops/cuda/null.ts";
import { Trainer } from "../src/train/trainer.ts";
import type { RunConfig } from "../src/train/types.ts";
import { openProfiler, type Timing } from "./gpu-profile.ts";
import { median } from "./timing.ts";

const TFLOPS = 790;
const COPY_TBS = 4.3;

/** Width, layers, heads, tokens of a sequence, sequences, vocabulary. */
const SHAPES: Readonly<Record<string, readonly [number, number, number, number, number, number]>> = {
  "2.2M": [192, 5, 3, 16_384, 8, 8192],
  "8.9M": [384, 5, 6, 16_384, 4, 8192],
  "29.8M": [640, 6, 10, 16_384, 4, 8192],
  "85M": [768, 12, 12, 8192, 8, 32_768],
  "85M H6": [768, 12, 6, 8192, 8, 32_768],
  "541M 8k": [1792, 14, 14, 8192, 4, 32_768],
  "541M 32k": [1792, 14, 14, 32_768, 1, 32_768],
};

const { values } = parseArgs({
  options: {
    shapes: { type: "string", default: Object.keys(SHAPES).join() },
    attentions: { type: "string", default: "full,moba-b512-k3" },
    seconds: { type: "string", default: "1.5" },
    profile: { type: "string" },
    torch: { type: "string" },
    general: { type: "boolean" },
    /** `null`: no card and no time; whether it runs, and what memory it takes. */
    device: { type: "string", default: "cuda" },
  },
});
const attentions = values.attentions.split(",");
const hopper = !values.general;
const open = (): Backend => (values.device === "null" ? createNullBackend() : createCudaBackend({ hopper }));

function configOf(name: string, attention: string): RunConfig {
  const shape = SHAPES[name];
  if (!shape) throw new RangeError(`no shape "${name}": expected one of ${Object.keys(SHAPES).join(", ")}`);
  const [modelDim, layers, heads, context, sequences, vocabulary] = shape;
  return {
    model: name,
    shape: {
      ...{ layers, heads, kvHeads: heads, headDim: modelDim / heads, modelDim, vocabulary },
      feedForward: Math.ceil((8 * modelDim) / 3 / 64) * 64,
      ...{ ropeTheta: 10_000, normEpsilon: 1e-5, tiedOutput: false, keyConvolution: 0 },
    },
    ...{ attention, dataset: "none", context, sequencesPerStep: sequences, sequencesPerPass: sequences },
    horizon: { steps: 1_000_000 },
    optimizer: {
      ...{ learningRate: 1e-4, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, maxNorm: 1 },
      ...{ schedule: "cosine", warmup: 0.1, decay: 0.2, finalShare: 0.1 },
    },
    ...{ buckets: 1, evaluations: 1, checkpointEvery: 0, recompute: false, seed: 1 },
  };
}

/** Random tokens, common ones more often, as in text. */
function randomBatch({ context, sequencesPerPass, shape }: RunConfig): Batch {
  const random = new Random(1);
  const length = context * sequencesPerPass;
  const tokens = Int32Array.from({ length }, () => Math.floor(shape.vocabulary ** random.uniform()) - 1);
  const targets = Int32Array.from(tokens, (_, t) => tokens[(t + 1) % length]);
  const offsets = Array.from({ length: sequencesPerPass + 1 }, (_, i) => i * context);
  return { tokens, targets, offsets, counted: { predicted: length, largest: shape.vocabulary - 1 } };
}

/** A trainer with random weights, made on the card: a pattern over and over, and gains of one. */
function makeTrainer(backend: Backend, config: RunConfig): Trainer {
  const layers = new Array(config.shape.layers).fill(parseAttention(config.attention));
  const trainer = new Trainer(backend, config, config.sequencesPerPass, layers);
  const { model } = trainer;
  const random = new Random(2);
  const pattern = Float32Array.from({ length: 1_048_573 }, () => 0.02 * random.gaussian());
  const fill = (tensor: Tensor) => {
    let done = Math.min(pattern.length, tensor.length);
    backend.write(backend.view(tensor, 0, [done]), pattern.subarray(0, done));
    for (; done < tensor.length; ) {
      const count = Math.min(done, tensor.length - done);
      backend.copy(backend.view(tensor, done, [count]), backend.view(tensor, 0, [count]));
      done += count;
    }
  };
  fill(model.master);
  fill(model.weights);
  for (const parameter of model.parameters.named) {
    if (parameter.name.includes("norm"))
      model.writeParameter(parameter, new Float32Array(parameter.shape[0]).fill(1));
  }
  return trainer;
}

/** Copies in the place of attention. */
function withoutAttention(backend: Backend): Backend {
  const change: Partial<Backend> = {
    route() {},
    attentionForward: (_state, out_THD, _q, _k, v_TGD) => backend.copy(out_THD, v_TGD),
    attentionBackward(_state, dQ_THD, dK_TGD, dV_TGD, dOut_THD) {
      for (const out of [dQ_THD, dK_TGD, dV_TGD]) backend.copy(out, dOut_THD);
    },
  };
  return Object.assign(Object.create(backend), change);
}

/** Milliseconds of a step, in steady state. */
function timeSteps(backend: Backend, trainer: Trainer, batch: Batch): number {
  let step = 0;
  const run = (steps: number) => {
    const start = performance.now();
    for (let i = 0; i < steps; i++) trainer.advance(++step, [batch]);
    trainer.settle();
    backend.synchronize();
    return (performance.now() - start) / steps;
  };
  run(3);
  const once = run(2);
  return run(Math.max(3, Math.min(200, Math.ceil((1000 * Number(values.seconds)) / once))));
}

function timeCopies(backend: Backend, { shape, context, sequencesPerPass }: RunConfig): number {
  const size = [context * sequencesPerPass, shape.heads, shape.headDim];
  const [out, source] = [1, 2].map(() => backend.tensor(size, "activation"));
  const replay = backend.record(() => {
    for (let i = 0; i < 4 * shape.layers; i++) backend.copy(out, source);
  });
  const times = Array.from({ length: 8 }, () => {
    backend.synchronize();
    const start = performance.now();
    replay();
    backend.synchronize();
    return performance.now() - start;
  });
  return median(times);
}

function operationsOf({ shape, context, sequencesPerPass }: RunConfig, attention: string): number {
  const layers = new Array(shape.layers).fill(parseAttention(attention));
  return trainingOperations(
    { ...facts(shape), attention: layers },
    new Array(sequencesPerPass).fill(context),
    "attended",
  );
}

function attentionOperations(config: RunConfig): number {
  const { shape, context, sequencesPerPass } = config;
  const pairs = attendedPairs(parseAttention(config.attention), context);
  return 12 * shape.headDim * shape.heads * shape.layers * sequencesPerPass * pairs;
}

/** What a kernel outside attention must move, all calls together; 0 where it is not counted. */
function bytesOf(
  kernel: string,
  calls: number,
  { shape, context, sequencesPerPass }: RunConfig,
  P: number,
): number {
  const T = context * sequencesPerPass;
  const { modelDim: C, feedForward: F, vocabulary: V } = shape;
  const E = 3 * C;
  const perCall: readonly [start: string, bytes: number][] = [
    ["embedding_forward", 4 * T * C],
    ["add_norm_forward", 8 * T * C],
    ["norm_forward", 4 * T * C],
    ["norm_backward", 8 * T * C],
    ["split_rope", 4 * T * E],
    ["swiglu_forward", 6 * T * F],
    ["swiglu_backward", 10 * T * F],
    // All chunks of rows together.
    ["loss_gradient", (4 * T * V) / calls],
    ["grad_squares", 4 * P],
    ["adamw", 30 * P],
  ];
  return calls * (perCall.find(([start]) => kernel.startsWith(start))?.[1] ?? 0);
}

function facts(shape: ModelConfig) {
  return { ...shape, nonEmbeddingParameters: nonEmbeddingParameters(shape) };
}

interface TorchFigures {
  readonly outside_ms?: number;
  readonly step_ms?: number;
}

function measure(name: string) {
  const base = configOf(name, attentions[0]);
  const batch = randomBatch(base);
  const tokens = batch.tokens.length;
  const steps = attentions.map((attention) => {
    const backend = open();
    try {
      const trainer = makeTrainer(backend, configOf(name, attention));
      const ms = timeSteps(backend, trainer, batch);
      const tflops = operationsOf(base, attention) / ms / 1e9;
      const memoryGB = backend.memory() / 1e9;
      return { attention, ms, tokensPerSecond: (1000 * tokens) / ms, share: tflops / TFLOPS, memoryGB };
    } finally {
      backend.close();
    }
  });
  const backend = open();
  try {
    const bare = withoutAttention(backend);
    const copies = timeCopies(backend, base);
    const outsideMs = timeSteps(bare, makeTrainer(bare, configOf(name, "full")), batch) - copies;
    return { shape: name, tokens, steps, outsideMs, copiesMs: copies };
  } finally {
    backend.close();
  }
}

function printTable(torch: Readonly<Record<string, TorchFigures>>): void {
  const rows: ReturnType<typeof measure>[] = [];
  const beside = (ours: number, theirs: number | undefined) =>
    theirs === undefined ? "" : `torch ${theirs.toFixed(2)} (${(ours / theirs).toFixed(2)}x)`;
  for (const name of values.shapes.split(",")) {
    const row = measure(name);
    rows.push(row);
    const peer = torch[name] ?? {};
    console.log(
      `  ${name.padEnd(9)} outside attention ${row.outsideMs.toFixed(2).padStart(8)} ms  ${beside(row.outsideMs, peer.outside_ms)}`,
    );
    for (const { attention, ms, tokensPerSecond, share, memoryGB } of row.steps) {
      console.log(
        `  ${name.padEnd(9)} ${attention.padEnd(16)} ${ms.toFixed(2).padStart(9)} ms a step ${(tokensPerSecond / 1000).toFixed(1).padStart(8)} k tokens/s  ${(100 * share).toFixed(0).padStart(3)} % of ${TFLOPS} TFLOP/s ${memoryGB.toFixed(1).padStart(6)} GB  ${attention === "full" ? beside(ms, peer.step_ms) : ""}`,
      );
    }
  }
  const card = cudaFacts().cards[0]?.name ?? "null";
  const date = new Date().toISOString().slice(0, 10);
  const slug = card.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const folder = process.env.OUT ?? "bench/results";
  mkdirSync(folder, { recursive: true });
  const file = join(folder, process.env.OUT ? "gpu-step.json" : `gpu-step_${slug}_${date}.json`);
  const record = { benchmark: "gpu-step", card, hopper, date, node: process.version, rows, torch };
  writeFileSync(file, `${JSON.stringify(record, null, 2)}\n`);
  console.log(`  written to ${file}`);
}

function printProfile(name: string, attention: string): void {
  const { backend, profile } = openProfiler(hopper);
  try {
    const config = configOf(name, attention);
    const plain: Backend = Object.assign(Object.create(backend), { record: (body: () => void) => body });
    const trainer = makeTrainer(plain, config);
    const batch = randomBatch(config);
    trainer.step(1, [batch]);
    trainer.step(2, [batch]);
    // Something for the card to do while the host enqueues, or small kernels would seem to take as long as a launch.
    const filler = backend.tensor([2 ** 28], "float");
    for (let i = 0; i < 40; i++) backend.zero(filler);
    const timings = profile(() => {
      trainer.advance(3, [batch]);
    });
    trainer.settle();
    const total = timings.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
    console.log(`  ${name}, ${attention}: ${total.toFixed(2)} ms, each kind of work by its time`);
    console.log("        ms  share  calls  us each  work                                     rate");
    const print = (what: string, ms: number, calls: number, rate: string) =>
      console.log(
        `  ${ms.toFixed(3).padStart(8)} ${((100 * ms) / total).toFixed(1).padStart(5)}% ${String(calls).padStart(6)} ${((1000 * ms) / calls).toFixed(1).padStart(8)}  ${what.padEnd(40)} ${rate}`,
      );
    const matrixRate = (operations: number, ms: number) => {
      const tflops = operations / ms / 1e9;
      return `${tflops.toFixed(0)} TFLOP/s (${((100 * tflops) / TFLOPS).toFixed(0)} %)`;
    };
    for (const { name, calls, milliseconds: ms, operations, bytes } of timings) {
      const moved = bytes || bytesOf(name, calls, config, trainer.model.parameters.length);
      const terabytes = moved / ms / 1e9;
      const rate = moved
        ? `${terabytes.toFixed(2)} TB/s (${((100 * terabytes) / COPY_TBS).toFixed(0)} %)`
        : "";
      print(name, ms, calls, operations ? matrixRate(operations, ms) : rate);
    }
    const isAttention = ({ name }: Timing) => /^(attention|hopper)_/.test(name);
    const isProduct = ({ name }: Timing) => name.startsWith("product");
    const sum = (what: string, chosen: (timing: Timing) => boolean, operations?: number) => {
      const of = timings.filter(chosen);
      const ms = of.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
      const calls = of.reduce((sum, { calls }) => sum + calls, 0);
      const counted = operations ?? of.reduce((sum, { operations }) => sum + operations, 0);
      if (calls > 0) print(`all ${what}`, ms, calls, counted ? matrixRate(counted, ms) : "");
    };
    sum("attention, by attended pairs", isAttention, attentionOperations(config));
    sum("products", isProduct);
    sum("the rest", (timing) => !isAttention(timing) && !isProduct(timing));
  } finally {
    backend.close();
  }
}

if (values.profile) for (const attention of attentions) printProfile(values.profile, attention);
else printTable(values.torch ? JSON.parse(readFileSync(values.torch, "utf8")) : {});
