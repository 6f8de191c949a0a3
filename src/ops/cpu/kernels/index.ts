/** Entry of the module: what the host calls, and the table from kernel numbers to kernels. */
import * as id from "../kernel-ids";
import { gemmTile, packTile } from "./gemm";

export { fail, run, stop, work } from "./pool";
export { MICRO_SCRATCH_BYTES, setMicroScratch } from "./micro";

/** One tile of a kernel's work, done by worker `worker`. `args` holds the kernel's arguments, 4 bytes each. */
export function runTile(kernel: i32, args: usize, tile: i32, worker: i32): void {
  switch (kernel) {
    case id.PACK_B: packTile(args, tile); break;
    case id.GEMM: gemmTile(args, tile); break;
    default: unreachable();
  }
}
