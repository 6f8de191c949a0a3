/**
 * A Llama-shaped decoder on a backend: parameters, forward and backward, with one attention per layer.
 *
 * Everything is allocated at construction, so a step allocates nothing. Shapes as in ops/contract.ts.
 */
import { attentionLabel, checkAttention } from "../attention/attention.ts";
import type { Batch } from "../data/types.ts";
import type { AttentionState, Backend, Documents, Tensor } from "../ops/contract.ts";
import { backwardTrunk } from "./backward.ts";
import {
  type ModelBuffers,
  type ModelOptions,
  makeModelBuffers,
  makeParameterBuffers,
  type Scratch,
  scratchViews,
} from "./buffers.ts";
import { checkModelConfig, type LayerAttention, type ModelConfig } from "./config.ts";
import { forwardTrunk, type Inspect, type Trunk } from "./forward.ts";
import { initialValues } from "./initialize.ts";
import {
  type NamedRange,
  type ParameterLayout,
  type ParameterSlots,
  parameterLayout,
  parameterViews,
} from "./parameters.ts";

/** A layer's routing, and the (rotated) queries and keys that it was made from. */
export interface Attended {
  readonly state: AttentionState;
  readonly q_THD: Tensor;
  readonly k_TGD: Tensor;
}

export class Model {
  readonly backend: Backend;
  readonly config: ModelConfig;
  readonly parameters: ParameterLayout;
  readonly tokens: number;
  readonly documents: Documents;
  /** The parameters [P] that the optimizer updates. */
  readonly master: Tensor;
  /** The parameters [P] that the operations multiply with; `master` itself where both have one type. */
  readonly weights: Tensor;
  /** Gradients [P], accumulated until the caller zeroes them; null without training. */
  readonly grads: Tensor | null;
  /** The weights by slot. */
  readonly slots: ParameterSlots<Tensor>;

  #attention: LayerAttention = [];
  readonly #options: Omit<ModelOptions, "attention">;
  readonly #gradSlots: ParameterSlots<Tensor> | null;
  readonly #buffers: ModelBuffers<Tensor>;
  readonly #scratch: Scratch<Tensor>;
  readonly #trunk: Trunk;
  /** By attention label, all states ever made; layers take them in order. */
  readonly #statePool = new Map<string, AttentionState[]>();
  #states: AttentionState[] = [];

  /**
   * Throws a `RangeError` naming the field when the shape or the attention is out of range, and what the backend
   * throws when memory runs out.
   */
  constructor(backend: Backend, config: ModelConfig, options: ModelOptions) {
    checkModelConfig(config);
    this.backend = backend;
    this.config = config;
    this.tokens = options.tokens;
    this.#options = options;
    this.parameters = parameterLayout(config);
    const make = backend.tensor.bind(backend);
    const flat = makeParameterBuffers(config, options.training, (role) => backend.dtype(role), make);
    this.master = flat.master;
    this.weights = flat.weights;
    this.grads = flat.grads;
    this.slots = parameterViews(backend, this.parameters, flat.weights);
    this.#gradSlots = flat.grads && parameterViews(backend, this.parameters, flat.grads);
    this.#buffers = makeModelBuffers(config, options, make);
    this.#scratch = scratchViews(backend, config, options.tokens, options.training, this.#buffers.scratch);
    this.documents = backend.documents(options.tokens, options.maxDocuments);
    this.setAttention(options.attention);
    this.#trunk = {
      backend,
      config,
      weights: this.slots,
      buffers: this.#buffers,
      scratch: this.#scratch,
      attend: (layer) => this.#attend(layer),
    };
  }

  /** The losses [T] of the last pass in nats; 0 where there is no target. */
  get losses(): Tensor {
    return this.#buffers.losses_T;
  }

  get attention(): LayerAttention {
    return this.#attention;
  }

  /**
   * Changes the attention of the layers, between steps. Room for an attention that a layer has not had before is
   * allocated now, so a schedule that calls this once with each of its attentions in front of the first step
   * allocates nothing later.
   */
  setAttention(attention: LayerAttention): void {
    const { backend, config, tokens } = this;
    if (attention.length !== config.layers) {
      throw new RangeError(`attention is given for ${attention.length} layers, expected ${config.layers}`);
    }
    attention.forEach(checkAttention);
    const shared = !this.#options.training || this.#options.recompute;
    const taken = new Map<string, number>();
    this.#states = attention.map((layerAttention) => {
      const label = attentionLabel(layerAttention);
      let pool = this.#statePool.get(label);
      if (!pool) this.#statePool.set(label, (pool = []));
      const index = shared ? 0 : (taken.get(label) ?? 0);
      taken.set(label, index + 1);
      return (pool[index] ??= backend.attentionState({
        tokens,
        heads: config.heads,
        kvHeads: config.kvHeads,
        headDim: config.headDim,
        maxDocuments: this.#options.maxDocuments,
        attention: layerAttention,
      }));
    });
    this.#attention = [...attention];
  }

  /** Sets all parameters (initialize.ts). The same seed gives the same parameters whatever the attention. */
  initialize(seed: number): void {
    this.parameters.named.forEach((parameter, index) => {
      this.writeParameter(parameter, initialValues(this.config, parameter, index, seed));
    });
  }

  /** Sets one parameter of the layout, master and rounded weights both. */
  writeParameter(parameter: NamedRange, values: ArrayLike<number>): void {
    const { backend, master, weights } = this;
    for (const flat_P of master === weights ? [master] : [master, weights]) {
      backend.write(backend.view(flat_P, parameter.offset, parameter.shape), values);
    }
  }

  /** The master values of one parameter of the layout. */
  readParameter(parameter: NamedRange): Float64Array | Float32Array {
    return this.#readRange(this.master, parameter);
  }

  #readRange(flat_P: Tensor, { offset, shape }: NamedRange): Float64Array | Float32Array {
    const { backend } = this;
    return backend.read(backend.view(flat_P, offset, shape)) as Float64Array | Float32Array;
  }

  /**
   * The next batch: exactly `tokens` tokens. Throws a `RangeError` for a token or target outside the vocabulary
   * (a target of -1 carries no loss), and for offsets that the contract refuses.
   */
  loadBatch(batch: Batch): void {
    const { vocabulary } = this.config;
    const { counted } = batch;
    for (const name of ["tokens", "targets"] as const) {
      const values = batch[name];
      if (values.length !== this.tokens) {
        throw new RangeError(`batch: ${values.length} ${name}, expected ${this.tokens}`);
      }
      if (counted && counted.largest < vocabulary) continue;
      const least = name === "tokens" ? 0 : -1;
      for (let t = 0; t < values.length; t++) {
        if (!(values[t] >= least && values[t] < vocabulary)) {
          throw new RangeError(
            `batch: ${name}[${t}] is ${values[t]}, expected ${least} to ${vocabulary - 1} (the vocabulary is ${vocabulary})`,
          );
        }
      }
    }
    this.backend.setDocuments(this.documents, batch.offsets);
    this.backend.write(this.#buffers.tokens_T, batch.tokens);
    this.backend.write(this.#buffers.targets_T, batch.targets);
  }

  /**
   * The losses [T] of the loaded batch in nats; 0 where there is no target. `attended` is called for each layer right
   * after its attention: the next layer may overwrite what it is given.
   */
  forward(attended?: (layer: number, made: Attended) => void): Tensor {
    const { losses_T, finalNorm_TC, targets_T } = this.#buffers;
    this.#pass(attended);
    this.backend.lossForward(losses_T, finalNorm_TC, this.slots.output, targets_T);
    return losses_T;
  }

  /** The logits [T, V] of the loaded batch; `attended` as in `forward`. */
  logits(out_TV: Tensor, attended?: (layer: number, made: Attended) => void): void {
    this.#pass(attended);
    this.backend.linearForward(out_TV, this.#buffers.finalNorm_TC, this.slots.output);
  }

  #pass(attended?: (layer: number, made: Attended) => void): void {
    const attend = (layer: number) => {
      this.#attend(layer);
      const { q_THD, k_TGD } = this.#buffers.layers[layer];
      attended?.(layer, { state: this.#states[layer], q_THD, k_TGD });
    };
    forwardTrunk({ ...this.#trunk, attend });
  }

  /**
   * The losses [T], adding the gradient of `scale_1 * sum(losses)` to `grads`. `finished` is called as the backward
   * pass goes from the output to the embedding: elements `from` and on of the decayed gradients are final; at last,
   * with 0, all gradients.
   */
  forwardBackward(scale_1: Tensor, finished?: (from: number) => void): Tensor {
    const grads = this.#gradSlots;
    if (!grads) throw new RangeError("forwardBackward: the model was made without training");
    const { losses_T, finalNorm_TC, targets_T } = this.#buffers;
    const dFinalNorm_TC = this.#scratch.attention!.dNorm_TC;
    forwardTrunk(this.#trunk);
    this.backend.lossForwardBackward(
      losses_T,
      dFinalNorm_TC,
      grads.output,
      finalNorm_TC,
      this.slots.output,
      targets_T,
      scale_1,
    );
    const { slots } = this.parameters;
    if (slots.output !== slots.embedding) finished?.(slots.output.offset);
    backwardTrunk(
      this.#trunk,
      grads,
      this.#states,
      this.documents,
      this.#options.recompute ?? false,
      dFinalNorm_TC,
      finished && ((layer) => finished(slots.layers[layer].qkv.offset)),
    );
    finished?.(0);
    return losses_T;
  }

  /**
   * What the last forward pass chose in layer `layer`: `selected_THS` (see `AttentionState`). Only the last layer of
   * its attention where layers share their activations (no training, or recomputation).
   */
  readRouting(layer: number): Int32Array {
    return this.backend.readRouting(this.#states[layer]);
  }

  /**
   * Names the first tensor that is not finite: parameters, then the activations of the loaded batch in the order of
   * the forward pass (which runs once more), then gradients in the order of the backward pass. Null when all is
   * finite. Slow: reads everything. Call it before the gradients are zeroed.
   */
  findNonFinite(): string | null {
    const { named } = this.parameters;
    const finite = (values: Float64Array | Float32Array | Int32Array) => values.every(Number.isFinite);
    const findRange = (flat_P: Tensor, ranges: readonly NamedRange[]) =>
      ranges.find((range) => !finite(this.#readRange(flat_P, range)));
    const parameter = findRange(this.master, named) ?? findRange(this.weights, named);
    if (parameter) return `parameter ${parameter.name}`;

    let activation: string | null = null;
    const inspect: Inspect = (name, tensor) => {
      if (activation === null && !finite(this.backend.read(tensor))) activation = name;
    };
    forwardTrunk(this.#trunk, inspect);
    const { losses_T, finalNorm_TC, targets_T } = this.#buffers;
    this.backend.lossForward(losses_T, finalNorm_TC, this.slots.output, targets_T);
    inspect("losses", losses_T);
    if (activation !== null) return activation;

    const gradient = this.grads && findRange(this.grads, backwardOrder(named));
    return gradient ? `gradient of ${gradient.name}` : null;
  }

  /** Turns `scratch.qkv_TE` into the layer's `attended_THD`. */
  #attend(i: number): void {
    const { backend, config, documents } = this;
    const layer = this.#buffers.layers[i];
    const { qkv_TE } = this.#scratch;
    const { keyConvolution } = this.slots.layers[i];
    const { q_THD, k_TGD, v_TGD, keys_TGD, attended_THD } = layer;
    if (keyConvolution) {
      backend.keyConvForward(qkv_TE, keys_TGD!, keyConvolution, documents, config.kvHeads);
    }
    backend.splitRopeForward(q_THD, k_TGD, v_TGD, qkv_TE, documents, config.ropeTheta);
    backend.route(this.#states[i], q_THD, k_TGD, documents);
    backend.attentionForward(this.#states[i], attended_THD, q_THD, k_TGD, v_TGD, documents);
  }
}

/** From the output back to the embedding: layers last to first, feed-forward before attention. */
function backwardOrder(named: readonly NamedRange[]): NamedRange[] {
  const depth = (name: string): number => {
    if (name === "lm_head.weight") return 0;
    if (name === "model.norm.weight") return 1;
    const layer = /^model\.layers\.(\d+)\.(mlp|post_attention)?/.exec(name);
    return layer ? 2 + 1 / (1 + Number(layer[1]) * 2 + (layer[2] ? 1 : 0)) : 4;
  };
  return [...named].sort((a, b) => depth(a.name) - depth(b.name));
}
