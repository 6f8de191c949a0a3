/**
 * Attention alone on a CUDA card, beside cuDNN's full attention on the same card: one layer over context lengths, batch
 * 1, random data, at the shapes of the peers' figures. What `mobalab bench attention` measures, for the record. Writes
 * gpu-attention.json into $OUT, or bench/results/ with the card's name and the date. On a GPU machine, after
 * `npm run build:gpu` and `build:cuda`:
 *
 *   python3 test/gpu/torch_attention.py
 *   node build/gpu/bench/gpu-attention.js --torch build/gpu/torch-attention.json
 *     [--layers d128,d64,gqa] [--contexts 8192,32768] [--attentions full,moba-b512-k3]    fewer of them
 *     [--longest 15]              seconds; a line ends before a call that would take longer
 *     [--general]                 the kernels of all cards, also on Hopper
 *
 * Floor: (4 D pairs + 2 D gate scores) H operations forward, 10 D pairs H more backward (scores once again), at 790
 * TFLOP/s, the largest bf16 product's rate on an H200; and inputs and outputs in bf16, each moved once a pass, at 4.3
 * TB/s, the rate of a copy.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { parseAttention } from "../src/attention/attention.ts";
import { attendedPairs, gateScores } from "../src/attention/pairs.ts";
import type { Backend } from "../src/ops/contract.ts";
import { createCudaBackend, cudaFacts } from "../src/ops/cuda/index.ts";
import { createNullBackend } from "../src/ops/cuda/null.ts";
import {
  compareTimes,
  type LayerShape,
  measureAttention,
  PASSES,
  type Pass,
  type SpeedRow,
  timesOf,
} from "../src/study/attention-speed.ts";

const TFLOPS = 790;
const COPY_TBS = 4.3;

const POWERS = (from: number, to: number, step = 1) =>
  Array.from({ length: (to - from) / step + 1 }, (_, i) => 2 ** (from + i * step));
const ALL = POWERS(11, 20);
const SOME = POWERS(13, 17, 2);

const LAYERS: Readonly<Record<string, { shape: LayerShape; contexts: number[]; attentions: string[] }>> = {
  d128: {
    shape: { heads: 16, kv_heads: 16, head_dim: 128 },
    contexts: ALL,
    attentions: ["full", "moba-b512-k3", "moba-b128-k8", "moba-b2048-k3"],
  },
  d64: {
    shape: { heads: 16, kv_heads: 16, head_dim: 64 },
    contexts: SOME,
    attentions: ["full", "moba-b512-k3"],
  },
  gqa: {
    shape: { heads: 32, kv_heads: 8, head_dim: 128 },
    contexts: SOME,
    attentions: ["full", "moba-b512-k3"],
  },
};

/** Milliseconds from 8k on, doubling: forward, and forward with backward. */
type Figures = Readonly<Record<Pass, readonly (number | null)[]>>;

/**
 * FlashMoBA (mit-han-lab/flash-moba 39d9ac0, built for sm_90) on an H200, bf16, batch 1: medians measured once, with
 * CUDA 13.0 and torch 2.11. Not measured in this run.
 */
const FLASH_MOBA: Readonly<Record<string, Figures>> = {
  "d128 moba-b512-k3": {
    forward: [1.71, 3.46, 5.68, 14.1, 37.3, 113, 383, 1279],
    training: [3.21, 6.2, 10.9, 24.3, 57.5, 154],
  },
  "d128 moba-b128-k8": {
    forward: [2.09, 5.21, 9.43, 25.3, 72, 226, 733, 2418],
    training: [3.25, 7.2, 13.5, 32.5, 86.5, 255],
  },
  "d128 moba-b2048-k3": {
    forward: [2.38, 4.64, 9.75, 20.2, 43.8, 117, 374, 1383],
    training: [6.34, 13.5, 27.7, 56.6, 118, 265],
  },
  "d64 moba-b512-k3": { forward: [1.01, null, 3.74, null, 24.2], training: [1.97, null, 6.83, null, 36.1] },
  "gqa moba-b512-k3": { forward: [2.61, null, 9.38, null, 66.3], training: [5.47, null, 20.1, null, 108] },
};

/** What the project set itself on an H200. */
const GOALS: Readonly<Record<string, Figures>> = {
  "d128 moba-b512-k3": {
    forward: [0.35, 0.6, 1.1, 2.2, 4.6, 10, 24, 62],
    training: [1.1, 2, 3.6, 7.2, 15, 31, 66, 150],
  },
  "d128 moba-b128-k8": {
    forward: [0.4, 0.8, 1.6, 3.4, 8, 21, 60, 190],
    training: [1.2, 2.3, 4.6, 9.5, 20, 44, 110, 290],
  },
  "d64 moba-b512-k3": { forward: [0.25, null, 0.8, null, 3.3], training: [0.8, null, 2.6, null, 10.5] },
};

const { values } = parseArgs({
  options: {
    layers: { type: "string", default: Object.keys(LAYERS).join() },
    contexts: { type: "string" },
    attentions: { type: "string" },
    longest: { type: "string", default: "15" },
    torch: { type: "string" },
    general: { type: "boolean" },
    /** `null`: no card and no time; whether it runs. */
    device: { type: "string", default: "cuda" },
  },
});
const hopper = !values.general;
const open = (): Backend =>
  values.device === "null" ? createNullBackend({ hopper }) : createCudaBackend({ hopper });

interface TorchRow {
  readonly layer: string;
  readonly context: number;
  readonly forward_ms: number | null;
  readonly training_ms: number | null;
}

const torch: { readonly rows: readonly TorchRow[] } = values.torch
  ? JSON.parse(readFileSync(values.torch, "utf8"))
  : { rows: [] };

/** Milliseconds of cuDNN's full attention, each pass where it was measured. */
function cudnnTimes(layer: string, pass: Pass) {
  return torch.rows.flatMap((row) => {
    const ms = row[`${pass}_ms`];
    return row.layer === layer && ms !== null ? [{ context: row.context, ms }] : [];
  });
}

function floorMs(
  { heads: H, kv_heads: G, head_dim: D }: LayerShape,
  label: string,
  T: number,
  pass: Pass,
): number {
  const attention = parseAttention(label);
  const pairs = attendedPairs(attention, T);
  const training = pass === "training";
  const operations = D * H * ((training ? 14 : 4) * pairs + 2 * gateScores(attention, T));
  // q, out and k, v; backward q, out, dOut, dQ and k, v, dK, dV.
  const bytes = 2 * T * D * (training ? 6 : 2) * (H + G);
  return operations / TFLOPS / 1e9 + bytes / COPY_TBS / 1e9;
}

interface Beside {
  readonly ms: number | null;
  readonly cudnn_ms: number | null;
  readonly flash_moba_ms: number | null;
  readonly goal_ms: number | null;
  readonly floor_ms: number;
}

function besideOthers(layer: string, shape: LayerShape, row: SpeedRow, pass: Pass): Beside {
  const { attention, context } = row;
  const key = `${layer} ${attention}`;
  const at = Math.log2(context) - 13;
  return {
    ms: row[`${pass}_ms`],
    cudnn_ms: cudnnTimes(layer, pass).find((point) => point.context === context)?.ms ?? null,
    flash_moba_ms: FLASH_MOBA[key]?.[pass][at] ?? null,
    goal_ms: GOALS[key]?.[pass][at] ?? null,
    floor_ms: floorMs(shape, attention, context, pass),
  };
}

/** A requirement, what was measured, and whether it is met. */
interface Check {
  readonly what: string;
  readonly measured: string;
  readonly met: boolean;
}

const k = (tokens: number) =>
  tokens >= 2 ** 20 ? `${tokens / 2 ** 20}M` : `${Number((tokens / 1024).toPrecision(3))}k`;
const PASS_WORDS: Record<Pass, string> = { forward: "forward", training: "with backward" };

function measure(layer: string) {
  const known = LAYERS[layer];
  if (!known) throw new RangeError(`no layer "${layer}": expected ${Object.keys(LAYERS).join(", ")}`);
  const { shape } = known;
  const speed = measureAttention(open, {
    shape,
    attentions: values.attentions?.split(",") ?? known.attentions,
    contexts: values.contexts?.split(",").map(Number) ?? known.contexts,
    longest: Number(values.longest),
  });
  const rows = speed.rows.map((row) => ({
    ...row,
    forward: besideOthers(layer, shape, row, "forward"),
    training: besideOthers(layer, shape, row, "training"),
  }));
  return { layer, ...speed, rows };
}

type Layer = ReturnType<typeof measure>;

/** The requirements that these figures can decide. */
function checksOf({ layer, rows }: Layer): Check[] {
  const checks: Check[] = [];
  const find = (attention: string, context: number) =>
    rows.find((row) => row.attention === attention && row.context === context);
  for (const pass of PASSES) {
    for (const context of layer === "d128" ? SOME : []) {
      const { ms, cudnn_ms } = find("full", context)?.[pass] ?? {};
      const most = pass === "forward" ? 1.15 : 1.2;
      if (!ms || !cudnn_ms) continue;
      checks.push({
        what: `full at ${k(context)}, ${PASS_WORDS[pass]}: at most ${most} times cuDNN's time`,
        measured: (ms / cudnn_ms).toFixed(3),
        met: ms <= most * cudnn_ms,
      });
    }
    for (const context of layer === "d128" ? [2 ** 15, 2 ** 17] : []) {
      const { ms, flash_moba_ms } = find("moba-b512-k3", context)?.[pass] ?? {};
      const least = pass === "forward" ? 4 : 2.5;
      if (!ms || !flash_moba_ms) continue;
      checks.push({
        what: `moba-b512-k3 at ${k(context)}, ${PASS_WORDS[pass]}: at least ${least} times FlashMoBA's speed`,
        measured: (flash_moba_ms / ms).toFixed(2),
        met: flash_moba_ms >= least * ms,
      });
    }
    const both = rows.filter((row) => row[pass].ms !== null && row[pass].flash_moba_ms !== null);
    const slower = both.filter((row) => row[pass].ms! > row[pass].flash_moba_ms!);
    if (both.length > 0)
      checks.push({
        what: `${layer}, ${PASS_WORDS[pass]}: nowhere slower than FlashMoBA`,
        measured:
          slower.map(({ attention, context }) => `${attention} at ${k(context)} is slower`).join(", ") ||
          `${both.length} shapes`,
        met: slower.length === 0,
      });
    const goals = rows.filter((row) => row[pass].ms !== null && row[pass].goal_ms !== null);
    const reached = goals.filter((row) => row[pass].ms! <= row[pass].goal_ms!);
    if (goals.length > 0)
      checks.push({
        what: `${layer}, ${PASS_WORDS[pass]}: the goals of the table`,
        measured: `${reached.length} of ${goals.length}`,
        met: reached.length === goals.length,
      });
    const { crossing, speedups } = compareTimes(cudnnTimes(layer, pass), timesOf(rows, "moba-b512-k3", pass));
    if (layer === "d128" && speedups.length > 0) {
      const always = speedups.every(({ speedup }) => speedup > 1);
      checks.push({
        what: `moba-b512-k3 beats cuDNN's full attention from 4k on, ${PASS_WORDS[pass]}`,
        measured: always
          ? `from ${k(speedups[0].context)} on, the shortest measured`
          : crossing
            ? `from about ${k(crossing.context)} on`
            : `not at ${k(speedups.at(-1)!.context)}`,
        met: (always ? speedups[0].context : (crossing?.context ?? Number.POSITIVE_INFINITY)) <= 4096,
      });
    }
  }
  const memory = (attention: string, pass: Pass, most: number) => {
    const bytes = find(attention, 2 ** 17)?.[`${pass}_memory`];
    if (layer !== "d128" || bytes === undefined || bytes === null) return;
    checks.push({
      what: `${attention} at 128k, ${PASS_WORDS[pass]}: at most ${most} GB beside inputs and outputs`,
      measured: `${(bytes / 1e9).toFixed(2)} GB`,
      met: bytes <= most * 1e9,
    });
  };
  memory("moba-b512-k3", "forward", 1.5);
  memory("moba-b512-k3", "training", 3);
  memory("moba-b128-k8", "forward", 4);
  return checks;
}

const number = (value: number | null, width: number) =>
  (value === null ? "" : value >= 100 ? value.toFixed(0) : value.toPrecision(3)).padStart(width);

/** Ours, cuDNN's full attention and how many times its speed, FlashMoBA likewise, goal (* reached), share of the floor. */
function cells({ ms, cudnn_ms, flash_moba_ms, goal_ms, floor_ms }: Beside): string {
  const ratio = (theirs: number | null) =>
    (ms === null || theirs === null ? "" : `${number(theirs / ms, 0)}x`).padStart(6);
  const reached = ms !== null && goal_ms !== null && ms <= goal_ms;
  return [
    number(ms, 6),
    number(cudnn_ms, 6) + ratio(cudnn_ms),
    number(flash_moba_ms, 5) + ratio(flash_moba_ms),
    number(goal_ms, 5) + (reached ? "*" : " "),
    ms === null ? "   " : `${((100 * floor_ms) / ms).toFixed(0).padStart(2)}%`,
  ].join(" ");
}

const card = cudaFacts().cards[0] ?? { name: "null" };
const date = new Date().toISOString().slice(0, 10);
console.log(`${card.name}, ${date}; ms of one layer, bf16, batch 1, medians; forward with routing`);
const header = `  ours  cuDNN       Flash        goal  of floor`;
const layers: Layer[] = [];
const checks: Check[] = [];
for (const name of values.layers.split(",")) {
  const layer = measure(name);
  layers.push(layer);
  const { heads, kv_heads, head_dim } = layer.shape;
  console.log(`${name}: ${heads} heads, ${kv_heads} of keys and values, head dimension ${head_dim}`);
  console.log(`  attention       ctx |${header}|   MB |${header}|   MB`);
  for (const row of layer.rows) {
    const megabytes = (bytes: number | null) => (bytes === null ? "" : (bytes / 1e6).toFixed(0)).padStart(5);
    console.log(
      [
        `  ${row.attention.padEnd(14)}${k(row.context).padStart(5)} `,
        `${cells(row.forward)} |${megabytes(row.forward_memory)} `,
        `${cells(row.training)} |${megabytes(row.training_memory)}`,
      ].join("|"),
    );
  }
  for (const { attention, pass, context, because } of layer.endings)
    console.log(`  ${attention}, ${PASS_WORDS[pass]}, ends before ${k(context)}: ${because}`);
  checks.push(...checksOf(layer));
}
for (const { what, measured, met } of checks)
  console.log(`${met ? "met    " : "NOT MET"} ${what}: ${measured}`);

const slug = card.name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
const folder = process.env.OUT ?? "bench/results";
mkdirSync(folder, { recursive: true });
const file = join(folder, process.env.OUT ? "gpu-attention.json" : `gpu-attention_${slug}_${date}.json`);
const record = { benchmark: "gpu-attention", card, hopper, date, node: process.version };
writeFileSync(file, `${JSON.stringify({ ...record, layers, checks, torch }, null, 2)}\n`);
console.log(`written to ${file}`);
