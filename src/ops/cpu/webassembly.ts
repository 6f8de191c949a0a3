/** The part of WebAssembly used here, typed. TypeScript declares it only together with the DOM. */

/** `buffer` is a SharedArrayBuffer when the memory is shared; growing replaces it. */
export interface WasmMemory {
  readonly buffer: ArrayBufferLike;
  grow(pages: number): number;
}

/** Compiled code; worker threads share it. */
export interface Module {
  readonly kind?: never;
}

interface WebAssemblyApi {
  readonly Memory: new (options: { initial: number; maximum: number; shared: boolean }) => WasmMemory;
  readonly Module: new (bytes: Uint8Array) => Module;
  readonly Instance: new (
    module: Module,
    imports: { env: { memory: WasmMemory } },
  ) => { readonly exports: object };
  compile(bytes: Uint8Array): Promise<Module>;
  validate(bytes: Uint8Array): boolean;
}

export const wasm = (globalThis as unknown as { WebAssembly: WebAssemblyApi }).WebAssembly;
