/** The CPU backend over a memory and an engine, wherever they come from: nothing here needs Node. */
import { RunError } from "../../errors.ts";
import type { AttentionState, Backend, Documents, Tensor } from "../contract.ts";
import { attentionOperations } from "./attention.ts";
import { type Context, dtype } from "./context.ts";
import { linearOperations } from "./linear.ts";
import { lossOperations } from "./loss.ts";
import { type Memory, Scratch } from "./memory.ts";
import { optimizerOperations } from "./optimizer.ts";
import { type Engine, Pool, type Variant } from "./pool.ts";
import { positionalOperations } from "./positional.ts";
import { rowwiseOperations } from "./rowwise.ts";
import { storageOperations } from "./storage.ts";

export interface CpuBackend extends Backend {
  readonly threads: number;
  /** `relaxed` (fused multiply-add) or `plain`. */
  readonly variant: Variant;
  /**
   * Routes as `route`, and returns the gate scores that decided [T, heads (key/value heads under a shared gate),
   * blocks of the longest document]: NaN for a block that is not an earlier one of the query's document. Empty where
   * no score is computed (every attention but MoBA, and top-k 1).
   */
  routeWithScores(state: AttentionState, q_THD: Tensor, k_TGD: Tensor, documents: Documents): Float32Array;
}

export function makeCpuBackend(memory: Memory, engine: Engine): CpuBackend {
  const pool = new Pool(memory, engine);
  const perWorker = new Scratch(memory);
  const context: Context = {
    memory,
    pool,
    scratch: new Scratch(memory),
    workerScratch(bytes) {
      const stride = Math.ceil(bytes / 64) * 64;
      return { address: perWorker.need(stride * engine.threads), stride };
    },
  };
  const operations = {
    ...storageOperations(context),
    ...rowwiseOperations(context),
    ...linearOperations(context),
    ...positionalOperations(context),
    ...attentionOperations(context),
    ...lossOperations(context),
    ...optimizerOperations(context),
  };
  const backend: CpuBackend = {
    name: "cpu",
    asynchronous: false,
    threads: engine.threads,
    variant: engine.variant,
    dtype,
    ...operations,
    close() {
      pool.close();
      const closed = () => {
        throw new RunError("the CPU backend is closed");
      };
      for (const operation of Object.keys(operations)) Object.assign(backend, { [operation]: closed });
    },
  };
  return backend;
}
