/**
 * Attention alone on the CPU backend: routing, forward and backward of one layer over context lengths, as time, as
 * GFLOP/s of attended pairs (forward 4 D, backward 8 D per pair and head) and as bytes beside the tensors. Writes
 * bench/results/attention_<cpu>_<date>.json. Run from the project root:
 *
 *   npx tsx bench/attention.ts [--contexts 1024,...,16384] [--attentions full,moba-b128-k4] [--threads 1,2]
 */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus } from "node:os";
import { parseArgs } from "node:util";
import { type Attention, parseAttention } from "../src/attention/attention.ts";
import { attendedPairs } from "../src/attention/pairs.ts";
import type { Backend } from "../src/ops/contract.ts";
import { createCpuBackend } from "../src/ops/cpu/index.ts";
import { median } from "./timing.ts";

const cores = availableParallelism();
const { values } = parseArgs({
  options: {
    contexts: { type: "string", default: "1024,2048,4096,8192,16384" },
    attentions: { type: "string", default: "full,moba-b128-k4" },
    threads: { type: "string", default: cores > 1 ? `1,${cores}` : "1" },
    heads: { type: "string", default: "4" },
    "kv-heads": { type: "string", default: "4" },
    "head-dim": { type: "string", default: "64" },
  },
});
const numbers = (list: string) => list.split(",").map(Number);
const [H, G, D] = [Number(values.heads), Number(values["kv-heads"]), Number(values["head-dim"])];

interface Row {
  readonly attention: string;
  readonly threads: number;
  readonly context: number;
  readonly routeMs: number;
  readonly forwardMs: number;
  readonly backwardMs: number;
  /** Forward and routing; backward; all three. */
  readonly gflops: { readonly forward: number; readonly backward: number; readonly all: number };
  /** Bytes of the operations' own memory: log-sum-exp, routing, packed keys and values. */
  readonly memory: number;
}

/** Median milliseconds of a call, over at least 3 calls and about a second, after one unmeasured. */
function time(call: () => void): number {
  call();
  const runs: number[] = [];
  const end = performance.now() + 1000;
  while (runs.length < 3 || (performance.now() < end && runs.length < 50)) {
    const start = performance.now();
    call();
    runs.push(performance.now() - start);
  }
  return median(runs);
}

function measure(backend: Backend, attention: Attention, label: string, threads: number, T: number): Row {
  const tensor = (heads: number) => {
    const made = backend.tensor([T, heads, D], "activation");
    let state = T + heads;
    const noise = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 31 - 1;
    backend.write(
      made,
      Float32Array.from({ length: made.length }, () => noise() + noise() + noise()),
    );
    return made;
  };
  const [q, k, v, out, dOut] = [tensor(H), tensor(G), tensor(G), tensor(H), tensor(H)];
  const [dQ, dK, dV] = [tensor(H), tensor(G), tensor(G)];
  const documents = backend.documents(T, 1);
  const before = backend.memory();
  const state = backend.attentionState({
    tokens: T,
    heads: H,
    kvHeads: G,
    headDim: D,
    maxDocuments: 1,
    attention,
  });
  const routeMs = time(() => backend.route(state, q, k, documents));
  const forwardMs = time(() => backend.attentionForward(state, out, q, k, v, documents));
  const backwardMs = time(() => backend.attentionBackward(state, dQ, dK, dV, dOut, out, q, k, v, documents));
  const operations = 4 * D * H * attendedPairs(attention, T);
  return {
    attention: label,
    threads,
    context: T,
    routeMs,
    forwardMs,
    backwardMs,
    gflops: {
      forward: operations / (routeMs + forwardMs) / 1e6,
      backward: (2 * operations) / backwardMs / 1e6,
      all: (3 * operations) / (routeMs + forwardMs + backwardMs) / 1e6,
    },
    memory: backend.memory() - before,
  };
}

const rows: Row[] = [];
console.log(`${cpus()[0].model}, one layer, H=${H} G=${G} D=${D}`);
for (const threads of numbers(values.threads)) {
  for (const label of values.attentions.split(",")) {
    for (const context of numbers(values.contexts)) {
      const backend = createCpuBackend({ threads });
      const row = measure(backend, parseAttention(label), label, threads, context);
      backend.close();
      rows.push(row);
      const { routeMs, forwardMs, backwardMs, gflops, memory } = row;
      console.log(
        [
          `${threads} threads`,
          label.padEnd(14),
          `T=${String(context).padEnd(6)}`,
          `route ${routeMs.toFixed(1)} forward ${forwardMs.toFixed(1)} backward ${backwardMs.toFixed(1)} ms`,
          `${gflops.forward.toFixed(1)} / ${gflops.backward.toFixed(1)} / ${gflops.all.toFixed(1)} GFLOP/s`,
          `${(memory / 2 ** 20).toFixed(1)} MiB`,
        ].join("  "),
      );
    }
  }
}

const slug = cpus()[0]
  .model.toLowerCase()
  .replace(/[^a-z0-9]+/g, "-")
  .replace(/^-|-$/g, "");
const date = new Date().toISOString().slice(0, 10);
const file = new URL(`results/attention_${slug}_${date}.json`, import.meta.url);
mkdirSync(new URL(".", file), { recursive: true });
const record = {
  date,
  cpu: cpus()[0].model,
  cores,
  node: process.version,
  heads: H,
  kvHeads: G,
  headDim: D,
  rows,
};
writeFileSync(`${file.pathname}.tmp`, `${JSON.stringify(record, null, 2)}\n`);
renameSync(`${file.pathname}.tmp`, file.pathname);
console.log(`wrote bench/results/${file.pathname.split("/").at(-1)}`);
