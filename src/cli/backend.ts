/** Opens the device that `--device` names. */
import type { Backend } from "../ops/contract.ts";
import { createCpuBackend } from "../ops/cpu/index.ts";

export function openBackend(_device: string, threads: number): Backend {
  return createCpuBackend({ threads });
}
