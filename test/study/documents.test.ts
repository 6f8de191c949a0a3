/** What held-out documents say of context, of losses by hand: values of two, in documents of 64 and of 192 tokens. */
import { describe, expect, it } from "vitest";
import { contextInWords, positionInWords } from "../../src/study/documents.ts";
import type { RunEnd } from "../../src/study/laws.ts";
import { randomNumbers } from "../train/tiny.ts";

const CONTEXTS = [128, 256, 512, 1024, 2048];

interface Made {
  readonly attention?: string;
  readonly model?: string;
  /** Share of full attention's first gain. */
  readonly use?: number;
  /** Nats of the second. */
  readonly gain?: number;
  /** Nats of the last. */
  readonly late?: number;
  /** Added to each loss. */
  readonly shift?: number;
  readonly documents?: number;
  readonly contexts?: readonly number[];
}

/**
 * From a loss of 2 the first doubling takes 1 % in documents of 64 tokens and 3 % in those of 192, the second 0.02 nats,
 * the third 0.0193 nats from every other document and gives as much to the rest, the last nothing.
 */
function run({ attention = "full", model = "d8", ...made }: Made = {}): RunEnd {
  const { use = 1, gain = 0.02, late = 0, shift = 0, documents: count = 8, contexts = CONTEXTS } = made;
  const documents = Array.from({ length: count }, (_, i) => {
    const heavy = i % 4 >= 2;
    const first = 2 * (1 - use * (heavy ? 0.03 : 0.01));
    const third = first - gain + (i % 2 === 0 ? 0.0193 : -0.0193);
    const lm_loss = [2, first, first - gain, third, third - late].map((loss) => loss + shift);
    return { document: `document ${i}`, lm_loss, predicted_tokens: heavy ? 192 : 64 };
  });
  const predicted_tokens = 128 * count;
  const lm_loss = CONTEXTS.map(
    (_, i) => documents.reduce((sum, d) => sum + d.predicted_tokens * d.lm_loss[i], 0) / predicted_tokens,
  );
  return {
    name: `${model}_${attention}`,
    finished: true,
    config: { attention, context: 2048, shape: { layers: 2 } },
    truncated: {
      model,
      parameters: 1000 * Number(model.slice(1)),
      result: { windows: 8, contexts, lm_loss, predicted_tokens, documents },
    },
  };
}

// Weighted mean -(4 x 64 x 1 % + 4 x 192 x 3 %) / 1024 = -2.5 %; without a light document -2.6 %, without a heavy one
// -2.385 %, so the error is sqrt(7 / 8 x 4 (0.1² + 0.115²)) = 0.286 %. Documents of one weight would be 1024² / (4 x 64² +
// 4 x 192²) = 6.4, and t(5.4) is 2.515: 0.72 % each way. Then 0.02 of 1.95, which is between 1.9487 and 1.9523 without one
// document: t(5.4) sqrt(7 / 8 x 4 (0.00105² + 0.00121²)) = 0.0075 %. Then 1 % of 1.93 each way: without a light document
// 0.067 %, without a heavy one 0.23 %, so 2.515 sqrt(7 / 8 x 4 (0.067² + 0.23²)) = 1.13 %.
const FULL =
  "The loss of full attention d8 on the same tokens falls with more context up to 512 at least: with 95 % intervals over " +
  "8 documents, 128 to 256 -2.50 % (-3.22 % to -1.78 %), 256 to 512 -1.03 % (-1.03 % to -1.02 %), " +
  "512 to 1k 0.00 % (-1.13 % to +1.13 %), 1k to 2k 0.00 % (0.00 % to 0.00 %).";

describe("the loss of the same tokens with more context", () => {
  it("is said of the largest size, with intervals over documents", () => {
    expect(contextInWords([run({ model: "d4", use: 3 }), run()])).toEqual([FULL]);
  });

  it("is the mean over seeds", () => {
    expect(contextInWords([run({ shift: -0.1 }), run({ shift: 0.1 })])).toEqual([FULL]);
  });

  it("is not shown to fall where every interval holds 0", () => {
    const [words] = contextInWords([run({ use: 0, gain: 0 })]);
    expect(words).toContain("is not shown to fall with more context than 128: with 95 % intervals");
  });

  it("falls no further than each doubling is shown to help", () => {
    const [words] = contextInWords([run({ gain: -0.1, late: 0.1 })]);
    expect(words).toContain("falls with more context up to 256 at least: ");
    expect(words).toMatch(/256 to 512 \+5.\d+ % \(\+5.* 1k to 2k -4.\d+ % \(-.* % to -/);
  });

  it("is compared with full attention at the largest size of both, over the same documents", () => {
    const half = { attention: "moba-b512-k3", use: 0.5, documents: 12 };
    const words = contextInWords([run(), run({ ...half, model: "d5" }), run(half)]);
    expect(words[0]).toBe(FULL);
    // 2.5 % less 1.25 %, and half of 0.72 % each way; of the 0.02 nats 1/1.95 less 1/1.975.
    expect(words.slice(2)).toEqual([
      "From 128 to 2k of context the loss of MoBA d8 on the same tokens changes by -2.25 %, that of full attention by " +
        "-3.50 %: MoBA gains less; percentage points apart, with 95 % intervals over the same 8 documents, " +
        "+1.25 (+0.89 to +1.61), 128 to 256 +1.25 (+0.89 to +1.61), 256 to 512 +0.01 (+0.01 to +0.02), " +
        "512 to 1k 0.00 (-0.01 to +0.01), 1k to 2k 0.00 (0.00 to 0.00).",
    ]);
    expect(contextInWords([run(), run({ ...half, use: 2 })])[2]).toContain(": MoBA gains more; ");
    expect(contextInWords([run(), run({ ...half, use: 1 })])[2]).toContain(
      ": neither is shown to gain more; ",
    );
    const smaller = contextInWords([run(), run({ model: "d5" }), run({ ...half, model: "d5" })]);
    expect(smaller[2]).toContain("the loss of MoBA d5 on");
    expect(contextInWords([run(), run({ ...half, model: "d5" })])).toHaveLength(2);
  });

  it("is said to be higher with all context than with less, where it is by more than 0.1 %", () => {
    const told = (runs: readonly RunEnd[]) =>
      contextInWords(runs).filter((words) => words.startsWith("With all"));
    const worse = { attention: "moba-b512-k3", gain: -0.0195, late: -0.0195 };
    // Means: 1.95 with 256, 1.9695 with 512 and 1k, 1.989 with 2k, 2 % more. Documents rise by 0.0583 or 0.0197 nats from
    // 1.98 if light and 1.94 if heavy: without one of the four kinds 1.9360, 2.0681, 1.7695, 2.2258 %. Two of each:
    // t(5.4) sqrt(7 / 8 x 2 (0.0640² + 0.0681² + 0.2305² + 0.2258²)) = 2.515 x 0.4444 = 1.12 %.
    const words = told([
      run(),
      run(worse),
      run({ ...worse, model: "d5" }),
      run({ ...worse, model: "d3", late: 0.0195 }),
    ]);
    expect(words).toHaveLength(1);
    expect(words[0]).toBe(
      "With all 2k of context the loss of MoBA on the same tokens is higher than with its best shorter one at 2 of 3 sizes: " +
        "with 95 % intervals over documents, +2.00 % (+0.88 % to +3.12 %) against 256 at d8, +2.00 % (+0.88 % to +3.12 %) " +
        "against 256 at d5.",
    );
    const [single] = told([run({ ...worse, late: -0.003 })]);
    expect(single).toContain(
      "is higher than with its best shorter one: with 95 % intervals over documents, +1.15 % (",
    );
    // 0.03 nats of 1.93 from 512 on, but the third step is 0.0193 nats to and fro: 1.12 % each way, as above.
    expect(told([run({ late: -0.03 })])).toHaveLength(1);
    expect(told([run({ late: -0.019 })])).toEqual([]);
    expect(told([run({ late: -0.03 }), run({ late: -0.019, model: "d5" })])[0]).toMatch(
      / at every size \(shown at 1\): with .* at d8, \+0\.98 % \(-0\.\d+ % to .*\) against 512 at d5\.$/,
    );
    const without = { ...run(), truncated: undefined, config: { ...run().config!, model: "d3" } };
    expect(told([run({ late: -0.03 }), run({ late: -0.03, model: "d5" }), without])[0]).toContain(
      " one at every size that has it (2 of 3): with",
    );
    const late = { late: -0.03 };
    expect(
      told([run(late), run({ ...late, model: "d5" }), run({ model: "d4", late: 0.0195 }), without])[0],
    ).toContain(" one at 2 of 3 sizes that have it: with");
    const up = (share: number, model: string) => {
      const one = run({ model });
      const { result } = one.truncated!;
      const documents = result.documents.map((document) => {
        return { ...document, lm_loss: [2, 2, 2, 1.9, 1.9 * (1 + share)] };
      });
      return { ...one, truncated: { ...one.truncated!, result: { ...result, documents } } };
    };
    expect(told([up(0.0009, "d8")])).toEqual([]);
    expect(told([up(0.0011, "d8"), up(0.0012, "d5")])).toEqual([
      "With all 2k of context the loss of full attention on the same tokens is higher than with its best shorter one at " +
        "every size: with 95 % intervals over documents, +0.11 % (+0.11 % to +0.11 %) against 1k at d8, +0.12 % (+0.12 % " +
        "to +0.12 %) against 1k at d5.",
    ]);
  });

  it("is of the documents that all seeds have", () => {
    const [one, two] = [run({ documents: 12 }), run({ documents: 12 })];
    const { result } = two.truncated!;
    const renamed = result.documents.map((document, i) =>
      i < 8 ? document : { ...document, document: `other ${i}` },
    );
    const other = { ...two, truncated: { ...two.truncated!, result: { ...result, documents: renamed } } };
    expect(contextInWords([one, other])).toEqual([FULL]);
  });

  it("is not mixed of runs that kept other contexts", () => {
    const short = CONTEXTS.map((context) => context / 2);
    const words = contextInWords([
      run(),
      run({ contexts: short }),
      run({ attention: "moba-b64-k3", contexts: short }),
    ]);
    expect(words).toHaveLength(4);
    expect(words[0]).toBe(FULL);
    expect(words[1]).toContain(
      "up to 256 at least: with 95 % intervals over 8 documents, 64 to 128 -2.50 % (",
    );
    expect(words[3]).toMatch(
      /^From 64 to 1k of context the loss of MoBA d8 .*: neither is shown to gain more;/,
    );
    expect(contextInWords([run(), run({ attention: "moba-b64-k3", contexts: short })])).toHaveLength(2);
  });

  it("is not said of few documents, nor of runs that did not measure it", () => {
    expect(contextInWords([run({ documents: 1 })])).toEqual([]);
    expect(contextInWords([run({ documents: 7 })])).toEqual([]);
    expect(contextInWords([{ ...run(), truncated: undefined }])).toEqual([]);
    expect(contextInWords([{ ...run(), truncated: undefined }, run()])).toEqual([FULL]);
  });
});

/** Documents of very unequal length: as 60 of the same, the mean of 14 is as certain. */
function study(uniform: () => number): RunEnd[] {
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  const documents = Array.from({ length: 60 }, (_, i) => {
    const predicted_tokens = 128 * Math.max(1, Math.round(3 * Math.exp(1.5 * normal())));
    const first = 2.5 + 0.5 * normal();
    const second = first - 0.5 + 0.05 * normal();
    const third = second * (0.8 + 0.02 * normal());
    const full = [first, second, third, third - 0.1 + 0.1 * normal()];
    const moba = full.map((loss, k) => loss + 0.1 * k + 0.05 * normal());
    return { document: `document ${i}`, predicted_tokens, full, moba };
  });
  return (["full", "moba"] as const).map((attention) => ({
    ...run({ attention }),
    truncated: {
      ...{ model: "d8", parameters: 1 },
      result: {
        ...{ windows: 1, contexts: [128, 256, 512, 1024], lm_loss: [1, 1, 1, 1], predicted_tokens: 1 },
        documents: documents.map((one) => ({ ...one, lm_loss: one[attention] })),
      },
    },
  }));
}

it("intervals over documents of very unequal length hold the truth 19 times of 20", () => {
  const uniform = randomNumbers(1);
  // Means 2.5, 2, 1.6, 1.5 and 2.5, 2.1, 1.8, 1.8.
  const truth = [...[-20, -20, -6.25], ...[-16, -100 / 7, 0], ...[12, 4, 20 - 100 / 7, 6.25]];
  const hits = truth.map(() => 0);
  const times = 1000;
  for (let time = 0; time < times; time++) {
    const intervals = [
      ...contextInWords(study(uniform))
        .filter((words) => !words.startsWith("With all"))
        .join(" ")
        .matchAll(/\(([-+\d.]+)(?: %)? to ([-+\d.]+)(?: %)?\)/g),
    ];
    expect(intervals).toHaveLength(truth.length);
    for (const [i, [, low, high]] of intervals.entries()) {
      if (Number(low) <= truth[i] && truth[i] <= Number(high)) hits[i]++;
    }
  }
  for (const hit of hits) {
    expect(hit / times).toBeGreaterThan(0.92);
    expect(hit / times).toBeLessThan(0.97);
  }
});

it("positions of runs that recorded other buckets are not mixed", () => {
  const by = (buckets: number, losses: readonly number[]): RunEnd => ({
    ...run(),
    documents: Array.from({ length: 8 }, (_, i) => ({
      document: `document ${i}`,
      buckets: losses.map((lm_loss, b) => ({
        position_start: (2048 / buckets) * b,
        position_end: (2048 / buckets) * (b + 1),
        lm_loss,
        predicted_tokens: 2048 / buckets,
      })),
    })),
  });
  const words = positionInWords([by(4, [4, 2, 1, 1]), by(2, [9, 9])]);
  expect(words).toHaveLength(2);
  expect(words[0]).toContain("512-1024 -50.0 % (-50.0 % to -50.0 %), 1k-2k -50.0 % (");
  expect(words[1]).toContain("is not shown to fall with position: ");
  expect(words[1]).toContain(" 1k-2k 0.0 % (");
});

it("positions are compared over the documents that all runs of an attention have", () => {
  const by = (names: (i: number) => string, documents: number): RunEnd => ({
    ...run(),
    documents: Array.from({ length: documents }, (_, i) => ({
      document: names(i),
      // Only documents of all runs fall by a half; the others rise by a half.
      buckets: [2, i < 8 ? 1 : 3].map((lm_loss, b) => ({
        ...{ position_start: 1024 * b, position_end: 1024 * (b + 1), lm_loss, predicted_tokens: 64 },
      })),
    })),
  });
  const shared = (i: number) => `document ${i}`;
  const own = (i: number) => (i < 8 ? `document ${i}` : `other ${i}`);
  const [words] = positionInWords([by(shared, 12), by(own, 12)]);
  expect(words).toContain("over 8 documents, 1k-2k -50.0 % (-50.0 % to -50.0 %).");
  expect(positionInWords([by(shared, 8), by((i) => `other ${i}`, 8)])).toEqual([]);
});
