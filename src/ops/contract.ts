/**
 * The contract every backend keeps: coarse, layer-level operations with explicit forward and backward.
 *
 * Shapes are written as suffix letters, row-major:
 *   T tokens of the (packed) batch   C model width       V vocabulary
 *   H query heads   G key/value heads   D head dimension   E = (H + 2 G) D, the fused query-key-value width
 *   F feed-forward width   N, K output and input width of a linear layer   S = topK - 1 selected earlier blocks
 *   P all parameters (flat)   W key-convolution width
 *
 * Memory. The caller allocates every tensor with `tensor` before the first step and owns it until `close`. No two
 * tensors of one call may overlap unless the operation says "in place". A backend may keep scratch of its own: it
 * grows when a larger shape is first seen and is then fixed, so a repeated step allocates nothing.
 *
 * Order. Operations are enqueued and take effect in call order. `read` waits for all earlier ones. Nothing that
 * changes from step to step is a host scalar of an operation inside a step: learning rate, clipping, loss scale and
 * document offsets live in tensors, so that a backend may record a step once and replay it.
 *
 * Numbers. Each tensor has a role; the backend maps it to a type (`reference`: all f64; `cpu`: all f32; `cuda`:
 * bf16 activations and weights, f32 for "float"). Softmax, norms, losses and reductions are computed in "float" or
 * better. "(+=)" marks outputs that are accumulated into; all others are overwritten.
 *
 * Determinism. Every operation gives the same bits for the same inputs, whatever the number of workers.
 *
 * Shapes and roles. arguments.ts lists every tensor's role: activations and their gradients "activation", weights
 * "weight", gradients of weights and everything else "float", tokens and targets "index". A tensor of another rank
 * serves when its first dimension and its length are right ([T, H, D] as [T, K]); "weight" and "float" serve for each
 * other where they are one type.
 *
 * Errors. Wrong shapes, roles or options throw a `RangeError` that names the operation, the argument, its value and
 * what is allowed. No backend silently falls back to another algorithm.
 */
import type { Attention } from "../attention/attention.ts";

export type Role = "activation" | "weight" | "float" | "index";
export type DType = "f64" | "f32" | "bf16" | "i32";

/** An opaque piece of device memory. `length` is the product of `shape`. */
export interface Tensor {
  readonly shape: readonly number[];
  readonly length: number;
  readonly role: Role;
  readonly dtype: DType;
}

/**
 * The documents packed in a batch: `offsets[i] .. offsets[i + 1]` are document `i`'s tokens. Blocks, positions
 * (RoPE), the causal mask and the key convolution restart at each document.
 */
export interface Documents {
  readonly tokens: number;
  readonly maxDocuments: number;
  /** The current offsets (host copy): starts with 0, strictly increasing, ends with `tokens`. */
  readonly offsets: readonly number[];
}

export interface AttentionShape {
  readonly tokens: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly maxDocuments: number;
  readonly attention: Attention;
}

/**
 * What one attention layer keeps between forward and backward: the routing (`selected_THS`, i32: indices of the
 * selected earlier blocks within the query's document, ascending, then -1 for unused places) and the log-sum-exp
 * `lse_TH`. Full attention has no routing.
 */
export interface AttentionState {
  readonly shape: AttentionShape;
  readonly lse: Tensor;
}

/** Indices into the `hyper` tensor of `adamw`. */
export const Hyper = {
  learningRate: 0,
  beta1: 1,
  beta2: 2,
  epsilon: 3,
  weightDecay: 4,
  /** 1 - beta1^t and 1 - beta2^t, t counting from 1. */
  bias1: 5,
  bias2: 6,
  /** Gradients are scaled by min(1, maxNorm / norm); 0: no clipping. */
  maxNorm: 7,
} as const;
export const HYPER_LENGTH = 8;

/**
 * The processes that train one run together, each on a device of its own. All make the same sums in the same order.
 */
export interface Peers {
  /** This process's number, 0 to count - 1. */
  readonly rank: number;
  readonly count: number;
  /**
   * Enqueues the sum of elements `from` to `to` (exclusive) of a "float" tensor over all processes, in its place. It
   * comes after earlier operations and runs beside later ones, which leave that part alone until `join`. All
   * processes get the same bits. Waiting for the device throws `RunError` when a process has ended.
   */
  sum(tensor: Tensor, from: number, to: number): void;
  /** Later operations come after all sums so far. What is recorded has a `join` after its sums. */
  join(): void;
}

export interface Backend {
  /** `reference`, `cpu`, `cuda:0`. */
  readonly name: string;
  /** Whether operations return before they are done, so that the host does well to stay ahead of them. */
  readonly asynchronous: boolean;
  /** Absent: this process trains alone. */
  readonly peers?: Peers;
  dtype(role: Role): DType;

  // --- memory ---------------------------------------------------------------------------------------------------
  /** A new zero-filled tensor. Throws `RunError` with what was asked and what is free when memory runs out. */
  tensor(shape: readonly number[], role: Role): Tensor;
  /** A contiguous part of `tensor`, starting at element `offset`, sharing its memory. */
  view(tensor: Tensor, offset: number, shape: readonly number[]): Tensor;
  write(tensor: Tensor, values: ArrayLike<number>): void;
  /** A copy of the values (the stored ones, after rounding). Waits for all earlier operations. */
  read(tensor: Tensor): Float64Array | Float32Array | Int32Array;
  /**
   * Enqueues a copy of the values, as they are after all earlier operations, and returns at once. Calling the result
   * waits for that copy only, not for operations enqueued later; it may be called again.
   */
  readLater(tensor: Tensor): () => Float64Array | Float32Array | Int32Array;
  /** As `readLater`, of the sum of a "float" tensor's values, in f64 and in a fixed order. */
  sumLater(values: Tensor): () => number;
  copy(out: Tensor, source: Tensor): void;
  zero(tensor: Tensor): void;
  /** Bytes allocated now (tensors and scratch). */
  memory(): number;
  synchronize(): void;
  /**
   * Records the operations that `body` enqueues, without running them, and returns a function that runs them all
   * again in order, each time it is called, on what the tensors then hold. `body` may be called any number of times,
   * now or at each replay, so it does nothing but call operations (`copy` and `zero` too), always the same ones. It
   * may not make, write, read or sum tensors, set documents or wait: do that between replays. The recording is kept
   * until `close`.
   */
  record(body: () => void): () => void;
  /** Frees everything, stops workers. Further calls throw. */
  close(): void;

  // --- documents ------------------------------------------------------------------------------------------------
  /** Starts as one document of all tokens. */
  documents(tokens: number, maxDocuments: number): Documents;
  /** Refuses offsets that do not start at 0, do not strictly increase (an empty document) or do not end at `tokens`. */
  setDocuments(documents: Documents, offsets: readonly number[]): void;

  // --- embedding ------------------------------------------------------------------------------------------------
  embeddingForward(out_TC: Tensor, table_VC: Tensor, tokens_T: Tensor): void;
  /** Adds in token order: dTable[tokens[t]] += dOut[t]. */
  embeddingBackward(dTable_VC: Tensor /* += */, dOut_TC: Tensor, tokens_T: Tensor): void;

  // --- RMSNorm: out = x / sqrt(mean(x^2) + eps) * gain; rstd_T keeps 1 / sqrt(...) ---------------------------------
  rmsNormForward(out_TC: Tensor, rstd_T: Tensor, x_TC: Tensor, gain_C: Tensor, eps: number): void;
  /** The residual add and the norm behind it: sum = x + delta, out = rmsNorm(sum). `sum` may be `x` (in place). */
  addRmsNormForward(
    sum_TC: Tensor,
    out_TC: Tensor,
    rstd_T: Tensor,
    x_TC: Tensor,
    delta_TC: Tensor,
    gain_C: Tensor,
    eps: number,
  ): void;
  /** Accumulates into dX, the gradient of the residual stream. */
  rmsNormBackward(
    dX_TC: Tensor /* += */,
    dGain_C: Tensor /* += */,
    dOut_TC: Tensor,
    x_TC: Tensor,
    gain_C: Tensor,
    rstd_T: Tensor,
  ): void;

  // --- linear: out = x w^T, w in Hugging Face order [out, in] -----------------------------------------------------
  linearForward(out_TN: Tensor, x_TK: Tensor, w_NK: Tensor): void;
  /** dX = dOut w (skipped when null), dW += dOut^T x. */
  linearBackward(
    dX_TK: Tensor | null,
    dW_NK: Tensor /* += */,
    dOut_TN: Tensor,
    x_TK: Tensor,
    w_NK: Tensor,
  ): void;

  // --- key convolution (FlashMoBA, arXiv 2511.11571), before RoPE: key += SiLU(sum_j w[:, j] * key[t - j]) --------
  /**
   * In place on the key columns of `qkv`; `keys_TGD` receives the unconvolved keys for the backward pass. W is 3 or 5;
   * w_WGD[j] multiplies the key `j` tokens back; restarts at document starts.
   */
  keyConvForward(
    qkv_TE: Tensor /* in place */,
    keys_TGD: Tensor,
    w_WGD: Tensor,
    documents: Documents,
    kvHeads: number,
  ): void;
  keyConvBackward(
    dQkv_TE: Tensor /* in place */,
    dW_WGD: Tensor /* += */,
    keys_TGD: Tensor,
    w_WGD: Tensor,
    documents: Documents,
    kvHeads: number,
  ): void;

  // --- split and RoPE -------------------------------------------------------------------------------------------
  /**
   * Splits rows [query heads | key heads | value heads] and rotates queries and keys by their position in the
   * document, in Hugging Face Llama's convention: element i pairs with i + D/2, angle = position * theta^(-2i/D).
   * `firstPosition` (default 0, a whole number >= 0) is the position of every document's first token: generation
   * decodes token `p` alone as a document of one token with `firstPosition` p.
   */
  splitRopeForward(
    q_THD: Tensor,
    k_TGD: Tensor,
    v_TGD: Tensor,
    qkv_TE: Tensor,
    documents: Documents,
    theta: number,
    firstPosition?: number,
  ): void;
  splitRopeBackward(
    dQkv_TE: Tensor,
    dQ_THD: Tensor,
    dK_TGD: Tensor,
    dV_TGD: Tensor,
    documents: Documents,
    theta: number,
  ): void;

  // --- attention ------------------------------------------------------------------------------------------------
  /** Starts with no earlier block selected (all -1). */
  attentionState(shape: AttentionShape): AttentionState;
  /**
   * Decides which earlier blocks each query attends to: by gate score for `moba`, by the static gate for `window`
   * and `sink`; does nothing for `full`. Gate score: <q, mean of the block's keys>, mean in "float" over the stored
   * keys summed in token order; largest first, ties to the lower block index, NaN never selected
   * (not even where every block fits).
   */
  route(state: AttentionState, q_THD: Tensor, k_TGD: Tensor, documents: Documents): void;
  /** `selected_THS` (see AttentionState). For tests and for drawing the routing. Empty for full attention. */
  readRouting(state: AttentionState): Int32Array;
  /**
   * Sets the routing by hand. Refuses an index that is not an earlier block of the query's document, rows that are
   * not ascending and then -1, and under a shared gate heads of one group that differ.
   */
  writeRouting(state: AttentionState, selected_THS: Int32Array, documents: Documents): void;
  /** Softmax attention, scale D^-1/2, over the own block (causal) and the blocks of the current routing. */
  attentionForward(
    state: AttentionState,
    out_THD: Tensor,
    q_THD: Tensor,
    k_TGD: Tensor,
    v_TGD: Tensor,
    documents: Documents,
  ): void;
  /** Uses the routing and log-sum-exp of the last forward; no gradient flows through the routing. */
  attentionBackward(
    state: AttentionState,
    dQ_THD: Tensor,
    dK_TGD: Tensor,
    dV_TGD: Tensor,
    dOut_THD: Tensor,
    out_THD: Tensor,
    q_THD: Tensor,
    k_TGD: Tensor,
    v_TGD: Tensor,
    documents: Documents,
  ): void;
  /**
   * One query against a cache, for generation: the query is token `length - 1` of one document whose (rotated) keys
   * and values are rows 0 .. length - 1 of the cache. Selects the very blocks that `route` selects for that token.
   */
  attentionDecode(
    out_HD: Tensor,
    q_HD: Tensor,
    kCache_TGD: Tensor,
    vCache_TGD: Tensor,
    length: number,
    attention: Attention,
  ): void;

  // --- SwiGLU: out = SiLU(gate) * up, rows [gate | up] --------------------------------------------------------------
  swigluForward(out_TF: Tensor, gateUp_T2F: Tensor): void;
  swigluBackward(dGateUp_T2F: Tensor, dOut_TF: Tensor, gateUp_T2F: Tensor): void;

  // --- output matrix and cross-entropy, never more than a chunk of logits in memory ---------------------------------
  /** losses_T[t] = -log softmax(x[t] w^T)[targets[t]] in nats; 0 where the target is -1 (no target). */
  lossForward(losses_T: Tensor, x_TC: Tensor, w_VC: Tensor, targets_T: Tensor): void;
  /** The same, with the gradient of scale * sum(losses): dX = ..., dW += .... `scale_1` is a "float" tensor. */
  lossForwardBackward(
    losses_T: Tensor,
    dX_TC: Tensor,
    dW_VC: Tensor /* += */,
    x_TC: Tensor,
    w_VC: Tensor,
    targets_T: Tensor,
    scale_1: Tensor,
  ): void;

  // --- optimizer ------------------------------------------------------------------------------------------------
  /** Euclidean norm of all gradients. */
  gradNorm(norm_1: Tensor, grads_P: Tensor): void;
  /**
   * AdamW with decoupled decay on the first `decayed` parameters, clipping by `norm_1` (see `Hyper`). Leaves
   * everything unchanged when the norm is not finite. `weights_P` receives the rounded master weights; it is the
   * same tensor as `master_P` where the two roles have one type.
   */
  adamw(
    master_P: Tensor,
    weights_P: Tensor,
    grads_P: Tensor,
    m_P: Tensor,
    v_P: Tensor,
    decayed: number,
    hyper: Tensor,
    norm_1: Tensor,
  ): void;
}
