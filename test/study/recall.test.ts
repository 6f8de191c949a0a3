/** Recall in words: the largest size of each attention, seeds together, routing beside chance where there is any. */
import { describe, expect, it } from "vitest";
import type { RunEnd } from "../../src/study/laws.ts";
import { recallInWords } from "../../src/study/recall.ts";
import type { RecallBand } from "../../src/train/types.ts";

const attended = (heads: number): RecallBand["attended"] => ({
  ...{ heads, heads_at_random: 0.25, any: 0.9, any_at_random: 0.5 },
});

function ended(
  attention: string,
  parameters: number,
  right: readonly number[],
  routing?: RecallBand["attended"],
): RunEnd {
  const bands = right.map((right, i): RecallBand => {
    const start = 32 * 2 ** i;
    return {
      ...{ distance_start: start, distance_end: 2 * start, answers: 100, right, lm_loss: 5 },
      ...(routing && { attended: routing }),
    };
  });
  const blocks = [1, 2].map((blocks_back) => ({ blocks_back, share: 0.6 / blocks_back, at_random: 0.3 }));
  return {
    ...{ name: `${attention}_${parameters}`, finished: true },
    config: { attention, context: 512, shape: { layers: 2 } },
    recall: {
      ...{ model: `d${parameters}`, parameters },
      result: { windows: 4, chance: 1e-3, bands, ...(routing && { routing: blocks }) },
    },
  };
}

describe("recall in words", () => {
  it("tells every other distance, up to the furthest, of the largest sizes with seeds together", () => {
    const runs = [
      ended("full", 2, [90, 80, 70]),
      ended("full", 2, [70, 60, 50]),
      ended("full", 1, [9, 9, 9]),
    ];
    expect(recallInWords(runs)).toEqual([
      "Share of records found that stand 32-64 and 128-256 tokens back (chance 0.10 %): full attention d2 80.0 and 60.0 %.",
    ]);
  });

  it("says of routed layers whether they attend to the block, beside chance, and not of windows", () => {
    const runs = [
      ended("moba-b64-k2", 2, [40, 30, 20], attended(0.5)),
      ended("moba-b64-k2", 2, [20, 10, 0], attended(0.3)),
      ended("window-b64-k2", 2, [50, 50, 0], attended(1)),
    ];
    const [found, routed, ...more] = recallInWords(runs);
    expect(found).toContain("MoBA d2 30.0 and 10.0 %; window-b64-k2 d2 50.0 and 0.0 %.");
    expect(routed).toBe(
      "The block that holds such a record's value is attended to by 40.0 and 40.0 % of the sparse heads of MoBA d2 (at random 25.0 and 25.0 %), " +
        "for 90.0 and 90.0 % of the records by at least one of them (50.0 and 50.0 %). " +
        "The block before the query's own is attended to by 60.0 % (at random 30.0 %), the one before that by 30.0 % (at random 30.0 %).",
    );
    expect(more).toEqual([]);
  });

  it("says nothing where nothing was asked", () => {
    expect(recallInWords([])).toEqual([]);
    const { recall, ...run } = ended("full", 1, []);
    expect(recallInWords([run])).toEqual([]);
    expect(recallInWords([{ ...run, recall }])).toEqual([]);
  });
});
