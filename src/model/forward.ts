/** The decoder's forward pass as a list of operations, from tokens to the final norm. */
import type { Backend, Tensor } from "../ops/contract.ts";
import type { ModelBuffers, Scratch } from "./buffers.ts";
import type { ModelConfig } from "./config.ts";
import type { ParameterSlots } from "./parameters.ts";

/** Everything the forward pass works on. */
export interface Trunk {
  readonly backend: Backend;
  readonly config: ModelConfig;
  readonly weights: ParameterSlots<Tensor>;
  readonly buffers: ModelBuffers<Tensor>;
  readonly scratch: Scratch<Tensor>;
  /** Turns the layer's `scratch.qkv_TE` into its `attended_THD`. */
  readonly attend: (layer: number) => void;
}

/** Sees every activation as soon as it is computed. */
export type Inspect = (name: string, tensor: Tensor) => void;

/** Tokens to `finalNorm_TC`, through all layers. */
export function forwardTrunk(trunk: Trunk, inspect?: Inspect): void {
  const { backend, config, weights, buffers, scratch } = trunk;
  const first = buffers.layers[0];
  backend.embeddingForward(buffers.streams_TC[0], weights.embedding, buffers.tokens_T);
  inspect?.("embedding", buffers.streams_TC[0]);
  backend.rmsNormForward(
    first.attentionNorm_TC,
    first.attentionRstd_T,
    buffers.streams_TC[0],
    weights.layers[0].attentionNorm,
    config.normEpsilon,
  );
  for (let i = 0; i < config.layers; i++) {
    const last = i === config.layers - 1;
    forwardLayer(trunk, i, inspect);
    backend.linearForward(scratch.delta_TC, buffers.layers[i].hidden_TF, weights.layers[i].down);
    inspect?.(`layer ${i} feed-forward output`, scratch.delta_TC);
    backend.addRmsNormForward(
      buffers.streams_TC[i + 1],
      last ? buffers.finalNorm_TC : buffers.layers[i + 1].attentionNorm_TC,
      last ? buffers.finalRstd_T : buffers.layers[i + 1].attentionRstd_T,
      buffers.layers[i].middle_TC,
      scratch.delta_TC,
      last ? weights.finalNorm : weights.layers[i + 1].attentionNorm,
      config.normEpsilon,
    );
    inspect?.(`layer ${i} residual stream`, buffers.streams_TC[i + 1]);
  }
  inspect?.("final norm", buffers.finalNorm_TC);
}

/** Layer `i` from its `attentionNorm_TC` to its `hidden_TF`, in front of the down projection. */
export function forwardLayer(trunk: Trunk, i: number, inspect?: Inspect): void {
  const { backend, config, buffers, scratch } = trunk;
  const layer = buffers.layers[i];
  const weights = trunk.weights.layers[i];
  inspect?.(`layer ${i} attention norm`, layer.attentionNorm_TC);
  backend.linearForward(scratch.qkv_TE, layer.attentionNorm_TC, weights.qkv);
  inspect?.(`layer ${i} queries, keys and values`, scratch.qkv_TE);
  trunk.attend(i);
  inspect?.(`layer ${i} attention output`, layer.attended_THD);
  backend.linearForward(scratch.delta_TC, layer.attended_THD, weights.attentionOutput);
  inspect?.(`layer ${i} attention projection`, scratch.delta_TC);
  backend.addRmsNormForward(
    layer.middle_TC,
    layer.feedForwardNorm_TC,
    layer.feedForwardRstd_T,
    buffers.streams_TC[i],
    scratch.delta_TC,
    weights.feedForwardNorm,
    config.normEpsilon,
  );
  inspect?.(`layer ${i} feed-forward norm`, layer.feedForwardNorm_TC);
  backend.linearForward(layer.gateUp_T2F, layer.feedForwardNorm_TC, weights.gateUp);
  inspect?.(`layer ${i} gate and up`, layer.gateUp_T2F);
  backend.swigluForward(layer.hidden_TF, layer.gateUp_T2F);
  inspect?.(`layer ${i} SwiGLU`, layer.hidden_TF);
}
