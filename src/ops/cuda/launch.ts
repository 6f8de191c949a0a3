/**
 * Launching kernels by name. Parameters are packed into one buffer that lives as long as the backend: parameter `i`
 * has a slot of its own there, so the table of slot addresses that the driver wants never changes.
 */
import { RunError } from "../../errors.ts";
import { type Extent, type KernelArg, pointerOf } from "./context.ts";
import type { Device } from "./device.ts";
import { FunctionAttribute } from "./driver.ts";
import { ffi } from "./ffi.ts";

/** Wide enough for a `CUtensorMap`, and a multiple of its alignment of 64. */
const SLOT_BYTES = 128;
const SLOTS = 64;
/** What a block may use without asking, its static shared memory included. */
const PLAIN_SHARED_BYTES = 48 * 1024;

/** The image of a kernel file for a compute capability. */
export type Images = (file: string, capability: number) => Uint8Array;

interface Kernel {
  readonly f: bigint;
  /** Bytes of each parameter; null when the driver cannot say. */
  readonly parameters: readonly number[] | null;
  /** The dynamic shared memory allowed so far. */
  allowed: number;
}

export class Launcher {
  readonly #device: Device;
  readonly #images: Images;
  readonly #modules = new Map<string, bigint>();
  readonly #kernels = new Map<string, Kernel>();
  readonly #slots: ArrayBuffer;
  readonly #table: BigUint64Array;
  readonly #tableAddress: bigint;
  readonly #u64: BigUint64Array;
  readonly #i64: BigInt64Array;
  readonly #i32: Int32Array;
  readonly #f32: Float32Array;
  readonly #f64: Float64Array;
  readonly #bytes: Uint8Array;

  constructor(device: Device, images: Images) {
    this.#device = device;
    this.#images = images;
    // One slot more, to start at a multiple of the slot's size.
    this.#slots = new ArrayBuffer(SLOT_BYTES * (SLOTS + 1));
    const address = ffi().address(this.#slots);
    const skip = Number(-address & BigInt(SLOT_BYTES - 1));
    const [start, bytes] = [address + BigInt(skip), SLOT_BYTES * SLOTS];
    this.#u64 = new BigUint64Array(this.#slots, skip, bytes / 8);
    this.#i64 = new BigInt64Array(this.#slots, skip, bytes / 8);
    this.#i32 = new Int32Array(this.#slots, skip, bytes / 4);
    this.#f32 = new Float32Array(this.#slots, skip, bytes / 4);
    this.#f64 = new Float64Array(this.#slots, skip, bytes / 8);
    this.#bytes = new Uint8Array(this.#slots, skip, bytes);
    this.#table = new BigUint64Array(new ArrayBuffer(8 * SLOTS));
    for (let i = 0; i < SLOTS; i++) this.#table[i] = start + BigInt(SLOT_BYTES * i);
    this.#tableAddress = ffi().address(this.#table.buffer);
  }

  /** Loads or compiles the kernel when it is new. */
  launch(name: string, grid: Extent, block: Extent, sharedBytes: number, args: readonly KernelArg[]): void {
    const { driver, stream } = this.#device;
    this.#device.activate();
    const kernel = this.#kernel(name);
    if (sharedBytes > kernel.allowed) this.#allow(kernel, name, sharedBytes);
    this.#pack(kernel, name, args);
    if (this.#device.mode === "plan") return;
    const { f } = kernel;
    const code = driver.raw.cuLaunchKernel(f, ...grid, ...block, sharedBytes, stream, this.#tableAddress, 0n);
    if (code !== 0) {
      driver.check(
        code,
        `launching ${name} (grid ${grid.join("x")}, block ${block.join("x")}, ${sharedBytes} bytes of shared memory)`,
      );
    }
  }

  #kernel(name: string): Kernel {
    const known = this.#kernels.get(name);
    if (known) return known;
    const { driver, card } = this.#device;
    const [file, entry] = name.split(":");
    let module = this.#modules.get(file);
    if (module === undefined) {
      module = driver.loadModule(this.#images(file, card.capability), `the kernel file ${file}.cu`);
      this.#modules.set(file, module);
    }
    const f = driver.getFunction(module, entry);
    if (f === null) throw new RangeError(`launch: ${file}.cu has no kernel "${entry}"`);
    const allowed = PLAIN_SHARED_BYTES - driver.functionAttribute(f, FunctionAttribute.staticSharedBytes);
    const kernel: Kernel = { f, parameters: driver.parameterBytes(f), allowed };
    this.#kernels.set(name, kernel);
    return kernel;
  }

  #allow(kernel: Kernel, name: string, sharedBytes: number): void {
    const { driver, card } = this.#device;
    const most = card.sharedBytes - driver.functionAttribute(kernel.f, FunctionAttribute.staticSharedBytes);
    if (sharedBytes > most) {
      throw new RunError(
        `${name} asks for ${sharedBytes} bytes of shared memory, ${card.name} has ${most} per block`,
      );
    }
    driver.setFunctionAttribute(
      kernel.f,
      FunctionAttribute.dynamicSharedBytes,
      sharedBytes,
      `allowing ${name} ${sharedBytes} bytes of shared memory`,
    );
    kernel.allowed = sharedBytes;
  }

  #pack(kernel: Kernel, name: string, args: readonly KernelArg[]): void {
    const { parameters } = kernel;
    if (args.length > SLOTS || (parameters && args.length !== parameters.length)) {
      throw new RangeError(
        `launch: ${name} was given ${args.length} arguments, expected ${parameters?.length ?? `at most ${SLOTS}`}`,
      );
    }
    for (let i = 0; i < args.length; i++) {
      const arg = args[i];
      const bytes = this.#put(i, arg);
      if (parameters && bytes !== parameters[i]) {
        throw new RangeError(
          `launch: argument ${i} of ${name} is ${Object.keys(arg)[0]} (${bytes} bytes), expected ${parameters[i]} bytes`,
        );
      }
    }
  }

  /** Writes an argument into slot `i`; returns its bytes. */
  #put(i: number, arg: KernelArg): number {
    if ("ptr" in arg) {
      const { ptr } = arg;
      this.#u64[(SLOT_BYTES / 8) * i] = ptr === null ? 0n : typeof ptr === "bigint" ? ptr : pointerOf(ptr);
      return 8;
    }
    if ("i32" in arg) {
      if (arg.i32 !== (arg.i32 | 0))
        throw new RangeError(`launch: argument ${i} is ${arg.i32}, expected an i32`);
      this.#i32[(SLOT_BYTES / 4) * i] = arg.i32;
      return 4;
    }
    if ("f32" in arg) {
      this.#f32[(SLOT_BYTES / 4) * i] = arg.f32;
      return 4;
    }
    if ("f64" in arg) {
      this.#f64[(SLOT_BYTES / 8) * i] = arg.f64;
      return 8;
    }
    if ("i64" in arg) {
      this.#i64[(SLOT_BYTES / 8) * i] = BigInt(arg.i64);
      return 8;
    }
    if (arg.struct.length > SLOT_BYTES) {
      throw new RangeError(
        `launch: argument ${i} has ${arg.struct.length} bytes, expected at most ${SLOT_BYTES}`,
      );
    }
    this.#bytes.set(arg.struct, SLOT_BYTES * i);
    return arg.struct.length;
  }

  close(): void {
    for (const module of this.#modules.values()) this.#device.driver.unloadModule(module);
    this.#modules.clear();
    this.#kernels.clear();
  }
}
