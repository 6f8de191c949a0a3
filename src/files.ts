/** Writing a run's files so that a reader never sees half of one, and saying which file failed and why. */
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import { InputError, RunError } from "./errors.ts";

/** Failures that no repetition helps: the place is wrong. */
const WRONG_PLACE: Record<string, string> = {
  EACCES: "there is no permission to write there",
  EPERM: "there is no permission to write there",
  EROFS: "its file system is read-only",
  EISDIR: "it is a folder, expected a file",
  ENOTDIR: "a part of its path is a file, expected a folder",
  EEXIST: "there is a file of that name",
};

/**
 * Runs `write`, which writes `path`; a failure of the file system becomes an error that names the file and the reason:
 * an `InputError` where the place is wrong (no permission, a folder), else a `RunError` (disk full).
 */
export function writing<Result>(path: string, write: () => Result): Result {
  try {
    return write();
  } catch (error) {
    const { syscall, code = "", message } = error as NodeJS.ErrnoException;
    if (syscall === undefined) throw error;
    if (code in WRONG_PLACE) throw new InputError(`cannot write ${path}: ${WRONG_PLACE[code]}`);
    throw new RunError(`cannot write ${path}: ${message}`);
  }
}

/** Makes a folder, with those above it, and returns the first that was missing. Errors as `writing`. */
export function makeFolder(path: string): string | undefined {
  return writing(path, () => {
    try {
      return mkdirSync(path, { recursive: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      // Node says so of a read-only file system too; the first missing folder by itself says which it is.
      let first = resolve(path);
      while (!existsSync(dirname(first))) first = dirname(first);
      mkdirSync(first);
      throw error;
    }
  });
}

/** Takes back what `makeFolder` made: the folder, and those above it as far as nothing else is in them by now. */
export function unmakeFolder(path: string, firstMade: string | undefined): void {
  if (firstMade === undefined) return;
  rmSync(path, { recursive: true, force: true });
  const [full, first] = [resolve(path), resolve(firstMade)];
  try {
    for (let above = dirname(full); above.startsWith(first); above = dirname(above)) rmdirSync(above);
  } catch {
    // Another process keeps something there.
  }
}

/** Makes a folder for what `fill` writes into it; when that fails, nothing stays of folders that were not there before. */
export function inFolder<Result>(path: string, fill: () => Result): Result {
  return orUnmade(path, makeFolder(path), fill);
}

/** Makes the folders above `path` for what `write` makes of it whole or not at all; else as `inFolder`. */
export function withParents<Result>(path: string, write: () => Result): Result {
  return orUnmade(path, makeFolder(dirname(path)), write);
}

function orUnmade<Result>(path: string, firstMade: string | undefined, write: () => Result): Result {
  try {
    return write();
  } catch (error) {
    unmakeFolder(path, firstMade);
    throw error;
  }
}

/**
 * Writes a file aside by `write`, waits for the disk, then renames it into place; a failure leaves nothing of it. A link
 * stays and what it leads to is replaced; a device or a pipe (/dev/stdout) is written to as it is.
 */
export function writeAside(path: string, write: (file: number) => void): void {
  const there = writing(path, () => statSync(path, { throwIfNoEntry: false }));
  if (there && !there.isFile() && !there.isDirectory()) {
    writing(path, () => withFile(path, "w", write));
    return;
  }
  const place = there ? writing(path, () => realpathSync(path)) : path;
  const aside = `${place}.${process.pid}.tmp`;
  try {
    writing(path, () => {
      withFile(aside, "w", (file) => {
        write(file);
        fsyncSync(file);
      });
      renameSync(aside, place);
    });
  } catch (error) {
    rmSync(aside, { force: true });
    throw error;
  }
}

/** `writeAside` of the whole content. */
export function writeWhole(path: string, content: string | Uint8Array): void {
  writeAside(path, (file) => writeBytes(file, content));
}

/** Opens with `flags`, writes everything, waits for the disk. */
export function writeSynced(path: string, flags: "w" | "a", content: string | Uint8Array): void {
  withFile(path, flags, (file) => {
    writeBytes(file, content);
    fsyncSync(file);
  });
}

/** One call to the system takes no more than 2 GiB. */
const MOST_BYTES = 2 ** 30;

/** Writes all of the content, however little the system takes at a time. */
export function writeBytes(file: number, content: string | Uint8Array): void {
  const bytes = typeof content === "string" ? Buffer.from(content) : content;
  for (let done = 0; done < bytes.length; ) {
    done += writeSync(file, bytes, done, Math.min(bytes.length - done, MOST_BYTES));
  }
}

function withFile(path: string, flags: "w" | "a", use: (file: number) => void): void {
  const file = openSync(path, flags);
  try {
    use(file);
  } finally {
    closeSync(file);
  }
}
