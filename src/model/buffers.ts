/** Every tensor a model keeps, named once: made by a backend, or counted by the memory plan. */
import type { Backend, DType, Role, Tensor } from "../ops/contract.ts";
import type { LayerAttention, ModelConfig } from "./config.ts";
import { parameterLayout } from "./parameters.ts";

/** How a model is used: fixed at construction, apart from the attention (see `Model.setAttention`). */
export interface ModelOptions {
  /** T, the tokens of every batch. */
  readonly tokens: number;
  /** The most documents a batch may pack. */
  readonly maxDocuments: number;
  /** False: no gradients, and one layer's activations for all layers. */
  readonly training: boolean;
  /**
   * Keep only the residual stream of every layer and compute the layer again in the backward pass. The same
   * gradients, for about a third more forward work.
   */
  readonly recompute?: boolean;
  readonly attention: LayerAttention;
}

/** What a layer keeps between its forward and its backward pass. */
export interface LayerBuffers<T> {
  readonly attentionNorm_TC: T;
  readonly attentionRstd_T: T;
  readonly q_THD: T;
  readonly k_TGD: T;
  readonly v_TGD: T;
  /** Keys before the key convolution; null without it. */
  readonly keys_TGD: T | null;
  readonly attended_THD: T;
  /** The residual stream between attention and feed-forward. */
  readonly middle_TC: T;
  readonly feedForwardNorm_TC: T;
  readonly feedForwardRstd_T: T;
  readonly gateUp_T2F: T;
  readonly hidden_TF: T;
}

export interface ModelBuffers<T> {
  readonly tokens_T: T;
  readonly targets_T: T;
  readonly losses_T: T;
  /** The residual stream at the input of each layer, and after the last: L + 1 entries. */
  readonly streams_TC: readonly T[];
  /** One entry per layer; one and the same where a layer's activations are not kept. */
  readonly layers: readonly LayerBuffers<T>[];
  readonly finalNorm_TC: T;
  readonly finalRstd_T: T;
  /** Gradient of the residual stream; null without training. */
  readonly dStream_TC: T | null;
  /** What lives only within half a layer; see `scratchParts`. */
  readonly scratch: T;
}

/** Flat buffers of P elements. */
export interface ParameterBuffers<T> {
  /** What the optimizer updates. */
  readonly master: T;
  /** What the operations multiply with: `master` itself where both roles have one type. */
  readonly weights: T;
  /** Null without training. */
  readonly grads: T | null;
}

type Make<T> = (shape: readonly number[], role: Role) => T;

export function makeParameterBuffers<T>(
  config: ModelConfig,
  training: boolean,
  dtype: (role: Role) => DType,
  make: Make<T>,
): ParameterBuffers<T> {
  const shape = [parameterLayout(config).length];
  const master = make(shape, "float");
  return {
    master,
    weights: dtype("weight") === dtype("float") ? master : make(shape, "weight"),
    grads: training ? make(shape, "float") : null,
  };
}

export function makeModelBuffers<T>(
  config: ModelConfig,
  options: Omit<ModelOptions, "attention" | "maxDocuments">,
  make: Make<T>,
): ModelBuffers<T> {
  const { layers, heads, kvHeads, headDim, modelDim: C, feedForward: F, keyConvolution } = config;
  const { tokens: T, training } = options;
  const keepLayers = training && !options.recompute;
  const stream = () => make([T, C], "activation");
  // Without a backward pass the residual stream is updated in place.
  const only = training ? null : stream();
  const makeLayer = (): LayerBuffers<T> => ({
    attentionNorm_TC: make([T, C], "activation"),
    attentionRstd_T: make([T], "float"),
    q_THD: make([T, heads, headDim], "activation"),
    k_TGD: make([T, kvHeads, headDim], "activation"),
    v_TGD: make([T, kvHeads, headDim], "activation"),
    keys_TGD: keyConvolution > 0 ? make([T, kvHeads, headDim], "activation") : null,
    attended_THD: make([T, heads, headDim], "activation"),
    middle_TC: only ?? stream(),
    feedForwardNorm_TC: make([T, C], "activation"),
    feedForwardRstd_T: make([T], "float"),
    gateUp_T2F: make([T, 2 * F], "activation"),
    hidden_TF: make([T, F], "activation"),
  });
  const shared = keepLayers ? null : makeLayer();
  return {
    tokens_T: make([T], "index"),
    targets_T: make([T], "index"),
    losses_T: make([T], "float"),
    streams_TC: Array.from({ length: layers + 1 }, () => only ?? stream()),
    layers: Array.from({ length: layers }, () => shared ?? makeLayer()),
    finalNorm_TC: make([T, C], "activation"),
    finalRstd_T: make([T], "float"),
    dStream_TC: training ? stream() : null,
    scratch: make([scratchLayout(config, T, training).length], "activation"),
  };
}

/** Tensors over the scratch. Those of one group live at the same time; the groups overlap. */
export interface Scratch<T> {
  readonly qkv_TE: T;
  /** What a half-layer adds to the residual stream. */
  readonly delta_TC: T;
  /** Null without training. */
  readonly feedForward: { readonly dHidden_TF: T; readonly dGateUp_T2F: T; readonly dNorm_TC: T } | null;
  readonly attention: {
    readonly dAttended_THD: T;
    readonly dQ_THD: T;
    readonly dK_TGD: T;
    readonly dV_TGD: T;
    readonly dQkv_TE: T;
    readonly dNorm_TC: T;
  } | null;
}

interface Part {
  readonly offset: number;
  readonly shape: readonly number[];
}

/** Parts start at multiples of this, so that vector loads stay aligned. */
const ALIGNMENT = 64;

function scratchLayout(
  config: ModelConfig,
  T: number,
  training: boolean,
): { length: number; parts: Scratch<Part> } {
  const { heads: H, kvHeads: G, headDim: D, modelDim: C, feedForward: F } = config;
  const E = (H + 2 * G) * D;
  let length = 0;
  const group = () => {
    let end = 0;
    return (...shape: number[]): Part => {
      const offset = end;
      end += Math.ceil(shape.reduce((product, n) => product * n, 1) / ALIGNMENT) * ALIGNMENT;
      length = Math.max(length, end);
      return { offset, shape };
    };
  };
  const feedForward = group();
  const attention = group();
  const parts: Scratch<Part> = {
    qkv_TE: group()(T, E),
    delta_TC: group()(T, C),
    feedForward: training
      ? {
          dHidden_TF: feedForward(T, F),
          dGateUp_T2F: feedForward(T, 2 * F),
          dNorm_TC: feedForward(T, C),
        }
      : null,
    attention: training
      ? {
          dAttended_THD: attention(T, H, D),
          dQ_THD: attention(T, H, D),
          dK_TGD: attention(T, G, D),
          dV_TGD: attention(T, G, D),
          dQkv_TE: attention(T, E),
          dNorm_TC: attention(T, C),
        }
      : null,
  };
  return { length, parts };
}

export function scratchViews(
  backend: Backend,
  config: ModelConfig,
  tokens: number,
  training: boolean,
  scratch: Tensor,
): Scratch<Tensor> {
  const { parts } = scratchLayout(config, tokens, training);
  const view = (part: Part) => backend.view(scratch, part.offset, part.shape);
  const { feedForward, attention } = parts;
  return {
    qkv_TE: view(parts.qkv_TE),
    delta_TC: view(parts.delta_TC),
    feedForward: feedForward && {
      dHidden_TF: view(feedForward.dHidden_TF),
      dGateUp_T2F: view(feedForward.dGateUp_T2F),
      dNorm_TC: view(feedForward.dNorm_TC),
    },
    attention: attention && {
      dAttended_THD: view(attention.dAttended_THD),
      dQ_THD: view(attention.dQ_THD),
      dK_TGD: view(attention.dK_TGD),
      dV_TGD: view(attention.dV_TGD),
      dQkv_TE: view(attention.dQkv_TE),
      dNorm_TC: view(attention.dNorm_TC),
    },
  };
}
