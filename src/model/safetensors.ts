/**
 * The safetensors format: named tensors behind a JSON header. Reads F32, BF16 and F16, writes F32.
 *
 * A file is the header's length (8 bytes, little-endian), the header, and the tensors' bytes without gaps. Everything
 * the header says is checked before anything is read. Lengths and offsets are counted in doubles, so files may be
 * larger than 4 GiB.
 */
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { InputError } from "../errors.ts";
import { writeAside, writeBytes } from "../files.ts";

const BYTES = { F32: 4, BF16: 2, F16: 2 } as const;
type StoredType = keyof typeof BYTES;

/** As in other readers; a header of a real model has a few hundred kilobytes. */
const MAX_HEADER_BYTES = 100_000_000;
/** One read call moves at most this much (the system's limit is 2 GiB). */
const MAX_CHUNK_BYTES = 2 ** 28;
const METADATA = "__metadata__";

export interface StoredTensor {
  readonly dtype: StoredType;
  readonly shape: readonly number[];
  /** First byte, counted from the start of the file. */
  readonly position: number;
  readonly length: number;
}

export interface SafetensorsFile {
  readonly path: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Throws an `InputError` when the file has become shorter. */
  readonly read: ReadBytes;
}

type ReadBytes = (position: number, length: number) => ArrayBuffer;

/** Reads and checks the header. Throws an `InputError` naming the file, the tensor and what is wrong. */
export function openSafetensors(path: string): SafetensorsFile {
  const parsed = withFile(path, (file) =>
    parseHeader(path, fstatSync(file).size, (position, length) => readBytes(file, path, position, length)),
  );
  const read: ReadBytes = (position, length) =>
    withFile(path, (file) => readBytes(file, path, position, length));
  return { ...parsed, read };
}

/** As `openSafetensors`, of bytes in memory; `name` stands for the path. */
export function safetensorsOf(name: string, bytes: Uint8Array): SafetensorsFile {
  const read: ReadBytes = (position, length) =>
    new Uint8Array(bytes.subarray(position, position + length)).buffer;
  return { ...parseHeader(name, bytes.length, read), read };
}

function parseHeader(path: string, size: number, read: ReadBytes): Omit<SafetensorsFile, "read"> {
  const refuse = (what: string): never => {
    throw new InputError(`${path} is not a valid safetensors file: ${what}`);
  };
  if (size < 8) refuse(`it has ${size} bytes, too few for the header's length`);
  const headerBytes = Number(new DataView(read(0, 8)).getBigUint64(0, true));
  if (headerBytes > MAX_HEADER_BYTES || headerBytes > size - 8) {
    refuse(`its header should have ${headerBytes} bytes, the file has ${size}`);
  }
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(read(8, headerBytes));
  let header: unknown;
  try {
    header = JSON.parse(text);
  } catch {
    refuse("its header is not JSON");
  }
  if (!isRecord(header)) return refuse("its header is not a JSON object");

  const tensors = new Map<string, StoredTensor>();
  const metadata: Record<string, string> = {};
  const start = 8 + headerBytes;
  for (const [name, entry] of Object.entries(header)) {
    if (name !== METADATA) {
      tensors.set(
        name,
        checkEntry(entry, start, (what) => refuse(`tensor "${name}" ${what}`)),
      );
      continue;
    }
    if (!isRecord(entry)) return refuse(`${METADATA} is not a JSON object`);
    for (const [key, value] of Object.entries(entry)) {
      if (typeof value !== "string") return refuse(`${METADATA} "${key}" is not a string`);
      metadata[key] = value;
    }
  }
  let end = start;
  const inOrder = [...tensors].sort(([, a], [, b]) => a.position - b.position || a.length - b.length);
  for (const [name, tensor] of inOrder) {
    if (tensor.position !== end) {
      refuse(`tensor "${name}" starts at byte ${tensor.position - start}, expected ${end - start}`);
    }
    end += tensor.length * BYTES[tensor.dtype];
    if (end > size) refuse(`tensor "${name}" ends at byte ${end} of the file, which has ${size}`);
  }
  if (end !== size) refuse(`it has ${size} bytes, its tensors end at ${end}`);
  return { path, metadata, tensors };
}

/** The values of a tensor. Throws an `InputError` when the file has no such tensor or has become shorter. */
export function readSafetensor(stored: SafetensorsFile, name: string): Float32Array {
  const tensor = stored.tensors.get(name);
  if (!tensor) throw new InputError(`${stored.path} has no tensor "${name}"`);
  const bytes = stored.read(tensor.position, tensor.length * BYTES[tensor.dtype]);
  if (tensor.dtype === "F32") return new Float32Array(bytes);
  return widen(new Uint16Array(bytes), tensor.dtype);
}

export interface TensorToWrite {
  readonly name: string;
  readonly shape: readonly number[];
  /** Called when it is this tensor's turn, so that a large model need not be held twice. */
  readonly values: () => ArrayLike<number>;
}

/**
 * Writes F32 tensors and string metadata: aside, to the disk, then renamed to `path`. Throws a `RunError` naming the
 * file when the system refuses (disk full); what was at `path` is then untouched.
 */
export function writeSafetensors(
  path: string,
  tensors: readonly TensorToWrite[],
  metadata: Readonly<Record<string, string>> = {},
): void {
  let end = 0;
  const header: Record<string, unknown> = {};
  if (Object.keys(metadata).length > 0) header[METADATA] = metadata;
  for (const { name, shape } of tensors) {
    if (name === METADATA || name in header) throw new RangeError(`tensor name "${name}" is taken`);
    const begin = end;
    end += product(shape) * BYTES.F32;
    header[name] = { dtype: "F32", shape, data_offsets: [begin, end] };
  }
  const json = Buffer.from(JSON.stringify(header));
  // Spaces behind the JSON align the tensors to 8 bytes.
  const head = Buffer.alloc(8 + Math.ceil(json.length / 8) * 8, " ");
  head.writeBigUInt64LE(BigInt(head.length - 8));
  json.copy(head, 8);

  writeAside(path, (file) => {
    writeBytes(file, head);
    for (const { name, shape, values } of tensors) {
      const given = values();
      if (given.length !== product(shape)) {
        throw new RangeError(
          `tensor "${name}" has ${given.length} values, its shape [${shape}] has ${product(shape)}`,
        );
      }
      const stored = given instanceof Float32Array ? given : Float32Array.from(given);
      writeBytes(file, new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength));
    }
  });
}

function checkEntry(entry: unknown, start: number, refuse: (what: string) => never): StoredTensor {
  if (!isRecord(entry)) return refuse("is not described by a JSON object");
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== "string" || !Object.hasOwn(BYTES, dtype)) {
    return refuse(`has dtype ${JSON.stringify(dtype)}, expected ${Object.keys(BYTES).join(", ")}`);
  }
  if (!isSizes(shape)) return refuse(`has shape ${JSON.stringify(shape)}, expected a list of sizes`);
  if (!isSizes(offsets) || offsets.length !== 2 || offsets[0] > offsets[1]) {
    return refuse(`has data_offsets ${JSON.stringify(offsets)}, expected [begin, end]`);
  }
  const length = product(shape);
  const bytes = length * BYTES[dtype as StoredType];
  if (offsets[1] - offsets[0] !== bytes) {
    return refuse(`has ${offsets[1] - offsets[0]} bytes, its shape [${shape}] in ${dtype} needs ${bytes}`);
  }
  return { dtype: dtype as StoredType, shape, position: start + offsets[0], length };
}

function widen(values: Uint16Array, dtype: "BF16" | "F16"): Float32Array {
  const wide = new Float32Array(values.length);
  if (dtype === "BF16") {
    const bits = new Uint32Array(wide.buffer);
    for (let i = 0; i < values.length; i++) bits[i] = values[i] << 16;
    return wide;
  }
  for (let i = 0; i < values.length; i++) {
    const sign = values[i] & 0x8000 ? -1 : 1;
    const exponent = (values[i] >> 10) & 0x1f;
    const fraction = values[i] & 0x3ff;
    if (exponent === 0) wide[i] = sign * fraction * 2 ** -24;
    else if (exponent === 31) wide[i] = fraction === 0 ? sign * Infinity : Number.NaN;
    else wide[i] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return wide;
}

function withFile<Result>(path: string, use: (file: number) => Result): Result {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch (error) {
    throw new InputError(`cannot open ${path}: ${(error as Error).message}`);
  }
  try {
    return use(file);
  } finally {
    closeSync(file);
  }
}

function readBytes(file: number, path: string, position: number, length: number): ArrayBuffer {
  const bytes = new Uint8Array(length);
  for (let done = 0; done < length; ) {
    const count = readSync(file, bytes, done, Math.min(length - done, MAX_CHUNK_BYTES), position + done);
    if (count === 0)
      throw new InputError(`${path} ends at byte ${position + done}, in the middle of a tensor`);
    done += count;
  }
  return bytes.buffer;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((n) => Number.isSafeInteger(n) && n >= 0);
}

function product(shape: readonly number[]): number {
  return shape.reduce((size, n) => size * n, 1);
}
