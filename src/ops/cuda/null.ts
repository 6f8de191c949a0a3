/**
 * The null device: the CUDA backend without a card. Nothing is computed and reads give zeros, but memory is counted,
 * arguments are checked against the compiled kernels (where `npm run build:cuda` has been run) and launches are
 * recorded. It shows what a run would need and what its host code costs.
 */
import type { Backend } from "../contract.ts";
import { builtImage } from "./compile.ts";
import { assemble, type CudaOptions } from "./index.ts";
import { createMock, type Mock, type MockOptions } from "./mock.ts";

export interface NullBackend extends Backend {
  readonly mock: Mock;
}

/** By default an H200. Throws as `createCudaBackend` does. */
export function createNullBackend(options: MockOptions & Pick<CudaOptions, "hopper"> = {}): NullBackend {
  const mock = createMock({ stored: false, ...options });
  const images = (file: string, capability: number) => builtImage(file, capability) ?? new Uint8Array(1);
  return {
    ...assemble(mock.driver, () => mock.blas, images, 0, undefined, options.hopper),
    name: "null",
    mock,
  };
}
