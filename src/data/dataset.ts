/** Opens a dataset folder that `prepareDataset` wrote. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { InputError } from "../errors.ts";
import { type DatasetFile, FILES, readDatasetFile } from "./dataset-file.ts";
import { readTokenizerFile } from "./hugging-face.ts";
import { readShard, type Tokens } from "./shards.ts";
import { byteTokenizer, type Tokenizer } from "./tokenizer.ts";
import type { Dataset } from "./types.ts";
import { fullWindowCount, fullWindows, trainingStream } from "./windows.ts";

/**
 * Reads the folder into memory and checks it whole (sizes, checksums, every id within the vocabulary), so that nothing
 * can fail later. InputError names the file and what is wrong with it.
 */
export function openDataset(folder: string): Dataset {
  const description = readDatasetFile(folder);
  const train = readTokens(folder, FILES.train, description, description.files.train);
  const heldOut = readTokens(folder, FILES.heldOut, description, description.files.heldOut);
  return {
    folder,
    vocabulary: description.vocabulary,
    tokenizerName: description.tokenizer.name,
    train: description.train,
    heldOut: description.heldOut,
    tokenBytes: tokenizerOf(folder, description)?.tokenBytes ?? null,
    trainingStream: (context, seed) => trainingStream(train, description.train, context, seed),
    evaluationWindows(context) {
      const found = fullWindows(heldOut, description.heldOut, context);
      if (found.windows.length === 0) {
        const longest = description.heldOut.reduce((a, b) => (b.tokens > a.tokens ? b : a));
        throw new InputError(
          `${folder}: no held-out document holds a full window of context ${context}; the longest ("${longest.name}") has ${longest.tokens} tokens, so the context can be at most ${longest.tokens - 1}`,
        );
      }
      return found;
    },
  };
}

/** The dataset's tokenizer; null when its sources held ids of an unknown one. */
export function openTokenizer(folder: string): Tokenizer | null {
  return tokenizerOf(folder, readDatasetFile(folder));
}

/** Full windows that the held-out documents hold, without cutting them. */
export function countEvaluationWindows(dataset: Dataset, context: number): number {
  return dataset.heldOut.reduce((sum, document) => sum + fullWindowCount(document.tokens, context), 0);
}

function tokenizerOf(folder: string, description: DatasetFile): Tokenizer | null {
  const { kind, name } = description.tokenizer;
  if (kind === "unknown") return null;
  if (kind === "byte") {
    if (description.vocabulary !== byteTokenizer.vocabulary) {
      throw new InputError(
        `${join(folder, FILES.description)}: vocabulary is ${description.vocabulary}, but byte tokens have ${byteTokenizer.vocabulary}`,
      );
    }
    return byteTokenizer;
  }
  const path = join(folder, FILES.tokenizer);
  const tokenizer = readTokenizerFile(path, name);
  if (tokenizer.vocabulary !== description.vocabulary) {
    throw new InputError(
      `${path} has ${tokenizer.vocabulary} tokens, but ${FILES.description} says vocabulary ${description.vocabulary}`,
    );
  }
  return tokenizer;
}

function readTokens(
  folder: string,
  name: string,
  description: DatasetFile,
  expected: { tokens: number; crc32: number },
): Tokens {
  const path = join(folder, name);
  if (!existsSync(path)) throw new InputError(`${path} is missing; prepare the dataset again`);
  const shard = readShard(path);
  if (shard.tokens.length !== expected.tokens) {
    throw new InputError(
      `${path} holds ${shard.tokens.length} tokens, but ${FILES.description} says ${expected.tokens}; prepare the dataset again`,
    );
  }
  if (shard.crc32() !== expected.crc32) {
    throw new InputError(
      `${path} is corrupt: its checksum is not the one in ${FILES.description}; prepare it again`,
    );
  }
  const { tokens } = shard;
  for (let i = 0; i < tokens.length; i++) {
    if (tokens[i] >= description.vocabulary) {
      throw new InputError(
        `${path}: token ${i} is ${tokens[i]}, outside the vocabulary of ${description.vocabulary}; prepare the dataset again`,
      );
    }
  }
  return tokens;
}
