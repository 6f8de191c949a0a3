/**
 * The CPU backend: AssemblyScript kernels (SIMD, fused multiply-add where the engine has it) over a pool of threads
 * with one shared memory. All f32. Results have the same bits whatever the number of threads.
 */
import { availableParallelism } from "node:os";
import { RunError } from "../../errors.ts";
import type { Backend } from "../contract.ts";
import { checkWhole } from "../validate.ts";
import { attentionOperations } from "./attention.ts";
import { type Context, dtype } from "./context.ts";
import { linearOperations } from "./linear.ts";
import { lossOperations } from "./loss.ts";
import { Memory, Scratch } from "./memory.ts";
import { optimizerOperations } from "./optimizer.ts";
import { Pool, type Variant } from "./pool.ts";
import { positionalOperations } from "./positional.ts";
import { rowwiseOperations } from "./rowwise.ts";
import { storageOperations } from "./storage.ts";

export type { Variant } from "./pool.ts";

export interface CpuOptions {
  /** Threads that compute, the calling one included. Default: all cores available to the process. */
  readonly threads?: number;
  /** Which build of the kernels. Default: `relaxed` where the engine accepts it. Their results differ in rounding. */
  readonly variant?: Variant;
}

export interface CpuBackend extends Backend {
  readonly threads: number;
  /** `relaxed` (fused multiply-add) or `plain`. */
  readonly variant: Variant;
}

/** Throws `RangeError` for a wrong number of threads, `InputError` when the kernels have not been built. */
export function createCpuBackend(options: CpuOptions = {}): CpuBackend {
  const threads = options.threads ?? availableParallelism();
  checkWhole("createCpuBackend", "threads", threads, 1, 1024);
  const memory = new Memory();
  const pool = new Pool(memory, threads, options.variant);
  const perWorker = new Scratch(memory);
  const context: Context = {
    memory,
    pool,
    scratch: new Scratch(memory),
    workerScratch(bytes) {
      const stride = Math.ceil(bytes / 64) * 64;
      return { address: perWorker.need(stride * threads), stride };
    },
  };
  const operations = {
    ...storageOperations(context),
    ...rowwiseOperations(context),
    ...linearOperations(context),
    ...positionalOperations(context),
    ...attentionOperations(context),
    ...lossOperations(context),
    ...optimizerOperations(context),
  };
  const backend: CpuBackend = {
    name: "cpu",
    asynchronous: false,
    threads,
    variant: pool.variant,
    dtype,
    ...operations,
    close() {
      pool.close();
      const closed = () => {
        throw new RunError("the CPU backend is closed");
      };
      for (const operation of Object.keys(operations)) Object.assign(backend, { [operation]: closed });
    },
  };
  return backend;
}
