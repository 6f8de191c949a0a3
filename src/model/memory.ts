/** The memory of a model, from its shape: what the backend will be asked for, without asking. */
import { attentionLabel, earlierBlocks } from "../attention/attention.ts";
import type { DType, Role } from "../ops/contract.ts";
import { type ModelOptions, makeModelBuffers, makeParameterBuffers } from "./buffers.ts";
import type { LayerAttention, ModelConfig } from "./config.ts";

/** Bytes, before anything is allocated. Scratch that a backend keeps of its own is not in it. */
export interface MemoryPlan {
  /** Master weights, and rounded weights where they are kept apart. */
  readonly parameters: number;
  readonly gradients: number;
  /** The optimizer's two moments, which the trainer allocates. */
  readonly optimizer: number;
  readonly activations: number;
  /** Routing and log-sum-exp of the given attention. */
  readonly attentionStates: number;
  readonly total: number;
}

const BYTES: Record<DType, number> = { f64: 8, f32: 4, bf16: 2, i32: 4 };

export function planMemory(
  config: ModelConfig,
  options: ModelOptions,
  dtype: (role: Role) => DType,
): MemoryPlan {
  const { tokens, training } = options;
  let bytes = 0;
  const count = (shape: readonly number[], role: Role) => {
    const size = shape.reduce((product, n) => product * n, BYTES[dtype(role)]);
    bytes += size;
    return size;
  };
  const { grads } = makeParameterBuffers(config, training, dtype, count);
  const gradients = grads ?? 0;
  const parameters = bytes - gradients;
  const optimizer = training ? 2 * gradients : 0;
  bytes = 0;
  makeModelBuffers(config, options, count);
  const activations = bytes;
  bytes = 0;
  for (const attention of attentionStatesNeeded(options)) {
    count([tokens, config.heads], "float");
    count([tokens, config.heads, earlierBlocks(attention)], "index");
  }
  const attentionStates = bytes;
  const total = parameters + gradients + optimizer + activations + attentionStates;
  return { parameters, gradients, optimizer, activations, attentionStates, total };
}

/** One state per layer where layers are kept; else one per distinct attention. */
function attentionStatesNeeded(options: ModelOptions): LayerAttention {
  if (options.training && !options.recompute) return options.attention;
  const distinct = new Map(options.attention.map((attention) => [attentionLabel(attention), attention]));
  return [...distinct.values()];
}
