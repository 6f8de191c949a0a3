/**
 * A training step on the CPU: tokens per second, share of our own GEMM rate, and where the time goes, by operation;
 * on one thread and on all cores. Prints and writes bench/results/step_<cpu>_<date>.json.
 *
 *   npm --prefix bench run step [-- --context 2048 --attention full --depth 4 --head-dim 64]
 */
import { availableParallelism, cpus } from "node:os";
import { parseArgs } from "node:util";
import { parseAttention } from "../src/attention/attention.ts";
import { ladderModel } from "../src/model/config.ts";
import { rounded, writeResult } from "./results.ts";
import { torchSteps } from "./torch-peer.ts";
import { measureStep } from "./training-step.ts";

const { values } = parseArgs({
  options: {
    context: { type: "string", default: "2048" },
    attention: { type: "string", default: "full" },
    depth: { type: "string", default: "4" },
    "head-dim": { type: "string", default: "64" },
    vocabulary: { type: "string", default: "256" },
    steps: { type: "string", default: "5" },
  },
});
const context = Number(values.context);
const model = ladderModel(Number(values.depth), {
  headDim: Number(values["head-dim"]),
  vocabulary: Number(values.vocabulary),
});
console.log(
  `${cpus()[0].model}, width ${model.modelDim}, ${model.layers} layers, context ${context}, ${values.attention}`,
);
const runs = [...new Set([1, availableParallelism()])].map((threads) => {
  const attention = parseAttention(values.attention);
  const figures = measureStep(model, attention, context, threads, Number(values.steps));
  const { milliseconds, tokensPerSecond, gflops, gemmGflops, memoryMiB, operations } = figures;
  const share = gflops / gemmGflops;
  console.log(
    `${threads} threads: ${milliseconds.toFixed(1)} ms, ${tokensPerSecond.toFixed(0)} tokens/s, ${gflops.toFixed(1)} GFLOP/s, ${(share * 100).toFixed(0)} % of our GEMM's ${gemmGflops.toFixed(1)}, ${memoryMiB.toFixed(0)} MiB`,
  );
  for (const { name, milliseconds: ms } of operations) {
    console.log(
      `  ${name.padEnd(22)} ${ms.toFixed(2).padStart(9)} ms ${((ms / milliseconds) * 100).toFixed(1).padStart(5)} %`,
    );
  }
  return {
    threads,
    milliseconds: rounded(milliseconds),
    tokens_per_second: rounded(tokensPerSecond),
    gflops_attended: rounded(gflops),
    gemm_gflops: rounded(gemmGflops),
    share_of_gemm: rounded(share),
    memory_mib: rounded(memoryMiB),
    operations_ms: Object.fromEntries(operations.map(({ name, milliseconds: ms }) => [name, rounded(ms)])),
  };
});
const torch =
  values.attention === "full"
    ? torchSteps(
        model,
        context,
        runs.map(({ threads }) => threads),
      )
    : [];
if (torch.length > 0) {
  const best = Math.max(...torch.map((step) => step.tokens_per_second));
  console.log(`all cores: ${(runs.at(-1)!.tokens_per_second / best).toFixed(2)}x PyTorch's best`);
}
writeResult("step", { model, context, attention: values.attention, runs, torch });
