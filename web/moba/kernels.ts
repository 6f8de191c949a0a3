/** The kernels inside the page: a page opened from disk has nowhere to load them from. */
import inlined from "../../build/cpu-alone.wasm?inline";

export function bytesOf(base64: string): Uint8Array {
  const binary = atob(base64);
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

export const kernels = (): Uint8Array => bytesOf(inlined.slice(inlined.indexOf(",") + 1));
