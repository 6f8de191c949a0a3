/**
 * The parameter layout: where every parameter lies in one flat buffer, and the Hugging Face Llama name of each range.
 *
 * All decayed matrices come first (embedding, projections, output), then what is not decayed (norm gains, key
 * convolutions), so the optimizer knows both by one number. Query, key and value projections lie in one slot, and so
 * do gate and up, so that each is one multiplication; every Hugging Face tensor is a contiguous range of rows of its
 * slot. A tied output is the embedding's slot.
 */
import type { Backend, Tensor } from "../ops/contract.ts";
import type { ModelConfig } from "./config.ts";

/** A matrix or vector the model multiplies with: a contiguous range of the flat buffer. */
export interface Slot {
  readonly offset: number;
  readonly shape: readonly number[];
}

export interface LayerSlots<T> {
  /** [(H + 2 G) D, C]: query rows, then key rows, then value rows. */
  readonly qkv: T;
  /** [C, H D] */
  readonly attentionOutput: T;
  /** [2 F, C]: gate rows, then up rows. */
  readonly gateUp: T;
  /** [C, F] */
  readonly down: T;
  /** [C] */
  readonly attentionNorm: T;
  /** [C] */
  readonly feedForwardNorm: T;
  /** [W, G, D]; null without key convolution. */
  readonly keyConvolution: T | null;
}

/** One `T` per slot: the slots themselves, or tensors over them. */
export interface ParameterSlots<T> {
  /** [V, C] */
  readonly embedding: T;
  /** [V, C]; the very same as `embedding` when tied. */
  readonly output: T;
  /** [C] */
  readonly finalNorm: T;
  readonly layers: readonly LayerSlots<T>[];
}

/** A tensor of a checkpoint: `name` is its Hugging Face name. */
export interface NamedRange {
  readonly name: string;
  readonly offset: number;
  readonly shape: readonly number[];
  readonly length: number;
}

export interface ParameterLayout {
  /** All parameters, P. */
  readonly length: number;
  /** The first `decayed` parameters take weight decay. */
  readonly decayed: number;
  readonly slots: ParameterSlots<Slot>;
  /** Every parameter exactly once, in the order of the buffer. A tied output has no `lm_head.weight`. */
  readonly named: readonly NamedRange[];
}

export function parameterLayout(config: ModelConfig): ParameterLayout {
  const { layers, heads, kvHeads, headDim, modelDim, feedForward, vocabulary, keyConvolution } = config;
  const named: NamedRange[] = [];
  let length = 0;

  /** The next slot: rows of `columns` elements, cut into named tensors. */
  const rows = (columns: number, ...parts: [name: string, rows: number][]): Slot => {
    const offset = length;
    let count = 0;
    for (const [name, partRows] of parts) {
      named.push({ name, offset: length, shape: [partRows, columns], length: partRows * columns });
      length += partRows * columns;
      count += partRows;
    }
    return { offset, shape: [count, columns] };
  };
  const whole = (name: string, shape: readonly number[]): Slot => {
    const offset = length;
    const size = shape.reduce((product, n) => product * n, 1);
    named.push({ name, offset, shape, length: size });
    length += size;
    return { offset, shape };
  };

  const embedding = rows(modelDim, ["model.embed_tokens.weight", vocabulary]);
  const matrices = Array.from({ length: layers }, (_, i) => ({
    qkv: rows(
      modelDim,
      [`model.layers.${i}.self_attn.q_proj.weight`, heads * headDim],
      [`model.layers.${i}.self_attn.k_proj.weight`, kvHeads * headDim],
      [`model.layers.${i}.self_attn.v_proj.weight`, kvHeads * headDim],
    ),
    attentionOutput: rows(heads * headDim, [`model.layers.${i}.self_attn.o_proj.weight`, modelDim]),
    gateUp: rows(
      modelDim,
      [`model.layers.${i}.mlp.gate_proj.weight`, feedForward],
      [`model.layers.${i}.mlp.up_proj.weight`, feedForward],
    ),
    down: rows(feedForward, [`model.layers.${i}.mlp.down_proj.weight`, modelDim]),
  }));
  const output = config.tiedOutput ? embedding : rows(modelDim, ["lm_head.weight", vocabulary]);
  const decayed = length;
  const layerSlots = matrices.map((layer, i) => ({
    ...layer,
    attentionNorm: whole(`model.layers.${i}.input_layernorm.weight`, [modelDim]),
    feedForwardNorm: whole(`model.layers.${i}.post_attention_layernorm.weight`, [modelDim]),
    keyConvolution:
      keyConvolution === 0
        ? null
        : whole(`model.layers.${i}.self_attn.k_conv.weight`, [keyConvolution, kvHeads, headDim]),
  }));
  const finalNorm = whole("model.norm.weight", [modelDim]);
  return { length, decayed, slots: { embedding, output, finalNorm, layers: layerSlots }, named };
}

/** Tensors over the slots of a flat buffer [P] (weights or gradients), sharing its memory. */
export function parameterViews(
  backend: Backend,
  layout: ParameterLayout,
  flat_P: Tensor,
): ParameterSlots<Tensor> {
  const view = (slot: Slot) => backend.view(flat_P, slot.offset, slot.shape);
  const { slots } = layout;
  const embedding = view(slots.embedding);
  return {
    embedding,
    output: slots.output === slots.embedding ? embedding : view(slots.output),
    finalNorm: view(slots.finalNorm),
    layers: slots.layers.map((layer) => ({
      qkv: view(layer.qkv),
      attentionOutput: view(layer.attentionOutput),
      gateUp: view(layer.gateUp),
      down: view(layer.down),
      attentionNorm: view(layer.attentionNorm),
      feedForwardNorm: view(layer.feedForwardNorm),
      keyConvolution: layer.keyConvolution && view(layer.keyConvolution),
    })),
  };
}
