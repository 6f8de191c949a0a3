/** The kernels in Node: compiled from build/, run by worker threads over one shared memory. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { Worker } from "node:worker_threads";
import { InputError } from "../../errors.ts";
import type { Engine, Variant } from "./pool.ts";
import { type Module, wasm } from "./webassembly.ts";

/**
 * Plain JavaScript, so that it needs no loader whatever runs the host code. Given: module, memory, addresses. The engine
 * tells the instances of a memory when it has grown, but one that is being made meanwhile can miss that, and then
 * refuse to fill what is new: growing by nothing brings it up to date.
 */
const WORKER = `
const { workerData } = require("node:worker_threads");
const { module, memory, control, scratch, worker } = workerData;
const kernels = new WebAssembly.Instance(module, { env: { memory } }).exports;
memory.grow(0);
kernels.setMicroScratch(scratch);
try {
  kernels.work(control, worker);
} catch (error) {
  kernels.fail(control);
  throw error;
}`;

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
      throw new InputError(`${fileURLToPath(file)} is missing: build it with "npm run build:wasm"`);
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

/** Throws `InputError` when the kernels have not been built or the engine does not accept them. */
export function threadedEngine(threads: number, wanted?: Variant): Engine {
  const { module, variant } = compile(wanted);
  return {
    module,
    variant,
    threads,
    startWorker(worker, { memory }, control, scratch, failed) {
      const thread = new Worker(WORKER, {
        eval: true,
        execArgv: [],
        workerData: { module, memory, control, scratch, worker },
      });
      thread.on("error", failed);
      thread.unref();
      return thread;
    },
  };
}
