/**
 * A corpus out of a source tree, for studies in which far context must help: C files of one directory lie together in
 * one document, so that what a function or a type looks like stands a few ten thousand tokens before its use.
 */
import { type Dirent, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { InputError } from "../errors.ts";
import {
  type CodeDocument,
  type CodeFile,
  chooseHeldOutDirectories,
  codeDocumentText,
  compare,
  documentsWithin,
  isWithin,
  KERNEL_HELD_OUT,
  LEAST_DOCUMENT,
  packDirectories,
} from "./code-documents.ts";
import { CODE_RULES, type CodeRule } from "./code-file.ts";
import { SeenWindows } from "./seen-windows.ts";
import type { InspectedFiles } from "./tasks.ts";
import type { Threads } from "./threads.ts";

export interface CodeCorpus {
  readonly documents: readonly CodeDocument[];
  /** Names of the documents to hold out: all of some directories. */
  readonly heldOut: readonly string[];
  readonly summary: CodeSummary;
}

export interface Amount {
  readonly files: number;
  /** On disk. */
  readonly bytes: number;
}

/** What became of a tree's files. */
export interface CodeSummary {
  /** All `.c` and `.h` files outside the directories left out. */
  readonly found: Amount;
  /** Files left out, by the first rule that says so. */
  readonly leftOut: Readonly<Record<CodeRule, Amount>>;
  readonly kept: Amount;
  /** In documents that are too short. */
  readonly dropped: Amount;
  readonly heldOutDirectories: readonly string[];
}

/** Generated or foreign parts of the Linux kernel; the last is a prefix of names. */
const LEFT_OUT = ["drivers/gpu/drm/amd/include", "tools/perf/pmu-events", "LICENSES"];
const LEFT_OUT_PREFIX = "lib/lzo";

/** Files a thread takes at a time. */
const FILES_AT_ONCE = 64;
/** More of its windows seen in files kept before make a file a duplicate. */
const MOST_SEEN = 0.5;

/**
 * Reads a tree and applies the rules: of its files (`CODE_RULES`, `.c` and `.h` only, no links, no names with a leading
 * dot), then of documents (`packDirectories`). The same tree gives the same corpus, however many threads: files go by
 * path, and the duplicate rule is asked in that order on the calling thread.
 *
 * `heldOut` are directories relative to the tree; without it those of `KERNEL_HELD_OUT` that give documents, else
 * `chooseHeldOutDirectories`. InputError when the tree is no directory or gives no document, or for a held-out directory
 * that gives none.
 */
export async function readCodeCorpus(
  tree: string,
  heldOut: readonly string[] | undefined,
  threads: Threads,
  onProgress: (files: number, bytes: number) => void,
): Promise<CodeCorpus> {
  if (!statSync(tree, { throwIfNoEntry: false })?.isDirectory()) {
    throw new InputError(
      `${tree} is no directory; give a tree of C source code, such as an unpacked Linux kernel`,
    );
  }
  const directories = heldOut?.map((name) => name.replace(/^\.\//, "").replace(/\/+$/, ""));
  const { files, sizes, summary } = await keptFiles(tree, threads, onProgress);
  const documents = packDirectories(files, directories ?? KERNEL_HELD_OUT);
  if (documents.length === 0) {
    throw new InputError(
      `${tree} gives no document: ${summary.found.files} .c and .h files found, ${files.length} kept, and no directory with ${LEAST_DOCUMENT} bytes of them; give a larger tree of C source code`,
    );
  }
  const chosen = directories ?? defaultHeldOut(documents);
  const held = documentsWithin(documents, chosen);
  const used = documents.flatMap((document) => document.files);
  const dropped = {
    files: files.length - used.length,
    bytes: summary.kept.bytes - used.reduce((sum, file) => sum + (sizes.get(file) as number), 0),
  };
  return {
    documents,
    heldOut: held.map((document) => document.name),
    summary: { ...summary, dropped, heldOutDirectories: chosen },
  };
}

function defaultHeldOut(documents: readonly CodeDocument[]): string[] {
  const kernel = KERNEL_HELD_OUT.filter((directory) =>
    documents.some((document) => isWithin(document.directory, directory)),
  );
  return kernel.length > 0 ? kernel : chooseHeldOutDirectories(documents);
}

async function keptFiles(
  tree: string,
  threads: Threads,
  onProgress: (files: number, bytes: number) => void,
): Promise<{
  files: CodeFile[];
  sizes: Map<CodeFile, number>;
  summary: Pick<CodeSummary, "found" | "leftOut" | "kept">;
}> {
  const found = { files: 0, bytes: 0 };
  const kept = { files: 0, bytes: 0 };
  const leftOut = Object.fromEntries(CODE_RULES.map((rule) => [rule, { files: 0, bytes: 0 }])) as Record<
    CodeRule,
    { files: number; bytes: number }
  >;
  const count = (amount: { files: number; bytes: number }, size: number) => {
    amount.files++;
    amount.bytes += size;
  };
  const files: CodeFile[] = [];
  const sizes = new Map<CodeFile, number>();
  const seen = new SeenWindows();
  const lots = inLots(pathsOf(tree));
  for await (const { item, output } of threads.map("inspect", lots, (paths) => ({ root: tree, paths }))) {
    for (const { path, size, text, windows, rule } of eachOf(item, output)) {
      count(found, size);
      if (rule !== null) {
        count(leftOut[rule], size);
      } else if (seen.countSeen(windows) > (MOST_SEEN * windows.length) / 2) {
        count(leftOut.duplicate, size);
      } else {
        seen.add(windows);
        count(kept, size);
        const file = { path, text };
        files.push(file);
        sizes.set(file, size);
      }
    }
    onProgress(found.files, found.bytes);
  }
  return { files, sizes, summary: { found, leftOut, kept } };
}

/** Paths of the `.c` and `.h` files, relative to the tree, sorted. */
function pathsOf(tree: string): string[] {
  const paths: string[] = [];
  const walk = (directory: string) => {
    for (const entry of entriesOf(join(tree, directory))) {
      if (entry.name.startsWith(".")) continue;
      const path = directory === "" ? entry.name : `${directory}/${entry.name}`;
      if (LEFT_OUT.includes(path) || path.startsWith(LEFT_OUT_PREFIX)) continue;
      if (entry.isDirectory()) walk(path);
      else if (entry.isFile() && /\.[ch]$/.test(entry.name)) paths.push(path);
    }
  };
  walk("");
  return paths.sort(compare);
}

function entriesOf(directory: string): Dirent[] {
  try {
    return readdirSync(directory, { withFileTypes: true });
  } catch (error) {
    throw new InputError(`${directory} cannot be read: ${(error as Error).message}`);
  }
}

function* inLots(paths: readonly string[]): Generator<string[]> {
  for (let at = 0; at < paths.length; at += FILES_AT_ONCE) yield paths.slice(at, at + FILES_AT_ONCE);
}

/** The files of one lot, each with its own text and windows. */
function* eachOf(paths: readonly string[], { files, text, windows }: InspectedFiles) {
  let byte = 0;
  let word = 0;
  for (const [index, { size, kept }] of files.entries()) {
    const rule = typeof kept === "string" ? kept : null;
    const { bytes, words } = typeof kept === "string" ? { bytes: 0, words: 0 } : kept;
    yield {
      path: paths[index],
      size,
      rule,
      text: text.subarray(byte, (byte += bytes)),
      windows: windows.subarray(word, (word += words)),
    };
  }
}

export async function* codeSourceDocuments(
  corpus: CodeCorpus,
): AsyncGenerator<{ name: string; text: Uint8Array }> {
  for (const document of corpus.documents) yield { name: document.name, text: codeDocumentText(document) };
}
