/**
 * The checkpoint of a run: `checkpoint/` holds the weights as a Hugging Face folder, `optimizer.safetensors` and
 * `state.json`. It is replaced by renames, in an order that leaves one complete checkpoint whenever the process dies:
 *
 *   checkpoint.tmp-<pid> is written; checkpoint -> checkpoint.old; checkpoint.tmp-<pid> -> checkpoint; .old removed
 *
 * Readers take `checkpoint`, else `checkpoint.old`.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { InputError } from "../errors.ts";
import { writeSynced, writing } from "../files.ts";
import type { RunConfig } from "./types.ts";

/** What a run knows besides its tensors. Batches, schedules and bias corrections are pure functions of it. */
export interface RunState {
  /** Optimizer steps done, and the input tokens they saw. */
  readonly step: number;
  readonly tokens: number;
  readonly attempt: number;
  /** Seconds of training, all attempts. */
  readonly time_s: number;
  /** Cumulative operations by each convention. */
  readonly operations: { readonly "6ND": number; readonly attended: number };
  /** (query, key) pairs of one head, summed over layers: attended, and all causal ones. */
  readonly pairs: { readonly attended: number; readonly causal: number };
  readonly config: RunConfig;
  /** Tells whether the dataset is still the one trained on. */
  readonly dataset: {
    readonly tokenizer: string;
    readonly trainTokens: number;
    readonly heldOutTokens: number;
  };
}

const CHECKPOINT = "checkpoint";
const OLD = "checkpoint.old";
const ASIDE = "checkpoint.tmp-";
const STATE_FILE = "state.json";

/** The folder of the run's newest complete checkpoint, null when there is none. */
export function findCheckpoint(runFolder: string): string | null {
  for (const name of [CHECKPOINT, OLD]) {
    const folder = join(runFolder, name);
    if (existsSync(join(folder, STATE_FILE))) return folder;
  }
  return null;
}

/** Throws `InputError` naming the file when it is missing or corrupt. */
export function readState(checkpoint: string): RunState {
  const file = join(checkpoint, STATE_FILE);
  try {
    const state: RunState = JSON.parse(readFileSync(file, "utf8"));
    if (!Number.isInteger(state.step) || !state.config || !state.operations || !state.pairs) {
      throw new Error("it lacks step, config, operations or pairs");
    }
    return state;
  } catch (error) {
    throw new InputError(`corrupt checkpoint: cannot read ${file}: ${(error as Error).message}`);
  }
}

/** Removes what an earlier process left unfinished. Call before training, never while another process trains. */
export function tidyCheckpoints(runFolder: string): void {
  for (const name of readdirSync(runFolder)) {
    if (name.startsWith(ASIDE)) rmSync(join(runFolder, name), { recursive: true, force: true });
  }
  if (findCheckpoint(runFolder) === join(runFolder, CHECKPOINT)) {
    rmSync(join(runFolder, OLD), { recursive: true, force: true });
  }
}

/**
 * Replaces the run's checkpoint by the one that `writeTensors` writes into the folder it is given. Throws `RunError`
 * naming the file and the reason when that fails; the last checkpoint then stays as it was.
 */
export function replaceCheckpoint(
  runFolder: string,
  state: RunState,
  writeTensors: (folder: string) => void,
): void {
  const target = join(runFolder, CHECKPOINT);
  const old = join(runFolder, OLD);
  const aside = join(runFolder, `${ASIDE}${process.pid}`);
  try {
    writing(target, () => {
      rmSync(aside, { recursive: true, force: true });
      mkdirSync(aside);
      writeTensors(aside);
      writeSynced(join(aside, STATE_FILE), "w", `${JSON.stringify(state, null, 2)}\n`);
      if (existsSync(target)) {
        rmSync(old, { recursive: true, force: true });
        renameSync(target, old);
      }
      renameSync(aside, target);
      rmSync(old, { recursive: true, force: true });
    });
  } catch (error) {
    rmSync(aside, { recursive: true, force: true });
    throw error;
  }
}
