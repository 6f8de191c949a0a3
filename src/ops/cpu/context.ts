/** What the operations of the CPU backend share: memory, worker pool, scratch, tensors and documents. */
import type { Documents, DType, Role, Tensor } from "../contract.ts";
import type { Memory, Scratch } from "./memory.ts";
import type { Pool } from "./pool.ts";

export interface Context {
  readonly memory: Memory;
  readonly pool: Pool;
  /** Shared by all operations; its contents do not outlive one. Ask once per operation, for all it needs. */
  readonly scratch: Scratch;
  /** Scratch of `stride` bytes (at least what was asked) for each worker: worker `w`'s starts at `address + w * stride`. */
  workerScratch(bytes: number): { address: number; stride: number };
}

/** All f32, but for indices. */
export function dtype(role: Role): DType {
  return role === "index" ? "i32" : "f32";
}

export class CpuTensor implements Tensor {
  readonly shape: readonly number[];
  readonly length: number;
  readonly role: Role;
  readonly dtype: DType;
  readonly memory: Memory;
  /** Byte address in the shared memory. */
  readonly address: number;

  constructor(memory: Memory, address: number, shape: readonly number[], length: number, role: Role) {
    this.memory = memory;
    this.address = address;
    this.shape = [...shape];
    this.length = length;
    this.role = role;
    this.dtype = dtype(role);
  }
}

/** The address of a tensor. Throws when it belongs to another backend. */
export function at(context: Context, tensor: Tensor): number {
  if (tensor instanceof CpuTensor && tensor.memory === context.memory) return tensor.address;
  throw new RangeError(`a ${tensor.role} tensor of shape [${tensor.shape}] belongs to another backend`);
}

/** A tensor's values, shared with the kernels. Valid until the memory grows. */
export function valuesOf(context: Context, tensor: Tensor): Float32Array | Int32Array {
  const start = at(context, tensor) / 4;
  const all = tensor.dtype === "i32" ? context.memory.i32 : context.memory.f32;
  return all.subarray(start, start + tensor.length);
}

export class CpuDocuments implements Documents {
  readonly tokens: number;
  readonly maxDocuments: number;
  offsets: readonly number[];
  /** Address of the offsets, i32, maxDocuments + 1 of them. */
  readonly offsetsAddress: number;
  /** Address of each token's position in its document, i32. */
  readonly positionsAddress: number;
  readonly memory: Memory;

  constructor(memory: Memory, tokens: number, maxDocuments: number) {
    this.memory = memory;
    this.tokens = tokens;
    this.maxDocuments = maxDocuments;
    this.offsetsAddress = memory.allocate(4 * (maxDocuments + 1));
    this.positionsAddress = memory.allocate(4 * tokens);
    this.offsets = [];
    this.set([0, tokens]);
  }

  /** Offsets must have been checked. */
  set(offsets: readonly number[]): void {
    this.offsets = [...offsets];
    const words = this.memory.i32;
    words.set(offsets, this.offsetsAddress / 4);
    let position = this.positionsAddress / 4;
    for (let d = 0; d + 1 < offsets.length; d++) {
      for (let i = 0; i < offsets[d + 1] - offsets[d]; i++) words[position++] = i;
    }
  }
}

/** The backend's own documents. Throws when they belong to another backend. */
export function own(context: Context, documents: Documents): CpuDocuments {
  if (documents instanceof CpuDocuments && documents.memory === context.memory) return documents;
  throw new RangeError(`the documents of ${documents.tokens} tokens belong to another backend`);
}
