/**
 * The CUDA backend: kernels and cuBLASLt on one NVIDIA card, driven over FFI. bf16 activations and weights, f32 for
 * "float". Operations are enqueued on one stream; nothing waits for the card but `read`, `synchronize` and what
 * `readLater` and `sumLater` return.
 */
import type { Backend } from "../contract.ts";
import { attentionOperations } from "./attention.ts";
import { BLAS_FUNCTIONS, Blas, type RawBlas } from "./blas.ts";
import { Collectives, type Meeting, openNccl, type RawNccl } from "./collectives.ts";
import { kernelImage } from "./compile.ts";
import { type Context, dtype } from "./context.ts";
import { denseOperations } from "./dense.ts";
import { Device } from "./device.ts";
import { DocumentStore } from "./documents.ts";
import { bindFunctions, Driver, type RawDriver, rawDriver } from "./driver.ts";
import { Graphs } from "./graph.ts";
import { type Images, Launcher } from "./launch.ts";
import { openLibrary } from "./library.ts";
import { linearOperations } from "./linear.ts";
import { lossOperations } from "./loss.ts";
import { Memory } from "./memory.ts";
import { optimizerOperations } from "./optimizer.ts";
import { tensorMaps } from "./tensor-map.ts";

export type { Meeting } from "./collectives.ts";
export { type CudaFacts, cudaAvailable, cudaFacts } from "./facts.ts";

export interface CudaOptions {
  /** Which card, from 0. Default 0. */
  readonly device?: number;
  /** False: also on a Hopper card only the kernels that all cards have. Default true. */
  readonly hopper?: boolean;
  /** With the other processes of a run, which are waited for; absent: this process trains alone. */
  readonly meeting?: Meeting;
}

/** Throws `InputError` when there is no driver, no such card, or a library is missing. */
export function createCudaBackend(options: CudaOptions = {}): Backend {
  const { handle, path } = openLibrary("cuda");
  const { device, hopper, meeting } = options;
  const together = meeting && { nccl: openNccl(), meeting };
  return assemble(rawDriver(handle, path), openBlas, kernelImage, device ?? 0, together, hopper);
}

function openBlas(): RawBlas {
  const { handle, path } = openLibrary("cublasLt");
  return bindFunctions(handle, path, BLAS_FUNCTIONS) as RawBlas;
}

/** The backend over any driver: libcuda, or one that stands in for it (null.ts). */
export function assemble(
  raw: RawDriver,
  blasFunctions: () => RawBlas,
  images: Images,
  ordinal: number,
  together?: { readonly nccl: RawNccl; readonly meeting: Meeting },
  hopper = true,
): Backend {
  const device = new Device(new Driver(raw), ordinal);
  const memory = new Memory(device);
  const launcher = new Launcher(device, images);
  const blas = new Blas(device, memory, blasFunctions());
  const graphs = new Graphs(device);
  const documents = new DocumentStore(memory);
  const peers = together && new Collectives(device, memory, together.nccl, together.meeting);
  const storage = {
    tensor: memory.tensor.bind(memory),
    view: memory.view.bind(memory),
    write: memory.write.bind(memory),
    read: memory.read.bind(memory),
    readLater: memory.readLater.bind(memory),
    copy: memory.copy.bind(memory),
    zero: memory.zero.bind(memory),
  };
  const context: Context = {
    card: device.card,
    hopper: hopper && device.card.capability === 90,
    ...storage,
    launch: launcher.launch.bind(launcher),
    scratch: memory.scratch.bind(memory),
    matmul: blas.matmul.bind(blas),
    numberLater: memory.numberLater.bind(memory),
    zeroBytes: memory.zeroBytes.bind(memory),
    tensorMap: tensorMaps(device),
  };
  return {
    name: `cuda:${ordinal}`,
    asynchronous: true,
    ...(peers ? { peers } : {}),
    dtype,
    ...storage,
    memory: () => memory.used,
    synchronize: device.synchronize.bind(device),
    record: graphs.record.bind(graphs),
    documents: documents.make.bind(documents),
    setDocuments: documents.set.bind(documents),
    ...denseOperations(context),
    ...linearOperations(context),
    ...attentionOperations(context),
    ...lossOperations(context),
    ...optimizerOperations(context),
    close() {
      if (device.closed) return;
      device.drain();
      graphs.close();
      peers?.close();
      blas.close();
      memory.close();
      launcher.close();
      device.close();
    },
  };
}
