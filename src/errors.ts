/**
 * The two ways a command ends badly. Any room may throw these; `cli` turns them into one sentence and an exit code.
 */

/** Bad usage, bad input or a missing part of the environment. Exit code 2. The message names the thing, its value and what would be right. */
export class InputError extends Error {
  override name = "InputError";
}

/** Work that had started failed (non-finite loss, out of memory, disk full, lost process). Exit code 1. */
export class RunError extends Error {
  override name = "RunError";
}
