/**
 * Memory of the card: tensors, scratch, and copies through page-locked host memory. Writes are asynchronous and in
 * order: values are converted into a ring of page-locked segments and copied from there.
 */
import type { Role, Tensor } from "../contract.ts";
import { checkCopy, checkTensorShape, checkView, checkWrite } from "../validate.ts";
import { roundToBf16, widenBf16 } from "./bf16.ts";
import { CudaTensor, dtype, elementBytes, type Pointer } from "./context.ts";
import type { Device } from "./device.ts";
import { ffi } from "./ffi.ts";

type Values = Float32Array | Int32Array;

/** Page-locked memory, seen from both sides. */
interface Pinned {
  readonly address: bigint;
  readonly buffer: ArrayBuffer;
}

interface Segment extends Pinned {
  /** Bytes filled since the segment was last free. */
  used: number;
  /** Happens when the card has copied what lies in the segment. */
  readonly copied: bigint;
  pending: boolean;
}

const SEGMENTS = 4;
const SEGMENT_BYTES = 8 << 20;
/** Copies start at multiples of this. */
const ALIGNMENT = 256;

export class Memory {
  readonly #device: Device;
  readonly #allocated = new Map<Pointer, number>();
  readonly #scratch = new Map<string, { pointer: Pointer; bytes: number }>();
  readonly #pinned: bigint[] = [];
  readonly #events: bigint[] = [];
  /** Page-locked memory of finished `readLater`s, by size. */
  readonly #spare = new Map<number, { pinned: Pinned; event: bigint }[]>();
  readonly #ring: Segment[] = [];
  #segment = 0;
  #used = 0;

  constructor(device: Device) {
    this.#device = device;
  }

  get used(): number {
    return this.#used;
  }

  // --- allocation -------------------------------------------------------------------------------------------------

  #allocate(bytes: number, what: string): Pointer {
    const pointer = this.#device.driver.allocate(bytes, what);
    this.#allocated.set(pointer, bytes);
    this.#used += bytes;
    return pointer;
  }

  tensor(shape: readonly number[], role: Role): Tensor {
    this.#device.activate();
    this.#device.checkNotRecording("tensor");
    const length = checkTensorShape("tensor", shape, role);
    const bytes = length * elementBytes(dtype(role));
    const pointer = this.#allocate(bytes, `a tensor of shape [${shape.join(", ")}]`);
    this.zeroBytes(pointer, bytes);
    return new CudaTensor(this, pointer, shape, length, role);
  }

  view(tensor: Tensor, offset: number, shape: readonly number[]): Tensor {
    this.#device.activate();
    const length = checkView(tensor, offset, shape);
    const { pointer, dtype } = this.own(tensor);
    return new CudaTensor(this, pointer + BigInt(offset * elementBytes(dtype)), shape, length, tensor.role);
  }

  /**
   * Memory under a name that grows when more is asked than before. What was there before is kept until `close`:
   * recorded operations may still use it.
   */
  scratch(name: string, bytes: number): Pointer {
    const known = this.#scratch.get(name);
    if (known && known.bytes >= bytes) return known.pointer;
    const pointer = this.#allocate(Math.max(bytes, 1), `scratch for ${name}`);
    this.#scratch.set(name, { pointer, bytes });
    return pointer;
  }

  /** The tensor, checked to be of this backend. */
  own(tensor: Tensor): CudaTensor {
    if (tensor instanceof CudaTensor && tensor.owner === this) return tensor;
    throw new RangeError(`a ${tensor.role} tensor of shape [${tensor.shape}] belongs to another backend`);
  }

  // --- on the card ------------------------------------------------------------------------------------------------

  copy(out: Tensor, source: Tensor): void {
    this.#device.activate();
    checkCopy(out, source);
    const { driver, stream } = this.#device;
    const to = this.own(out);
    if (this.#device.mode === "plan") return;
    driver.copyOnDevice(to.pointer, this.own(source).pointer, to.bytes, stream);
  }

  zero(tensor: Tensor): void {
    this.#device.activate();
    const { pointer, bytes } = this.own(tensor);
    this.zeroBytes(pointer, bytes);
  }

  zeroBytes(pointer: Pointer, bytes: number): void {
    if (this.#device.mode === "plan") return;
    this.#device.driver.zero(pointer, bytes, this.#device.stream);
  }

  // --- to the card ------------------------------------------------------------------------------------------------

  write(tensor: Tensor, values: ArrayLike<number>): void {
    this.#device.activate();
    this.#device.checkNotRecording("write");
    checkWrite(tensor, values);
    const { pointer, dtype, length } = this.own(tensor);
    const size = elementBytes(dtype);
    const most = SEGMENT_BYTES / size;
    for (let from = 0; from < length; from += most) {
      const count = Math.min(most, length - from);
      const place = this.#stage(count * size);
      if (dtype === "bf16") roundToBf16(new Uint16Array(place.buffer, place.offset, count), values, from);
      else {
        const out =
          dtype === "i32"
            ? new Int32Array(place.buffer, place.offset, count)
            : new Float32Array(place.buffer, place.offset, count);
        if (ArrayBuffer.isView(values)) out.set((values as Values).subarray(from, from + count));
        else for (let i = 0; i < count; i++) out[i] = values[from + i];
      }
      const { driver, stream } = this.#device;
      driver.copyToDevice(pointer + BigInt(from * size), place.address, count * size, stream);
    }
  }

  /** Room for the next copy in the ring; waits when the card is a whole ring behind. */
  #stage(bytes: number): { buffer: ArrayBuffer; offset: number; address: bigint } {
    const { driver, stream } = this.#device;
    if (this.#ring.length === 0) {
      for (let i = 0; i < SEGMENTS; i++) {
        const copied = this.#event();
        this.#ring.push({ ...this.#pin(SEGMENT_BYTES), used: 0, copied, pending: false });
      }
    }
    let segment = this.#ring[this.#segment];
    if (segment.used + bytes > SEGMENT_BYTES) {
      driver.recordEvent(segment.copied, stream);
      segment.pending = true;
      this.#segment = (this.#segment + 1) % SEGMENTS;
      segment = this.#ring[this.#segment];
      if (segment.pending) this.#device.waitForEvent(segment.copied);
      segment.pending = false;
      segment.used = 0;
    }
    const offset = segment.used;
    segment.used += Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
    return { buffer: segment.buffer, offset, address: segment.address + BigInt(offset) };
  }

  // --- from the card ----------------------------------------------------------------------------------------------

  read(tensor: Tensor): Values {
    this.#device.activate();
    this.#device.checkNotRecording("read");
    const { pointer, dtype, length } = this.own(tensor);
    const { driver, stream } = this.#device;
    const out = dtype === "i32" ? new Int32Array(length) : new Float32Array(length);
    const size = elementBytes(dtype);
    const most = SEGMENT_BYTES / size;
    for (let from = 0; from < length; from += most) {
      const count = Math.min(most, length - from);
      const place = this.#stage(count * size);
      driver.copyToHost(place.address, pointer + BigInt(from * size), count * size, stream);
      this.#device.waitForStream(stream);
      convert(out, from, place.buffer, place.offset, count, dtype === "bf16");
    }
    return out;
  }

  readLater(tensor: Tensor): () => Values {
    this.#device.activate();
    const { pointer, dtype, length, bytes } = this.own(tensor);
    return this.#later(pointer, bytes, (buffer) => {
      const values = dtype === "i32" ? new Int32Array(length) : new Float32Array(length);
      convert(values, 0, buffer, 0, length, dtype === "bf16");
      return values;
    });
  }

  /** One f64. */
  numberLater(pointer: Pointer): () => number {
    return this.#later(pointer, 8, (buffer) => new Float64Array(buffer, 0, 1)[0]);
  }

  /** Enqueues the copy now; the function returned waits for just that copy. */
  #later<Result>(pointer: Pointer, bytes: number, resultOf: (buffer: ArrayBuffer) => Result): () => Result {
    this.#device.checkNotRecording("readLater");
    const { driver, stream } = this.#device;
    let spare = this.#spare.get(bytes);
    if (!spare) this.#spare.set(bytes, (spare = []));
    const place = spare.pop() ?? { pinned: this.#pin(bytes), event: this.#event() };
    driver.copyToHost(place.pinned.address, pointer, bytes, stream);
    driver.recordEvent(place.event, stream);
    let result: Result | undefined;
    return () => {
      if (result === undefined) {
        this.#device.activate();
        this.#device.waitForEvent(place.event);
        result = resultOf(place.pinned.buffer);
        spare.push(place);
      }
      return result;
    };
  }

  #pin(bytes: number): Pinned {
    const address = this.#device.driver.allocatePinned(bytes);
    this.#pinned.push(address);
    return { address, buffer: ffi().view(address, bytes) };
  }

  #event(): bigint {
    const event = this.#device.driver.createEvent();
    this.#events.push(event);
    return event;
  }

  close(): void {
    this.#device.activate();
    const { driver } = this.#device;
    for (const pointer of this.#allocated.keys()) driver.free(pointer);
    for (const event of this.#events) driver.destroyEvent(event);
    for (const address of this.#pinned) driver.freePinned(address);
    this.#allocated.clear();
    this.#used = 0;
  }
}

function convert(
  out: Values,
  from: number,
  buffer: ArrayBuffer,
  offset: number,
  count: number,
  bf16: boolean,
): void {
  if (bf16) widenBf16(out as Float32Array, from, new Uint16Array(buffer, offset, count));
  else if (out instanceof Int32Array) out.set(new Int32Array(buffer, offset, count), from);
  else out.set(new Float32Array(buffer, offset, count), from);
}
