/** What held-out documents say of context, of losses by hand: values of two, in documents of 64 and of 192 tokens. */
import { describe, expect, it } from "vitest";
import { contextInWords } from "../../src/study/documents.ts";
import type { RunEnd } from "../../src/study/laws.ts";

const CONTEXTS = [128, 256, 512, 1024, 2048];

interface Made {
  readonly attention?: string;
  readonly model?: string;
  /** Share of full attention's first gain. */
  readonly use?: number;
  /** Nats of the second. */
  readonly gain?: number;
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
  const { use = 1, gain = 0.02, shift = 0, documents: count = 8, contexts = CONTEXTS } = made;
  const documents = Array.from({ length: count }, (_, i) => {
    const heavy = i % 4 >= 2;
    const first = 2 * (1 - use * (heavy ? 0.03 : 0.01));
    const third = first - gain + (i % 2 === 0 ? 0.0193 : -0.0193);
    const lm_loss = [2, first, first - gain, third, third].map((loss) => loss + shift);
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

// Weighted mean -(4 x 64 x 1 % + 4 x 192 x 3 %) / 1024 = -2.5 %. Residuals by weight are 0.96 and -0.96, so the half
// width is t(7) sqrt(8 x 0.96² x 8 / 7) / 1024 = 2.3646 x 2.9028 / 1024 = 0.67 %. Then 0.02 of 1.95, and 1 % each way of
// 1.93: 2.3646 sqrt(4 (0.64² + 1.92²) 8 / 7) / 1024 = 1.00 %.
const FULL =
  "The loss of full attention d8 on the same tokens falls with more context up to 512 at least: with 95 % intervals over " +
  "8 documents, 128 to 256 -2.50 % (-3.17 % to -1.83 %), 256 to 512 -1.03 % (-1.03 % to -1.03 %), " +
  "512 to 1k 0.00 % (-1.00 % to +1.00 %), 1k to 2k 0.00 % (0.00 % to 0.00 %).";

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

  it("is compared with full attention at the largest size of both, over the same documents", () => {
    const half = { attention: "moba-b512-k3", use: 0.5, documents: 12 };
    const words = contextInWords([run(), run({ ...half, model: "d5" }), run(half)]);
    expect(words[0]).toBe(FULL);
    // 2.5 % less 1.25 %, and half of 0.67 % each way; of the 0.02 nats 1/1.95 less 1/1.975.
    expect(words.slice(2)).toEqual([
      "From 128 to 2k of context the loss of MoBA d8 on the same tokens changes by -2.25 %, that of full attention by " +
        "-3.50 %: MoBA gains less; percentage points apart, with 95 % intervals over the same 8 documents, " +
        "+1.25 (+0.91 to +1.59), 128 to 256 +1.25 (+0.91 to +1.59), 256 to 512 +0.01 (+0.01 to +0.01), " +
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
