/** A trained model from a run's folder, or from a Hugging Face folder of Llama kind, with the tokenizer beside it. */
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { openTokenizer } from "../data/dataset.ts";
import { readTokenizerFile } from "../data/hugging-face.ts";
import { byteTokenizer, type Tokenizer } from "../data/tokenizer.ts";
import { InputError } from "../errors.ts";
import { loadWeights, type ModelFolder, readModelFolder } from "../model/checkpoint.ts";
import type { LayerAttention } from "../model/config.ts";
import { Model } from "../model/model.ts";
import type { Backend } from "../ops/contract.ts";
import { findCheckpoint } from "./checkpoint.ts";
import { readRunConfig } from "./config.ts";
import { METRICS_FILE } from "./records.ts";

export interface TrainedModel {
  readonly folder: ModelFolder;
  /** Null when the text was token ids of an unknown tokenizer. */
  readonly tokenizer: Tokenizer | null;
  /** The dataset the run was trained on; null for a Hugging Face folder. */
  readonly dataset: string | null;
}

/** Throws `InputError` when `path` is neither a run with a checkpoint nor a model folder. */
export function findModel(path: string): TrainedModel {
  const checkpoint = existsSync(path) ? findCheckpoint(path) : null;
  if (checkpoint) {
    const dataset = resolve(path, readRunConfig(path).dataset);
    return { folder: readModelFolder(checkpoint), tokenizer: openTokenizer(dataset), dataset };
  }
  if (existsSync(join(path, METRICS_FILE))) {
    throw new InputError(`${path} is a run without a checkpoint yet: train it first`);
  }
  if (!existsSync(join(path, "config.json"))) {
    throw new InputError(`${path} is neither a run's folder nor a Hugging Face folder with a config.json`);
  }
  const folder = readModelFolder(path);
  const file = join(path, "tokenizer.json");
  if (existsSync(file))
    return { folder, tokenizer: readTokenizerFile(file, "tokenizer.json"), dataset: null };
  return { folder, tokenizer: folder.config.vocabulary === 256 ? byteTokenizer : null, dataset: null };
}

/** The model on a backend, for passes of `tokens` tokens without training. */
export function loadModel(
  backend: Backend,
  folder: ModelFolder,
  options: { readonly tokens: number; readonly maxDocuments: number; readonly attention?: LayerAttention },
): Model {
  const attention = options.attention ?? folder.attention;
  const model = new Model(backend, folder.config, { ...options, training: false, attention });
  loadWeights(model, folder.folder);
  return model;
}
