/** From an error to the sentence a person reads and the exit code the design promises. */
import { InputError, RunError } from "../errors.ts";

/** Operating-system errors that mean the input or the environment is at fault, not work that had started. */
const BAD_INPUT_CODES = new Set(["ENOENT", "EACCES", "EISDIR", "ENOTDIR", "EPERM", "EROFS"]);

/** 2: bad usage, bad input, a missing part of the environment. 1: started work failed, or a fault of our own. */
export function exitCodeOf(error: unknown): 1 | 2 {
  if (error instanceof RunError) return 1;
  if (error instanceof InputError || error instanceof RangeError) return 2;
  return BAD_INPUT_CODES.has((error as NodeJS.ErrnoException)?.code ?? "") ? 2 : 1;
}

export function sentenceOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof InputError || error instanceof RunError || error instanceof RangeError)
    return error.message;
  const { code, path } = error as NodeJS.ErrnoException;
  if (code) return path && !error.message.includes(path) ? `${path}: ${error.message}` : error.message;
  return `a fault in mobalab itself (${error.name}: ${error.message}); MOBALAB_TRACE=1 shows where`;
}
