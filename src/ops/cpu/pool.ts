/**
 * The worker pool's outer side: compiles the kernels and starts the worker threads. The calling thread is worker 0
 * and takes part in every job. See kernels/pool.ts for how tiles are shared out.
 */
import { readFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { Worker } from "node:worker_threads";
import { InputError, RunError } from "../../errors.ts";
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

/** Plain JavaScript, so that it needs no loader whatever runs the host code. Given: module, memory, addresses. */
const WORKER = `
const { workerData } = require("node:worker_threads");
const { module, memory, control, scratch, worker } = workerData;
const kernels = new WebAssembly.Instance(module, { env: { memory } }).exports;
kernels.setMicroScratch(scratch);
try {
  kernels.work(control, worker);
} catch (error) {
  kernels.fail(control);
  throw error;
}`;

/** `relaxed` needs an engine with relaxed SIMD (fused multiply-add); `plain` runs everywhere. */
export type Variant = "relaxed" | "plain";

let compiled: Partial<Record<Variant, Module>> = {};

function accepted(bytes: Uint8Array): boolean {
  if (wasm.validate(bytes)) return true;
  // Node 20 has relaxed SIMD behind a flag, which later versions no longer know.
  setFlagsFromString("--experimental-wasm-relaxed-simd");
  return wasm.validate(bytes);
}

/** The kernels in the wanted build, or the best one that the engine accepts. */
function compile(wanted?: Variant): { module: Module; variant: Variant } {
  for (const variant of wanted ? [wanted] : (["relaxed", "plain"] as const)) {
    const known = compiled[variant];
    if (known) return { module: known, variant };
    const file = new URL(
      `../../../build/${variant === "relaxed" ? "cpu-relaxed" : "cpu"}.wasm`,
      import.meta.url,
    );
    let bytes: Buffer;
    try {
      bytes = readFileSync(file);
    } catch {
      throw new InputError(`${file.pathname} is missing: build it with "npm run build:wasm"`);
    }
    if (!accepted(bytes)) continue;
    const module = new wasm.Module(bytes);
    compiled = { ...compiled, [variant]: module };
    return { module, variant };
  }
  throw new InputError(
    `this engine has no ${wanted === "relaxed" ? "relaxed SIMD" : "WebAssembly SIMD with threads"}: Node 20.19 or later has`,
  );
}

export class Pool {
  /** Worker threads, the calling one included. */
  readonly threads: number;
  readonly variant: Variant;
  readonly #memory: Memory;
  readonly #kernels: Kernels;
  readonly #workers: Worker[] = [];
  #state: "open" | "failed" | "closed" = "open";

  constructor(memory: Memory, threads: number, wanted?: Variant) {
    this.threads = threads;
    this.#memory = memory;
    const { module, variant } = compile(wanted);
    this.variant = variant;
    const instance = new wasm.Instance(module, { env: { memory: memory.memory } });
    this.#kernels = instance.exports as unknown as Kernels;
    const bytes = this.#kernels.MICRO_SCRATCH_BYTES.value;
    this.#kernels.setMicroScratch(memory.allocate(bytes));
    for (let worker = 1; worker < threads; worker++) {
      const scratch = memory.allocate(bytes);
      const thread = new Worker(WORKER, {
        eval: true,
        execArgv: [],
        workerData: { module, memory: memory.memory, control: CONTROL, scratch, worker },
      });
      thread.on("error", () => {
        this.#state = "failed";
      });
      thread.unref();
      this.#workers.push(thread);
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
