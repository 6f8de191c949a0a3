/** Writing a run's files so that a reader never sees half of one, and saying which file failed and why. */
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { RunError } from "./errors.ts";

/**
 * Runs `write`, which writes `path`; a failure of the file system (disk full, no permission) becomes a `RunError` that
 * names the file and the reason.
 */
export function writing<Result>(path: string, write: () => Result): Result {
  try {
    return write();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).syscall === undefined) throw error;
    throw new RunError(`cannot write ${path}: ${(error as Error).message}`);
  }
}

/** Writes a file aside by `write`, waits for the disk, then renames it into place; a failure leaves nothing of it. */
export function writeAside(path: string, write: (file: number) => void): void {
  const aside = `${path}.${process.pid}.tmp`;
  try {
    writing(path, () => {
      withFile(aside, "w", write);
      renameSync(aside, path);
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
  withFile(path, flags, (file) => writeBytes(file, content));
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
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
