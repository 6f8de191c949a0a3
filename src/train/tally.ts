/** What a run has done so far: tokens, seconds, operations by both conventions, and pairs attended, counted exactly. */
import { attendedPairs, causalPairs } from "../attention/pairs.ts";
import { pflopsDays, trainingOperations } from "../compute/compute.ts";
import type { Batch } from "../data/types.ts";
import { type LayerAttention, type ModelConfig, nonEmbeddingParameters } from "../model/config.ts";
import type { RunState } from "./checkpoint.ts";

export class Tally {
  tokens = 0;
  seconds = 0;
  operations = { "6ND": 0, attended: 0 };
  /** Of one head, summed over layers. */
  pairs = { attended: 0, causal: 0 };
  readonly #shape: ModelConfig & { readonly nonEmbeddingParameters: number };

  constructor(shape: ModelConfig) {
    this.#shape = { ...shape, nonEmbeddingParameters: nonEmbeddingParameters(shape) };
  }

  restore(state: RunState): void {
    this.tokens = state.tokens;
    this.seconds = state.time_s;
    this.operations = { ...state.operations };
    this.pairs = { ...state.pairs };
  }

  /** A step's batches, trained in `seconds`, with one attention per layer. */
  add(batches: readonly Batch[], attention: LayerAttention, seconds: number): void {
    const lengths: number[] = [];
    for (const { offsets } of batches) {
      for (let i = 1; i < offsets.length; i++) lengths.push(offsets[i] - offsets[i - 1]);
    }
    this.seconds += seconds;
    const shape = { ...this.#shape, attention };
    this.operations["6ND"] += trainingOperations(shape, lengths, "6ND");
    this.operations.attended += trainingOperations(shape, lengths, "attended");
    for (const length of lengths) {
      this.tokens += length;
      this.pairs.causal += attention.length * causalPairs(length);
      for (const layer of attention) this.pairs.attended += attendedPairs(layer, length);
    }
  }

  compute(): { pflops_days: number; pflops_days_attended: number } {
    return {
      pflops_days: pflopsDays(this.operations["6ND"]),
      pflops_days_attended: pflopsDays(this.operations.attended),
    };
  }

  /** Share of causal pairs not attended. */
  sparsity(): number {
    return this.pairs.causal === 0 ? 0 : 1 - this.pairs.attended / this.pairs.causal;
  }
}
