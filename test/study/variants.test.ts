/** What an option of the recipe does, of losses by hand: documents of 64 and of 192 tokens. */
import { describe, expect, it } from "vitest";
import { partsOf } from "../../src/fit/parts.ts";
import { fitStudy, type RunEnd } from "../../src/study/laws.ts";
import { end } from "../fit/made.ts";

const BUCKETS = [0, 1024].map((start) => ({ position_start: start, position_end: start + 1024 }));
const DROP = { middle: 90e6, end: 100e6, before: 3, after: 2, atEnd: false };
/** 0.3118 C^-0.125 with C = 1 PFLOP/s-day, to three digits, times factors. */
const RATES = { 0.25: 2.51e-4, 0.35: 3.51e-4, 0.5: 5.02e-4, 0.7: 7.03e-4, 1: 1e-3 };

interface Made {
  readonly attention?: string;
  readonly seed?: number;
  /** Final loss from 1k on; before it is 2. */
  readonly loss: number;
  /** Losses from 1k on of documents of 64 and of 192 tokens. */
  readonly light?: number;
  readonly heavy?: number;
  readonly documents?: number;
  readonly factor?: keyof typeof RATES;
  readonly keyConvolution?: number;
  readonly layers?: number;
  readonly budget?: number;
  readonly drop?: RunEnd["drop"];
}

function run(model: string, made: Made) {
  const { attention = "full", seed = 1, loss, light = loss, heavy = loss, documents: count = 8 } = made;
  const { factor = 0.35, keyConvolution = 0, layers = 2, budget = 1, drop = DROP } = made;
  const name = `${model}_${attention}_s${seed}`;
  const documents = Array.from({ length: count }, (_, i) => {
    const predicted_tokens = i % 4 >= 2 ? 192 : 64;
    const losses = [2, i % 4 >= 2 ? heavy : light];
    return {
      document: `document ${i}`,
      buckets: BUCKETS.map((bucket, b) => ({ ...bucket, lm_loss: losses[b], predicted_tokens })),
    };
  });
  const losses = [2, loss, (2 + loss) / 2];
  const points = [...BUCKETS, {}].map((bucket, b) =>
    end(attention, model, budget, losses[b], { ...bucket, run: name, seed, parameters: 1 }),
  );
  const shape = { layers, keyConvolution };
  const optimizer = { learningRate: RATES[factor], beta1: 0.9 };
  const config = { model, attention, seed, context: 2048, shape, optimizer } as unknown as RunEnd["config"];
  return { points, run: { name, finished: true, config, documents, drop } };
}

function parts(runs: readonly ReturnType<typeof run>[]) {
  const points = runs.flatMap((one) => one.points);
  const ends = runs.map((one) => one.run);
  return new Map(
    partsOf(fitStudy(points, ends, { bootstrap: 0 })).map(({ title, sentences }) => [
      title,
      sentences.filter((words) => / learning rate|^Learning rate|^With |^\d+ more/.test(words)),
    ]),
  );
}

const moba = { attention: "moba-b512-k3" };
const sweep = [
  run("d5", { loss: 2 }),
  // Documents say 1.01 and 1.03: +-0.72 % (test/fit/by-size.test.ts), around the ratio of the final losses.
  run("d5-lr0.25", { factor: 0.25, loss: 2.06, light: 2.02, heavy: 2.06 }),
  run("d5-lr0.7", { factor: 0.7, loss: 2.02 }),
  run("d5", { ...moba, loss: 2.2 }),
  run("d5-lr0.25", { ...moba, factor: 0.25, loss: 2.31 }),
  run("d5-lr0.7", { ...moba, factor: 0.7, loss: 2.09 }),
];

describe("a sweep of the learning rate", () => {
  it("says where each attention is lowest, how far apart that is, and what each at its own comes to", () => {
    const told = parts(sweep);
    expect(told.get("In short")).toEqual([
      "Learning rate at d5, as a factor on the rule's: the loss at 1k-2k is lowest at 0.35 with full attention (of 0.25 to " +
        "0.7) and at 0.7 with MoBA (of 0.25 to 0.7, so not bracketed). These lie a factor of 2.00 apart, as far as tried; " +
        "up to 2 one rule serves all attentions.",
      "Losses at 1k-2k at d5 against full attention by learning rate, with 95 % intervals over 8 documents: each at its own " +
        "lowest rate, MoBA +4.5 % (+4.5 % to +4.5 %); all at 0.35, MoBA +10.0 % (+10.0 % to +10.0 %).",
    ]);
    // Over all positions (2 + 2.06) / 4 is 1.5 % above, and half of what documents say beyond 1k is left of them.
    expect(told.get("Single sizes")).toEqual([
      "Learning rates at d5, losses against those at 0.35 of the rule's, at 1k-2k, with 95 % intervals over 8 documents: " +
        "full attention +3.0 % (+2.3 % to +3.7 %) at 0.25, +1.0 % (+1.0 % to +1.0 %) at 0.7; " +
        "MoBA +5.0 % (+5.0 % to +5.0 %) at 0.25, -5.0 % (-5.0 % to -5.0 %) at 0.7.",
      "Learning rates at d5, losses against those at 0.35 of the rule's, over all positions, with 95 % intervals over 8 " +
        "documents: full attention +1.5 % (+1.1 % to +1.9 %) at 0.25, +0.5 % (+0.5 % to +0.5 %) at 0.7; " +
        "MoBA +2.6 % (+2.6 % to +2.6 %) at 0.25, -2.6 % (-2.6 % to -2.6 %) at 0.7.",
    ]);
  });

  it("compares the best rates with the limit of one rule once they are bracketed", () => {
    const answer = (...more: ReturnType<typeof run>[]) => parts([...sweep, ...more]).get("In short")![0];
    const beyond = run("d5-lr1", { ...moba, factor: 1, loss: 2.1 });
    expect(answer(beyond)).toContain(
      "at 0.7 with MoBA (of 0.25 to 1). These lie a factor of 2.00 apart, within the 2 up to which one rule serves all attentions.",
    );
    const lower = [
      run("d5-lr1", { ...moba, factor: 1, loss: 2.08 }),
      run("d5-lr0.5", { factor: 0.5, loss: 2.01 }),
    ];
    expect(answer(...lower)).toContain(
      "at 1 with MoBA (of 0.25 to 1, so not bracketed). These lie a factor of 2.86 apart, as far",
    );
  });

  it("takes no run for the best that ends in its sudden drop or before it, and names it", () => {
    const inDrop = run("d5-lr1", { ...moba, factor: 1, loss: 1.5, drop: { ...DROP, atEnd: true } });
    const before = run("d5-lr0.5", { ...moba, factor: 0.5, loss: 1.5, drop: null });
    const [one] = parts([...sweep, inDrop]).get("In short")!;
    expect(one).toContain("at 0.7 with MoBA (of 0.25 to 0.7, so not bracketed)");
    expect(one).toMatch(
      / Left out: d5-lr1_moba-b512-k3_s1, which ends before the sudden drop of its training loss, in it or just after it\.$/,
    );
    expect(parts([...sweep, inDrop, before]).get("In short")![0]).toMatch(
      / Left out: d5-lr1_moba-b512-k3_s1, d5-lr0.5_moba-b512-k3_s1, which end before the sudden drop of their training loss,/,
    );
  });

  it("has no law, its models being of one budget", () => {
    const ends = sweep.map((one) => one.run);
    const points = sweep.flatMap((one) => one.points);
    const { warnings } = fitStudy(points, ends, { bootstrap: 0 });
    expect(warnings.filter((words) => words.includes("3 sizes of one budget"))).toEqual([
      expect.stringMatching(/^no law for full, moba-b512-k3 by 6ND: 3 sizes of one budget, and a law/),
      expect.stringMatching(/^no comparison of moba-b512-k3 with full by 6ND: 3 sizes of one budget in both/),
    ]);
  });

  it("marks a comparison with a run that is not past its drop", () => {
    const points = (drop: RunEnd["drop"]) => {
      const ones = [...sweep.slice(0, 3), { ...sweep[3], run: { ...sweep[3].run, drop } }, sweep[4]];
      const ends = ones.map((one) => one.run);
      return fitStudy(
        ones.flatMap((one) => one.points),
        ends,
        { bootstrap: 0 },
      ).reading.filter((words) => words.startsWith("Single sizes"))[0];
    };
    expect(points(DROP)).not.toContain("not past");
    for (const drop of [{ ...DROP, atEnd: true }, null]) {
      expect(points(drop)).toContain(
        "at d5 MoBA +10.0 % (+10.0 % to +10.0 %, MoBA not past the sudden drop); at d5-lr0.25 MoBA",
      );
      expect(points(drop).match(/not past/g)).toHaveLength(1);
    }
  });

  it("compares runs of one seed, and says how far seeds alone differ", () => {
    // Seeds 1 % apart: s = 0.01 / sqrt(2) of one degree of freedom, and t(1) sqrt(2) s = 12.7 x 1 %; e^0.1264 is 1.135.
    const words = parts([...sweep, run("d5", { seed: 2, loss: 2.02 })]);
    expect(words.get("Single sizes")![0]).toContain(
      "with 95 % intervals over 8 documents (by seeds alone two runs end up to 13.5 % apart): full attention +3.0 % (+2.3 %",
    );
    expect(words.get("Single sizes")![0]).toMatch(/, all within what seeds alone do\.$/);
    // No seed of both.
    const other = run("d5-lr0.5", { seed: 2, factor: 0.5, loss: 1 });
    expect(parts([...sweep, other]).get("In short")![0]).toContain(
      "at 0.35 with full attention (of 0.25 to 0.7)",
    );
  });

  it("is told by learning rates that are not by the rule", () => {
    const budget = 1.5;
    const told = parts([run("d5", { loss: 2, budget }), run("d5-lr0.7", { factor: 0.7, loss: 1.9, budget })]);
    expect(told.get("In short")).toEqual([
      "Learning rate at d5: the loss at 1k-2k is lowest at 0.000703 with full attention (of 0.000351 to 0.000703, so not bracketed).",
    ]);
  });

  it("has no intervals for too few documents, and tells every rate of two sizes at most", () => {
    const size = (layers: number) =>
      [0.35, 0.7].map((factor) =>
        run(`d${layers}${factor === 0.7 ? "-lr0.7" : ""}`, {
          ...{ layers, budget: 1 + layers / 1e4, loss: 2 + factor, documents: 7 },
          factor: factor as 0.7,
        }),
      );
    const told = parts([1, 2, 3, 4, 5, 6, 7, 8].flatMap(size));
    expect(told.get("In short")!.map((words) => words.slice(0, 19))).toEqual(
      [8, 7, 6, 5, 4, 3].map((depth) => `Learning rate at d${depth}`),
    );
    const details = told.get("Single sizes")!;
    expect(details).toHaveLength(5);
    expect(details[0]).toBe(
      "Learning rates at d8, losses against those at 0.35 of the rule's, at 1k-2k, without an interval: full attention +14.9 % at 0.7.",
    );
    expect(details[4]).toBe("6 more sizes with several learning rates in the table of these.");
  });
});

describe("another option of the recipe", () => {
  const pair = (attention: string, loss: number, made: Partial<Made> = {}) => [
    run("d4", { attention, loss: 2 }),
    run("d4-kconv3", { attention, keyConvolution: 3, loss, drop: { ...DROP, middle: 58e6 }, ...made }),
  ];

  it("has its change of the loss and of the drop's middle, by attention", () => {
    const told = parts([...pair("full", 1.9), ...pair("moba-b512-k3", 2.06, { light: 2.02, heavy: 2.06 })]);
    expect(told.get("In short")).toEqual([
      "With key convolution 3 instead of 0 losses change, at 1k-2k, with 95 % intervals over 8 documents: " +
        "full attention -5.0 % (-5.0 % to -5.0 %) at d4; MoBA +3.0 % (+2.3 % to +3.7 %) at d4.",
    ]);
    expect(told.get("Single sizes")).toEqual([
      "With key convolution 3 instead of 0 the middle of the sudden drop of the training loss moves, in million tokens, by " +
        "-32.0 with full attention at d4 (90.0 to 58.0), -32.0 with MoBA at d4 (90.0 to 58.0).",
    ]);
  });

  it("leaves out runs that are off the trend, and is told once laws are compared too", () => {
    const out = [...pair("full", 1.9), ...pair("moba-b512-k3", 1, { drop: { ...DROP, atEnd: true } })];
    const [words] = parts(out).get("In short")!;
    expect(words).toMatch(
      /: full attention -5.0 % \(-5.0 % to -5.0 %\) at d4\. Left out: d4-kconv3_moba-b512-k3_s1, which/,
    );
    const ladder = [5, 6, 7].flatMap((layers) =>
      ["full", "moba-b512-k3"].map((attention) =>
        run(`d${layers}`, { attention, layers, budget: layers - 4, loss: 3 - layers / 10 }),
      ),
    );
    const with4 = parts([...pair("full", 1.9), ...ladder]);
    expect(with4.get("In short")).toEqual([]);
    expect(with4.get("Single sizes")![0]).toMatch(
      /^With key convolution 3 instead of 0 losses change, at 1k-2k, /,
    );
  });
});
