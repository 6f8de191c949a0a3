/** The shape of a model, and the ladder's one dial that sets it. */
import type { Attention } from "../attention/attention.ts";

/** A Llama-shaped decoder: RMSNorm, RoPE, SwiGLU, grouped-query heads, untied or tied output. */
export interface ModelConfig {
  readonly layers: number;
  readonly heads: number;
  /** Key/value heads, a divisor of `heads`. */
  readonly kvHeads: number;
  /** Even. */
  readonly headDim: number;
  readonly modelDim: number;
  readonly feedForward: number;
  readonly vocabulary: number;
  /** Base of the rotary embedding: pair `i` of a head turns by `ropeTheta^(-2i / headDim)` a position. */
  readonly ropeTheta: number;
  readonly normEpsilon: number;
  readonly tiedOutput: boolean;
  /** Width of the key convolution, 0 for none. */
  readonly keyConvolution: 0 | 3 | 5;
}

/** Bases of the rotary embedding that are taken; beyond them pairs do not turn in f32, or all alike. */
export const ROPE_THETA = { least: 1, most: 1e12 };

/** Throws a `RangeError` naming the field, its value and what is allowed. */
export function checkModelConfig(config: ModelConfig): void {
  const refuse = (field: keyof ModelConfig, allowed: string): never => {
    throw new RangeError(`model: ${field} is ${config[field]}, expected ${allowed}`);
  };
  for (const field of [
    "layers",
    "heads",
    "kvHeads",
    "headDim",
    "modelDim",
    "feedForward",
    "vocabulary",
  ] as const) {
    if (!Number.isSafeInteger(config[field]) || config[field] < 1) {
      refuse(field, "a whole number of at least 1");
    }
  }
  if (config.heads % config.kvHeads !== 0) refuse("kvHeads", `a divisor of heads (${config.heads})`);
  if (config.headDim % 2 !== 0) refuse("headDim", "an even number");
  if (![0, 3, 5].includes(config.keyConvolution)) refuse("keyConvolution", "0, 3 or 5");
  const { ropeTheta, normEpsilon } = config;
  if (!(ropeTheta >= ROPE_THETA.least && ropeTheta <= ROPE_THETA.most)) {
    refuse("ropeTheta", `a number from ${ROPE_THETA.least} to ${ROPE_THETA.most}`);
  }
  if (!(normEpsilon > 0 && Number.isFinite(normEpsilon))) refuse("normEpsilon", "a positive number");
}

/** One attention per layer. Kept apart from the shape, because a schedule may change it during a run. */
export type LayerAttention = readonly Attention[];

/** Parameters without the embedding and output matrices (norm gains and key convolutions included): the method's N. */
export function nonEmbeddingParameters(config: ModelConfig): number {
  const { layers, heads, kvHeads, headDim, modelDim, feedForward, keyConvolution } = config;
  const attention = modelDim * (heads + 2 * kvHeads) * headDim + heads * headDim * modelDim;
  const perLayer = attention + 3 * modelDim * feedForward + 2 * modelDim + keyConvolution * kvHeads * headDim;
  return layers * perLayer + modelDim;
}

/** All parameters. */
export function totalParameters(config: ModelConfig): number {
  const matrix = config.vocabulary * config.modelDim;
  return nonEmbeddingParameters(config) + (config.tiedOutput ? matrix : 2 * matrix);
}

/** Ladder dial: depth `n` gives `n` layers, `n` heads, `modelDim = n D`, feed-forward `8 d / 3` rounded up to 64. */
export function ladderModel(
  depth: number,
  options: {
    headDim: number;
    vocabulary: number;
    kvHeads?: number;
    tiedOutput?: boolean;
    ropeTheta?: number;
    keyConvolution?: 0 | 3 | 5;
  },
): ModelConfig {
  const modelDim = depth * options.headDim;
  return {
    layers: depth,
    heads: depth,
    kvHeads: options.kvHeads ?? depth,
    headDim: options.headDim,
    modelDim,
    feedForward: Math.ceil((8 * modelDim) / 3 / 64) * 64,
    vocabulary: options.vocabulary,
    ropeTheta: options.ropeTheta ?? 10_000,
    normEpsilon: 1e-5,
    tiedOutput: options.tiedOutput ?? false,
    keyConvolution: options.keyConvolution ?? 0,
  };
}
