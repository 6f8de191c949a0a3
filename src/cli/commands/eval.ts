/** `mobalab eval`: held-out loss of a trained model by position, on its own data or any other. */
import { Command } from "commander";
import { openDataset } from "../../data/index.ts";
import { InputError } from "../../errors.ts";
import { evaluateCheckpoint, recallOfCheckpoint } from "../../train/evaluate-checkpoint.ts";
import { findModel } from "../../train/load.ts";
import type { RecallResult } from "../../train/types.ts";
import { openBackend } from "../backend.ts";
import { short, table, wrapLines } from "../format.ts";
import { deviceOption, jsonOption, text, threadsOption, wholeNumber } from "../options.ts";

interface Options {
  data?: string;
  context?: number;
  buckets: number;
  attention?: string;
  recall?: boolean;
  threads: number;
  device: string;
  json?: boolean;
}

export function evalCommand(): Command {
  return new Command("eval")
    .description("held-out loss by position of a run's checkpoint or a Hugging Face Llama folder")
    .argument("<model>", "a run's folder, or a folder with config.json and model.safetensors")
    .option(
      "--data <folder>",
      "dataset, see `mobalab data prepare` (default: the run's own; a Hugging Face folder has none)",
      text,
    )
    .option("--context <tokens>", "window length (default: the model's)", wholeNumber(2))
    .option("--buckets <n>", "position buckets", wholeNumber(1), 16)
    .option("--attention <label>", "evaluate with another attention, such as full", text)
    .option("--recall", "share of records found again by distance, in place of the loss")
    .addOption(threadsOption())
    .addOption(deviceOption())
    .addOption(jsonOption())
    .addHelpText("after", "\nExample:\n  mobalab eval studies/quick/runs/d6_full_s1 --attention moba-b128-k4")
    .action(run);
}

function run(path: string, options: Options): void {
  const folder = options.data ?? findModel(path).dataset;
  if (!folder) throw new InputError(`${path} has no dataset of its own: name one with --data`);
  const dataset = openDataset(folder);
  const backend = openBackend(options.device, options.threads);
  try {
    if (options.recall) {
      printRecall(recallOfCheckpoint(path, dataset, { backend, ...options }), options.json);
      return;
    }
    const result = evaluateCheckpoint(path, dataset, { backend, ...options });
    if (options.json) {
      process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
      return;
    }
    const rows = result.buckets.map((b) => [
      `${b.position_start}-${b.position_end}`,
      b.lm_loss.toFixed(4),
      short(b.predicted_tokens),
    ]);
    process.stdout.write(table([["positions", "loss (nats)", "tokens"], ...rows]));
    const bits =
      result.bits_per_byte === undefined ? "" : `, ${result.bits_per_byte.toFixed(4)} bits per byte`;
    process.stdout.write(
      wrapLines(
        `all: ${result.lm_loss.toFixed(4)} nats per token${bits}; ${result.windows} windows, ${result.windowsLeftOut} partial ones left out\n`,
      ),
    );
  } finally {
    backend.close();
  }
}

function printRecall(result: RecallResult, json = false): void {
  if (json) {
    process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
    return;
  }
  const rows = result.bands.map((band) => [
    `${band.distance_start}-${band.distance_end}`,
    (band.right / band.answers).toFixed(3),
    band.lm_loss.toFixed(3),
    short(band.answers),
  ]);
  process.stdout.write(table([["tokens back", "found", "loss (nats)", "answers"], ...rows]));
  process.stdout.write(`chance: ${result.chance.toPrecision(2)}; ${result.windows} windows\n`);
}
