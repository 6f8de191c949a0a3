/**
 * What the operations of the CUDA backend share: tensors and documents on the card, and a `Context` that launches
 * kernels, multiplies matrices and lends scratch. The files of operations know nothing else of the card.
 */
import type { Backend, Documents, DType, Role, Tensor } from "../contract.ts";
import type { MatrixProduct } from "./blas.ts";
import type { CardFacts } from "./device.ts";
import type { TensorMapOptions } from "./tensor-map.ts";

/** A device address (`CUdeviceptr`). */
export type Pointer = bigint;

/** One kernel parameter. `ptr: null` is a null pointer. `struct` is passed by value, at most 128 bytes. */
export type KernelArg =
  | { readonly ptr: Tensor | Pointer | null }
  | { readonly i32: number }
  | { readonly i64: number | bigint }
  | { readonly f32: number }
  | { readonly f64: number }
  | { readonly struct: Uint8Array };

export type Extent = readonly [x: number, y: number, z: number];

export interface Context extends Pick<Backend, "tensor" | "view" | "write" | "read" | "copy" | "zero"> {
  readonly card: CardFacts;
  /** Whether kernels/hopper/ may be used. */
  readonly hopper: boolean;
  /**
   * Enqueues a kernel. `kernel` is "file:function", the file's path below kernels/ without ".cu":
   * "attention/forward:attention_forward_d64". `sharedBytes` of dynamic shared memory may pass 48 KB (the limit is
   * raised when needed). The arguments' number and sizes are checked against the compiled kernel.
   */
  launch(kernel: string, grid: Extent, block: Extent, sharedBytes: number, args: readonly KernelArg[]): void;
  /**
   * Scratch memory of at least `bytes` under a name, 256-byte aligned. It grows when more is asked than before, so
   * ask again in each operation rather than keep the pointer; another operation may overwrite what lies under the
   * same name. Its contents at the start are whatever was there.
   */
  scratch(name: string, bytes: number): Pointer;
  /** out = a b or out += a b; see blas.ts. */
  matmul(product: MatrixProduct): void;
  /** As `readLater`, of one f64. */
  numberLater(pointer: Pointer): () => number;
  /** Fills memory with zero bytes. */
  zeroBytes(pointer: Pointer, bytes: number): void;
  /** A `CUtensorMap` for a kernel's `struct` argument (__grid_constant__). Cached by its options. */
  tensorMap(options: TensorMapOptions): Uint8Array;
}

const TYPES: Readonly<Record<Role, DType>> = {
  activation: "bf16",
  weight: "bf16",
  float: "f32",
  index: "i32",
};

/** bf16 activations and weights, f32 for "float". */
export function dtype(role: Role): DType {
  return TYPES[role];
}

/** For the checks of validate.ts. */
export const types = { dtype };

export function elementBytes(type: DType): number {
  return type === "bf16" ? 2 : type === "f64" ? 8 : 4;
}

export class CudaTensor implements Tensor {
  readonly shape: readonly number[];
  readonly length: number;
  readonly role: Role;
  readonly dtype: DType;
  readonly pointer: Pointer;
  /** Whoever allocated it: tensors of another backend are refused. */
  readonly owner: object;

  constructor(owner: object, pointer: Pointer, shape: readonly number[], length: number, role: Role) {
    this.owner = owner;
    this.pointer = pointer;
    this.shape = [...shape];
    this.length = length;
    this.role = role;
    this.dtype = dtype(role);
  }

  get bytes(): number {
    return this.length * elementBytes(this.dtype);
  }
}

/** The address of a tensor. Throws when it is not on a card. */
export function pointerOf(tensor: Tensor): Pointer {
  if (tensor instanceof CudaTensor) return tensor.pointer;
  throw new RangeError(`a ${tensor.role} tensor of shape [${tensor.shape}] belongs to another backend`);
}

/** Documents, also on the card. */
export class CudaDocuments implements Documents {
  readonly tokens: number;
  readonly maxDocuments: number;
  offsets: readonly number[];
  /** i32 [maxDocuments + 1], padded with `tokens`. */
  readonly offsets_M: Tensor;
  /** i32 [T]: the index of each token's document, so that its first token is `offsets_M[document_T[t]]`. */
  readonly document_T: Tensor;

  constructor(tokens: number, maxDocuments: number, offsets_M: Tensor, document_T: Tensor) {
    this.tokens = tokens;
    this.maxDocuments = maxDocuments;
    this.offsets_M = offsets_M;
    this.document_T = document_T;
    this.offsets = [0, tokens];
  }
}

/** The backend's own documents. Throws when they belong to another backend. */
export function documentsOf(documents: Documents): CudaDocuments {
  if (documents instanceof CudaDocuments) return documents;
  throw new RangeError(`the documents of ${documents.tokens} tokens belong to another backend`);
}
