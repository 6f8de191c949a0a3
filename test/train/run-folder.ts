/** A tiny dataset and run folders on it, and what a run leaves behind. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { prepareDataset } from "../../src/data/index.ts";
import type { Dataset } from "../../src/data/types.ts";
import type { Backend } from "../../src/ops/contract.ts";
import { createCpuBackend } from "../../src/ops/cpu/index.ts";
import { readEvaluations, readMetrics } from "../../src/train/records.ts";
import type { RunConfig } from "../../src/train/types.ts";
import { randomNumbers } from "./tiny.ts";

/** A folder with `data/`, a dataset of small documents of made-up words. Remove it with `remove`. */
export async function makeStudyFolder(context: number): Promise<{
  folder: string;
  dataset: Dataset;
  run(name: string, config: RunConfig): string;
  remove(): void;
}> {
  const folder = mkdtempSync(join(tmpdir(), "mobalab-train-"));
  const text = join(folder, "text");
  mkdirSync(text);
  const random = randomNumbers(3);
  const words = Array.from({ length: 60 }, () =>
    String.fromCharCode(...Array.from({ length: 2 + random() * 6 }, () => 97 + random() * 26)),
  );
  for (let d = 0; d < 12; d++) {
    const length = 20 + Math.floor(random() * 60);
    const chosen = Array.from({ length }, () => words[Math.floor(random() ** 2 * words.length)]);
    writeFileSync(join(text, `${d}.txt`), chosen.join(" "));
  }
  const dataset = await prepareDataset({
    folder: join(folder, "data"),
    sources: [text],
    tokenizer: "byte",
    context,
  });
  return {
    folder,
    dataset,
    run(name, config) {
      const runFolder = join(folder, name);
      mkdirSync(runFolder);
      writeFileSync(join(runFolder, "config.json"), JSON.stringify(config));
      return runFolder;
    },
    remove: () => rmSync(folder, { recursive: true }),
  };
}

export function openBackend(threads = 1): Backend {
  return createCpuBackend({ threads });
}

/** Everything of a run that must not depend on where it was interrupted: records without times, and every tensor. */
export function outcomeOf(runFolder: string) {
  const timeless = <T extends object>(record: T) => {
    const { attempt, time_s, tokensPerSecond, evaluation_s, ...rest } = record as Record<string, unknown>;
    return rest;
  };
  const checkpoint = join(runFolder, "checkpoint");
  return {
    metrics: readMetrics(join(runFolder, "metrics.jsonl")).map(timeless),
    evaluations: readEvaluations(join(runFolder, "eval.jsonl")).map(timeless),
    tensors: readdirSync(checkpoint)
      .filter((name) => name.endsWith(".safetensors"))
      .map((name) => [name, readFileSync(join(checkpoint, name)).toString("base64")]),
  };
}
