/**
 * Attention alone on a CUDA card: routing, forward and backward of one layer over context lengths, batch 1, random
 * data. Each is recorded many times over into one graph, so that neither launches nor waiting count; medians of
 * several replays. Rates count attended pairs (forward 4 D, forward and backward 12 D per pair and head). Writes
 * gpu-attention.json into $OUT, or bench/results/ with the card's name and the date. On a GPU machine:
 *
 *   npm run build:gpu && node build/gpu/bench/gpu-attention.js [--contexts 8192,32768] [--head-dims 128,64] \
 *     [--heads 16] [--kv-heads 16] [--attentions full,moba-b512-k3,moba-b128-k8]
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { parseAttention } from "../src/attention/attention.ts";
import { attendedPairs } from "../src/attention/pairs.ts";
import type { Backend, Tensor } from "../src/ops/contract.ts";
import { createCudaBackend, cudaFacts } from "../src/ops/cuda/index.ts";
import { median } from "./timing.ts";

const { values } = parseArgs({
  options: {
    contexts: { type: "string", default: "8192,16384,32768,65536,131072" },
    attentions: { type: "string", default: "full,moba-b512-k3,moba-b128-k8" },
    heads: { type: "string", default: "16" },
    "kv-heads": { type: "string", default: "16" },
    "head-dims": { type: "string", default: "128,64" },
  },
});
const numbers = (list: string) => list.split(",").map(Number);
const [H, G] = [Number(values.heads), Number(values["kv-heads"])];

/** Random values; a length that no row divides, so that repeating them does not repeat keys or blocks. */
const PATTERN = (() => {
  let state = 1;
  const uniform = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  // About normal.
  return Float32Array.from({ length: 4_194_301 }, () => 2 * (uniform() + uniform() + uniform()) - 3);
})();

function fill(backend: Backend, tensor: Tensor, source: Tensor): void {
  for (let from = 0; from < tensor.length; from += source.length) {
    const count = Math.min(source.length, tensor.length - from);
    backend.copy(backend.view(tensor, from, [count]), backend.view(source, 0, [count]));
  }
}

/** Median milliseconds of a call. */
function time(backend: Backend, call: () => void): number {
  const run = (replay: () => void) => {
    backend.synchronize();
    const start = performance.now();
    replay();
    backend.synchronize();
    return performance.now() - start;
  };
  call();
  const once = run(call);
  const calls = Math.max(1, Math.min(100, Math.ceil(30 / once)));
  const replay = backend.record(() => {
    for (let i = 0; i < calls; i++) call();
  });
  run(replay);
  return median(Array.from({ length: once > 100 ? 3 : 5 }, () => run(replay) / calls));
}

function measure(label: string, T: number, D: number) {
  const attention = parseAttention(label);
  const backend = createCudaBackend();
  try {
    const pattern = backend.tensor([PATTERN.length], "activation");
    backend.write(pattern, PATTERN);
    const tensor = (heads: number, rotation: number) => {
      const made = backend.tensor([T, heads, D], "activation");
      const rotated = backend.view(pattern, rotation, [PATTERN.length - rotation]);
      fill(backend, made, rotated);
      return made;
    };
    const [q, k, v, dOut] = [tensor(H, 0), tensor(G, 1_000_003), tensor(G, 2_000_003), tensor(H, 3_000_017)];
    const [out, dQ] = [1, 2].map(() => backend.tensor([T, H, D], "activation"));
    const [dK, dV] = [1, 2].map(() => backend.tensor([T, G, D], "activation"));
    const documents = backend.documents(T, 1);
    const before = backend.memory();
    const shape = { tokens: T, heads: H, kvHeads: G, headDim: D, maxDocuments: 1, attention };
    const state = backend.attentionState(shape);
    const route = time(backend, () => backend.route(state, q, k, documents));
    const forward = time(backend, () => backend.attentionForward(state, out, q, k, v, documents));
    const backward = time(backend, () =>
      backend.attentionBackward(state, dQ, dK, dV, dOut, out, q, k, v, documents),
    );
    const operations = 4 * D * H * attendedPairs(attention, T);
    return {
      attention: label,
      headDim: D,
      context: T,
      routeMs: attention.kind === "full" ? 0 : route,
      forwardMs: forward,
      backwardMs: backward,
      teraflopsForward: operations / forward / 1e9,
      teraflopsBackward: (2 * operations) / backward / 1e9,
      memoryMiB: (backend.memory() - before) / 2 ** 20,
    };
  } finally {
    backend.close();
  }
}

const rows: ReturnType<typeof measure>[] = [];
for (const D of numbers(values["head-dims"])) {
  for (const label of values.attentions.split(",")) {
    for (const T of numbers(values.contexts)) rows.push(measure(label, T, D));
  }
}

const card = cudaFacts().cards[0];
const date = new Date().toISOString().slice(0, 10);
const slug = card.name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
const folder = process.env.OUT ?? "bench/results";
mkdirSync(folder, { recursive: true });
const file = join(folder, process.env.OUT ? "gpu-attention.json" : `gpu-attention_${slug}_${date}.json`);
writeFileSync(file, `${JSON.stringify({ benchmark: "gpu-attention", card, date, H, G, rows }, null, 2)}\n`);

console.log(`${card.name}, ${date}, H=${H} G=${G}; milliseconds; "forward" with routing; written to ${file}`);
console.log(
  "   D attention       context    route   attend backward |  forward  fwd+bwd |  TFLOP/s fwd  bwd |    MiB",
);
for (const row of rows) {
  const { headDim, attention, context, routeMs, forwardMs, backwardMs } = row;
  const forward = routeMs + forwardMs;
  const ms = (x: number) => x.toPrecision(4).padStart(8);
  console.log(
    [
      String(headDim).padStart(4),
      attention.padEnd(14),
      String(context).padStart(8),
      ...[routeMs, forwardMs, backwardMs].map(ms),
      "|",
      ...[forward, forward + backwardMs].map(ms),
      "|",
      row.teraflopsForward.toFixed(0).padStart(11),
      row.teraflopsBackward.toFixed(0).padStart(6),
      "|",
      row.memoryMiB.toFixed(0).padStart(6),
    ].join(" "),
  );
}
