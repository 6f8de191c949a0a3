/**
 * Llama written out from its formulas, one token at a time on plain arrays, to check the model against. Touches no
 * operation of any backend; reads parameters by their Hugging Face names.
 */
import type { ModelConfig } from "../../src/model/config.ts";

export type Weights = (name: string) => ArrayLike<number>;

/** Logits of every position of one document under full attention. */
export function llamaLogits(config: ModelConfig, weights: Weights, tokens: readonly number[]): number[][] {
  const { layers, heads, kvHeads, headDim, modelDim, feedForward, vocabulary, normEpsilon } = config;
  const embedding = weights("model.embed_tokens.weight");
  const output = config.tiedOutput ? embedding : weights("lm_head.weight");
  const cached: { keys: number[][][]; values: number[][][] }[] = Array.from({ length: layers }, () => ({
    keys: [],
    values: [],
  }));
  return tokens.map((token, position) => {
    let x = Array.from({ length: modelDim }, (_, c) => embedding[token * modelDim + c]);
    for (let i = 0; i < layers; i++) {
      const w = (name: string) => weights(`model.layers.${i}.${name}.weight`);
      const normed = norm(x, w("input_layernorm"), normEpsilon);
      const queries = cut(matvec(w("self_attn.q_proj"), normed, heads * headDim), headDim);
      const keys = cut(matvec(w("self_attn.k_proj"), normed, kvHeads * headDim), headDim);
      const values = cut(matvec(w("self_attn.v_proj"), normed, kvHeads * headDim), headDim);
      cached[i].keys.push(keys.map((key) => rotate(key, position, config.ropeTheta)));
      cached[i].values.push(values);
      const attended = queries.flatMap((query, h) => {
        const group = Math.floor((h * kvHeads) / heads);
        const rotated = rotate(query, position, config.ropeTheta);
        const scores = cached[i].keys.map((at) => Math.exp(dot(rotated, at[group]) / Math.sqrt(headDim)));
        const total = scores.reduce((sum, score) => sum + score, 0);
        return Array.from(
          { length: headDim },
          (_, d) => scores.reduce((sum, score, t) => sum + score * cached[i].values[t][group][d], 0) / total,
        );
      });
      x = add(x, matvec(w("self_attn.o_proj"), attended, modelDim));
      const between = norm(x, w("post_attention_layernorm"), normEpsilon);
      const gate = matvec(w("mlp.gate_proj"), between, feedForward);
      const up = matvec(w("mlp.up_proj"), between, feedForward);
      const hidden = gate.map((g, f) => (g / (1 + Math.exp(-g))) * up[f]);
      x = add(x, matvec(w("mlp.down_proj"), hidden, modelDim));
    }
    return matvec(output, norm(x, weights("model.norm.weight"), normEpsilon), vocabulary);
  });
}

function matvec(matrix: ArrayLike<number>, x: readonly number[], rows: number): number[] {
  return Array.from({ length: rows }, (_, r) =>
    x.reduce((sum, v, c) => sum + matrix[r * x.length + c] * v, 0),
  );
}

function norm(x: readonly number[], gain: ArrayLike<number>, epsilon: number): number[] {
  const meanSquare = dot(x, x) / x.length;
  return x.map((v, c) => (v / Math.sqrt(meanSquare + epsilon)) * gain[c]);
}

/** Element i turns with element i + D/2, by position * theta^(-2i/D). */
function rotate(x: readonly number[], position: number, theta: number): number[] {
  const half = x.length / 2;
  return x.map((v, i) => {
    const angle = position * theta ** (-(i % half) / half);
    const other = i < half ? -x[i + half] : x[i - half];
    return v * Math.cos(angle) + other * Math.sin(angle);
  });
}

function cut(x: readonly number[], size: number): number[][] {
  return Array.from({ length: x.length / size }, (_, i) => x.slice(i * size, (i + 1) * size));
}

function dot(a: readonly number[], b: readonly number[]): number {
  return a.reduce((sum, v, i) => sum + v * b[i], 0);
}

function add(a: readonly number[], b: readonly number[]): number[] {
  return a.map((v, i) => v + b[i]);
}
