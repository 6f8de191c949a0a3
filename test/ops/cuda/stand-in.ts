/**
 * Takes NVIDIA's libraries away from a process, or puts the mock in their place: `node --import` this file, with
 * `STAND_IN` set to `StandIn` as JSON, in front of the command line.
 */
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createMock, type MockOptions } from "../../../src/ops/cuda/mock.ts";

export interface StandIn {
  /** Libraries that are not found: "libcublasLt". */
  readonly missing?: readonly string[];
  /** The mock is libcuda, cuBLASLt, NCCL and NVRTC; `fail` maps calls to return codes. */
  readonly mock?: Omit<MockOptions, "fail" | "sum"> & { readonly fail?: Readonly<Record<string, number>> };
  /** With the mock: the sum of losses number `nan`, counting from 1, is NaN. */
  readonly nan?: number;
  /** With the mock: an empty folder, the same for all processes of a run, over which they sum. */
  readonly sums?: string;
}

// biome-ignore lint/suspicious/noExplicitAny: C functions of many shapes.
type Functions = Record<string, (...args: any[]) => number>;

const koffi = createRequire(import.meta.url)("koffi");
const { load } = koffi;
const { missing = [], mock, nan = 0, sums: folder }: StandIn = JSON.parse(process.env.STAND_IN ?? "{}");
const libraries = mock && standIns();

koffi.load = (path: string, ...rest: unknown[]) => {
  const is = (name: string) => path.includes(`${name}.so`);
  if (missing.some(is)) throw new Error(`${path} was taken away`);
  if (!libraries) return load(path, ...rest);
  const functions = Object.entries(libraries).find(([name]) => is(name))?.[1];
  if (!functions) throw new Error(`${path} has no stand-in`);
  const func = (name: string) => {
    if (!functions[name]) throw new Error(`no ${name}`);
    return functions[name];
  };
  return { func };
};

function standIns(): Record<string, Functions> {
  const { fail = {}, ...options } = mock!;
  const { driver, blas, nccl } = createMock({
    ...options,
    fail: (call) => fail[call] ?? 0,
    ...(folder === undefined ? {} : { sum: sumsOver(folder) }),
  });
  const sums: bigint[] = [];
  let seen = 0;
  const cuda: Functions = {
    ...(driver as unknown as Functions),
    // Eight bytes are read for nothing but a sum of losses.
    cuMemcpyDtoHAsync_v2(to: bigint, from: bigint, bytes: number, stream: bigint) {
      if (bytes === 8 && ++seen === nan) sums.push(to);
      return (driver.cuMemcpyDtoHAsync_v2 as Functions[string])(to, from, bytes, stream);
    },
    cuEventSynchronize(event: bigint) {
      const code = (driver.cuEventSynchronize as Functions[string])(event);
      for (const address of sums) new Float64Array(koffi.view(address, 8))[0] = Number.NaN;
      return code;
    },
  };
  const nvrtc: Functions = {
    nvrtcVersion(major: Int32Array, minor: Int32Array) {
      major[0] = 13;
      minor[0] = 0;
      return 0;
    },
    nvrtcCreateProgram: (program: BigUint64Array) => one(program),
    nvrtcCompileProgram: () => 0,
    nvrtcGetCUBINSize: (_program: bigint, size: BigUint64Array) => one(size),
    nvrtcGetCUBIN: () => 0,
    nvrtcGetProgramLogSize: (_program: bigint, size: BigUint64Array) => one(size),
    nvrtcGetProgramLog: () => 0,
    nvrtcDestroyProgram: () => 0,
  };
  return {
    libcuda: cuda,
    libcublasLt: blas as unknown as Functions,
    libnccl: nccl as unknown as Functions,
    libnvrtc: nvrtc,
  };
}

/** Sums number 0, 1 ... of all processes, each process leaving its values in a file. */
function sumsOver(folder: string): NonNullable<MockOptions["sum"]> {
  const file = (sum: number, rank: number) => join(folder, `${sum}-${rank}`);
  const own = Number(process.env.RANK);
  let next = 0;
  return (values, processes) => {
    const sum = next++;
    writeFileSync(join(folder, `${own}.tmp`), values);
    renameSync(join(folder, `${own}.tmp`), file(sum, own));
    const files = Array.from({ length: processes }, (_, rank) => file(sum, rank));
    return () => {
      if (!files.every((path) => existsSync(path))) return null;
      const all = new Float32Array(values.length);
      for (const path of files) {
        const part = new Float32Array(Uint8Array.from(readFileSync(path)).buffer);
        for (let i = 0; i < all.length; i++) all[i] += part[i];
      }
      // All have written this one, so all have read the one before.
      rmSync(file(sum - 1, own), { force: true });
      return all;
    };
  };
}

function one(out: BigUint64Array): number {
  out[0] = 1n;
  return 0;
}
