/** A trained model that shows how it routes: the CPU backend and the model of the training code, on one thread. */
import { type Attention, attentionLabel } from "../../src/attention/attention.ts";
import { tokenizerOf } from "../../src/data/hugging-face.ts";
import { byteTokenizer, type Tokenizer } from "../../src/data/tokenizer.ts";
import { InputError } from "../../src/errors.ts";
import { modelOf, takeWeights } from "../../src/model/checkpoint.ts";
import type { LayerAttention, ModelConfig } from "../../src/model/config.ts";
import { Model } from "../../src/model/model.ts";
import { safetensorsOf } from "../../src/model/safetensors.ts";
import { createLoneCpuBackend } from "../../src/ops/cpu/alone.ts";
import type { CpuBackend } from "../../src/ops/cpu/backend.ts";
import type { ModelView } from "../../src/server/api.ts";

/** More tokens are not drawn. */
const MOST_TOKENS = 2048;

/** What one layer did with a text of T tokens. */
export interface LayerRouting {
  readonly attention: Attention;
  /** Indices of the earlier blocks selected, ascending, then -1: [T, H, S]. Empty for full attention. */
  readonly selected_THS: Int32Array;
  /** Gate scores [T, Z, blocks], NaN where a block is no earlier one; empty where nothing is scored. */
  readonly scores_TZB: Float32Array;
  /** Z: the query heads, or the key/value heads where a group shares its choice. */
  readonly gatingHeads: number;
  /** Blocks that `scores_TZB` has room for. */
  readonly scoredBlocks: number;
}

/** A text as a model read it with one attention. */
export interface Passage {
  readonly tokens: Int32Array;
  /** Nats, of predicting the token behind each: T - 1 of them. */
  readonly losses: Float32Array;
  readonly layers: readonly LayerRouting[];
}

export class RoutedModel {
  readonly config: ModelConfig;
  /** As it was trained. */
  readonly attention: LayerAttention;
  /** Tokens it was trained for, and the most that are read here. */
  readonly context: number;
  readonly most: number;
  readonly tokenizer: Tokenizer;
  readonly #backend: CpuBackend;
  readonly #model: Model;

  private constructor(
    backend: CpuBackend,
    known: ReturnType<typeof modelOf>,
    tokenizer: Tokenizer,
    weights: Uint8Array,
  ) {
    this.config = known.config;
    this.attention = known.attention;
    this.context = known.context;
    this.most = Math.min(known.context, MOST_TOKENS);
    this.tokenizer = tokenizer;
    this.#backend = backend;
    const { attention } = known;
    // A shorter text shares the batch with a document of padding: attention, positions and blocks see nothing of it.
    const options = { tokens: this.most, maxDocuments: 2, training: false, attention };
    this.#model = new Model(backend, known.config, options);
    takeWeights(this.#model, [safetensorsOf("the model's weights", weights)]);
  }

  /** `kernels`: build/cpu-alone.wasm. Throws `InputError` for what is no model or no tokenizer of it. */
  static async open(view: ModelView, weights: Uint8Array, kernels: Uint8Array): Promise<RoutedModel> {
    const known = modelOf("the model's configuration", view.config as Record<string, unknown>);
    if (view.tokenizer === null) throw new InputError(`text cannot be read: ${view.missing}`);
    const tokenizer =
      view.tokenizer.kind === "byte"
        ? byteTokenizer
        : tokenizerOf("tokenizer.json", view.tokenizer.file, view.tokenizer.name);
    if (tokenizer.vocabulary > known.config.vocabulary) {
      throw new InputError(
        `the tokenizer has ${tokenizer.vocabulary} tokens, the model ${known.config.vocabulary}`,
      );
    }
    const backend = await createLoneCpuBackend(kernels);
    try {
      return new RoutedModel(backend, known, tokenizer, weights);
    } catch (error) {
      backend.close();
      throw error;
    }
  }

  /** The layers' attention with another block size and top-k; where no layer routes, all do. */
  attentionWith(blockSize: number, topK: number): LayerAttention {
    const none = this.attention.every(({ kind }) => kind === "full");
    return this.attention.map((layer) =>
      layer.kind !== "full"
        ? { ...layer, blockSize, topK }
        : none
          ? { kind: "moba", blockSize, topK }
          : layer,
    );
  }

  /** Reads 2 to `most` tokens. */
  read(tokens: Int32Array, attention: LayerAttention): Passage {
    const [model, backend] = [this.#model, this.#backend];
    const T = tokens.length;
    if (T < 2 || T > this.most) throw new RangeError(`${T} tokens, expected 2 to ${this.most}`);
    const padded = { tokens: new Int32Array(this.most), targets: new Int32Array(this.most).fill(-1) };
    padded.tokens.set(tokens);
    padded.targets.set(tokens.subarray(1));
    model.setAttention(attention);
    model.loadBatch({ ...padded, offsets: T === this.most ? [0, T] : [0, T, this.most] });
    const layers: LayerRouting[] = [];
    const losses = model.forward((layer, { state, q_THD, k_TGD }) => {
      const { heads, kvHeads } = this.config;
      const own = attention[layer];
      const gatingHeads = own.kind === "moba" && own.sharedGate ? kvHeads : heads;
      const scores = backend.routeWithScores(state, q_THD, k_TGD, model.documents);
      const routing = backend.readRouting(state);
      layers.push({
        attention: own,
        selected_THS: routing.slice(0, (T * routing.length) / this.most),
        scores_TZB: scores.slice(0, (T * scores.length) / this.most),
        gatingHeads,
        scoredBlocks: scores.length / this.most / gatingHeads,
      });
    });
    return { tokens, losses: (backend.read(losses) as Float32Array).slice(0, T - 1), layers };
  }

  close(): void {
    this.#backend.close();
  }
}

/** How one head of a layer treats one query. */
export interface QueryRouting {
  readonly own: number;
  /** Every earlier block, in order: whether it was chosen, its gate score (NaN: not scored), its rank by score from 1. */
  readonly earlier: readonly { readonly chosen: boolean; readonly score: number; readonly rank: number }[];
}

export function queryRouting(
  layer: LayerRouting,
  heads: number,
  head: number,
  query: number,
  blockSize: number,
): QueryRouting {
  const own = Math.floor(query / blockSize);
  const { attention, selected_THS, scores_TZB, gatingHeads: Z, scoredBlocks: B } = layer;
  if (attention.kind === "full") {
    return {
      own,
      earlier: Array.from({ length: own }, () => ({ chosen: true, score: Number.NaN, rank: 0 })),
    };
  }
  const S = attention.topK - 1;
  const chosen = new Set(selected_THS.subarray((query * heads + head) * S, (query * heads + head + 1) * S));
  const z = Math.floor((head * Z) / heads);
  const score = (block: number) => (B === 0 ? Number.NaN : scores_TZB[(query * Z + z) * B + block]);
  const order = Array.from({ length: own }, (_, block) => block).sort((a, b) => score(b) - score(a) || a - b);
  const ranks = new Array<number>(own).fill(0);
  if (B > 0) for (const [i, block] of order.entries()) ranks[block] = i + 1;
  return {
    own,
    earlier: Array.from({ length: own }, (_, block) => ({
      chosen: chosen.has(block),
      score: score(block),
      rank: ranks[block],
    })),
  };
}

/** One label for all layers, or each layer's. */
export function labelsOf(attention: LayerAttention): string {
  const labels = attention.map(attentionLabel);
  return new Set(labels).size === 1 ? labels[0] : labels.join(", ");
}
