/** Which tokenizer a dataset gets: bytes, one learned from its texts, one of a file, or that of ids made elsewhere. */
import { copyFileSync, existsSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { InputError } from "../errors.ts";
import type { BpeModel, ByteLevelBpe } from "./bpe.ts";
import { learnBpe } from "./bpe-learn.ts";
import { type DatasetFile, FILES } from "./dataset-file.ts";
import { readTokenizerFile, tokenizerFileText } from "./hugging-face.ts";
import type { DatasetOptions, Making, PrepareProgress } from "./prepare.ts";
import type { Source, SourceDocument } from "./sources.ts";
import { byteTokenizer, type Tokenizer } from "./tokenizer.ts";

/** How the ids of a dataset come about. */
export interface Tokenization {
  readonly name: string;
  readonly kind: DatasetFile["tokenizer"]["kind"];
  /** Null for ids of an unknown tokenizer. */
  readonly tokenizer: Tokenizer | null;
  /** For the threads that encode; null for bytes and ids. */
  readonly model: BpeModel | null;
  /** Null: the largest id + 1. */
  readonly vocabulary: number | null;
  /** Puts tokenizer.json into a folder; nothing for bytes. */
  save(folder: string): void;
}

/** Whether the tokenizer is learned from the texts. */
export function learnsTokenizer(options: DatasetOptions): boolean {
  return /^bpe-\d+$/.test(options.tokenizer);
}

/** InputError when the choice is none, or does not go with the source. A BPE learns from all documents but `heldOut`. */
export async function chooseTokenization(
  { options, source, threads, onProgress }: Making,
  heldOut: readonly string[],
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
    return { name: "unknown", kind: "unknown", tokenizer: null, model: null, vocabulary, save: () => {} };
  }
  const learns = learnsTokenizer(options);
  if (source.holdsIds && (choice === "byte" || learns)) {
    throw new InputError(
      `tokenizer is "${choice}", but the sources hold token ids; take unknown, unknown-N or the tokenizer.json that made them`,
    );
  }
  if (choice === "byte") {
    return {
      name: "byte",
      kind: "byte",
      tokenizer: byteTokenizer,
      model: null,
      vocabulary: byteTokenizer.vocabulary,
      save: () => {},
    };
  }
  if (learns) {
    const texts = textsOf(source, new Set(heldOut), onProgress);
    const tokenizer = await learnBpe(Number(choice.slice("bpe-".length)), texts, threads);
    return bpe(choice, tokenizer, (path) => writeFileSync(path, tokenizerFileText(tokenizer)));
  }
  if (!existsSync(choice)) {
    throw new InputError(
      `tokenizer is "${choice}", which is no file; it must be byte, bpe-N, unknown (token shards) or the path of a tokenizer.json`,
    );
  }
  const file = basename(choice).replace(/\.json$/i, "");
  const name = file === "tokenizer" ? basename(dirname(resolve(choice))) : file;
  return bpe(name, readTokenizerFile(choice, name), (path) => copyFileSync(choice, path));
}

function bpe(name: string, tokenizer: ByteLevelBpe, saveAs: (path: string) => void): Tokenization {
  const { model, vocabulary } = tokenizer;
  const save = (folder: string) => saveAs(join(folder, FILES.tokenizer));
  return { name, kind: "bpe", tokenizer, model, vocabulary, save };
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

/** Bytes of a document's text or ids. */
export function sizeOf(document: SourceDocument): number {
  return "text" in document ? document.text.length : document.ids.byteLength;
}

/** The text of a document that a source without ids gave. */
export function textOf(document: SourceDocument): Uint8Array {
  if ("text" in document) return document.text;
  throw new TypeError(`${document.name} holds token ids, not text`);
}
