/** koffi, loaded when CUDA is first asked for: whoever trains on the CPU needs no native package. */
import { createRequire } from "node:module";
import { InputError } from "../../errors.ts";

type Koffi = typeof import("koffi");

let loaded: Koffi | undefined;

/** Throws `InputError` where koffi has no build for this platform. */
export function ffi(): Koffi {
  try {
    return (loaded ??= createRequire(import.meta.url)("koffi") as Koffi);
  } catch (error) {
    throw new InputError(`the package koffi, needed for CUDA, cannot be loaded: ${(error as Error).message}`);
  }
}
