/** `mobalab bench`: how fast this machine trains, and how fast one attention layer is, by attention and context. */
import { Command } from "commander";
import { parseAttention } from "../../attention/attention.ts";
import { inFolder } from "../../files.ts";
import { ladderModel } from "../../model/config.ts";
import { contextText, speedReading, speedTable, writeSpeed } from "../../report/attention-speed.ts";
import { formatNumber } from "../../report/labels.ts";
import { textTable, wrap } from "../../report/table.ts";
import { measureAttention } from "../../study/attention-speed.ts";
import { timePass } from "../../study/calibrate.ts";
import { codeVersion, hostFacts } from "../../study/folder.ts";
import { devicesOf, hardwareOf, openBackend } from "../backend.ts";
import { bytes, short, table, wrapLines } from "../format.ts";
import {
  deviceOption,
  jsonOption,
  listOf,
  MOST,
  text,
  threadsOption,
  time,
  wholeNumber,
} from "../options.ts";

interface TrainingFlags {
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

interface AttentionFlags {
  contexts?: number[];
  attention?: string[];
  heads?: number;
  kvHeads?: number;
  headDim?: number;
  longest?: number;
  out: string;
  threads: number;
  device: string;
  json?: boolean;
}

/** What one attention layer is measured at unless told otherwise: minutes on a card, about one on a CPU. */
const DEFAULTS = {
  card: {
    contexts: [13, 14, 15, 16, 17, 18, 19, 20].map((power) => 2 ** power),
    attention: ["full", "moba-b512-k3", "moba-b128-k8"],
    ...{ heads: 16, headDim: 128, longest: 15 },
  },
  cpu: {
    contexts: [9, 10, 11, 12, 13, 14, 15, 16].map((power) => 2 ** power),
    attention: ["full", "moba-b128-k4"],
    ...{ heads: 4, headDim: 64, longest: 5 },
  },
};

export function benchCommand(): Command {
  const bench = new Command("bench").description("time training, or one attention layer, by context");
  bench.addHelpText("after", "\nExample:\n  mobalab bench attention --contexts 1024,4096,16384");
  bench
    .command("training", { isDefault: true })
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
    .addHelpText(
      "after",
      "\nExample:\n  mobalab bench training --contexts 2048,16384 --attention full,moba-b128-k4",
    )
    .action(benchTraining);
  bench
    .command("attention")
    .description("time one attention layer by context, draw it as attention.svg and attention.png")
    .option(
      "--contexts <list>",
      "tokens (default: 8k to 1M on a card, 512 to 64k on the CPU)",
      listOf(wholeNumber(1, MOST.context)),
    )
    .option(
      "--attention <list>",
      "attentions; the first is compared with (default: full,moba-b512-k3,moba-b128-k8 on a card, full,moba-b128-k4 on the CPU)",
      listOf(text),
    )
    .option("--heads <n>", "query heads (default: 16, 4 on the CPU)", wholeNumber(1, MOST.depth))
    .option("--kv-heads <n>", "key and value heads (default: as many)", wholeNumber(1, MOST.depth))
    .option("--head-dim <n>", "width per head (default: 128, 64 on the CPU)", wholeNumber(2, MOST.headDim))
    .option(
      "--longest <time>",
      "a line ends before a call that would take longer, such as 20s (default: 15s, 5s on the CPU)",
      time,
    )
    .option("--out <folder>", "where the files go", text, "bench-attention")
    .addOption(threadsOption())
    .addOption(deviceOption())
    .addOption(jsonOption())
    .addHelpText(
      "after",
      "\nExample:\n  mobalab bench attention --contexts 8192,32768 --heads 32 --kv-heads 8",
    )
    .action(benchAttention);
  return bench;
}

function benchAttention(flags: AttentionFlags): void {
  const [device] = devicesOf(flags.device);
  const usual = device === "cpu" ? DEFAULTS.cpu : DEFAULTS.card;
  const { contexts, attention, heads, headDim, longest } = { ...usual, ...flags };
  const shape = { heads, kv_heads: flags.kvHeads ?? heads, head_dim: headDim };
  for (const label of attention) parseAttention(label);
  // A place that cannot be written shows before the measurement, not after it.
  const { json, speed, facts } = inFolder(flags.out, () => {
    const start = performance.now();
    const speed = measureAttention(() => openBackend(device, flags.threads), {
      ...{ shape, attentions: attention, contexts, longest },
      onRow: ({ attention, context, forward_ms, training_ms }) => {
        if (flags.json) return;
        const training = training_ms === null ? "" : `, with backward ${formatNumber(training_ms)} ms`;
        process.stderr.write(
          `${attention} at ${contextText(context)}: ${formatNumber(forward_ms)} ms${training}\n`,
        );
      },
    });
    const facts = {
      benchmark: "attention",
      date: new Date().toISOString(),
      host: hostFacts(hardwareOf([device])),
      ...(device === "cpu" ? { threads: flags.threads } : {}),
      version: codeVersion(),
      seconds: (performance.now() - start) / 1000,
    };
    return { speed, facts, json: writeSpeed(flags.out, speed, facts) };
  });
  if (flags.json) {
    process.stdout.write(json);
    return;
  }
  const { kv_heads: kvHeads } = shape;
  const notes = [
    ...speedReading(speed).map((sentence) => wrap(sentence)),
    wrap(
      `${facts.host.device}, ${heads} heads, ${kvHeads} of keys and values, head dimension ${headDim}, batch 1; fwd: forward with routing; +bwd: with backward; rates by attended pairs; MiB beside inputs and outputs; written to ${flags.out}`,
    ),
  ];
  process.stdout.write(`${textTable(speedTable(speed))}\n${notes.join("\n")}\n`);
}

function benchTraining(options: TrainingFlags): void {
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
    wrapLines(
      `depth ${depth}, width ${depth * headDim}, vocabulary ${vocabulary}, ${threads} thread${threads > 1 ? "s" : ""}; operations with attention as done\n`,
    ),
  );
}
