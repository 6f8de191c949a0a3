/**
 * A training step with MoBA beside full attention, from 2k to 16k tokens, on all cores: speed and memory. Prints and
 * writes bench/results/context_<cpu>_<date>.json.
 *
 *   npm --prefix bench run context [-- --moba moba-b128-k4 --contexts 2048,4096,8192,16384]
 */
import { availableParallelism, cpus } from "node:os";
import { parseArgs } from "node:util";
import { parseAttention } from "../src/attention/attention.ts";
import { ladderModel } from "../src/model/config.ts";
import { rounded, writeResult } from "./results.ts";
import { measureStep } from "./training-step.ts";

const { values } = parseArgs({
  options: {
    moba: { type: "string", default: "moba-b128-k4" },
    contexts: { type: "string", default: "2048,4096,8192,16384" },
  },
});
const threads = availableParallelism();
const model = ladderModel(4, { headDim: 64, vocabulary: 256 });
console.log(
  `${cpus()[0].model}, ${threads} threads, width ${model.modelDim}, ${model.layers} layers, ${values.moba}`,
);
const rows = values.contexts.split(",").map((text) => {
  const context = Number(text);
  const steps = context > 4096 ? 1 : 3;
  const full = measureStep(model, { kind: "full" }, context, threads, steps);
  const moba = measureStep(model, parseAttention(values.moba), context, threads, steps);
  const speedup = full.milliseconds / moba.milliseconds;
  console.log(
    `context ${text.padStart(6)}: full ${full.tokensPerSecond.toFixed(0).padStart(5)} tokens/s, ${full.memoryMiB.toFixed(0).padStart(5)} MiB; MoBA ${moba.tokensPerSecond.toFixed(0).padStart(5)} tokens/s, ${moba.memoryMiB.toFixed(0).padStart(5)} MiB; ${speedup.toFixed(2)} x`,
  );
  return {
    context,
    full_tokens_per_second: rounded(full.tokensPerSecond),
    moba_tokens_per_second: rounded(moba.tokensPerSecond),
    speedup: rounded(speedup),
    full_memory_mib: rounded(full.memoryMiB),
    moba_memory_mib: rounded(moba.memoryMiB),
  };
});
writeResult("context", { model, moba: values.moba, threads, rows });
