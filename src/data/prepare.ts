/** Makes a dataset folder from text: read, tokenize, hold out, write aside, rename. */
import {
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { InputError, RunError } from "../errors.ts";
import { learnBpe } from "./bpe-learn.ts";
import { openDataset } from "./dataset.ts";
import { type DatasetFile, FILES } from "./dataset-file.ts";
import { chooseHeldOut } from "./held-out.ts";
import { readTokenizerFile, tokenizerFileText } from "./hugging-face.ts";
import { readFully, ShardWriter, writeFully } from "./shards.ts";
import { openSource, type Source, type SourceOptions } from "./sources.ts";
import { byteTokenizer, type Tokenizer } from "./tokenizer.ts";
import type { Dataset, DocumentInfo } from "./types.ts";

export interface PrepareOptions extends SourceOptions {
  /** Where the dataset goes. Must not exist. */
  readonly folder: string;
  /** Files and folders, see `openSource`. */
  readonly sources: readonly string[];
  /**
   * `byte`; `bpe-N`, a byte-level BPE of N tokens (N >= 257) learned from all documents but those in `heldOut`; the path
   * of a Hugging Face `tokenizer.json`; or, for token shards, `unknown` (vocabulary = largest id + 1) or `unknown-N`.
   * Token shards also take the path of the tokenizer that made them.
   */
  readonly tokenizer: string;
  /** Held-out documents must hold at least one full window of this many tokens. */
  readonly context: number;
  /** Names of the documents to hold out; without it they are chosen by `seed` (default 0), see `chooseHeldOut`. */
  readonly heldOut?: readonly string[];
  readonly seed?: number;
}

export interface PrepareProgress {
  readonly stage: "learning tokenizer" | "tokenizing" | "writing";
  readonly documents: number;
  /** Bytes of text (of ids, for token shards) behind it, in this stage. */
  readonly bytes: number;
}

/** How the ids of a dataset come about. */
interface Tokenization {
  readonly name: string;
  readonly kind: DatasetFile["tokenizer"]["kind"];
  /** Null for ids of an unknown tokenizer. */
  readonly tokenizer: Tokenizer | null;
  /** Null: the largest id + 1. */
  readonly vocabulary: number | null;
  /** Puts tokenizer.json into a folder; nothing for bytes. */
  save(folder: string): void;
}

/** InputError for bad input, RunError when the disk fails. Leaves either the whole folder or nothing. */
export async function prepareDataset(
  options: PrepareOptions,
  onProgress: (progress: PrepareProgress) => void = () => {},
): Promise<Dataset> {
  const folder = resolve(options.folder);
  if (existsSync(folder)) {
    throw new InputError(
      `${options.folder} exists already; remove it or name another folder for the dataset`,
    );
  }
  if (!Number.isInteger(options.context) || options.context < 1) {
    throw new InputError(`context is ${options.context}; it must be a whole number of tokens, at least 1`);
  }
  const source = openSource(options.sources, options);
  const aside = `${folder}.${process.pid}.tmp`;
  try {
    mkdirSync(aside, { recursive: true });
    const tokenization = await chooseTokenization(options, source, onProgress);
    await writeDataset(aside, options, source, tokenization, onProgress);
    renameSync(aside, folder);
  } catch (error) {
    if (existsSync(aside)) rmSync(aside, { recursive: true });
    throw asSentence(error, options.folder);
  }
  return openDataset(options.folder);
}

function asSentence(error: unknown, folder: string): unknown {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "ENOSPC" || code === "EDQUOT") {
    return new RunError(
      `the disk is full: the dataset ${folder} could not be written and nothing of it is left`,
    );
  }
  if (
    code === "EACCES" ||
    code === "EPERM" ||
    code === "EROFS" ||
    code === "ENOTDIR" ||
    code === "ENOTEMPTY"
  ) {
    return new InputError(`the dataset ${folder} could not be made: ${(error as Error).message}`);
  }
  return error;
}

async function chooseTokenization(
  options: PrepareOptions,
  source: Source,
  onProgress: (progress: PrepareProgress) => void,
): Promise<Tokenization> {
  const choice = options.tokenizer;
  const unknown = /^unknown(?:-(\d+))?$/.exec(choice);
  if (unknown) {
    if (!source.holdsIds) {
      throw new InputError(
        `tokenizer is "${choice}", but the sources hold text; take byte, bpe-N or a tokenizer.json`,
      );
    }
    const vocabulary = unknown[1] === undefined ? null : Number(unknown[1]);
    return { name: "unknown", kind: "unknown", tokenizer: null, vocabulary, save: () => {} };
  }
  const bpe = /^bpe-(\d+)$/.exec(choice);
  if (source.holdsIds && (choice === "byte" || bpe)) {
    throw new InputError(
      `tokenizer is "${choice}", but the sources hold token ids; take unknown, unknown-N or the tokenizer.json that made them`,
    );
  }
  if (choice === "byte") {
    return { name: "byte", kind: "byte", tokenizer: byteTokenizer, vocabulary: 256, save: () => {} };
  }
  if (bpe) {
    const heldOut = new Set(options.heldOut ?? []);
    const tokenizer = await learnBpe(Number(bpe[1]), textsOf(source, heldOut, onProgress));
    const save = (folder: string) =>
      writeFileSync(join(folder, FILES.tokenizer), tokenizerFileText(tokenizer));
    return { name: choice, kind: "bpe", tokenizer, vocabulary: tokenizer.vocabulary, save };
  }
  if (!existsSync(choice)) {
    throw new InputError(
      `tokenizer is "${choice}", which is no file; it must be byte, bpe-N, unknown (token shards) or the path of a tokenizer.json`,
    );
  }
  const file = basename(choice).replace(/\.json$/i, "");
  const name = file === "tokenizer" ? basename(dirname(resolve(choice))) : file;
  const tokenizer = readTokenizerFile(choice, name);
  const save = (folder: string) => copyFileSync(choice, join(folder, FILES.tokenizer));
  return { name, kind: "bpe", tokenizer, vocabulary: tokenizer.vocabulary, save };
}

/** The texts a tokenizer learns from: all but those held out by name. */
async function* textsOf(
  source: Source,
  heldOut: ReadonlySet<string>,
  onProgress: (progress: PrepareProgress) => void,
): AsyncGenerator<Uint8Array> {
  let documents = 0;
  let bytes = 0;
  for await (const document of source.documents()) {
    if ("text" in document && !heldOut.has(document.name)) yield document.text;
    documents++;
    bytes += sizeOf(document);
    onProgress({ stage: "learning tokenizer", documents, bytes });
  }
}

function sizeOf(document: { text: Uint8Array } | { ids: { byteLength: number } }): number {
  return "text" in document ? document.text.length : document.ids.byteLength;
}

async function writeDataset(
  aside: string,
  options: PrepareOptions,
  source: Source,
  tokenization: Tokenization,
  onProgress: (progress: PrepareProgress) => void,
): Promise<void> {
  // Which documents are held out depends on all of their lengths, so ids go to one file first, as int32.
  const scratch = join(aside, "ids.tmp");
  const { documents, vocabulary } = await tokenize(scratch, options, source, tokenization, onProgress);
  const heldOutIndices = chooseHeldOut(documents, {
    context: options.context,
    seed: options.seed ?? 0,
    names: options.heldOut,
  });
  const train = documents.filter((_, index) => !heldOutIndices.has(index));
  const heldOut = documents.filter((_, index) => heldOutIndices.has(index));
  const files = split(aside, scratch, documents, heldOutIndices, vocabulary, onProgress);
  rmSync(scratch);
  tokenization.save(aside);
  const description: DatasetFile = {
    format: "mobalab dataset",
    version: 1,
    tokenizer: { name: tokenization.name, kind: tokenization.kind },
    vocabulary,
    source: {
      paths: sourcePaths(options.sources),
      files: source.files,
      context: options.context,
      heldOutSeed: options.heldOut ? null : (options.seed ?? 0),
    },
    files,
    train,
    heldOut,
  };
  writeFileSync(join(aside, FILES.description), `${JSON.stringify(description)}\n`);
}

/** The sources as given; of many files only the first and the last, the documents' names say the rest. */
function sourcePaths(sources: readonly string[]): string[] {
  return sources.length <= 20 ? [...sources] : [sources[0], sources[sources.length - 1]];
}

async function tokenize(
  scratch: string,
  options: PrepareOptions,
  source: Source,
  tokenization: Tokenization,
  onProgress: (progress: PrepareProgress) => void,
): Promise<{ documents: DocumentInfo[]; vocabulary: number }> {
  const { tokenizer } = tokenization;
  const documents: DocumentInfo[] = [];
  let largest = -1;
  let bytes = 0;
  const file = openSync(scratch, "w");
  try {
    for await (const document of source.documents()) {
      const size = sizeOf(document);
      let ids: Int32Array;
      let textBytes: number;
      if ("text" in document) {
        // only `unknown` has no tokenizer, and it is refused for text
        ids = (tokenizer as Tokenizer).encode(document.text);
        textBytes = size;
      } else {
        ids = new Int32Array(document.ids);
        largest = ids.reduce((most, id) => Math.max(most, id), largest);
        const limit = tokenization.vocabulary ?? Number.POSITIVE_INFINITY;
        if (largest >= limit) {
          throw new InputError(
            `${document.name} holds token ${largest}, outside the vocabulary of ${limit} (tokenizer ${options.tokenizer})`,
          );
        }
        textBytes = tokenizer === null ? 0 : ids.reduce((sum, id) => sum + tokenizer.tokenBytes[id], 0);
      }
      writeFully(file, new Uint8Array(ids.buffer, ids.byteOffset, ids.byteLength));
      documents.push({ name: document.name, tokens: ids.length, bytes: textBytes });
      bytes += size;
      onProgress({ stage: "tokenizing", documents: documents.length, bytes });
    }
  } finally {
    closeSync(file);
  }
  if (documents.length === 0) {
    throw new InputError(`there is no document with text in ${sourcePaths(options.sources).join(", ")}`);
  }
  return { documents, vocabulary: tokenization.vocabulary ?? largest + 1 };
}

function split(
  aside: string,
  scratch: string,
  documents: readonly DocumentInfo[],
  heldOut: ReadonlySet<number>,
  vocabulary: number,
  onProgress: (progress: PrepareProgress) => void,
): DatasetFile["files"] {
  const file = openSync(scratch, "r");
  const train = new ShardWriter(join(aside, FILES.train), vocabulary);
  const held = new ShardWriter(join(aside, FILES.heldOut), vocabulary);
  try {
    const piece = new Int32Array(1 << 20);
    let position = 0;
    let bytes = 0;
    for (const [index, document] of documents.entries()) {
      for (let left = document.tokens; left > 0; ) {
        const ids = piece.subarray(0, Math.min(left, piece.length));
        position += readFully(file, new Uint8Array(ids.buffer, 0, ids.byteLength), position);
        (heldOut.has(index) ? held : train).write(ids);
        left -= ids.length;
      }
      bytes += document.bytes;
      onProgress({ stage: "writing", documents: index + 1, bytes });
    }
    return { train: train.close(), heldOut: held.close() };
  } catch (error) {
    train.abandon();
    held.abandon();
    throw error;
  } finally {
    closeSync(file);
  }
}
