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

  /** Asked the records of 4 windows of 512 tokens, one of each of four bands in each. */
  function routed(share: (back: number) => number, heads: number, headDim?: number): RunEnd {
    const run = ended("moba-b32-k2", 2, [1, 1, 1, 1], attended(heads));
    const { result } = run.recall!;
    const routing = Array.from({ length: 15 }, (_, i) => {
      return { blocks_back: i + 1, share: share(i + 1), at_random: 0.1 };
    });
    return {
      ...run,
      config: { ...run.config!, shape: { layers: 2, vocabulary: 300, headDim, ropeTheta: 1000 } },
      recall: {
        ...run.recall!,
        result: { ...result, routing, bands: result.bands.map((band) => ({ ...band, answers: 4 })) },
      },
    };
  }

  it("sets the record's block against any as far back, with an interval as if all heads did the same", () => {
    // From 64 tokens on no block of 32 is the query's own: 0.2 of any. 1.96 sqrt(0.2 * 0.8 / 4) is 0.392.
    const said = (heads: number, seeds: number) =>
      recallInWords(Array.from({ length: seeds }, () => routed(() => 0.2, heads)))[1];
    expect(said(0.59, 1)).toContain(
      "attended to by 59.0 and 59.0 % of the sparse heads of MoBA d2 (any block as far back by 20.0 and 20.0 %; at random 25.0 and 25.0 %), ",
    );
    const start = "Two blocks back and further it is attended to";
    const end = "at 64-128 and 256-512. The block before";
    expect(said(0.59, 1)).toContain(`${start} as often as any, as far as can be told, ${end}`);
    expect(said(0.6, 1)).toContain(`${start} more often than any ${end}`);
    // Seeds are asked the same records.
    expect(said(0.59, 3)).toContain("as often as any");
    const less = routed(() => 0.8, 0.4);
    expect(recallInWords([less])[1]).toContain(`${start} less often than any ${end}`);
    const [near, ...others] = less.recall!.result.bands.slice(1);
    const mixed = { ...less.recall!.result, bands: [{ ...near!, attended: attended(0.8) }, ...others] };
    expect(recallInWords([{ ...less, recall: { ...less.recall!, result: mixed } }])[1]).toContain(
      `${start} as often as any, as far as can be told, at 64-128 and less often than any at 256-512. `,
    );
  });

  it("says how far the rotary embedding alone, and nearness alone, order the nearer half of the blocks alike", () => {
    const score = (back: number) => {
      // Two pairs of numbers, which turn by 1 and by 1 / sqrt(1000) a token.
      const angles = [1, 1000 ** -0.5];
      const kept = angles.map((angle) => Math.sin(16 * angle) / (32 * Math.sin(angle / 2)));
      return angles.reduce((sum, angle, i) => sum + kept[i]! ** 2 * Math.cos(32 * back * angle), 0);
    };
    const order = [1, 2, 3, 4, 5, 6, 7, 8].sort((a, b) => score(b) - score(a));
    const above = order.reduce((sum, back, rank) => sum + (back - 1 - rank) ** 2, 0);
    const nearness = (1 - (6 * above) / (8 * 63)).toFixed(2);
    const words = recallInWords([routed((back) => (back > 8 ? 1 : 0.5 + score(back) / 9), 0.5, 4)])[1];
    expect(words).toContain(
      "Which of the nearer 8 distances (of 15, in blocks) these heads favour has a rank correlation of 1.00 (1: the same " +
        "order) with what the rotary embedding alone would favour (nearness taken out: 1.00), as if all queries and keys were " +
        `alike before it turns them (base 1000, head width 4), and of ${nearness} with nearness alone.`,
    );
    expect(recallInWords([routed((back) => 1 / back, 0.5, 4)])[1]).not.toContain("taken out");
    expect(recallInWords([routed((back) => 1 / back, 0.5)])[1]).not.toContain("rotary");
  });

  it("tells of the largest size for which routing is known", () => {
    const words = recallInWords([
      ended("moba-b64-k2", 2, [9, 9, 9]),
      ended("moba-b64-k2", 1, [5, 5, 5], attended(0.5)),
    ]);
    expect(words[0]).toContain("MoBA d2 9.0 and 9.0 %.");
    expect(words[1]).toContain("50.0 and 50.0 % of the sparse heads of MoBA d1 (at random");
  });

  it("says nothing where nothing was asked", () => {
    expect(recallInWords([])).toEqual([]);
    const { recall, ...run } = ended("full", 1, []);
    expect(recallInWords([run])).toEqual([]);
    expect(recallInWords([{ ...run, recall }])).toEqual([]);
  });
});
