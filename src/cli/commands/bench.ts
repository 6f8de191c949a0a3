/** `mobalab bench`: how fast this machine trains, by attention and context. */
import { Command } from "commander";
import { parseAttention } from "../../attention/attention.ts";
import { ladderModel } from "../../model/config.ts";
import { timePass } from "../../study/calibrate.ts";
import { hostFacts } from "../../study/folder.ts";
import { openBackend } from "../backend.ts";
import { bytes, short, table } from "../format.ts";
import { deviceOption, jsonOption, listOf, MOST, text, threadsOption, wholeNumber } from "../options.ts";

interface Options {
  depth: number;
  headDim: number;
  vocabulary: number;
  contexts: number[];
  attention: string[];
  repeats: number;
  threads: number;
  device: string;
  json?: boolean;
}

export function benchCommand(): Command {
  return new Command("bench")
    .description("time a training pass (forward and backward) of one window, by attention and context")
    .option("--depth <n>", "layers and heads", wholeNumber(1, MOST.depth), 4)
    .option("--head-dim <n>", "width per head", wholeNumber(2, MOST.headDim), 64)
    .option("--vocabulary <n>", "token ids", wholeNumber(2), 256)
    .option("--contexts <list>", "window lengths", listOf(wholeNumber(2, MOST.context)), [1024, 2048, 4096])
    .option("--attention <list>", "attentions; the first is compared with", listOf(text), [
      "full",
      "moba-b128-k4",
    ])
    .option("--repeats <n>", "the best of so many passes", wholeNumber(1), 2)
    .addOption(threadsOption())
    .addOption(deviceOption())
    .addOption(jsonOption())
    .addHelpText("after", "\nExample:\n  mobalab bench --contexts 2048,16384 --attention full,moba-b128-k4")
    .action(run);
}

function run(options: Options): void {
  const { depth, headDim, vocabulary, threads } = options;
  const shape = ladderModel(depth, { headDim, vocabulary });
  const layers = options.attention.map((label) => new Array(depth).fill(parseAttention(label)));
  const results = [];
  for (const context of options.contexts) {
    let first = 0;
    for (const [i, label] of options.attention.entries()) {
      const backend = openBackend(options.device, threads);
      try {
        const pass = timePass(backend, shape, layers[i], context, options.repeats);
        if (i === 0) first = pass.seconds;
        results.push({
          context,
          attention: label,
          seconds: pass.seconds,
          tokens_per_second: context / pass.seconds,
          gflops: pass.operations / pass.seconds / 1e9,
          memory: backend.memory(),
          speedup: first / pass.seconds,
        });
      } finally {
        backend.close();
      }
      if (!options.json)
        process.stderr.write(`${label} at ${context}: ${results.at(-1)!.seconds.toFixed(3)} s\n`);
    }
  }
  if (options.json) {
    process.stdout.write(
      `${JSON.stringify({ host: hostFacts(options.device), threads, shape, results }, null, 2)}\n`,
    );
    return;
  }
  const rows = results.map((r) => [
    r.attention,
    String(r.context),
    `${(1000 * r.seconds).toFixed(0)} ms`,
    short(r.tokens_per_second),
    r.gflops.toFixed(1),
    bytes(r.memory),
    `${r.speedup.toFixed(2)}x`,
  ]);
  const header = [
    "attention",
    "context",
    "pass",
    "tokens/s",
    "GFLOP/s",
    "memory",
    `vs ${options.attention[0]}`,
  ];
  process.stdout.write(table([header, ...rows]));
  process.stdout.write(
    `depth ${depth}, width ${depth * headDim}, vocabulary ${vocabulary}, ${threads} thread${threads > 1 ? "s" : ""}; operations with attention as done\n`,
  );
}
