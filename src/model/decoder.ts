/**
 * Decoding token by token with a cache of keys and values. Every token chooses the very blocks that the full forward
 * pass chooses for it.
 */
import { RunError } from "../errors.ts";
import type { Documents, Tensor } from "../ops/contract.ts";
import { type ModelBuffers, makeModelBuffers, type Scratch, scratchViews } from "./buffers.ts";
import { forwardTrunk, type Trunk } from "./forward.ts";
import type { Model } from "./model.ts";

/** Makes keys convolve over the last W tokens, of which a single decoded token sees only itself. */
interface ConvolutionWindow {
  /** Query-key-value rows of the last W tokens, before convolution, oldest first: [W, E] per layer. */
  readonly rows: readonly Tensor[];
  /** The rows again, convolved in place, and their keys. */
  readonly work_WE: Tensor;
  readonly keys_WGD: Tensor;
  /** A document of `n + 1` tokens, for n = 0 .. W - 1. */
  readonly documents: readonly Documents[];
}

export class Decoder {
  readonly model: Model;
  /** The most tokens the cache holds. */
  readonly context: number;
  /** Tokens decoded so far, and the position of the next one. */
  #position = 0;
  readonly #buffers: ModelBuffers<Tensor>;
  readonly #scratch: Scratch<Tensor>;
  readonly #trunk: Trunk;
  readonly #document: Documents;
  readonly #q_HD: Tensor;
  readonly #attended_HD: Tensor;
  /** Per layer, [context, G, D]. */
  readonly #kCaches: Tensor[];
  readonly #vCaches: Tensor[];
  readonly #logits_1V: Tensor;
  readonly #window: ConvolutionWindow | null;

  /** Uses the model's weights and its current attention; allocates its own cache for `context` tokens. */
  constructor(model: Model, context: number) {
    const { backend, config } = model;
    const { layers, heads, kvHeads, headDim, keyConvolution: W } = config;
    this.model = model;
    this.context = context;
    const one = { tokens: 1, training: false };
    this.#buffers = makeModelBuffers(config, one, backend.tensor.bind(backend));
    this.#scratch = scratchViews(backend, config, 1, false, this.#buffers.scratch);
    this.#document = backend.documents(1, 1);
    backend.setDocuments(this.#document, [0, 1]);
    const layer = this.#buffers.layers[0]; // all layers share it
    this.#q_HD = backend.view(layer.q_THD, 0, [heads, headDim]);
    this.#attended_HD = backend.view(layer.attended_THD, 0, [heads, headDim]);
    const makeCaches = () =>
      Array.from({ length: layers }, () => backend.tensor([context, kvHeads, headDim], "activation"));
    this.#kCaches = makeCaches();
    this.#vCaches = makeCaches();
    this.#logits_1V = backend.tensor([1, config.vocabulary], "activation");
    const E = (heads + 2 * kvHeads) * headDim;
    this.#window =
      W === 0
        ? null
        : {
            rows: Array.from({ length: layers }, () => backend.tensor([W, E], "activation")),
            work_WE: backend.tensor([W, E], "activation"),
            keys_WGD: backend.tensor([W, kvHeads, headDim], "activation"),
            documents: Array.from({ length: W }, (_, n) => {
              const documents = backend.documents(n + 1, 1);
              backend.setDocuments(documents, [0, n + 1]);
              return documents;
            }),
          };
    this.#trunk = {
      backend,
      config,
      weights: model.slots,
      buffers: this.#buffers,
      scratch: this.#scratch,
      attend: (i) => this.#attend(i),
    };
  }

  get position(): number {
    return this.#position;
  }

  /** Begins a new document. */
  reset(): void {
    this.#position = 0;
  }

  /**
   * Takes the next token, and returns the logits [V] of the one behind it. Throws a `RangeError` for a token outside
   * the vocabulary and when the context is full, a `RunError` when a logit is not a number.
   */
  decode(token: number): Float64Array | Float32Array {
    const { backend, config } = this.model;
    if (!(Number.isInteger(token) && token >= 0 && token < config.vocabulary)) {
      throw new RangeError(`decode: token is ${token}, expected 0 to ${config.vocabulary - 1}`);
    }
    if (this.#position >= this.context) {
      throw new RangeError(`decode: the context of ${this.context} tokens is full`);
    }
    backend.write(this.#buffers.tokens_T, [token]);
    forwardTrunk(this.#trunk);
    backend.linearForward(this.#logits_1V, this.#buffers.finalNorm_TC, this.model.slots.output);
    this.#position++;
    const logits = backend.read(this.#logits_1V) as Float64Array | Float32Array;
    if (logits.some(Number.isNaN)) {
      throw new RunError(`a logit at position ${this.#position - 1} is not a number`);
    }
    return logits;
  }

  /** Turns `scratch.qkv_TE` into `attended_THD`, adding the token to layer `i`'s cache. */
  #attend(i: number): void {
    const { backend, config, attention } = this.model;
    const { kvHeads, headDim, ropeTheta } = config;
    const { q_THD, k_TGD, v_TGD } = this.#buffers.layers[i];
    const position = this.#position;
    this.#convolve(i);
    backend.splitRopeForward(q_THD, k_TGD, v_TGD, this.#scratch.qkv_TE, this.#document, ropeTheta, position);
    const place = position * kvHeads * headDim;
    backend.copy(backend.view(this.#kCaches[i], place, k_TGD.shape), k_TGD);
    backend.copy(backend.view(this.#vCaches[i], place, v_TGD.shape), v_TGD);
    backend.attentionDecode(
      this.#attended_HD,
      this.#q_HD,
      this.#kCaches[i],
      this.#vCaches[i],
      position + 1,
      attention[i],
    );
  }

  /** The key convolution of the newest row, as the last row of a document of the last W tokens (or fewer). */
  #convolve(i: number): void {
    if (!this.#window) return;
    const { backend, config, slots } = this.model;
    const { work_WE, keys_WGD, documents } = this.#window;
    const rows_WE = this.#window.rows[i];
    const [W, E] = rows_WE.shape;
    const row = (tensor: Tensor, index: number) => backend.view(tensor, index * E, [1, E]);
    const newest = Math.min(this.#position, W - 1);
    if (this.#position >= W) {
      for (let j = 1; j < W; j++) backend.copy(row(rows_WE, j - 1), row(rows_WE, j));
    }
    backend.copy(row(rows_WE, newest), this.#scratch.qkv_TE);
    const count = newest + 1;
    const work = backend.view(work_WE, 0, [count, E]);
    backend.copy(work, backend.view(rows_WE, 0, [count, E]));
    backend.keyConvForward(
      work,
      backend.view(keys_WGD, 0, [count, config.kvHeads, config.headDim]),
      slots.layers[i].keyConvolution!,
      documents[newest],
      config.kvHeads,
    );
    backend.copy(this.#scratch.qkv_TE, row(work_WE, newest));
  }
}
