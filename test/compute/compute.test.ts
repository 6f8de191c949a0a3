/** Training operations against a count of every multiply-add of the passes. */
import { expect, test } from "vitest";
import type { Attention } from "../../src/attention/attention.ts";
import { type ComputeShape, pflopsDays, trainingOperations } from "../../src/compute/compute.ts";
import { countPairs, countScores } from "../attention/count.ts";

const moba: Attention = { kind: "moba", blockSize: 4, topK: 3 };
const shared: Attention = { ...moba, sharedGate: true };
const base = { nonEmbeddingParameters: 1000, modelDim: 12, vocabulary: 50, heads: 6, kvHeads: 2, headDim: 4 };
const lengths = [1, 9, 30];
const tokens = 40;

/** Operations by counting: each multiply-add is 2, the backward pass does each twice (input and weight). */
function count(shape: ComputeShape): number {
  let forward = 0;
  let gate = 0;
  for (let t = 0; t < tokens; t++) {
    forward += 2 * shape.nonEmbeddingParameters;
    for (let v = 0; v < shape.vocabulary; v++) forward += 2 * shape.modelDim;
  }
  for (const attention of shape.attention) {
    for (const length of lengths) {
      for (let h = 0; h < shape.heads; h++) {
        // Scores (q k) and output (p v): two products of D multiply-adds a pair.
        forward += 2 * (2 * shape.headDim) * countPairs(attention, length);
      }
      const gates = attention === shared ? shape.kvHeads : shape.heads;
      for (let h = 0; h < gates; h++) gate += 2 * shape.headDim * countScores(attention, length);
    }
  }
  return 3 * forward + gate;
}

test.each([
  ["full", [{ kind: "full" }]],
  ["moba", [moba]],
  ["shared gate", [shared]],
  ["mixed layers", [moba, { kind: "full" }, shared, { kind: "window", blockSize: 5, topK: 2 }]],
] as [string, Attention[]][])("attended: %s", (_, attention) => {
  const shape = { ...base, attention };
  expect(trainingOperations(shape, lengths, "attended")).toBe(count(shape));
});

test("6ND is blind to attention and to how tokens are packed", () => {
  for (const attention of [[moba], [{ kind: "full" } as const, moba]]) {
    expect(trainingOperations({ ...base, attention }, lengths, "6ND")).toBe(6 * 1000 * tokens);
    expect(trainingOperations({ ...base, attention }, [tokens], "6ND")).toBe(6 * 1000 * tokens);
  }
});

test("a PFLOP/s-day is 1e15 operations a second for a day", () => {
  expect(pflopsDays(1e15 * 24 * 60 * 60)).toBe(1);
  // The report's 545M model on 10.8B tokens, by 6ND.
  expect(pflopsDays(6 * 545e6 * 10.8e9)).toBeCloseTo(0.409, 3);
});
