/** The backend's memory: one WebAssembly memory of up to 4 GiB, handed out in 64-byte aligned pieces. */
import { RunError } from "../../errors.ts";
import { type WasmMemory, wasm } from "./webassembly.ts";

const PAGE = 65536;
const ALIGN = 64;
/** The most bytes that one process computes in. */
export const CAPACITY = 65536 * PAGE;

/** The kernels' own data lies in the first page; the control block and the arguments (see pool.ts) in the second. */
const START = 2 * PAGE;

export class Memory {
  readonly memory: WasmMemory;
  /** The whole memory as numbers; replaced when the memory grows, so never keep them. */
  f32: Float32Array;
  f64: Float64Array;
  i32: Int32Array;
  #end = START;
  #free: { address: number; bytes: number }[] = [];
  #used = 0;

  /** `shared`: with other threads. */
  constructor({ shared }: { readonly shared: boolean }) {
    this.memory = new wasm.Memory({ initial: START / PAGE, maximum: CAPACITY / PAGE, shared });
    const buffer = this.memory.buffer;
    this.f32 = new Float32Array(buffer);
    this.f64 = new Float64Array(buffer);
    this.i32 = new Int32Array(buffer);
  }

  /** Bytes handed out now. */
  get used(): number {
    return this.#used;
  }

  /** The address of `bytes` zeroed bytes. Throws `RunError` with what was asked and what is free. */
  allocate(bytes: number): number {
    const size = Math.ceil(bytes / ALIGN) * ALIGN;
    const hole = this.#free.find((piece) => piece.bytes >= size);
    let address: number;
    if (hole) {
      address = hole.address;
      hole.address += size;
      hole.bytes -= size;
      if (hole.bytes === 0) this.#free.splice(this.#free.indexOf(hole), 1);
      this.i32.fill(0, address / 4, (address + size) / 4);
    } else {
      address = this.#end;
      // One piece more than needed: kernels may read up to 12 bytes past the end of a row.
      this.#grow(address + size + ALIGN, bytes);
      this.#end = address + size;
    }
    this.#used += size;
    return address;
  }

  /** Gives back a piece. Only the backend's own scratch is ever given back, when it has to grow. */
  release(address: number, bytes: number): void {
    const size = Math.ceil(bytes / ALIGN) * ALIGN;
    if (size === 0) return;
    this.#free.push({ address, bytes: size });
    this.#used -= size;
  }

  #grow(end: number, asked: number): void {
    const have = this.memory.buffer.byteLength;
    if (end <= have) return;
    try {
      if (end > CAPACITY) throw new RangeError("over 4 GiB");
      this.memory.grow(Math.ceil((end - have) / PAGE));
    } catch {
      throw new RunError(
        `the CPU backend is out of memory: asked for ${asked} bytes, ${CAPACITY - this.#end} of its ${CAPACITY} are free`,
      );
    }
    const buffer = this.memory.buffer;
    this.f32 = new Float32Array(buffer);
    this.f64 = new Float64Array(buffer);
    this.i32 = new Int32Array(buffer);
  }
}

/** A piece of memory that grows when a larger one is first asked for. Its contents do not outlive an operation. */
export class Scratch {
  readonly #memory: Memory;
  #address = 0;
  #bytes = 0;

  constructor(memory: Memory) {
    this.#memory = memory;
  }

  /** The address of at least `bytes` bytes, not zeroed. */
  need(bytes: number): number {
    if (bytes > this.#bytes) {
      const address = this.#memory.allocate(bytes);
      this.#memory.release(this.#address, this.#bytes);
      this.#address = address;
      this.#bytes = bytes;
    }
    return this.#address;
  }
}
