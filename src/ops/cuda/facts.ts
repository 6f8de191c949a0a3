/** What `doctor` says of CUDA. Never throws. */

import { ncclVersion, openNccl } from "./collectives.ts";
import { builtImage, kernelFiles } from "./compile.ts";
import { type CardFacts, capabilityText, cardFacts, OLDEST_CAPABILITY } from "./device.ts";
import { Driver, rawDriver, versionText } from "./driver.ts";
import { type LibraryFact, libraryFacts, libraryFolders, openLibrary } from "./library.ts";

export interface CudaFacts {
  readonly libraries: readonly LibraryFact[];
  /** Folders looked at for libraries, besides the loader's path. */
  readonly folders: readonly string[];
  /** The CUDA version that the driver supports, "13.0"; null without a driver that starts. */
  readonly driver: string | null;
  readonly cards: readonly CardFacts[];
  /** Kernel files, and how many of them are compiled ahead (for the first card, or for Hopper). */
  readonly kernels: { readonly files: number; readonly compiled: number };
  /** "2.30.7"; null when NCCL was not found, which only runs on several cards need. */
  readonly nccl: string | null;
  /** Sentences: what keeps training on these cards from working, each run on one; empty when nothing does. */
  readonly missing: readonly string[];
}

/** The card that the kernels are tuned for. */
const HOPPER = 90;

export function cudaFacts(): CudaFacts {
  const missing: string[] = [];
  const attempt = <Result>(ask: () => Result): Result | null => {
    try {
      return ask();
    } catch (error) {
      missing.push((error as Error).message);
      return null;
    }
  };
  const driver = attempt(openDriver);
  const count = driver?.deviceCount() ?? 0;
  const cards =
    (driver && attempt(() => Array.from({ length: count }, (_, i) => cardFacts(driver, i)))) ?? [];
  if (driver && count === 0) missing.push("no CUDA card was found");
  for (const { ordinal, name, capability } of cards) {
    if (capability >= OLDEST_CAPABILITY) continue;
    missing.push(
      `cuda:${ordinal} (${name}) has compute capability ${capabilityText(capability)}, expected ${capabilityText(OLDEST_CAPABILITY)} or newer`,
    );
  }
  const usable = cards.find(({ capability }) => capability >= OLDEST_CAPABILITY);
  const files = kernelFiles();
  const compiled = files.filter((file) => builtImage(file, usable?.capability ?? HOPPER) !== null).length;
  const libraries = libraryFacts();
  const needed = {
    cublasLt: true,
    nvrtc: compiled < files.length,
    // Only runs on several cards do.
    nccl: false,
  };
  for (const { name, problem } of libraries) {
    if (problem && name !== "cuda" && needed[name]) missing.push(problem);
  }
  return {
    libraries,
    folders: libraryFolders(),
    driver: driver && versionText(driver.version()),
    cards,
    kernels: { files: files.length, compiled },
    nccl: quietly(() => ncclVersion(openNccl())),
    missing,
  };
}

/** True when a card is there that the kernels run on. Cheap, never throws. */
export function cudaAvailable(): boolean {
  return (
    quietly(() => {
      const driver = openDriver();
      return driver.deviceCount() > 0 && cardFacts(driver, 0).capability >= OLDEST_CAPABILITY;
    }) ?? false
  );
}

function openDriver(): Driver {
  const { handle, path } = openLibrary("cuda");
  return new Driver(rawDriver(handle, path));
}

function quietly<Result>(ask: () => Result): Result | null {
  try {
    return ask();
  } catch {
    return null;
  }
}
