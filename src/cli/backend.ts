/** Opens the device that `--device` names: `cpu`, `cuda`, `cuda:1`; `auto` takes the first CUDA card when there is one. */
import { InputError } from "../errors.ts";
import type { Backend } from "../ops/contract.ts";
import { createCpuBackend } from "../ops/cpu/index.ts";
import { createCudaBackend, cudaAvailable, cudaFacts } from "../ops/cuda/index.ts";
import type { RankedMeeting } from "../train/meeting.ts";

/** The devices a command may use, each `cpu` or `cuda:<n>`: `auto` and `cuda` mean every card. */
export function devicesOf(name: string): string[] {
  if (name === "cpu" || /^cuda:\d+$/.test(name)) return [name];
  if (name === "auto" && !cudaAvailable()) return ["cpu"];
  const { cards, missing } = cudaFacts();
  if (cards.length > 0 && missing.length === 0) return cards.map((card) => `cuda:${card.ordinal}`);
  if (name === "auto") return ["cpu"];
  throw new InputError(`--device cuda: ${missing.join("; ") || "no card was found"}`);
}

/**
 * The places for runs of `gpus` cards each, by the first card of each; one place where `name` is a card. Throws
 * `InputError` when there are too few cards, or no NCCL to connect them.
 */
export function placesOf(name: string, gpus: number): string[] {
  const devices = devicesOf(name);
  if (gpus === 1) return devices;
  const { cards, libraries } = cudaFacts();
  const first = devices[0] === "cpu" ? cards.length : Number(devices[0].slice(5));
  const most = devices.length === 1 ? gpus : cards.length;
  const places: string[] = [];
  for (let card = first; card + gpus <= Math.min(cards.length, first + most); card += gpus) {
    places.push(`cuda:${card}`);
  }
  if (places.length === 0) {
    throw new InputError(
      `--gpus ${gpus} with --device ${name}: expected ${gpus} CUDA cards${first > 0 && devices[0] !== "cpu" ? ` from ${devices[0]} on` : ""}, this machine has ${cards.length}`,
    );
  }
  const missing = libraries.find((library) => library.name === "nccl")?.problem;
  if (missing) throw new InputError(`--gpus ${gpus}: ${missing}`);
  return places;
}

/** The devices of a place. */
export function devicesAt(place: string, gpus: number): string[] {
  if (gpus === 1) return [place];
  return Array.from({ length: gpus }, (_, i) => `cuda:${Number(place.slice(5)) + i}`);
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

/**
 * `device` is `cpu` or `cuda:<n>`, or a name that `devicesOf` knows, of which the first device is opened; the processes
 * of one run take the cards from there on.
 */
export function openBackend(device: string, threads: number, meeting?: RankedMeeting): Backend {
  const [first] = devicesOf(device);
  if (first !== "cpu") {
    return createCudaBackend({ device: Number(first.slice(5)) + (meeting?.localRank ?? 0), meeting });
  }
  if (meeting) {
    throw new InputError(
      `--device ${device} is the CPU, which one process uses whole: expected CUDA cards for the ${meeting.count} processes of the run (WORLD_SIZE)`,
    );
  }
  return createCpuBackend({ threads });
}
