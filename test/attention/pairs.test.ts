/** Closed-form counts of pairs and gate scores against a count one by one. */
import { expect, test } from "vitest";
import type { Attention } from "../../src/attention/attention.ts";
import { attentionLabel } from "../../src/attention/attention.ts";
import { attendedPairs, causalPairs, gateScores, sparsity } from "../../src/attention/pairs.ts";
import { countPairs, countScores } from "./count.ts";

const attentions: Attention[] = [{ kind: "full" }];
for (const kind of ["moba", "window", "sink"] as const) {
  for (const blockSize of [1, 3, 8, 100]) {
    for (const topK of [1, 2, 3, 7, 50]) attentions.push({ kind, blockSize, topK });
  }
}
const lengths = [1, 2, 3, 7, 8, 9, 16, 17, 63, 64, 65, 130];

test.each(attentions.map((a) => [attentionLabel(a), a] as const))("%s", (_, attention) => {
  for (const length of lengths) {
    expect(attendedPairs(attention, length), `pairs of ${length}`).toBe(countPairs(attention, length));
    expect(gateScores(attention, length), `scores of ${length}`).toBe(countScores(attention, length));
  }
});

test("causal pairs", () => {
  expect(lengths.map(causalPairs)).toEqual(
    lengths.map((T) => Array.from({ length: T }, (_, t) => t + 1).reduce((a, b) => a + b, 0)),
  );
});

test("k >= blocks attends to everything", () => {
  expect(attendedPairs({ kind: "moba", blockSize: 16, topK: 5 }, 80)).toBe(causalPairs(80));
  expect(attendedPairs({ kind: "moba", blockSize: 16, topK: 4 }, 80)).toBeLessThan(causalPairs(80));
});

test("sparsity at 8k, B512 k3, worked by hand", () => {
  const moba: Attention = { kind: "moba", blockSize: 512, topK: 3 };
  // 16 own blocks, and 0 + 1 + 14 * 2 earlier ones. The report's 81.25 % is 1 - k B / T; of causal pairs it is less.
  const attended = (16 * 512 * 513) / 2 + 29 * 512 * 512;
  expect(sparsity(moba, [8192])).toBe(1 - attended / ((8192 * 8193) / 2));
  expect(sparsity(moba, [8192])).toBeCloseTo(0.711, 3);
});

test("sparsity over several documents weighs by pairs; full attention and no documents have none", () => {
  const moba: Attention = { kind: "moba", blockSize: 4, topK: 2 };
  const [a, b] = [20, 33];
  const attended = countPairs(moba, a) + countPairs(moba, b);
  expect(sparsity(moba, [a, b])).toBeCloseTo(1 - attended / (210 + 561), 12);
  expect(sparsity({ kind: "full" }, [a, b])).toBe(0);
  expect(sparsity(moba, [])).toBe(0);
});
