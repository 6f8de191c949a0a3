/**
 * The CPU backend: AssemblyScript kernels (SIMD, fused multiply-add where the engine has it) over a pool of threads
 * with one shared memory. All f32. Results have the same bits whatever the number of threads.
 */
import { availableParallelism } from "node:os";
import { RunError } from "../../errors.ts";
import type { Backend, Documents, Role, Tensor } from "../contract.ts";
import {
  checkCopy,
  checkNewDocuments,
  checkOffsets,
  checkTensorShape,
  checkView,
  checkWhole,
  checkWrite,
} from "../validate.ts";
import { at, type Context, CpuDocuments, CpuTensor, dtype, own } from "./context.ts";
import { Memory, Scratch } from "./memory.ts";
import { type Variant, Pool } from "./pool.ts";

export interface CpuOptions {
  /** Threads that compute, the calling one included. Default: all cores available to the process. */
  readonly threads?: number;
  /** For tests: which build of the kernels. Default: `relaxed` where the engine accepts it. */
  readonly variant?: Variant;
}

/** Throws `RangeError` for a wrong number of threads, `InputError` when the kernels have not been built. */
export function createCpuBackend(options: CpuOptions = {}): Backend {
  const threads = options.threads ?? availableParallelism();
  checkWhole("createCpuBackend", "threads", threads, 1, 1024);
  const memory = new Memory();
  const pool = new Pool(memory, threads, options.variant);
  const perWorker = new Scratch(memory);
  const context: Context = {
    memory,
    pool,
    scratch: new Scratch(memory),
    workerScratch(bytes) {
      const stride = Math.ceil(bytes / 64) * 64;
      return { address: perWorker.need(stride * threads), stride };
    },
  };
  return {
    name: "cpu",
    dtype,
    ...memoryOperations(context),
  } as unknown as Backend;
}

function memoryOperations(context: Context) {
  const { memory, pool } = context;
  const words = (tensor: Tensor) => {
    const start = at(context, tensor) / 4;
    return (tensor.dtype === "i32" ? memory.i32 : memory.f32).subarray(start, start + tensor.length);
  };
  return {
    tensor(shape: readonly number[], role: Role): Tensor {
      const length = checkTensorShape("tensor", shape, role);
      return new CpuTensor(memory, memory.allocate(4 * length), shape, length, role);
    },
    view(tensor: Tensor, offset: number, shape: readonly number[]): Tensor {
      const length = checkView(tensor, offset, shape);
      return new CpuTensor(memory, at(context, tensor) + 4 * offset, shape, length, tensor.role);
    },
    write(tensor: Tensor, values: ArrayLike<number>): void {
      checkWrite(tensor, values);
      words(tensor).set(values);
    },
    read(tensor: Tensor): Float32Array | Int32Array {
      const values = words(tensor);
      return values instanceof Int32Array ? new Int32Array(values) : new Float32Array(values);
    },
    copy(out: Tensor, source: Tensor): void {
      checkCopy(out, source);
      words(out).set(words(source));
    },
    zero(tensor: Tensor): void {
      words(tensor).fill(0);
    },
    memory: () => memory.used,
    synchronize(): void {},
    close(): void {
      pool.close();
    },
    documents(tokens: number, maxDocuments: number): Documents {
      checkNewDocuments(tokens, maxDocuments);
      return new CpuDocuments(memory, tokens, maxDocuments);
    },
    setDocuments(documents: Documents, offsets: readonly number[]): void {
      checkOffsets(documents, offsets);
      own(context, documents).set(offsets);
    },
  };
}
void RunError;
