/** The part of WebAssembly used here, typed. TypeScript declares it only together with the DOM. */

export interface SharedMemory {
  readonly buffer: SharedArrayBuffer;
  grow(pages: number): number;
}

/** Compiled code; shared with the worker threads. */
export interface Module {
  readonly kind?: never;
}

interface WebAssemblyApi {
  readonly Memory: new (options: { initial: number; maximum: number; shared: true }) => SharedMemory;
  readonly Module: new (bytes: Uint8Array) => Module;
  readonly Instance: new (
    module: Module,
    imports: { env: { memory: SharedMemory } },
  ) => { readonly exports: object };
  validate(bytes: Uint8Array): boolean;
}

export const wasm = (globalThis as unknown as { WebAssembly: WebAssemblyApi }).WebAssembly;
