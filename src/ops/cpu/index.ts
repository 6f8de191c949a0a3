/**
 * The CPU backend: AssemblyScript kernels (SIMD, fused multiply-add where the engine has it) over a pool of threads
 * with one shared memory. All f32. Results have the same bits whatever the number of threads.
 */
import { availableParallelism } from "node:os";
import { checkWhole } from "../validate.ts";
import { type CpuBackend, makeCpuBackend } from "./backend.ts";
import { Memory } from "./memory.ts";
import type { Variant } from "./pool.ts";
import { threadedEngine } from "./threads.ts";

export type { CpuBackend } from "./backend.ts";
export { CAPACITY } from "./memory.ts";
export type { Variant } from "./pool.ts";

export interface CpuOptions {
  /** Threads that compute, the calling one included. Default: all cores available to the process. */
  readonly threads?: number;
  /** Which build of the kernels. Default: `relaxed` where the engine accepts it. Their results differ in rounding. */
  readonly variant?: Variant;
}

/** Throws `RangeError` for a wrong number of threads, `InputError` when the kernels have not been built. */
export function createCpuBackend(options: CpuOptions = {}): CpuBackend {
  const threads = options.threads ?? availableParallelism();
  checkWhole("createCpuBackend", "threads", threads, 1, 1024);
  return makeCpuBackend(new Memory({ shared: true }), threadedEngine(threads, options.variant));
}
