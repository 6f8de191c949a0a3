/** Makes a dataset folder from text: read, tokenize, hold out, write aside, rename. */
import { closeSync, existsSync, mkdirSync, openSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { InputError, RunError } from "../errors.ts";
import { makeFolder, unmakeFolder, writing } from "../files.ts";
import { openDataset } from "./dataset.ts";
import { type DatasetFile, FILES } from "./dataset-file.ts";
import { chooseHeldOut } from "./held-out.ts";
import { readFully, ShardWriter, writeFully } from "./shards.ts";
import { openSource, type Source, type SourceDocument, type SourceOptions } from "./sources.ts";
import { Threads, threadsFor } from "./threads.ts";
import { chooseTokenization, learnsTokenizer, sizeOf, type Tokenization, textOf } from "./tokenization.ts";
import type { Dataset, DocumentInfo } from "./types.ts";

export interface DatasetOptions {
  /** Where the dataset goes. Must not exist. */
  readonly folder: string;
  /**
   * `byte`; `bpe-N`, a byte-level BPE of N tokens (N >= 257) learned from all documents but the held-out ones; the path
   * of a Hugging Face `tokenizer.json`; or, for token shards, `unknown` (vocabulary = largest id + 1) or `unknown-N`.
   * Token shards also take the path of the tokenizer that made them.
   */
  readonly tokenizer: string;
  /** Held-out documents must hold at least one full window of this many tokens. */
  readonly context: number;
  /** Most threads to use; default all cores. The dataset does not depend on it. */
  readonly jobs?: number;
}

export interface PrepareOptions extends DatasetOptions, SourceOptions {
  /** Files and folders, see `openSource`. */
  readonly sources: readonly string[];
  /** Names of the documents to hold out; without it they are chosen by `seed` (default 0), see `chooseHeldOut`. */
  readonly heldOut?: readonly string[];
  readonly seed?: number;
}

export interface PrepareProgress {
  readonly stage: "reading" | "choosing held-out" | "learning tokenizer" | "tokenizing" | "writing";
  /** Documents behind it, files while reading. */
  readonly documents: number;
  /** Bytes of text (of ids, for token shards) behind it, in this stage. */
  readonly bytes: number;
}

/** InputError for bad input, RunError when the disk fails. Leaves either the whole folder or nothing. */
export async function prepareDataset(
  options: PrepareOptions,
  onProgress: (progress: PrepareProgress) => void = () => {},
): Promise<Dataset> {
  requirePlace(options);
  const source = openSource(options.sources, options);
  const few = options.tokenizer === "byte" || source.holdsIds;
  const threads = new Threads(few ? 1 : threadsFor(source.bytes, options.jobs));
  try {
    const { heldOut, seed = 0 } = options;
    return await makeDataset({ options, source, paths: options.sources, heldOut, seed, threads, onProgress });
  } finally {
    threads.close();
  }
}

/** InputError when the folder is taken or the context is no length. */
export function requirePlace({ folder, context }: DatasetOptions): void {
  if (existsSync(folder)) {
    throw new InputError(`${folder} exists already; remove it or name another folder for the dataset`);
  }
  if (!Number.isInteger(context) || context < 1) {
    throw new InputError(`context is ${context}; it must be a whole number of tokens, at least 1`);
  }
}

/** What a dataset is made of. */
export interface Making {
  readonly options: DatasetOptions;
  readonly source: Source;
  /** What the dataset says of where it comes from. */
  readonly paths: readonly string[];
  /** Names of documents; undefined: chosen by `seed`. */
  readonly heldOut: readonly string[] | undefined;
  readonly seed: number;
  readonly threads: Threads;
  readonly onProgress: (progress: PrepareProgress) => void;
}

/** As `prepareDataset`, from documents already at hand. */
export async function makeDataset(making: Making): Promise<Dataset> {
  const folder = resolve(making.options.folder);
  const aside = `${folder}.${process.pid}.tmp`;
  let firstMade: string | undefined;
  try {
    firstMade = makeFolder(dirname(folder));
    writing(folder, () => mkdirSync(aside, { recursive: true }));
    const heldOut = await heldOutNames(aside, making);
    const tokenization = await chooseTokenization(making, heldOut ?? []);
    await writeDataset(aside, making, heldOut, tokenization);
    renameSync(aside, folder);
  } catch (error) {
    if (existsSync(aside)) rmSync(aside, { recursive: true });
    unmakeFolder(aside, firstMade);
    throw asSentence(error, making.options.folder);
  }
  return openDataset(making.options.folder);
}

function asSentence(error: unknown, folder: string): unknown {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "ENOSPC" || code === "EDQUOT") {
    return new RunError(
      `the disk is full: the dataset ${folder} could not be written and nothing of it is left`,
    );
  }
  if (code === "ENOTEMPTY") {
    return new InputError(`${folder} exists already: another process made it at the same time`);
  }
  return error;
}

/**
 * The documents to hold out, as far as they must be known before tokenizing: a BPE must not learn from them, but which
 * are long enough depends on the BPE, so a first one, learned from all, measures them.
 */
async function heldOutNames(aside: string, making: Making): Promise<readonly string[] | undefined> {
  const { options, heldOut, seed, onProgress } = making;
  if (heldOut !== undefined || !learnsTokenizer(options)) return heldOut;
  const trial: Making = {
    ...making,
    onProgress: ({ documents, bytes }) => onProgress({ stage: "choosing held-out", documents, bytes }),
  };
  const { documents } = await tokenize(scratchOf(aside), trial, await chooseTokenization(trial, []));
  const chosen = chooseHeldOut(documents, { context: options.context, seed });
  return documents.filter((_, index) => chosen.has(index)).map((document) => document.name);
}

function scratchOf(aside: string): string {
  return join(aside, "ids.tmp");
}

async function writeDataset(
  aside: string,
  making: Making,
  names: readonly string[] | undefined,
  tokenization: Tokenization,
): Promise<void> {
  const { options, source, seed } = making;
  // Which documents are held out may depend on all of their lengths, so ids go to one file first, as int32.
  const scratch = scratchOf(aside);
  const { documents, vocabulary } = await tokenize(scratch, making, tokenization);
  const heldOutIndices = chooseHeldOut(documents, { context: options.context, seed, names });
  const train = documents.filter((_, index) => !heldOutIndices.has(index));
  const heldOut = documents.filter((_, index) => heldOutIndices.has(index));
  const files = split(aside, scratch, documents, heldOutIndices, vocabulary, making.onProgress);
  rmSync(scratch);
  tokenization.save(aside);
  const description: DatasetFile = {
    format: "mobalab dataset",
    version: 1,
    tokenizer: { name: tokenization.name, kind: tokenization.kind },
    vocabulary,
    source: {
      paths: fewPaths(making.paths),
      files: source.files,
      context: options.context,
      heldOutSeed: making.heldOut ? null : seed,
    },
    files,
    train,
    heldOut,
  };
  writeFileSync(join(aside, FILES.description), `${JSON.stringify(description)}\n`);
}

/** The sources as given; of many files only the first and the last, the documents' names say the rest. */
function fewPaths(paths: readonly string[]): string[] {
  return paths.length <= 20 ? [...paths] : [paths[0], paths[paths.length - 1]];
}

async function tokenize(
  scratch: string,
  { options, source, paths, threads, onProgress }: Making,
  tokenization: Tokenization,
): Promise<{ documents: DocumentInfo[]; vocabulary: number }> {
  const documents: DocumentInfo[] = [];
  let largest = -1;
  let bytes = 0;
  const file = openSync(scratch, "w");
  const put = (document: SourceDocument, ids: Int32Array, textBytes: number) => {
    writeFully(file, new Uint8Array(ids.buffer, ids.byteOffset, ids.byteLength));
    documents.push({ name: document.name, tokens: ids.length, bytes: textBytes });
    bytes += sizeOf(document);
    onProgress({ stage: "tokenizing", documents: documents.length, bytes });
  };
  try {
    if (source.holdsIds) {
      const { tokenizer } = tokenization;
      const limit = tokenization.vocabulary ?? Number.POSITIVE_INFINITY;
      for await (const document of source.documents()) {
        const ids = "ids" in document ? new Int32Array(document.ids) : new Int32Array(0);
        largest = ids.reduce((most, id) => Math.max(most, id), largest);
        if (largest >= limit) {
          throw new InputError(
            `${document.name} holds token ${largest}, outside the vocabulary of ${limit} (tokenizer ${options.tokenizer})`,
          );
        }
        put(
          document,
          ids,
          tokenizer === null ? 0 : ids.reduce((sum, id) => sum + tokenizer.tokenBytes[id], 0),
        );
      }
    } else {
      if (tokenization.model !== null) await threads.onAll("use", tokenization.model);
      const encoded = threads.map("encode", source.documents(), (document) => textOf(document));
      for await (const { item, output } of encoded) put(item, output, sizeOf(item));
    }
  } finally {
    closeSync(file);
  }
  if (documents.length === 0) {
    throw new InputError(`there is no document with text in ${fewPaths(paths).join(", ")}`);
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
