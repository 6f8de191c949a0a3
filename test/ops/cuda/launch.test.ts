/** Launches checked against a kernel that nvcc compiled: names, arguments, limits. Without nvcc they are skipped. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RunError } from "../../../src/errors.ts";
import { CudaTensor, type KernelArg } from "../../../src/ops/cuda/context.ts";
import { Device } from "../../../src/ops/cuda/device.ts";
import { Driver } from "../../../src/ops/cuda/driver.ts";
import { compiledKernels } from "../../../src/ops/cuda/elf.ts";
import { Launcher } from "../../../src/ops/cuda/launch.ts";
import { createMock } from "../../../src/ops/cuda/mock.ts";
import { tensorMaps } from "../../../src/ops/cuda/tensor-map.ts";

const SOURCE = `
struct alignas(64) Map { unsigned char bytes[128]; };
extern "C" __global__ void __launch_bounds__(256)
mixed(float* out, const int* in, long long wide, int n, float scale, double ratio, const __grid_constant__ Map map) {
  __shared__ int part[64];
  part[threadIdx.x % 64] = in[wide];
  __syncthreads();
  out[threadIdx.x] = float(scale * ratio) * part[n] + map.bytes[3];
}
extern "C" __global__ void none() {}
`;

const hasNvcc = spawnSync("nvcc", ["--version"]).status === 0;
if (!hasNvcc) test.skip("nvcc is not on the PATH", () => {});

describe.runIf(hasNvcc)("launching", () => {
  const folder = mkdtempSync(join(tmpdir(), "mobalab-launch-"));
  const cubin = join(folder, "mixed.cubin");
  beforeAll(() => {
    writeFileSync(join(folder, "mixed.cu"), SOURCE);
    const { status, stderr } = spawnSync("nvcc", [
      "-cubin",
      "-arch=sm_80",
      join(folder, "mixed.cu"),
      "-o",
      cubin,
    ]);
    if (status !== 0) throw new Error(stderr.toString());
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  const open = () => {
    const mock = createMock({ capability: 80 });
    const device = new Device(new Driver(mock.driver), 0);
    const launcher = new Launcher(device, () => readFileSync(cubin));
    const launch = (args: readonly KernelArg[], block = 64, sharedBytes = 0, kernel = "file:mixed") =>
      launcher.launch(kernel, [2, 1, 1], [block, 1, 1], sharedBytes, args);
    return { mock, device, launch };
  };
  const tensor = new CudaTensor({}, 0x7f00_1234_5678n, [4], 4, "float");
  const map = new Uint8Array(128).map((_, i) => i);
  const args: KernelArg[] = [
    { ptr: tensor },
    { ptr: null },
    { i64: 2 ** 40 + 3 },
    { i32: -5 },
    { f32: 0.1 },
    { f64: 0.1 },
    { struct: map },
  ];

  test("a cubin's kernels are read: parameters, launch bound, shared memory", () => {
    const kernels = compiledKernels(readFileSync(cubin))!;
    expect([...kernels.keys()].sort()).toEqual(["mixed", "none"]);
    expect(kernels.get("mixed")).toEqual({
      parameterBytes: [8, 8, 8, 4, 4, 8, 128],
      maxThreads: 256,
      staticSharedBytes: 256,
    });
    expect(kernels.get("none")!.parameterBytes).toEqual([]);
    expect(compiledKernels(Buffer.from(".version 8.0"))).toBeNull();
  });

  test("arguments arrive, also when slots are used again", () => {
    const { mock, launch } = open();
    launch([], 32, 0, "file:none");
    launch(args);
    launch([...args.slice(0, 3), { i32: 7 }, ...args.slice(4)]);
    const views = mock.launches.map((l) => l.args.map(({ buffer }) => new DataView(buffer)));
    expect(mock.launches.map(({ kernel }) => kernel)).toEqual(["none", "mixed", "mixed"]);
    const [, [out, input, wide, n, scale, ratio, structure], second] = views;
    expect(out.getBigUint64(0, true)).toBe(0x7f00_1234_5678n);
    expect(input.getBigUint64(0, true)).toBe(0n);
    expect(wide.getBigInt64(0, true)).toBe(2n ** 40n + 3n);
    expect(n.getInt32(0, true)).toBe(-5);
    expect(scale.getFloat32(0, true)).toBe(Math.fround(0.1));
    expect(ratio.getFloat64(0, true)).toBe(0.1);
    expect(new Uint8Array(structure.buffer)).toEqual(map);
    expect(second[3].getInt32(0, true)).toBe(7);
  });

  test("wrong kernels, arguments and limits are refused by name", () => {
    const { launch } = open();
    expect(() => launch(args, 64, 0, "file:other")).toThrow(/file\.cu has no kernel "other"/);
    expect(() => launch(args.slice(1))).toThrow(/file:mixed was given 6 arguments, expected 7/);
    expect(() => launch([...args.slice(0, 3), { i64: 5 }, ...args.slice(4)])).toThrow(
      /argument 3 of file:mixed is i64 \(8 bytes\), expected 4 bytes/,
    );
    expect(() => launch([...args.slice(0, 3), { i32: 2 ** 31 }, ...args.slice(4)])).toThrow(/2147483648/);
    expect(() => launch(args, 512)).toThrow(
      /launching file:mixed \(grid 2x1x1, block 512x1x1, 0 bytes of shared memory\) failed: CUDA_ERROR_INVALID_VALUE/,
    );
    expect(() => launch(args, 64, 227 * 1024)).toThrow(
      new RunError("file:mixed asks for 232448 bytes of shared memory, NVIDIA H200 has 232192 per block"),
    );
    expect(() => launch(args, 64, 200 * 1024)).not.toThrow();
  });

  test("a planned launch loads the kernel and checks its arguments, but enqueues nothing", () => {
    const { mock, device, launch } = open();
    device.mode = "plan";
    launch(args);
    expect(() => launch(args.slice(1))).toThrow(/6 arguments/);
    expect(mock.launches).toEqual([]);
    expect(mock.calls).toContain("cuModuleLoadData");
  });

  test("tensor maps are made once, 64-byte aligned, and refused with their options", () => {
    const { mock, device } = open();
    const make = tensorMaps(device);
    const options = {
      ...{ pointer: 0x7f00_0000_0000n, dtype: "bf16" as const },
      ...{ sizes: [128, 1000], strides: [256], box: [64, 128], swizzle: 128 as const },
    };
    const made = make(options);
    expect(make({ ...options })).toBe(made);
    expect(mock.calls.filter((call) => call === "cuTensorMapEncodeTiled").length).toBe(1);
    expect(made.length).toBe(128);
    expect(() => make({ ...options, strides: [250] })).toThrow(/strides 250/);
  });
});
