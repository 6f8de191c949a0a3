/** Tensors and documents in the shared memory: making, writing, reading, copying. */
import type { Backend, Documents, Role, Tensor } from "../contract.ts";
import {
  checkCopy,
  checkNewDocuments,
  checkOffsets,
  checkSum,
  checkTensorShape,
  checkView,
  checkWrite,
} from "../validate.ts";
import { at, type Context, CpuDocuments, CpuTensor, own, valuesOf } from "./context.ts";
import { COPY, FILL_ZERO, FLAT_TILE } from "./kernel-ids.ts";

export type StorageOperations = Pick<
  Backend,
  | "tensor"
  | "view"
  | "write"
  | "read"
  | "readLater"
  | "sumLater"
  | "copy"
  | "zero"
  | "memory"
  | "synchronize"
  | "record"
  | "documents"
  | "setDocuments"
>;

export function storageOperations(context: Context): StorageOperations {
  const { memory, pool } = context;
  const read = (tensor: Tensor) => {
    const values = valuesOf(context, tensor);
    return values instanceof Int32Array ? new Int32Array(values) : new Float32Array(values);
  };
  return {
    tensor(shape: readonly number[], role: Role): Tensor {
      const length = checkTensorShape("tensor", shape, role);
      return new CpuTensor(memory, memory.allocate(4 * length), shape, length, role);
    },
    view(tensor, offset, shape) {
      const length = checkView(tensor, offset, shape);
      return new CpuTensor(memory, at(context, tensor) + 4 * offset, shape, length, tensor.role);
    },
    write(tensor, values) {
      checkWrite(tensor, values);
      valuesOf(context, tensor).set(values);
    },
    read,
    readLater(tensor) {
      const values = read(tensor);
      return () => values;
    },
    sumLater(tensor) {
      checkSum(tensor);
      const values = valuesOf(context, tensor);
      let sum = 0;
      for (let i = 0; i < values.length; i++) sum += values[i];
      return () => sum;
    },
    copy(out, source) {
      checkCopy(out, source);
      pool.run(COPY, [at(context, out), at(context, source), out.length], Math.ceil(out.length / FLAT_TILE));
    },
    zero(tensor) {
      pool.run(FILL_ZERO, [at(context, tensor), tensor.length], Math.ceil(tensor.length / FLAT_TILE));
    },
    memory: () => memory.used,
    // Operations return when they are done.
    synchronize() {},
    record: (body) => body,
    documents(tokens, maxDocuments): Documents {
      checkNewDocuments(tokens, maxDocuments);
      return new CpuDocuments(memory, tokens, maxDocuments);
    },
    setDocuments(documents, offsets) {
      checkOffsets(documents, offsets);
      own(context, documents).set(offsets);
    },
  };
}
