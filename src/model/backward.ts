/** The decoder's backward pass as a list of operations, from the gradient of the final norm to the embedding. */
import type { AttentionState, Documents, Tensor } from "../ops/contract.ts";
import { forwardLayer, type Trunk } from "./forward.ts";
import type { ParameterSlots } from "./parameters.ts";

/**
 * `finished` is called with each layer, last to first, when nothing more will be added to the gradients of its matrices.
 *
 * `dFinalNorm_TC` lies in the scratch. Gradients are accumulated into `grads`. With `recompute`, the layers share
 * one set of activations, which after the forward pass still holds the last layer's.
 */
export function backwardTrunk(
  trunk: Trunk,
  grads: ParameterSlots<Tensor>,
  states: readonly AttentionState[],
  documents: Documents,
  recompute: boolean,
  dFinalNorm_TC: Tensor,
  finished?: (layer: number) => void,
): void {
  const { backend, config, weights, buffers } = trunk;
  const dStream_TC = buffers.dStream_TC!;
  backend.zero(dStream_TC);
  backend.rmsNormBackward(
    dStream_TC,
    grads.finalNorm,
    dFinalNorm_TC,
    buffers.streams_TC[config.layers],
    weights.finalNorm,
    buffers.finalRstd_T,
  );
  for (let i = config.layers - 1; i >= 0; i--) {
    if (recompute && i < config.layers - 1) {
      backend.rmsNormForward(
        buffers.layers[i].attentionNorm_TC,
        buffers.layers[i].attentionRstd_T,
        buffers.streams_TC[i],
        weights.layers[i].attentionNorm,
        config.normEpsilon,
      );
      forwardLayer(trunk, i);
    }
    backwardFeedForward(trunk, grads, i);
    backwardAttention(trunk, grads, states[i], documents, i);
    finished?.(i);
  }
  backend.embeddingBackward(grads.embedding, dStream_TC, buffers.tokens_T);
}

function backwardFeedForward(trunk: Trunk, grads: ParameterSlots<Tensor>, i: number): void {
  const { backend, buffers } = trunk;
  const layer = buffers.layers[i];
  const weights = trunk.weights.layers[i];
  const dWeights = grads.layers[i];
  const dStream_TC = buffers.dStream_TC!;
  const { dHidden_TF, dGateUp_T2F, dNorm_TC } = trunk.scratch.feedForward!;
  backend.linearBackward(dHidden_TF, dWeights.down, dStream_TC, layer.hidden_TF, weights.down);
  backend.swigluBackward(dGateUp_T2F, dHidden_TF, layer.gateUp_T2F);
  backend.linearBackward(dNorm_TC, dWeights.gateUp, dGateUp_T2F, layer.feedForwardNorm_TC, weights.gateUp);
  backend.rmsNormBackward(
    dStream_TC,
    dWeights.feedForwardNorm,
    dNorm_TC,
    layer.middle_TC,
    weights.feedForwardNorm,
    layer.feedForwardRstd_T,
  );
}

function backwardAttention(
  trunk: Trunk,
  grads: ParameterSlots<Tensor>,
  state: AttentionState,
  documents: Documents,
  i: number,
): void {
  const { backend, config, buffers } = trunk;
  const layer = buffers.layers[i];
  const weights = trunk.weights.layers[i];
  const dWeights = grads.layers[i];
  const dStream_TC = buffers.dStream_TC!;
  const { dAttended_THD, dQ_THD, dK_TGD, dV_TGD, dQkv_TE, dNorm_TC } = trunk.scratch.attention!;
  backend.linearBackward(
    dAttended_THD,
    dWeights.attentionOutput,
    dStream_TC,
    layer.attended_THD,
    weights.attentionOutput,
  );
  backend.attentionBackward(
    state,
    dQ_THD,
    dK_TGD,
    dV_TGD,
    dAttended_THD,
    layer.attended_THD,
    layer.q_THD,
    layer.k_TGD,
    layer.v_TGD,
    documents,
  );
  backend.splitRopeBackward(dQkv_TE, dQ_THD, dK_TGD, dV_TGD, documents, config.ropeTheta);
  if (weights.keyConvolution) {
    backend.keyConvBackward(
      dQkv_TE,
      dWeights.keyConvolution!,
      layer.keys_TGD!,
      weights.keyConvolution,
      documents,
      config.kvHeads,
    );
  }
  backend.linearBackward(dNorm_TC, dWeights.qkv, dQkv_TE, layer.attentionNorm_TC, weights.qkv);
  backend.rmsNormBackward(
    dStream_TC,
    dWeights.attentionNorm,
    dNorm_TC,
    buffers.streams_TC[i],
    weights.attentionNorm,
    layer.attentionRstd_T,
  );
}
