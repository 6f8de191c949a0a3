/** The CPU backend on the calling thread alone, in a memory of its own: for browsers, also on a page opened from disk. */
import { type CpuBackend, makeCpuBackend } from "./backend.ts";
import { Memory } from "./memory.ts";
import { wasm } from "./webassembly.ts";

/**
 * `kernels` are the bytes of build/cpu-alone.wasm; compiled beside other work, since browsers refuse to wait for large
 * modules. The same bits as `plain` kernels give on any number of threads.
 */
export async function createLoneCpuBackend(kernels: Uint8Array): Promise<CpuBackend> {
  const module = await wasm.compile(kernels);
  const startWorker = (): never => {
    throw new RangeError("a backend of one thread starts no worker");
  };
  return makeCpuBackend(new Memory({ shared: false }), { module, variant: "plain", threads: 1, startWorker });
}
