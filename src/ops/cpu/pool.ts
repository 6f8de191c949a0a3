/**
 * The worker pool's outer side: hands jobs to the kernels. The calling thread is worker 0 and takes part in every job.
 * See kernels/pool.ts for how tiles are shared out, threads.ts for the other workers.
 */
import { RunError } from "../../errors.ts";
import type { Memory } from "./memory.ts";
import { type Module, wasm } from "./webassembly.ts";

const CONTROL = 65536;
const ARGUMENTS = CONTROL + 4096;

interface Kernels {
  run(control: number, kernel: number, args: number, tiles: number): number;
  stop(control: number): void;
  setMicroScratch(address: number): void;
  readonly MICRO_SCRATCH_BYTES: { readonly value: number };
}

/** `relaxed` needs an engine with relaxed SIMD (fused multiply-add); `plain` runs everywhere. */
export type Variant = "relaxed" | "plain";

/** The kernels, and how another thread is made to work on the same memory. */
export interface Engine {
  readonly module: Module;
  readonly variant: Variant;
  /** Worker threads, the calling one included. */
  readonly threads: number;
  /** Not called with one thread. `scratch` is the worker's, `failed` is called when it ends by an error. */
  startWorker(worker: number, memory: Memory, control: number, scratch: number, failed: () => void): Thread;
}

export interface Thread {
  terminate(): unknown;
}

export class Pool {
  readonly threads: number;
  readonly variant: Variant;
  readonly #memory: Memory;
  readonly #kernels: Kernels;
  readonly #workers: Thread[] = [];
  #state: "open" | "failed" | "closed" = "open";

  constructor(memory: Memory, engine: Engine) {
    this.threads = engine.threads;
    this.variant = engine.variant;
    this.#memory = memory;
    const instance = new wasm.Instance(engine.module, { env: { memory: memory.memory } });
    this.#kernels = instance.exports as unknown as Kernels;
    const bytes = this.#kernels.MICRO_SCRATCH_BYTES.value;
    this.#kernels.setMicroScratch(memory.allocate(bytes));
    const failed = () => {
      this.#state = "failed";
    };
    for (let worker = 1; worker < engine.threads; worker++) {
      this.#workers.push(engine.startWorker(worker, memory, CONTROL, memory.allocate(bytes), failed));
    }
  }

  /**
   * Runs tiles 0 .. tiles - 1 of a kernel and returns when all are done. Arguments are whole numbers of 32 bits
   * (addresses up to 2^32 - 1 too); `floatBits` makes one of a float.
   */
  run(kernel: number, args: readonly number[], tiles: number): void {
    if (this.#state !== "open") throw new RunError(`the CPU backend has ${this.#state}`);
    if (tiles === 0) return;
    const words = this.#memory.i32;
    for (let i = 0; i < args.length; i++) words[ARGUMENTS / 4 + i] = args[i];
    let done = 0;
    try {
      done = this.#kernels.run(CONTROL, kernel, ARGUMENTS, tiles);
    } catch (cause) {
      this.#state = "failed";
      throw new RunError(`kernel ${kernel} of the CPU backend failed`, { cause });
    }
    if (!done) {
      this.#state = "failed";
      throw new RunError(`kernel ${kernel} of the CPU backend failed in a worker`);
    }
  }

  /** Ends the worker threads. */
  close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#kernels.stop(CONTROL);
    for (const worker of this.#workers) void worker.terminate();
  }
}

const bits = new DataView(new ArrayBuffer(4));
/** The 32 bits of a number rounded to f32, as a kernel argument. */
export function floatBits(value: number): number {
  bits.setFloat32(0, value);
  return bits.getInt32(0);
}
