/** How much of its context a model uses: the loss of the same tokens with more and less of the window before them. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { InputError } from "../errors.ts";
import type { TruncatedResult } from "./types.ts";

/** Name within a run folder. */
export const TRUNCATED_FILE = "truncated.json";

/** `truncated.json` of a run folder, null when it is not there. */
export function readTruncated(runFolder: string): TruncatedResult | null {
  const file = join(runFolder, TRUNCATED_FILE);
  if (!existsSync(file)) return null;
  try {
    const result: TruncatedResult = JSON.parse(readFileSync(file, "utf8"));
    if (!Array.isArray(result.contexts)) throw new Error("it lacks contexts");
    return result;
  } catch (error) {
    throw new InputError(`${file} is not readable: ${(error as Error).message}`);
  }
}
