/**
 * The reference's memory and documents: every tensor is a `Float64Array` (an `Int32Array` for "index"), views share
 * it; no output of an operation may overlap another of its tensors.
 */
import { RunError } from "../../errors.ts";
import type { Arguments, Operation } from "../arguments.ts";
import type { AttentionShape, AttentionState, Documents, DType, Role, Tensor } from "../contract.ts";
import * as check from "../validate.ts";

export class ReferenceTensor implements Tensor {
  readonly shape: readonly number[];
  readonly role: Role;
  readonly data: Float64Array | Int32Array;

  constructor(shape: readonly number[], role: Role, data: Float64Array | Int32Array) {
    this.shape = [...shape];
    this.role = role;
    this.data = data;
  }

  get length(): number {
    return this.data.length;
  }

  get dtype(): DType {
    return this.role === "index" ? "i32" : "f64";
  }
}

interface ReferenceDocuments extends Documents {
  offsets: readonly number[];
}

export interface ReferenceState extends AttentionState {
  readonly shape: AttentionShape;
  readonly lse: ReferenceTensor;
  readonly selected_THS: Int32Array;
}

/** Throws `RunError` when the engine cannot allocate. */
function allocate(length: number, role: Role): Float64Array | Int32Array {
  try {
    return role === "index" ? new Int32Array(length) : new Float64Array(length);
  } catch {
    const bytes = length * (role === "index" ? 4 : 8);
    const { rss } = process.memoryUsage();
    throw new RunError(
      `out of memory: a tensor of ${bytes} bytes was asked for, with ${rss} bytes in use by the process`,
    );
  }
}

/** The tensor's memory. Refuses a tensor of another backend. */
export function dataOf(tensor: Tensor): Float64Array | Int32Array {
  if (tensor instanceof ReferenceTensor) return tensor.data;
  throw new RangeError("tensor is not of the reference backend, expected one made by its `tensor` or `view`");
}

/**
 * Refuses outputs that overlap another tensor of the call, as the contract forbids. `inPlace` lists the pairs that
 * may be one tensor, as "output=other".
 */
function checkOverlap(
  op: string,
  tensors: Readonly<Record<string, Tensor | null>>,
  outputs: readonly string[],
  inPlace: readonly string[] = [],
): void {
  for (const output of outputs) {
    for (const [name, tensor] of Object.entries(tensors)) {
      const a = tensors[output];
      if (name === output || !a || !tensor || !overlap(dataOf(a), dataOf(tensor))) continue;
      const same = dataOf(a).byteOffset === dataOf(tensor).byteOffset && a.length === tensor.length;
      if (same && (inPlace.includes(`${output}=${name}`) || inPlace.includes(`${name}=${output}`))) continue;
      throw new RangeError(`${op}: ${output} overlaps ${name}, expected tensors with memory of their own`);
    }
  }
}

function overlap(a: Float64Array | Int32Array, b: Float64Array | Int32Array): boolean {
  return (
    a.buffer === b.buffer &&
    a.byteOffset < b.byteOffset + b.byteLength &&
    b.byteOffset < a.byteOffset + a.byteLength
  );
}

/** Everything of the backend that is not an operation. */
export abstract class ReferenceMemory {
  protected bytes = 0;
  private closed = false;

  dtype(role: Role): DType {
    return role === "index" ? "i32" : "f64";
  }

  // --- memory ----------------------------------------------------------------------------------------------------

  tensor(shape: readonly number[], role: Role): Tensor {
    this.checkOpen();
    const data = allocate(check.checkTensorShape("tensor", shape, role), role);
    this.bytes += data.byteLength;
    return new ReferenceTensor(shape, role, data);
  }

  view(tensor: Tensor, offset: number, shape: readonly number[]): Tensor {
    this.checkOpen();
    const length = check.checkView(tensor, offset, shape);
    return new ReferenceTensor(shape, tensor.role, dataOf(tensor).subarray(offset, offset + length));
  }

  write(tensor: Tensor, values: ArrayLike<number>): void {
    this.checkOpen();
    check.checkWrite(tensor, values);
    dataOf(tensor).set(values);
  }

  read(tensor: Tensor): Float64Array | Int32Array {
    this.checkOpen();
    return dataOf(tensor).slice();
  }

  readLater(tensor: Tensor): () => Float64Array | Int32Array {
    const values = this.read(tensor);
    return () => values;
  }

  sumLater(values: Tensor): () => number {
    this.checkOpen();
    check.checkSum(values);
    let sum = 0;
    for (const value of dataOf(values)) sum += value;
    return () => sum;
  }

  record(body: () => void): () => void {
    this.checkOpen();
    return body;
  }

  copy(out: Tensor, source: Tensor): void {
    this.checkOpen();
    check.checkCopy(out, source);
    dataOf(out).set(dataOf(source));
  }

  zero(tensor: Tensor): void {
    this.checkOpen();
    dataOf(tensor).fill(0);
  }

  memory(): number {
    return this.bytes;
  }

  synchronize(): void {
    this.checkOpen();
  }

  close(): void {
    this.closed = true;
    this.bytes = 0;
  }

  protected checkOpen(): void {
    if (this.closed) throw new RunError("the reference backend is closed");
  }

  /** Checks shapes and roles, and that no output overlaps another tensor. Returns the sizes. */
  protected check<O extends Operation>(
    op: O,
    tensors: Arguments<O>,
    outputs: readonly (keyof Arguments<O> & string)[],
    known: check.Dims = {},
    inPlace: readonly string[] = [],
  ): check.Dims {
    const dims = check.checkOperation(this, op, tensors, known);
    this.checkMemory(op, tensors, outputs, inPlace);
    return dims;
  }

  protected checkMemory(
    op: string,
    tensors: Readonly<Record<string, Tensor | null>>,
    outputs: readonly string[],
    inPlace: readonly string[] = [],
  ): void {
    this.checkOpen();
    checkOverlap(op, tensors, outputs, inPlace);
  }

  // --- documents -------------------------------------------------------------------------------------------------

  documents(tokens: number, maxDocuments: number): Documents {
    this.checkOpen();
    check.checkNewDocuments(tokens, maxDocuments);
    return { tokens, maxDocuments, offsets: [0, tokens] };
  }

  setDocuments(documents: Documents, offsets: readonly number[]): void {
    this.checkOpen();
    check.checkOffsets(documents, offsets);
    (documents as ReferenceDocuments).offsets = [...offsets];
  }
}
