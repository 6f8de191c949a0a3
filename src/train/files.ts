/** Writing a run's files so that a reader never sees half of one, and saying which file failed and why. */
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { RunError } from "../errors.ts";

/**
 * Runs `write`, which writes `path`; a failure of the file system (disk full, no permission) becomes a `RunError` that
 * names the file and the reason.
 */
export function writing<Result>(path: string, write: () => Result): Result {
  try {
    return write();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    throw new RunError(`cannot write ${path}: ${(error as Error).message}`);
  }
}

/** Writes a file aside, waits for the disk, then renames it into place. */
export function writeWhole(path: string, content: string | Uint8Array): void {
  const aside = `${path}.${process.pid}.tmp`;
  try {
    writing(path, () => {
      writeSynced(aside, "w", content);
      renameSync(aside, path);
    });
  } catch (error) {
    rmSync(aside, { force: true });
    throw error;
  }
}

/** Opens with `flags`, writes everything, waits for the disk. */
export function writeSynced(path: string, flags: "w" | "a", content: string | Uint8Array): void {
  const bytes = typeof content === "string" ? Buffer.from(content) : content;
  const file = openSync(path, flags);
  try {
    for (let done = 0; done < bytes.length; ) done += writeSync(file, bytes, done);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
