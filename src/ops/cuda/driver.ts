/**
 * The driver API (libcuda) as typed functions. Every return code is checked and becomes a sentence: `InputError`
 * where the environment lacks something, `RunError` where started work failed.
 *
 * The raw functions come from koffi or from mock.ts. Handles and device addresses are BigInt.
 */
import type { LibraryHandle } from "koffi";
import { InputError, RunError } from "../../errors.ts";
import { ffi } from "./ffi.ts";
import { bytesText } from "./text.ts";

/** Every libcuda function used, with its C parameters: p a host pointer, h a handle or device address, u/i 32 bits, n a size. */
export const DRIVER_FUNCTIONS = {
  cuInit: "u",
  cuDriverGetVersion: "p",
  cuGetErrorName: "ip",
  cuGetErrorString: "ip",
  cuDeviceGetCount: "p",
  cuDeviceGet: "pi",
  cuDeviceGetName: "pii",
  cuDeviceGetAttribute: "pii",
  cuDeviceTotalMem_v2: "pi",
  cuDevicePrimaryCtxRetain: "pi",
  cuDevicePrimaryCtxRelease_v2: "i",
  cuCtxSetCurrent: "h",
  cuMemGetInfo_v2: "pp",
  cuMemAlloc_v2: "pn",
  cuMemFree_v2: "h",
  cuMemHostAlloc: "pnu",
  cuMemFreeHost: "h",
  cuMemcpyHtoDAsync_v2: "hhnh",
  cuMemcpyDtoHAsync_v2: "hhnh",
  cuMemcpyDtoDAsync_v2: "hhnh",
  cuMemsetD8Async: "hbnh",
  cuStreamCreate: "pu",
  cuStreamDestroy_v2: "h",
  cuStreamSynchronize: "h",
  cuStreamQuery: "h",
  cuStreamWaitEvent: "hhu",
  cuEventCreate: "pu",
  cuEventDestroy_v2: "h",
  cuEventRecord: "hh",
  cuEventSynchronize: "h",
  cuEventQuery: "h",
  cuModuleLoadData: "pp",
  cuModuleUnload: "h",
  cuModuleGetFunction: "php",
  cuFuncGetAttribute: "pih",
  cuFuncSetAttribute: "hii",
  cuLaunchKernel: "huuuuuuuhhh",
  cuStreamBeginCapture_v2: "hi",
  cuStreamEndCapture: "hp",
  cuGraphInstantiateWithFlags: "phh",
  cuGraphLaunch: "hh",
  cuGraphDestroy: "h",
  cuGraphExecDestroy: "h",
} as const;

/** Functions that older drivers lack; null where missing. */
export const OPTIONAL_FUNCTIONS = {
  cuFuncGetParamInfo: "hnpp",
  cuFuncLoad: "h",
  cuTensorMapEncodeTiled: "piuhppppiiii",
} as const;

export type Raw = (...args: (number | bigint | ArrayBufferView | null)[]) => number;
export type RawDriver = Readonly<
  Record<keyof typeof DRIVER_FUNCTIONS, Raw> & Record<keyof typeof OPTIONAL_FUNCTIONS, Raw | null>
>;

const C_TYPES: Readonly<Record<string, string>> = {
  p: "void *",
  h: "uint64_t",
  u: "uint32_t",
  i: "int32_t",
  b: "uint8_t",
  n: "size_t",
};

/** Binds functions of a library. Throws `InputError` naming one that it lacks. */
export function bindFunctions<Name extends string>(
  library: LibraryHandle,
  path: string,
  functions: Readonly<Record<Name, string>>,
): Record<Name, Raw> {
  const bound = Object.entries<string>(functions).map(([name, letters]) => {
    const f = bindFunction(library, name, letters);
    if (!f)
      throw new InputError(`${path} is too old: it has no ${name}, expected that of CUDA 12.0 or newer`);
    return [name, f] as const;
  });
  return Object.fromEntries(bound) as Record<Name, Raw>;
}

function bindFunction(library: LibraryHandle, name: string, letters: string): Raw | null {
  const parameters = [...letters].map((letter) => C_TYPES[letter]);
  try {
    return library.func(name, "int32_t", parameters) as unknown as Raw;
  } catch {
    return null;
  }
}

/** The functions of an opened libcuda. */
export function rawDriver(library: LibraryHandle, path: string): RawDriver {
  const optional = Object.entries(OPTIONAL_FUNCTIONS).map(([name, letters]) => [
    name,
    bindFunction(library, name, letters),
  ]);
  return { ...bindFunctions(library, path, DRIVER_FUNCTIONS), ...Object.fromEntries(optional) };
}

/** The oldest driver that runs what is compiled here: CUDA 12.0. */
const OLDEST = 12000;

/** CUDA_ERROR_INVALID_VALUE, of `cuFuncGetParamInfo`. */
const PAST_THE_LAST = 1;
const OUT_OF_MEMORY = 2;
const NOT_FOUND = 500;
const NOT_READY = 600;
const NO_IMAGE = new Set([200, 209, 218, 222]);

export const DeviceAttribute = {
  multiprocessors: 16,
  l2Bytes: 38,
  major: 75,
  minor: 76,
  sharedBytesPerBlock: 97,
} as const;

export const FunctionAttribute = { staticSharedBytes: 1, dynamicSharedBytes: 8 } as const;

const NON_BLOCKING = 1;
// cuBLASLt may load a kernel of its own while operations are recorded, which the stricter modes forbid.
const CAPTURE_RELAXED = 2;
const EVENT_NO_TIMING = 2;

export class Driver {
  readonly raw: RawDriver;
  // Outputs land here: memory of its own that no collection moves.
  readonly #out = new ArrayBuffer(64);
  readonly #out64 = new BigUint64Array(this.#out);
  readonly #out32 = new Int32Array(this.#out);

  /** Initialises the driver. Throws `InputError` when it cannot run or is too old. */
  constructor(raw: RawDriver) {
    this.raw = raw;
    const code = raw.cuInit(0);
    if (code !== 0 && code !== 100) {
      throw new InputError(`the CUDA driver does not start: ${this.describe(code)}`);
    }
    const version = this.version();
    if (version < OLDEST) {
      throw new InputError(
        `the CUDA driver supports CUDA ${versionText(version)}, expected ${versionText(OLDEST)} or newer`,
      );
    }
  }

  /** 13000 for CUDA 13.0. */
  version(): number {
    this.check(this.raw.cuDriverGetVersion(this.#out32), "asking for the driver's version");
    return this.#out32[0];
  }

  /** "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)". */
  describe(code: number): string {
    const text = (ask: Raw) =>
      ask(code, this.#out64) === 0 && this.#out64[0] !== 0n ? ffi().decode.string(this.#out64[0]) : null;
    const name = text(this.raw.cuGetErrorName) ?? `CUDA error ${code}`;
    const meaning = text(this.raw.cuGetErrorString);
    return meaning ? `${name} (${meaning})` : name;
  }

  /** Throws `RunError`: "<what> failed: <name> (<meaning>)". */
  check(code: number, what: string): void {
    if (code !== 0) throw new RunError(`${what} failed: ${this.describe(code)}`);
  }

  // --- devices ----------------------------------------------------------------------------------------------------

  deviceCount(): number {
    const code = this.raw.cuDeviceGetCount(this.#out32);
    return code === 0 ? this.#out32[0] : 0;
  }

  deviceGet(ordinal: number): number {
    this.check(this.raw.cuDeviceGet(this.#out32, ordinal), `opening CUDA device ${ordinal}`);
    return this.#out32[0];
  }

  deviceName(device: number): string {
    const name = Buffer.from(new ArrayBuffer(256));
    this.check(this.raw.cuDeviceGetName(name, name.length, device), "asking for the card's name");
    return name.toString("utf8", 0, name.indexOf(0));
  }

  deviceAttribute(device: number, attribute: number): number {
    this.check(
      this.raw.cuDeviceGetAttribute(this.#out32, attribute, device),
      `asking for device attribute ${attribute}`,
    );
    return this.#out32[0];
  }

  totalBytes(device: number): number {
    this.check(this.raw.cuDeviceTotalMem_v2(this.#out64, device), "asking for the card's memory");
    return Number(this.#out64[0]);
  }

  retainContext(device: number): bigint {
    const code = this.raw.cuDevicePrimaryCtxRetain(this.#out64, device);
    if (code !== 0) {
      throw new InputError(
        `the card cannot be opened: ${this.describe(code)} (is another process holding it?)`,
      );
    }
    return this.#out64[0];
  }

  releaseContext(device: number): void {
    this.raw.cuDevicePrimaryCtxRelease_v2(device);
  }

  setContext(context: bigint): void {
    this.check(this.raw.cuCtxSetCurrent(context), "choosing the card");
  }

  // --- memory -----------------------------------------------------------------------------------------------------

  freeBytes(): number {
    const total = new BigUint64Array(this.#out, 8, 1);
    return this.raw.cuMemGetInfo_v2(this.#out64, total) === 0 ? Number(this.#out64[0]) : 0;
  }

  /** Throws `RunError` saying what was asked for (`what`) and what is free. */
  allocate(bytes: number, what: string): bigint {
    const code = this.raw.cuMemAlloc_v2(this.#out64, bytes);
    if (code === OUT_OF_MEMORY) {
      throw new RunError(
        `out of memory on the card: ${what} (${bytesText(bytes)}) was asked for, ${bytesText(this.freeBytes())} are free`,
      );
    }
    this.check(code, `allocating ${what} (${bytesText(bytes)})`);
    return this.#out64[0];
  }

  free(pointer: bigint): void {
    this.raw.cuMemFree_v2(pointer);
  }

  /** Page-locked host memory. */
  allocatePinned(bytes: number): bigint {
    const code = this.raw.cuMemHostAlloc(this.#out64, bytes, 0);
    if (code === OUT_OF_MEMORY) {
      throw new RunError(`out of page-locked host memory: ${bytesText(bytes)} were asked for`);
    }
    this.check(code, `allocating ${bytesText(bytes)} of page-locked host memory`);
    return this.#out64[0];
  }

  freePinned(pointer: bigint): void {
    this.raw.cuMemFreeHost(pointer);
  }

  copyToDevice(device: bigint, host: bigint, bytes: number, stream: bigint): void {
    this.check(this.raw.cuMemcpyHtoDAsync_v2(device, host, bytes, stream), "copying to the card");
  }

  copyToHost(host: bigint, device: bigint, bytes: number, stream: bigint): void {
    this.check(this.raw.cuMemcpyDtoHAsync_v2(host, device, bytes, stream), "copying from the card");
  }

  copyOnDevice(out: bigint, source: bigint, bytes: number, stream: bigint): void {
    this.check(this.raw.cuMemcpyDtoDAsync_v2(out, source, bytes, stream), "copying on the card");
  }

  zero(pointer: bigint, bytes: number, stream: bigint): void {
    this.check(this.raw.cuMemsetD8Async(pointer, 0, bytes, stream), "zeroing memory of the card");
  }

  // --- streams and events -----------------------------------------------------------------------------------------

  createStream(): bigint {
    this.check(this.raw.cuStreamCreate(this.#out64, NON_BLOCKING), "making a stream");
    return this.#out64[0];
  }

  /** An error here is usually that of an earlier, asynchronous operation. */
  synchronizeStream(stream: bigint): void {
    this.check(this.raw.cuStreamSynchronize(stream), "an operation enqueued earlier on the card");
  }

  /** Whether all that was enqueued is done. Throws as `synchronizeStream` does. */
  streamDone(stream: bigint): boolean {
    return this.#done(this.raw.cuStreamQuery(stream));
  }

  #done(code: number): boolean {
    if (code !== NOT_READY) this.check(code, "an operation enqueued earlier on the card");
    return code === 0;
  }

  /** What is enqueued on the stream from here on comes after the event as it was last recorded. */
  waitEvent(stream: bigint, event: bigint): void {
    this.check(this.raw.cuStreamWaitEvent(stream, event, 0), "ordering two streams");
  }

  destroyStream(stream: bigint): void {
    this.raw.cuStreamDestroy_v2(stream);
  }

  /** For ordering only, without a time. */
  createEvent(): bigint {
    this.check(this.raw.cuEventCreate(this.#out64, EVENT_NO_TIMING), "making an event");
    return this.#out64[0];
  }

  recordEvent(event: bigint, stream: bigint): void {
    this.check(this.raw.cuEventRecord(event, stream), "recording an event");
  }

  synchronizeEvent(event: bigint): void {
    this.check(this.raw.cuEventSynchronize(event), "an operation enqueued earlier on the card");
  }

  eventDone(event: bigint): boolean {
    return this.#done(this.raw.cuEventQuery(event));
  }

  destroyEvent(event: bigint): void {
    this.raw.cuEventDestroy_v2(event);
  }

  // --- modules and kernels ----------------------------------------------------------------------------------------

  /** `image` is a cubin or PTX text ending in a zero byte. `what` names it in errors. */
  loadModule(image: Uint8Array, what: string): bigint {
    const code = this.raw.cuModuleLoadData(this.#out64, image);
    if (NO_IMAGE.has(code)) {
      throw new InputError(
        `${what} does not run on this card with this driver (CUDA ${versionText(this.version())}): ${this.describe(code)}`,
      );
    }
    this.check(code, `loading ${what}`);
    return this.#out64[0];
  }

  unloadModule(module: bigint): void {
    this.raw.cuModuleUnload(module);
  }

  /** Null when the module has no such kernel. */
  getFunction(module: bigint, name: string): bigint | null {
    const code = this.raw.cuModuleGetFunction(this.#out64, module, Buffer.from(`${name}\0`));
    if (code === NOT_FOUND) return null;
    this.check(code, `looking up the kernel ${name}`);
    const f = this.#out64[0];
    // Otherwise loaded at its first launch, which may be while operations are recorded.
    if (this.raw.cuFuncLoad) this.check(this.raw.cuFuncLoad(f), `loading the kernel ${name}`);
    return f;
  }

  functionAttribute(f: bigint, attribute: number): number {
    this.check(this.raw.cuFuncGetAttribute(this.#out32, attribute, f), "asking for a kernel's attribute");
    return this.#out32[0];
  }

  setFunctionAttribute(f: bigint, attribute: number, value: number, what: string): void {
    this.check(this.raw.cuFuncSetAttribute(f, attribute, value), what);
  }

  /** Bytes of each parameter of a kernel; null when the driver cannot say (before CUDA 12.4). */
  parameterBytes(f: bigint): number[] | null {
    const ask = this.raw.cuFuncGetParamInfo;
    if (!ask) return null;
    const sizes: number[] = [];
    const size = new BigUint64Array(this.#out, 8, 1);
    let code = 0;
    while ((code = ask(f, sizes.length, this.#out64, size)) === 0) sizes.push(Number(size[0]));
    if (code !== PAST_THE_LAST) return null;
    return sizes;
  }

  // --- graphs -----------------------------------------------------------------------------------------------------

  beginCapture(stream: bigint): void {
    this.check(this.raw.cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED), "starting to record operations");
  }

  /** Returns the recorded graph; null when the recording was spoilt. */
  endCapture(stream: bigint): bigint | null {
    return this.raw.cuStreamEndCapture(stream, this.#out64) === 0 ? this.#out64[0] : null;
  }

  /** An executable graph. The graph itself is destroyed. */
  instantiate(graph: bigint): bigint {
    const code = this.raw.cuGraphInstantiateWithFlags(this.#out64, graph, 0n);
    const executable = this.#out64[0];
    this.destroyGraph(graph);
    this.check(code, "preparing recorded operations");
    return executable;
  }

  launchGraph(executable: bigint, stream: bigint): void {
    this.check(this.raw.cuGraphLaunch(executable, stream), "replaying recorded operations");
  }

  destroyGraph(graph: bigint): void {
    this.raw.cuGraphDestroy(graph);
  }

  destroyExecutable(executable: bigint): void {
    this.raw.cuGraphExecDestroy(executable);
  }
}

/** "13.0" of 13000. */
export function versionText(version: number): string {
  return `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
}
