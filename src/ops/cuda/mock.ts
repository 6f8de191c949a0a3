/**
 * A mock of libcuda, cuBLASLt and NCCL: no card, no results, but the same rules. Work enqueued on a stream is done when
 * someone waits for it, as late as a real card might; memory, launches and products are checked and logged; and any
 * call can be told to fail.
 */
import { BLAS_FUNCTIONS, type RawBlas } from "./blas.ts";
import { NCCL_FUNCTIONS, type RawNccl } from "./collectives.ts";
import { DRIVER_FUNCTIONS, type RawDriver } from "./driver.ts";
import { type CompiledKernel, compiledKernels } from "./elf.ts";
import { ffi } from "./ffi.ts";

export interface MockOptions {
  /** Default 1. */
  readonly cards?: number;
  readonly name?: string;
  /** 10 * major + minor. Default 90. */
  readonly capability?: number;
  readonly totalBytes?: number;
  /** Default 13000. */
  readonly driverVersion?: number;
  /** False: writes are dropped and reads give zeros, so that memory of any size can be planned. Default true. */
  readonly stored?: boolean;
  /**
   * Begins the sum of values over processes; what it returns gives it, null as long as other processes have not
   * come. By default the others hold the same values.
   */
  readonly sum?: (values: Float32Array, processes: number) => () => Float32Array | null;
  /** A return code for a call, or 0 to let it through. */
  readonly fail?: (call: string) => number;
}

export interface MockLaunch {
  readonly kernel: string;
  readonly grid: readonly number[];
  readonly block: readonly number[];
  readonly sharedBytes: number;
  /** The bytes of each argument; empty where the compiled kernel is not known. */
  readonly args: readonly Uint8Array[];
}

export interface Mock {
  readonly driver: RawDriver;
  readonly blas: RawBlas;
  readonly nccl: RawNccl;
  /** Names of the calls in order. Empty it at will. */
  readonly calls: string[];
  /** Kernels that have been enqueued or recorded. */
  readonly launches: MockLaunch[];
  /** Bytes of device memory allocated now. */
  allocatedBytes(): number;
}

const INVALID_VALUE = 1;
const OUT_OF_MEMORY = 2;
const NO_DEVICE = 100;
const INVALID_DEVICE = 101;
const INVALID_HANDLE = 400;
const NOT_FOUND = 500;
const NOT_READY = 600;
const NOT_SUPPORTED = 801;
const CAPTURE_UNJOINED = 904;
const CAPTURE_ISOLATION = 905;

const ERROR_NAMES: Readonly<Record<number, readonly [name: string, meaning: string]>> = {
  1: ["CUDA_ERROR_INVALID_VALUE", "invalid argument"],
  2: ["CUDA_ERROR_OUT_OF_MEMORY", "out of memory"],
  100: ["CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"],
  101: ["CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"],
  209: ["CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"],
  400: ["CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"],
  500: ["CUDA_ERROR_NOT_FOUND", "named symbol not found"],
  700: ["CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"],
  801: ["CUDA_ERROR_NOT_SUPPORTED", "operation not supported"],
};

const ALLOCATION_ALIGNMENT = 512n;
const SHARED_BYTES = 227 * 1024;

/** Done when it has been called, unless it gives `WAITING`: then it is to be called again. */
type Work = () => unknown;
const WAITING = Symbol("waiting");
/** Work that is done between two questions whether all is. */
const WORK_PER_QUERY = 50;
const NEVER = new Int32Array(new SharedArrayBuffer(4));

interface Allocation {
  readonly start: bigint;
  readonly bytes: number;
  /** Made when something is first stored. */
  data: Uint8Array | null;
}

interface MockFunction {
  readonly kernel: string;
  readonly compiled: CompiledKernel | null;
  sharedBytes: number;
}

interface MockStream {
  queue: Work[];
  /** While it records; streams that wait for an event of a recording stream record into the same list. */
  recorded: Work[] | null;
  /** How much was ever enqueued, and how much of it the stream that records waits for. */
  enqueued: number;
  joined: number;
}

interface MockEvent {
  /** Of its last record. */
  mark: { happened: boolean };
  recorded: Work[] | null;
  stream: MockStream | null;
  enqueued: number;
}

/** For tests, and for null.ts. */
export function createMock(options: MockOptions = {}): Mock {
  const totalBytes = options.totalBytes ?? 143_771 * 2 ** 20;
  const capability = options.capability ?? 90;
  const stored = options.stored ?? true;
  const sum =
    options.sum ?? ((values, processes) => () => Float32Array.from(values, (value) => processes * value));
  const calls: string[] = [];
  const launches: MockLaunch[] = [];
  const texts = new Map<string, Buffer>();
  const allocations = new Map<bigint, Allocation>();
  const objects = new Map<bigint, unknown>();
  let allocated = 0;
  let nextPointer = 0x7f00_0000_0000n;
  let nextHandle = 1n;

  const make = (object: unknown): bigint => {
    objects.set(nextHandle, object);
    return nextHandle++;
  };
  const set = (out: unknown, value: number | bigint) => {
    if (out instanceof BigUint64Array) out[0] = BigInt(value);
    else (out as Int32Array)[0] = Number(value);
    return 0;
  };
  const setText = (out: unknown, text: string) => {
    let buffer = texts.get(text);
    if (!buffer) texts.set(text, (buffer = Buffer.from(new TextEncoder().encode(`${text}\0`).buffer)));
    return set(out, ffi().address(buffer.buffer));
  };
  /** The bytes at a device address; null when they are not all inside one allocation. */
  const find = (pointer: bigint, bytes: number): { allocation: Allocation; at: number } | null => {
    for (const allocation of allocations.values()) {
      const at = Number(pointer - allocation.start);
      if (at >= 0 && at < allocation.bytes) return at + bytes <= allocation.bytes ? { allocation, at } : null;
    }
    return null;
  };
  const load = (pointer: bigint, bytes: number): Uint8Array => {
    const { allocation, at } = find(pointer, bytes)!;
    return allocation.data?.slice(at, at + bytes) ?? new Uint8Array(bytes);
  };
  const store = (pointer: bigint, values: Uint8Array) => {
    if (!stored) return;
    const { allocation, at } = find(pointer, values.length)!;
    allocation.data ??= new Uint8Array(allocation.bytes);
    allocation.data.set(values, at);
  };
  const host = (address: bigint, bytes: number) => new Uint8Array(ffi().view(address, bytes));
  const enqueue = (handle: bigint, work: Work): number => {
    const stream = objects.get(handle) as MockStream | undefined;
    if (!stream?.queue) return INVALID_HANDLE;
    (stream.recorded ?? stream.queue).push(work);
    stream.enqueued++;
    return 0;
  };
  /** False when some of it waits for other processes. */
  const drain = (stream: MockStream, until: () => boolean = () => false): boolean => {
    while (stream.queue.length > 0 && !until()) {
      if (stream.queue[0]() === WAITING) return false;
      stream.queue.shift();
    }
    return true;
  };
  const query = (stream: MockStream | null, until?: () => boolean): number => {
    if (!stream || stream.queue.length === 0 || until?.()) return 0;
    let left = WORK_PER_QUERY;
    drain(stream, () => left-- === 0 || (until?.() ?? false));
    return NOT_READY;
  };
  const streams = () =>
    [...objects.values()].filter((object) => (object as MockStream).queue) as MockStream[];

  const happened = ({ mark, stream }: Pick<MockEvent, "mark" | "stream">): boolean =>
    stream === null || drain(stream, () => mark.happened);
  const waitFor = (done: () => boolean) => {
    while (!done()) Atomics.wait(NEVER, 0, 0, 1);
  };

  // biome-ignore lint/suspicious/noExplicitAny: C functions of many shapes.
  const driver: Record<keyof RawDriver, (...args: any[]) => number> = {
    cuInit: () => (options.cards === 0 ? NO_DEVICE : 0),
    cuDriverGetVersion: (out) => set(out, options.driverVersion ?? 13000),
    cuGetErrorName: (code, out) => (ERROR_NAMES[code] ? setText(out, ERROR_NAMES[code][0]) : INVALID_VALUE),
    cuGetErrorString: (code, out) => (ERROR_NAMES[code] ? setText(out, ERROR_NAMES[code][1]) : INVALID_VALUE),
    cuDeviceGetCount: (out) => set(out, options.cards ?? 1),
    cuDeviceGet: (out, ordinal) => (ordinal < (options.cards ?? 1) ? set(out, ordinal) : INVALID_DEVICE),
    cuDeviceGetName(out, length) {
      const text = new TextEncoder().encode((options.name ?? "NVIDIA H200").slice(0, length - 1));
      (out as Uint8Array).fill(0);
      (out as Uint8Array).set(text);
      return 0;
    },
    cuDeviceGetAttribute(out, attribute) {
      const values: Record<number, number> = {
        16: 132,
        38: 60 << 20,
        75: Math.floor(capability / 10),
        76: capability % 10,
        97: SHARED_BYTES,
      };
      return attribute in values ? set(out, values[attribute]) : INVALID_VALUE;
    },
    cuDeviceTotalMem_v2: (out) => set(out, totalBytes),
    cuDevicePrimaryCtxRetain: (out) => set(out, make({})),
    cuDevicePrimaryCtxRelease_v2: () => 0,
    cuCtxSetCurrent: () => 0,
    cuMemGetInfo_v2(free, total) {
      set(free, totalBytes - allocated);
      return set(total, totalBytes);
    },
    cuMemAlloc_v2(out, bytes) {
      if (!(bytes > 0)) return INVALID_VALUE;
      if (allocated + bytes > totalBytes) return OUT_OF_MEMORY;
      allocations.set(nextPointer, { start: nextPointer, bytes, data: null });
      allocated += bytes;
      set(out, nextPointer);
      const end = nextPointer + BigInt(bytes) + ALLOCATION_ALIGNMENT;
      nextPointer = end - (end % ALLOCATION_ALIGNMENT);
      return 0;
    },
    cuMemFree_v2(pointer) {
      const allocation = allocations.get(pointer);
      if (!allocation) return INVALID_VALUE;
      allocated -= allocation.bytes;
      allocations.delete(pointer);
      return 0;
    },
    cuMemHostAlloc(out, bytes) {
      // Kept, so that its address stays good.
      const buffer = new ArrayBuffer(bytes);
      const address = ffi().address(buffer);
      objects.set(address, buffer);
      return set(out, address);
    },
    cuMemFreeHost: (address) => (objects.delete(address) ? 0 : INVALID_VALUE),
    cuMemcpyHtoDAsync_v2(to, from, bytes, stream) {
      if (!find(to, bytes)) return INVALID_VALUE;
      return enqueue(stream, () => stored && store(to, host(from, bytes)));
    },
    cuMemcpyDtoHAsync_v2(to, from, bytes, stream) {
      if (!find(from, bytes)) return INVALID_VALUE;
      return enqueue(stream, () => host(to, bytes).set(load(from, bytes)));
    },
    cuMemcpyDtoDAsync_v2(to, from, bytes, stream) {
      if (!find(to, bytes) || !find(from, bytes)) return INVALID_VALUE;
      return enqueue(stream, () => store(to, load(from, bytes)));
    },
    cuMemsetD8Async(to, value, bytes, stream) {
      const place = find(to, bytes);
      if (!place) return INVALID_VALUE;
      return enqueue(stream, () => {
        if (place.allocation.data || value !== 0) store(to, new Uint8Array(bytes).fill(value));
      });
    },
    cuStreamCreate: (out) =>
      set(out, make({ queue: [], recorded: null, enqueued: 0, joined: 0 } satisfies MockStream)),
    cuStreamDestroy_v2: (stream) => (objects.delete(stream) ? 0 : INVALID_HANDLE),
    cuStreamSynchronize(handle) {
      const stream = objects.get(handle) as MockStream;
      if (stream.recorded) return 900;
      waitFor(() => drain(stream));
      return 0;
    },
    cuStreamQuery: (handle) => query(objects.get(handle) as MockStream),
    cuStreamWaitEvent(handle, which) {
      const stream = objects.get(handle) as MockStream;
      const { mark, recorded, stream: other, enqueued } = objects.get(which) as MockEvent;
      if (recorded === null) {
        if (stream.recorded) return CAPTURE_ISOLATION;
        return enqueue(handle, () => (happened({ mark, stream: other }) ? null : WAITING));
      }
      if (stream.recorded === null) stream.joined = stream.enqueued;
      stream.recorded ??= recorded;
      other!.joined = enqueued;
      return 0;
    },
    cuEventCreate: (out) =>
      set(
        out,
        make({ mark: { happened: true }, recorded: null, stream: null, enqueued: 0 } satisfies MockEvent),
      ),
    cuEventDestroy_v2: (event) => (objects.delete(event) ? 0 : INVALID_HANDLE),
    cuEventRecord(handle, on) {
      const event = objects.get(handle) as MockEvent | undefined;
      const stream = objects.get(on) as MockStream | undefined;
      if (!event || !stream?.queue) return INVALID_HANDLE;
      const mark = { happened: false };
      enqueue(on, () => {
        mark.happened = true;
      });
      Object.assign(event, { mark, recorded: stream.recorded, stream, enqueued: stream.enqueued });
      return 0;
    },
    cuEventSynchronize(handle) {
      const event = objects.get(handle) as MockEvent | undefined;
      if (!event) return INVALID_HANDLE;
      waitFor(() => happened(event));
      return 0;
    },
    cuEventQuery(handle) {
      const { mark, stream } = objects.get(handle) as MockEvent;
      return query(stream, () => mark.happened);
    },
    cuModuleLoadData: (out, image) => set(out, make({ kernels: compiledKernels(image as Uint8Array) })),
    cuModuleUnload: (module) => (objects.delete(module) ? 0 : INVALID_HANDLE),
    cuModuleGetFunction(out, module, name) {
      const { kernels } = objects.get(module) as { kernels: Map<string, CompiledKernel> | null };
      const kernel = (name as Buffer).toString("latin1", 0, (name as Buffer).indexOf(0));
      if (kernels && !kernels.has(kernel)) return NOT_FOUND;
      const compiled = kernels?.get(kernel) ?? null;
      return set(out, make({ kernel, compiled, sharedBytes: 48 * 1024 } satisfies MockFunction));
    },
    cuFuncLoad: (f) => (objects.has(f) ? 0 : INVALID_HANDLE),
    cuFuncGetAttribute(out, _attribute, f) {
      return set(out, (objects.get(f) as MockFunction).compiled?.staticSharedBytes ?? 0);
    },
    cuFuncSetAttribute(f, _attribute, value) {
      (objects.get(f) as MockFunction).sharedBytes = value;
      return 0;
    },
    cuFuncGetParamInfo(f, i, _offset, size) {
      const { compiled } = objects.get(f) as MockFunction;
      // Without the compiled kernel the mock knows no more than an old driver.
      if (!compiled) return NOT_SUPPORTED;
      return i < compiled.parameterBytes.length ? set(size, compiled.parameterBytes[i]) : INVALID_VALUE;
    },
    cuTensorMapEncodeTiled(map, _type, rank, pointer, sizes, strides, box) {
      const inner = (strides as BigUint64Array).subarray(0, rank - 1);
      const right =
        pointer % 16n === 0n &&
        inner.every((bytes) => bytes > 0n && bytes % 16n === 0n) &&
        (sizes as BigUint64Array).every((n) => n > 0n && n <= 2n ** 32n) &&
        (box as Uint32Array).every((n) => n > 0 && n <= 256);
      if (!right) return INVALID_VALUE;
      new DataView(map.buffer, map.byteOffset).setBigUint64(0, pointer, true);
      return 0;
    },
    cuLaunchKernel(f, gx, gy, gz, bx, by, bz, sharedBytes, stream, table) {
      const known = objects.get(f) as MockFunction | undefined;
      if (!known) return INVALID_HANDLE;
      const { kernel, compiled } = known;
      const threads = bx * by * bz;
      const inRange =
        [gx, gy, gz].every((n, i) => n >= 1 && n <= (i === 0 ? 2 ** 31 - 1 : 65535)) &&
        [bx, by, bz].every((n, i) => n >= 1 && n <= (i === 2 ? 64 : 1024)) &&
        threads <= (compiled?.maxThreads ?? 1024) &&
        sharedBytes <= known.sharedBytes;
      if (!inRange) return INVALID_VALUE;
      const sizes = compiled?.parameterBytes ?? [];
      const addresses = new BigUint64Array(host(table, 8 * Math.max(sizes.length, 1)).slice().buffer);
      const args = sizes.map((bytes, i) => host(addresses[i], bytes).slice());
      launches.push({ kernel, grid: [gx, gy, gz], block: [bx, by, bz], sharedBytes, args });
      return enqueue(stream, () => {});
    },
    cuStreamBeginCapture_v2(handle) {
      (objects.get(handle) as MockStream).recorded = [];
      return 0;
    },
    cuStreamEndCapture(handle, out) {
      const stream = objects.get(handle) as MockStream;
      const { recorded } = stream;
      const all = streams().filter((other) => other.recorded === recorded);
      const open = all.some((other) => other !== stream && other.joined < other.enqueued);
      for (const other of all) other.recorded = null;
      return open ? CAPTURE_UNJOINED : set(out, make(recorded));
    },
    cuGraphInstantiateWithFlags: (out, graph) => set(out, make(objects.get(graph))),
    cuGraphLaunch(graph, stream) {
      for (const work of objects.get(graph) as Work[]) enqueue(stream, work);
      return 0;
    },
    cuGraphDestroy: (graph) => (objects.delete(graph) ? 0 : INVALID_HANDLE),
    cuGraphExecDestroy: (graph) => (objects.delete(graph) ? 0 : INVALID_HANDLE),
  };

  const layouts = new Map<bigint, { type: number; rows: bigint; columns: bigint }>();
  // biome-ignore lint/suspicious/noExplicitAny: C functions of many shapes.
  const blas: Record<keyof RawBlas, (...args: any[]) => number> = {
    cublasLtCreate: (out) => set(out, make({})),
    cublasLtDestroy: (handle) => (objects.delete(handle) ? 0 : 7),
    cublasLtMatmulDescCreate: (out) => set(out, make(new Map<number, number>())),
    cublasLtMatmulDescSetAttribute(object, attribute, value) {
      (objects.get(object) as Map<number, number>).set(attribute, Number((value as BigUint64Array)[0]));
      return 0;
    },
    cublasLtMatrixLayoutCreate(out, type, rows, columns, stride) {
      if (stride < rows) return 7;
      const layout = { type, rows, columns };
      layouts.set(nextHandle, layout);
      return set(out, make(layout));
    },
    cublasLtMatmulPreferenceCreate: (out) => set(out, make({})),
    cublasLtMatmulPreferenceSetAttribute: () => 0,
    cublasLtMatmulPreferenceDestroy: (object) => (objects.delete(object) ? 0 : 7),
    cublasLtMatmulAlgoGetHeuristic(_handle, desc, a, b, c, d, _preference, _wanted, _results, found) {
      const attributes = objects.get(desc) as Map<number, number>;
      const size = (layout: bigint, transposed: number | undefined) => {
        const { rows, columns } = layouts.get(layout)!;
        return transposed ? [columns, rows] : [rows, columns];
      };
      const [m, ka] = size(a, attributes.get(3));
      const [kb, n] = size(b, attributes.get(4));
      const fits = [c, d].every(
        (layout) => layouts.get(layout)!.rows === m && layouts.get(layout)!.columns === n,
      );
      set(found, ka === kb && fits ? 1 : 0);
      return 0;
    },
    cublasLtMatmul(_handle, _desc, _alpha, a, la, b, lb, _beta, c, lc, ...rest) {
      const bytes = (layout: bigint) => {
        const { type, rows, columns } = layouts.get(layout)!;
        return Number(rows * columns) * (type === 0 ? 4 : 2);
      };
      const operands = [
        [a, la],
        [b, lb],
        [c, lc],
      ] as const;
      if (!operands.every(([pointer, layout]) => find(pointer, bytes(layout)))) return 7;
      return enqueue(rest[rest.length - 1], () => {}) === 0 ? 0 : 7;
    },
  };

  // biome-ignore lint/suspicious/noExplicitAny: C functions of many shapes.
  const nccl: Record<Exclude<keyof RawNccl, "ncclGetLastError">, (...args: any[]) => number> = {
    ncclGetVersion: (out) => set(out, 23007),
    ncclGetUniqueId(out) {
      (out as Uint8Array).fill(7);
      return 0;
    },
    ncclCommInitRank: (out, count, { internal }, rank) =>
      rank < count && internal.length === 128 ? set(out, make({ count })) : 4,
    ncclAllReduce(from, to, elements, _type, _operation, communicator, stream) {
      const { count } = objects.get(communicator) as { count: number };
      const bytes = 4 * elements;
      if (!find(from, bytes) || !find(to, bytes)) return 4;
      let poll: (() => Float32Array | null) | null = null;
      return enqueue(stream, () => {
        poll ??= sum(new Float32Array(load(from, bytes).buffer), count);
        const values = poll();
        if (values === null) return WAITING;
        poll = null;
        store(to, new Uint8Array(values.buffer));
      });
    },
    ncclCommGetAsyncError: (_communicator, out) => set(out, options.fail?.("NCCL, later") ?? 0),
    ncclCommDestroy: (communicator) => (objects.delete(communicator) ? 0 : 4),
    ncclCommAbort: (communicator) => (objects.delete(communicator) ? 0 : 4),
  };

  const logged = <Name extends string>(
    functions: Record<Name, (...args: never[]) => number>,
    names: readonly string[],
  ) =>
    Object.fromEntries(
      Object.entries<(...args: never[]) => number>(functions).map(([name, f]) => [
        name,
        (...args: never[]) => {
          if (names.includes(name)) calls.push(name);
          return options.fail?.(name) || f(...args);
        },
      ]),
    ) as Record<Name, (...args: never[]) => number>;

  return {
    driver: logged(driver, [
      ...Object.keys(DRIVER_FUNCTIONS),
      "cuTensorMapEncodeTiled",
    ]) as unknown as RawDriver,
    blas: logged(blas, Object.keys(BLAS_FUNCTIONS)) as unknown as RawBlas,
    nccl: {
      ...(logged(nccl, [...Object.keys(NCCL_FUNCTIONS), "ncclCommInitRank"]) as unknown as RawNccl),
      ncclGetLastError: () => null,
    },
    calls,
    launches,
    allocatedBytes: () => allocated,
  };
}
