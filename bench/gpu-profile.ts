/**
 * The CUDA backend with a stopwatch around everything that it enqueues: events before and after each kernel, product,
 * copy and fill. For plain steps; what is recorded into a graph is not timed.
 */
import type { Backend } from "../src/ops/contract.ts";
import { BLAS_FUNCTIONS, type RawBlas } from "../src/ops/cuda/blas.ts";
import { kernelImage } from "../src/ops/cuda/compile.ts";
import { bindFunctions, type RawDriver, rawDriver } from "../src/ops/cuda/driver.ts";
import { assemble } from "../src/ops/cuda/index.ts";
import { openLibrary } from "../src/ops/cuda/library.ts";

export interface Timing {
  /** The kernel's name, `product [m, n] k`, `copy` or `zero`. */
  readonly name: string;
  calls: number;
  milliseconds: number;
  /** Counted, of all calls; 0 for kernels. */
  operations: number;
  /** Moved by copies and fills. */
  bytes: number;
}

export interface Profiler {
  readonly backend: Backend;
  /** What `run` enqueues, longest first. Does not wait for what was enqueued before, but for that. */
  profile(run: () => void): Timing[];
}

// biome-ignore lint/suspicious/noExplicitAny: C functions of many shapes.
type Raw = (...args: any[]) => number;

export function openProfiler(hopper?: boolean): Profiler {
  const cuda = openLibrary("cuda");
  const blas = openLibrary("cublasLt");
  const elapsed = cuda.handle.func("cuEventElapsedTime", "int32_t", ["void *", "uint64_t", "uint64_t"]);
  return profiler(
    rawDriver(cuda.handle, cuda.path),
    bindFunctions(blas.handle, blas.path, BLAS_FUNCTIONS) as RawBlas,
    elapsed as unknown as Raw,
    kernelImage,
    hopper,
  );
}

/** Over any driver. `elapsed`: cuEventElapsedTime. */
export function profiler(
  driver: RawDriver,
  blas: RawBlas,
  elapsed: Raw,
  images: (file: string, capability: number) => Uint8Array,
  hopper?: boolean,
): Profiler {
  const names = new Map<bigint, string>();
  const layouts = new Map<bigint, { rows: number; columns: number }>();
  const spare: bigint[] = [];
  let taken: { name: string; operations: number; bytes: number; start: bigint; end: bigint }[] | null = null;
  const out = new BigUint64Array(new ArrayBuffer(8));
  const check = (code: number, what: string) => {
    if (code !== 0) throw new Error(`${what} failed with code ${code}`);
  };
  const event = (stream: bigint): bigint => {
    let made = spare.pop();
    if (made === undefined) {
      check(driver.cuEventCreate(out, 0), "making an event");
      made = out[0];
    }
    check(driver.cuEventRecord(made, stream), "recording an event");
    return made;
  };
  const timed = (
    call: Raw,
    streamAt: number,
    factsOf: (args: never[]) => Partial<Timing> & { name: string },
  ) =>
    ((...args: never[]) => {
      if (!taken) return call(...args);
      const { name, operations = 0, bytes = 0 } = factsOf(args);
      const start = event(args[streamAt]);
      const code = call(...args);
      taken.push({ name, operations, bytes, start, end: event(args[streamAt]) });
      return code;
    }) as Raw;

  const watchedDriver = {
    ...driver,
    cuModuleGetFunction(f: BigUint64Array, module: bigint, name: Buffer) {
      const code = driver.cuModuleGetFunction(f, module, name);
      if (code === 0) names.set(f[0], name.toString("latin1").replace(/\0.*$/s, ""));
      return code;
    },
    cuLaunchKernel: timed(driver.cuLaunchKernel, 8, ([f]) => ({ name: names.get(f) ?? "?" })),
    cuMemcpyDtoDAsync_v2: timed(driver.cuMemcpyDtoDAsync_v2, 3, ([, , bytes]) => ({
      ...{ name: "copy", bytes: 2 * bytes },
    })),
    cuMemsetD8Async: timed(driver.cuMemsetD8Async, 3, ([, , bytes]) => ({ name: "zero", bytes })),
  } as unknown as RawDriver;
  const watchedBlas = {
    ...blas,
    cublasLtMatrixLayoutCreate(
      layout: BigUint64Array,
      type: number,
      rows: bigint,
      columns: bigint,
      stride: bigint,
    ) {
      const code = blas.cublasLtMatrixLayoutCreate(layout, type, rows, columns, stride);
      layouts.set(layout[0], { rows: Number(rows), columns: Number(columns) });
      return code;
    },
    // As cuBLASLt sees it: out is [columns, rows] of its layout, and the inner dimension is what is left of a.
    cublasLtMatmul: timed(blas.cublasLtMatmul, 15, (args) => {
      const a = layouts.get(args[4])!;
      const { rows: n, columns: m } = layouts.get(args[11])!;
      const k = (a.rows * a.columns) / n;
      return { name: `product [${m}, ${n}], inner ${k}`, operations: 2 * m * n * k };
    }),
  } as unknown as RawBlas;

  const backend = assemble(watchedDriver, () => watchedBlas, images, 0, undefined, hopper);
  return {
    backend,
    profile(run) {
      taken = [];
      const calls = taken;
      try {
        run();
      } finally {
        taken = null;
      }
      backend.synchronize();
      const by = new Map<string, Timing>();
      const milliseconds = new Float32Array(new ArrayBuffer(4));
      for (const { name, operations, bytes, start, end } of calls) {
        check(elapsed(milliseconds, start, end), "asking for the time between two events");
        const timing = by.get(name) ?? { name, calls: 0, milliseconds: 0, operations: 0, bytes: 0 };
        by.set(name, timing);
        timing.calls++;
        timing.milliseconds += milliseconds[0];
        timing.operations += operations;
        timing.bytes += bytes;
        spare.push(start, end);
      }
      return [...by.values()].sort((a, b) => b.milliseconds - a.milliseconds);
    },
  };
}
