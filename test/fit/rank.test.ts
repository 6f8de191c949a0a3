/** Spearman's rank correlation against values worked out by hand. */
import { expect, it } from "vitest";
import { rankCorrelation } from "../../src/fit/rank.ts";

it("compares the order alone, equal values at the mean of their ranks", () => {
  expect(rankCorrelation([1, 2, 3, 100], [-9, -4, 0, 1])).toBeCloseTo(1, 12);
  expect(rankCorrelation([1, 2, 3], [3, 2, 1])).toBeCloseTo(-1, 12);
  // 1 - 6 (1 + 1) / (4 * 15)
  expect(rankCorrelation([1, 2, 3, 4], [10, 30, 20, 40])).toBeCloseTo(0.8, 12);
  // Ranks 0.5, 0.5, 2 against 0, 1, 2: 1.5 / sqrt(1.5 * 2)
  expect(rankCorrelation([7, 7, 8], [1, 2, 3])).toBeCloseTo(Math.sqrt(3) / 2, 12);
  expect(rankCorrelation([1, 1], [1, 2])).toBeNaN();
});
