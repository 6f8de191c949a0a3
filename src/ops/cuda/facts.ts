/** What `doctor` says of CUDA. Never throws. */
import { type CardFacts, capabilityText, cardFacts, OLDEST_CAPABILITY } from "./device.ts";
import { Driver, rawDriver, versionText } from "./driver.ts";
import { findHeaders, type LibraryFact, libraryFacts, openLibrary } from "./library.ts";

export interface CudaFacts {
  readonly libraries: readonly LibraryFact[];
  /** Folder of CUDA's headers, for compiling kernels at first use; null when there is none. */
  readonly headers: string | null;
  /** The CUDA version that the driver supports, "13.0"; null without a driver that starts. */
  readonly driver: string | null;
  readonly cards: readonly CardFacts[];
  /** Sentences: what is missing, and for what. */
  readonly missing: readonly string[];
}

export function cudaFacts(): CudaFacts {
  const libraries = libraryFacts();
  const missing = libraries.flatMap(({ problem }) => (problem ? [problem] : []));
  const attempt = <Result>(ask: () => Result): Result | null => {
    try {
      return ask();
    } catch (error) {
      missing.push((error as Error).message);
      return null;
    }
  };
  const headers = attempt(findHeaders);
  if (libraries[0].problem) return { libraries, headers, driver: null, cards: [], missing };
  const driver = attempt(openDriver);
  if (!driver) return { libraries, headers, driver: null, cards: [], missing };
  const cards =
    attempt(() => Array.from({ length: driver.deviceCount() }, (_, i) => cardFacts(driver, i))) ?? [];
  if (cards.length === 0) missing.push("no CUDA card was found; --device cuda needs one");
  for (const { ordinal, name, capability } of cards) {
    if (capability >= OLDEST_CAPABILITY) continue;
    missing.push(
      `cuda:${ordinal} (${name}) has compute capability ${capabilityText(capability)}, expected ${capabilityText(OLDEST_CAPABILITY)} or newer`,
    );
  }
  return { libraries, headers, driver: versionText(driver.version()), cards, missing };
}

/** True when a card is there that the kernels run on. Cheap, never throws. */
export function cudaAvailable(): boolean {
  try {
    const driver = openDriver();
    return driver.deviceCount() > 0 && cardFacts(driver, 0).capability >= OLDEST_CAPABILITY;
  } catch {
    return false;
  }
}

function openDriver(): Driver {
  const { handle, path } = openLibrary("cuda");
  return new Driver(rawDriver(handle, path));
}
