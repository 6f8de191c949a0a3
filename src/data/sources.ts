/** Documents out of files: which files a list of paths means, and which reader takes each of them. */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, join, relative, sep } from "node:path";
import { InputError } from "../errors.ts";
import { decompressed } from "./compression.ts";
import { readJsonLines } from "./jsonl.ts";
import { readParquet } from "./parquet.ts";
import { readShard, type Tokens } from "./shards.ts";

/** One document: its bytes, or its ids when the source is a token shard. */
export type SourceDocument =
  | { readonly name: string; readonly text: Uint8Array }
  | { readonly name: string; readonly ids: Tokens };

export interface SourceOptions {
  /** Field of JSON lines and column of Parquet files that holds the text. Default `text`. */
  readonly field?: string;
  /** Id that starts a document in token shards (llm.c writes it before each); without it a shard is one document. */
  readonly endOfText?: number;
}

/** Node reads no longer file at once. */
const MOST_TEXT_BYTES = 2 ** 31 - 1;

type Kind = "text" | "jsonl" | "parquet" | "shard";

interface SourceFile {
  readonly path: string;
  /** Document name, or the part of it before `#`. */
  readonly name: string;
  readonly kind: Kind;
  readonly compression: "" | "gz" | "zst";
  /** Named by the user, not found in a folder: then an empty one is an error. */
  readonly named: boolean;
}

/** A list of paths, ready to be read (as often as needed). */
export interface Source {
  readonly files: number;
  /** Size on disk, for progress. */
  readonly bytes: number;
  /** True when the files hold token ids rather than text; the two do not mix. */
  readonly holdsIds: boolean;
  /** In order; every name once. Documents without any byte are left out. */
  documents(): AsyncGenerator<SourceDocument>;
}

/**
 * Text files (each one document), JSON lines, Parquet and token shards, and folders of them (all files below, sorted by
 * path; names that start with a dot are left out). The kind follows the file's ending: `.jsonl`, `.ndjson`, `.parquet`,
 * `.bin`; `.gz` and `.zst` may follow text and JSON lines; every other file must be text. InputError for a path that does
 * not exist, a file that is none of these, and for text and token shards together.
 */
export function openSource(paths: readonly string[], options: SourceOptions = {}): Source {
  const files = paths.flatMap(filesOf);
  if (files.length === 0) {
    throw new InputError(
      `there is no file in ${paths.join(", ") || "the empty list of sources"}; give text files`,
    );
  }
  const shards = files.filter((file) => file.kind === "shard");
  if (shards.length > 0 && shards.length < files.length) {
    const other = files.find((file) => file.kind !== "shard");
    throw new InputError(
      `${shards[0].path} holds token ids and ${other?.path} holds text; prepare them as two datasets`,
    );
  }
  return {
    files: files.length,
    bytes: files.reduce((sum, file) => sum + statSync(file.path).size, 0),
    holdsIds: shards.length > 0,
    async *documents() {
      const names = new Map<string, number>();
      for (const file of files) {
        // Files may be read and tokenized without a pause; an interruption is heard between them.
        await new Promise((resume) => setImmediate(resume));
        for await (const document of documentsOf(file, options)) {
          const seen = (names.get(document.name) ?? 0) + 1;
          names.set(document.name, seen);
          yield seen === 1 ? document : { ...document, name: `${document.name} (${seen})` };
        }
      }
    },
  };
}

function filesOf(path: string): SourceFile[] {
  if (!existsSync(path)) {
    throw new InputError(
      `${path} does not exist; give a text file, a folder, or a .jsonl, .parquet or .bin file`,
    );
  }
  const place = statSync(path);
  if (place.isFile()) return [sourceFile(path, basename(path), true)];
  // A device may never end, and a pipe can be read once; sources are read as often as needed.
  if (!place.isDirectory()) throw new InputError(`${path} is neither a file nor a folder; give one of them`);
  const found: { path: string; name: string }[] = [];
  for (const entry of readdirSync(path, { recursive: true, withFileTypes: true })) {
    const full = join(entry.parentPath, entry.name);
    const name = relative(path, full).split(sep).join("/");
    const hidden = name.split("/").some((part) => part.startsWith("."));
    if (!hidden && (entry.isFile() || (entry.isSymbolicLink() && isFile(full))))
      found.push({ path: full, name });
  }
  found.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  return found.map((file) => sourceFile(file.path, file.name, false));
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

function sourceFile(path: string, name: string, named: boolean): SourceFile {
  const match = /\.(gz|zst)$/i.exec(name);
  const compression = (match?.[1].toLowerCase() ?? "") as SourceFile["compression"];
  const ending = /\.([^./]+)$/.exec(match ? name.slice(0, match.index) : name)?.[1].toLowerCase() ?? "";
  const kinds: Record<string, Kind> = { jsonl: "jsonl", ndjson: "jsonl", parquet: "parquet", bin: "shard" };
  const kind = Object.hasOwn(kinds, ending) ? kinds[ending] : "text";
  if (compression && (kind === "parquet" || kind === "shard")) {
    throw new InputError(
      `${path} is a compressed .${ending} file; decompress it first (.gz and .zst: text, JSON lines)`,
    );
  }
  return { path, name, kind, compression, named };
}

async function* documentsOf(file: SourceFile, options: SourceOptions): AsyncGenerator<SourceDocument> {
  const field = options.field ?? "text";
  switch (file.kind) {
    case "text":
      yield* textDocument(file);
      return;
    case "jsonl":
      yield* numbered(file.name, readJsonLines(file.path, decompressed(file.path, file.compression), field));
      return;
    case "parquet":
      yield* numbered(file.name, readParquet(file.path, field));
      return;
    case "shard": {
      const { tokens } = readShard(file.path);
      let index = 0;
      for (const ids of splitAtEndOfText(tokens, options.endOfText))
        yield { name: `${file.name}#${index++}`, ids };
    }
  }
}

async function* textDocument(file: SourceFile): AsyncGenerator<SourceDocument> {
  const { size } = statSync(file.path);
  if (size > MOST_TEXT_BYTES) {
    throw new InputError(
      `${file.path} is ${size} bytes; one document is at most ${MOST_TEXT_BYTES}, so split it`,
    );
  }
  let text: Uint8Array;
  if (file.compression === "") {
    text = readFileSync(file.path);
  } else {
    const pieces: Uint8Array[] = [];
    for await (const piece of decompressed(file.path, file.compression)) pieces.push(piece);
    text = Buffer.concat(pieces);
  }
  const nul = text.subarray(0, 8000).indexOf(0);
  if (nul >= 0) {
    throw new InputError(
      `${file.path} is not text (byte ${nul} is 0) and no .jsonl, .parquet or .bin file; leave it out or convert it to UTF-8 text`,
    );
  }
  if (text.length > 0) yield { name: file.name, text };
  else if (file.named) throw new InputError(`${file.path} is empty; give a file with text`);
}

/** Names rows `file#row`, counted from 1 (the line of a JSON lines file), and leaves out empty ones. */
async function* numbered(
  name: string,
  rows: AsyncIterable<{ row: number; text: Uint8Array }>,
): AsyncGenerator<SourceDocument> {
  for await (const { row, text } of rows) if (text.length > 0) yield { name: `${name}#${row}`, text };
}

function* splitAtEndOfText(tokens: Tokens, endOfText: number | undefined): Generator<Tokens> {
  let start = 0;
  while (start < tokens.length) {
    const next = endOfText === undefined ? -1 : tokens.indexOf(endOfText, start + 1);
    const end = next < 0 ? tokens.length : next;
    yield tokens.subarray(start, end);
    start = end;
  }
}
