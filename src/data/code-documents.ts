/** Packs the kept files of a source tree into documents by directory, and chooses the directories to hold out. */
import { InputError } from "../errors.ts";
import { hashName } from "./random.ts";

export interface CodeFile {
  /** Relative to the tree, with `/`. */
  readonly path: string;
  /** Ends with a new line. */
  readonly text: Uint8Array;
}

export interface CodeDocument {
  /** The directory; `directory#2` for the second of several parts. */
  readonly name: string;
  readonly directory: string;
  /** Headers first, each group by path. */
  readonly files: readonly CodeFile[];
  readonly bytes: number;
}

/** A smaller directory goes into its parent. */
const LEAST_DIRECTORY = 128 * 1024;
/** A larger one is split. */
const MOST_DOCUMENT = 512 * 1024;
/** A smaller document is dropped: then every one has at least some 46,000 BPE tokens. */
export const LEAST_DOCUMENT = 131_072;

/**
 * Directories of the Linux kernel held out by default, over all its parts. In linux-source-6.12, with bpe-16384: 69
 * documents, 27.4 MB, 9.46 M tokens; without arch/s390, the one other architecture, 62 documents, 24.7 MB, 8.49 M.
 */
export const KERNEL_HELD_OUT: readonly string[] = [
  "fs/xfs",
  "fs/f2fs",
  "net/sctp",
  "net/bluetooth",
  "drivers/net/ethernet/mellanox/mlx5",
  "drivers/mtd",
  "drivers/gpu/drm/tegra",
  "sound/usb",
  "kernel/sched",
  "drivers/net/wireless/ath/ath11k",
  "arch/s390",
];

/** The root directory's name. */
const ROOT = ".";

/**
 * One document for each directory: a directory under 128 KiB goes into its parent, with what it took in itself, one
 * over 512 KiB is split (each part takes files as long as they fit), and documents under 131,072 bytes are dropped, such
 * as a last part with little left (an even split would keep those, but gives the Linux kernel more documents and bytes
 * than the corpus is known for: 2057 with 740 MB, not 1992 with 731 MB). Directories `apart` do not go into their parents, so that nothing of them ends up in
 * a document of another name. Sorted by directory.
 */
export function packDirectories(files: readonly CodeFile[], apart: readonly string[]): CodeDocument[] {
  const directories = new Map<string, CodeFile[]>();
  const filesOf = (directory: string) => {
    let list = directories.get(directory);
    if (list === undefined) directories.set(directory, (list = []));
    return list;
  };
  for (const file of files) {
    filesOf(parentOf(file.path)).push(file);
    for (let up = parentOf(file.path); up !== ROOT; up = parentOf(up)) filesOf(parentOf(up));
  }
  const deepestFirst = [...directories.keys()].sort((a, b) => depth(b) - depth(a) || compare(a, b));
  for (const directory of deepestFirst) {
    if (directory === ROOT || apart.includes(directory)) continue;
    const own = filesOf(directory);
    if (bytesOf(own) >= LEAST_DIRECTORY) continue;
    filesOf(parentOf(directory)).push(...own);
    directories.delete(directory);
  }
  return [...directories]
    .sort(([a], [b]) => compare(a, b))
    .flatMap(([directory, own]) => {
      const isHeader = (file: CodeFile) => Number(file.path.endsWith(".h"));
      const sorted = own.sort((a, b) => isHeader(b) - isHeader(a) || compare(a.path, b.path));
      const parts = split(sorted);
      return parts.map((part, index) => ({
        name: parts.length === 1 ? directory : `${directory}#${index + 1}`,
        directory,
        files: part,
        bytes: bytesOf(part),
      }));
    })
    .filter((document) => document.bytes >= LEAST_DOCUMENT);
}

function split(files: readonly CodeFile[]): CodeFile[][] {
  const parts: CodeFile[][] = [[]];
  let filled = 0;
  for (const file of files) {
    const bytes = bytesOf([file]);
    if (filled > 0 && filled + bytes > MOST_DOCUMENT) {
      parts.push([]);
      filled = 0;
    }
    parts[parts.length - 1].push(file);
    filled += bytes;
  }
  return parts;
}

/** The document's text: each file after a line with its path. */
export function codeDocumentText(document: CodeDocument): Uint8Array {
  return Buffer.concat(document.files.flatMap((file) => [pathLine(file), file.text]));
}

function pathLine(file: CodeFile): Uint8Array {
  return Buffer.from(`// ${file.path}\n`, "utf8");
}

function bytesOf(files: readonly CodeFile[]): number {
  return files.reduce((sum, file) => sum + pathLine(file).length + file.text.length, 0);
}

function parentOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? ROOT : path.slice(0, slash);
}

function depth(directory: string): number {
  return directory === ROOT ? 0 : directory.split("/").length;
}

/** By UTF-16 units: the same everywhere. */
export function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

export function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(`${directory}/`) || directory === ROOT;
}

/** Chosen directories are taken until they hold this share of all bytes ... */
const ENOUGH = 0.05;
/** ... and one that would take them over this share is passed by. */
const TOO_MUCH = 0.08;

/**
 * Directories to hold out of any tree, everything below them included: in the order of a hash of their names until they
 * hold 5 % of all bytes, none that takes them over 8 %; the one with the fewest bytes when every one is larger than that.
 */
export function chooseHeldOutDirectories(documents: readonly CodeDocument[]): string[] {
  const bytes = new Map<string, number>();
  for (const document of documents) {
    for (let up = document.directory; ; up = parentOf(up)) {
      bytes.set(up, (bytes.get(up) ?? 0) + document.bytes);
      if (up === ROOT) break;
    }
  }
  const total = bytes.get(ROOT) ?? 0;
  const candidates = [...bytes.keys()]
    .filter((directory) => directory !== ROOT)
    .map((directory) => ({ directory, rank: hashName(0, directory) }))
    .sort((a, b) => a.rank - b.rank || compare(a.directory, b.directory));
  const chosen: string[] = [];
  let held = 0;
  for (const { directory } of candidates) {
    if (held >= ENOUGH * total) break;
    if (chosen.some((one) => isWithin(one, directory) || isWithin(directory, one))) continue;
    const own = bytes.get(directory) as number;
    if (held + own > TOO_MUCH * total) continue;
    chosen.push(directory);
    held += own;
  }
  if (chosen.length > 0 || candidates.length === 0) return chosen;
  const smallest = candidates.reduce((best, one) =>
    (bytes.get(one.directory) as number) < (bytes.get(best.directory) as number) ? one : best,
  );
  return [smallest.directory];
}

/** The documents at or below the directories. InputError for a directory without any. */
export function documentsWithin(
  documents: readonly CodeDocument[],
  directories: readonly string[],
): CodeDocument[] {
  for (const directory of directories) {
    if (!documents.some((document) => isWithin(document.directory, directory))) {
      throw new InputError(
        `held-out directory "${directory}" gives no document of ${LEAST_DOCUMENT} bytes; name directories of the tree (relative to it) with more source code`,
      );
    }
  }
  return documents.filter((document) =>
    directories.some((directory) => isWithin(document.directory, directory)),
  );
}
