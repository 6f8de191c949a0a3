/**
 * Attention alone on the CPU backend: what `mobalab bench attention` measures, by threads; rates as GFLOP/s of attended
 * pairs. Writes bench/results/attention_<cpu>_<date>.json. Run from the project root:
 *
 *   npx tsx bench/attention.ts [--contexts 1024,...,16384] [--attentions full,moba-b128-k4] [--threads 1,2]
 */
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { createCpuBackend } from "../src/ops/cpu/index.ts";
import { attendedOperations, measureAttention, type SpeedRow } from "../src/study/attention-speed.ts";
import { rounded, writeResult } from "./results.ts";

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
const shape = {
  heads: Number(values.heads),
  kv_heads: Number(values["kv-heads"]),
  head_dim: Number(values["head-dim"]),
};

const rows = numbers(values.threads).flatMap((threads) => {
  const rate = (row: SpeedRow, pass: "forward" | "training", ms: number | null) =>
    ms === null ? null : rounded(attendedOperations(row, shape, pass) / ms / 1e6);
  return measureAttention(() => createCpuBackend({ threads }), {
    ...{ shape, attentions: values.attentions.split(","), contexts: numbers(values.contexts), longest: 30 },
    onRow(row) {
      const { attention, context, route_ms, forward_ms, training_ms } = row;
      console.log(
        `${threads} threads  ${attention.padEnd(14)} T=${String(context).padEnd(6)} forward ${forward_ms.toFixed(1)} ms (routing ${route_ms.toFixed(1)}), with backward ${training_ms?.toFixed(1)} ms; ${rate(row, "forward", forward_ms)} / ${rate(row, "training", training_ms)} GFLOP/s`,
      );
    },
  }).rows.map((row) => ({
    threads,
    ...row,
    forward_gflops: rate(row, "forward", row.forward_ms),
    training_gflops: rate(row, "training", row.training_ms),
  }));
});
writeResult("attention", { shape, rows });
