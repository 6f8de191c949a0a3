/** Opens the device that `--device` names: `cpu`, `cuda`, `cuda:1`; `auto` takes the first CUDA card when there is one. */
import { InputError } from "../errors.ts";
import type { Backend } from "../ops/contract.ts";
import { createCpuBackend } from "../ops/cpu/index.ts";
import { createCudaBackend, cudaAvailable, cudaFacts } from "../ops/cuda/index.ts";

/** The devices a command may use, each `cpu` or `cuda:<n>`: `auto` and `cuda` mean every card. */
export function devicesOf(name: string): string[] {
  if (name === "cpu" || /^cuda:\d+$/.test(name)) return [name];
  if (name === "auto" && !cudaAvailable()) return ["cpu"];
  const { cards, missing } = cudaFacts();
  if (cards.length > 0 && missing.length === 0) return cards.map((card) => `cuda:${card.ordinal}`);
  if (name === "auto") return ["cpu"];
  throw new InputError(`--device cuda: ${missing.join("; ") || "no card was found"}`);
}

/** The devices in words, with the names of cards: `cpu`, `cuda:0 (NVIDIA H200)`. */
export function hardwareOf(devices: readonly string[]): string {
  if (devices[0] === "cpu") return "cpu";
  const { cards } = cudaFacts();
  const named = devices.map((device) => {
    const card = cards.find(({ ordinal }) => device === `cuda:${ordinal}`);
    return card ? `${device} (${card.name})` : device;
  });
  return named.join(", ");
}

/** `device` is `cpu` or `cuda:<n>`, or a name that `devicesOf` knows, of which the first device is opened. */
export function openBackend(device: string, threads: number): Backend {
  const [first] = devicesOf(device);
  return first === "cpu"
    ? createCpuBackend({ threads })
    : createCudaBackend({ device: Number(first.slice(5)) });
}
