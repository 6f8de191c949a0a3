/** Ratios at single sizes, of losses by hand: documents of 64 and of 192 tokens in each of two buckets. */
import { describe, expect, it } from "vitest";
import { type CurvePoint, fit as fitCurves, type RunFacts } from "../../src/fit/index.ts";
import { end } from "./made.ts";

const BUCKETS = [0, 1024].map((start) => ({ position_start: start, position_end: start + 1024 }));

interface Made {
  readonly model?: string;
  readonly seed?: number;
  readonly budget?: number;
  /** Final loss from 1k on; before it is 2. */
  readonly loss?: number;
  /** Losses from 1k on of documents of 64 and of 192 tokens; before they are 2. */
  readonly light?: number;
  readonly heavy?: number;
  /** Losses of all documents before 1k. */
  readonly first?: number;
  readonly documents?: number;
  readonly reach?: number;
}

/** A run, and what is known of it. */
function run(attention: string, made: Made = {}): { points: CurvePoint[]; facts: [string, RunFacts] } {
  const { model = "d5", seed = 1, budget = 1, loss = 2, first = 2, documents: count = 8, reach } = made;
  const { light = loss, heavy = loss } = made;
  const name = `${model}_${attention}_s${seed}`;
  const documents = Array.from({ length: count }, (_, i) => {
    const predicted_tokens = i % 4 >= 2 ? 192 : 64;
    const losses = [first, i % 4 >= 2 ? heavy : light];
    const buckets = BUCKETS.map((bucket, b) => ({ ...bucket, lm_loss: losses[b], predicted_tokens }));
    return { document: `document ${i}`, buckets };
  });
  const points = BUCKETS.map((bucket, b) =>
    end(attention, model, budget, [first, loss][b], { ...bucket, run: name, seed, parameters: 1 }),
  );
  return { points, facts: [name, { documents, reach }] };
}

function fitted(runs: readonly ReturnType<typeof run>[], headline?: (typeof BUCKETS)[number]) {
  const points = runs.flatMap((one) => one.points);
  return fitCurves(points, { runs: new Map(runs.map(({ facts }) => facts)), bootstrap: 0, headline });
}

const about = (runs: readonly ReturnType<typeof run>[]) =>
  fitted(runs).reading.filter((words) => /^(Single sizes|Losses at|In the first)/.test(words));
const shares = (runs: readonly ReturnType<typeof run>[]) =>
  fitted(runs).reading.filter((words) => /^Relative to .* losses at/.test(words));

// Documents say 1.01 and 1.03, weighted 1.025; leaving one out changes that by 0.1 % or 0.115 %, so the error is
// sqrt(7 / 8 x 4 (0.1² + 0.115²)) = 0.286 %, and documents of one weight would be 1024² / (4 x 64² + 4 x 192²) = 6.4:
// t(5.4) = 2.515 times it is 0.72 % each way, around the ratio of the final losses.
const moba = run("moba-b512-k3", { loss: 2.1, light: 2.02, heavy: 2.06, first: 1.98, reach: 1536 });
const full = run("full", { reach: Number.POSITIVE_INFINITY });
const window = run("window-b512-k3", { loss: 1.96, reach: 1536 });

describe("an attention of one size", () => {
  it("has an interval over documents around the ratio of the final losses", () => {
    expect(about([full, moba])[0]).toBe(
      "Single sizes, so with 95 % intervals over 8 documents, not over seeds: losses at 1k-2k against full attention, " +
        "at d5 MoBA +5.0 % (+4.3 % to +5.7 %).",
    );
    const [ratio, first] = fitted([full, moba]).size_ratios!;
    expect(ratio).toMatchObject({ baseline: "full", other: "moba-b512-k3", model: "d5", seeds: 1 });
    expect(ratio).toMatchObject({ ...BUCKETS[1], documents: 8, alike: false });
    expect(ratio.interval[0]).toBeCloseTo(1.0428, 4);
    expect(ratio.interval[1]).toBeCloseTo(1.0572, 4);
    expect(first).toMatchObject({ ...BUCKETS[0], ratio: 0.99, alike: true });
  });

  it("is compared with the control, from which it may differ by routing alone", () => {
    const hybrid = run("moba-b512-k3+full@0.9", { loss: 1.96 });
    const words = about([full, moba, hybrid, window]);
    expect(words[0]).toMatch(
      /at d5 moba-b512-k3 \+5\.0 % \(.*\), moba-b512-k3\+full@0\.9 -2\.0 % \(-2\.0 % to -2\.0 %\), window-b512-k3 -2\.0 % \(-2\.0 % to -2\.0 %\)\.$/,
    );
    // 2.1 / 1.96 is 1.0714; the documents of the control are all alike, so the interval is 0.72 % / 0.98 each way.
    expect(words[1]).toBe(
      "Losses at 1k-2k against window-b512-k3, from which moba-b512-k3 differs by routing alone and moba-b512-k3+full@0.9 " +
        "by more than that, with 95 % intervals over 8 documents: moba-b512-k3 +7.1 % (+6.4 % to +7.9 %) at d5; moba-b512-k3+full@0.9 0.0 % (0.0 % to 0.0 %) at d5.",
    );
    expect(about([full, moba, run("window-b256-k6")])[1]).toMatch(
      /^Losses at 1k-2k against window-b256-k6, which does not route, with 95 % .*: MoBA \+5\.0 % \(.*\) at d5\.$/,
    );
    const grouped = run("moba-b512-k3-shared");
    expect(about([full, moba, grouped, window])[1]).toMatch(
      /, from which moba-b512-k3 and moba-b512-k3-shared differ by routing alone, /,
    );
  });

  it("is said to differ by training alone in the first positions, where it leaves nothing out", () => {
    const words = about([full, moba, window]);
    expect(words[2]).toBe(
      "In the first 1k positions, where MoBA and window-b512-k3 attend to everything as full attention does, losses " +
        "differ by training alone; against full attention, with 95 % intervals over 8 documents: " +
        "MoBA -1.0 % (-1.0 % to -1.0 %) at d5; window-b512-k3 0.0 % (0.0 % to 0.0 %) at d5.",
    );
    const short = run("moba-b256-k3", { reach: 768 });
    expect(about([full, short])).toHaveLength(1);
    expect(about([full, short, window]).at(-1)).toMatch(/, where window-b512-k3 attends to everything as /);
  });

  it("is not said to differ by routing in a bucket where nothing is left out", () => {
    const { reading } = fitted([full, moba, window], BUCKETS[0]);
    expect(reading.filter((words) => words.startsWith("Single sizes"))).toHaveLength(1);
    expect(reading.join()).not.toContain("routing alone");
    const short = run("moba-b512-k3", { reach: 768 });
    expect(fitted([full, short, window], BUCKETS[0]).reading.join()).toContain("routing alone");
  });

  it("is compared by shares of each one's own loss in the first positions too", () => {
    // By shares of 1.98 and of 2 documents are 1 / 0.99 times as far apart, and so is the interval: 1.025 / 0.99 is
    // 1.0354, 0.73 % each way. 2.1 / 1.98 is 1.0606; against the control's 1.96 / 2 it is 1.0823, 0.74 % each way.
    const words = shares([full, moba, window]);
    expect(words).toEqual([
      "Relative to each one's own loss in the first 1k positions, losses at 1k-2k, with 95 % intervals over 8 documents: " +
        "at d5 against full attention MoBA +6.1 % (+5.3 % to +6.8 %), window-b512-k3 -2.0 % (-2.0 % to -2.0 %); against " +
        "window-b512-k3 MoBA +8.2 % (+7.5 % to +9.0 %).",
    ]);
    const [ratio, ...rest] = fitted([full, moba, window]).size_ratios!;
    expect(ratio.relative).toMatchObject({ from_end: 1024, documents: 8 });
    expect(ratio.relative!.ratio).toBeCloseTo(2.1 / 1.98, 12);
    expect(ratio.relative!.interval[0]).toBeCloseTo(2.1 / 1.98 - 0.00721 / 0.99, 4);
    expect(rest.map(({ relative }) => relative !== undefined)).toEqual([true, true, false, false]);
    // Blocks that do not cover the first bucket differ there by attention too.
    const short = run("moba-b256-k3", { reach: 768 });
    expect(shares([full, short])).toEqual([]);
    expect(shares([full, short, window])[0]).toMatch(
      /at d5 against full attention window-b512-k3 -2\.0 % \(.*\)\.$/,
    );
  });

  it("follows each document's own shares", () => {
    // What is 2 % more in the second half of the documents is so in both buckets: nothing is left of it.
    const lifted = run("moba-b512-k3", { reach: 1536, loss: 2.02, first: 2.02 });
    for (const documents of [full, lifted].map(({ facts: [, { documents }] }) => documents!)) {
      expect(documents).toHaveLength(8);
    }
    const [, { documents }] = lifted.facts;
    const uneven = documents!.map(({ document, buckets }, i) => {
      const lm_loss = i % 4 >= 2 ? 2.06 : 1.96;
      return { document, buckets: buckets.map((bucket) => ({ ...bucket, lm_loss })) };
    });
    const facts: [string, RunFacts] = [lifted.facts[0], { ...lifted.facts[1], documents: uneven }];
    const { size_ratios: ratios } = fitted([full, { ...lifted, facts }]);
    expect(ratios![0].interval[1] - ratios![0].interval[0]).toBeGreaterThan(0.01);
    expect(ratios![0].relative!.ratio).toBeCloseTo(1, 12);
    for (const bound of ratios![0].relative!.interval) expect(bound).toBeCloseTo(1, 12);
  });

  it("keeps its interval where another has no documents, which is said", () => {
    expect(about([full, moba, run("window-b512-k3", { loss: 1.96, documents: 0 })])[0]).toBe(
      "Single sizes, so with 95 % intervals over 8 documents, not over seeds: losses at 1k-2k against full attention, " +
        "at d5 MoBA +5.0 % (+4.3 % to +5.7 %), window-b512-k3 -2.0 % (no interval: too few documents of both).",
    );
  });

  it("without documents of both, or with few, has no interval", () => {
    const without =
      "Single sizes, so without an interval: losses at 1k-2k against full attention, at d5 MoBA +5.0 %.";
    for (const documents of [0, 7]) {
      expect(about([run("full", { documents }), moba])).toEqual([without]);
    }
    const other = run("moba-b512-k3", { loss: 2.1 });
    const [name, { documents }] = other.facts;
    // Documents of which other tokens were predicted are no pairs.
    const fewer = documents!.map(({ document, buckets }) => {
      return { document, buckets: buckets.map((bucket) => ({ ...bucket, predicted_tokens: 32 })) };
    });
    expect(about([full, { ...other, facts: [name, { documents: fewer }] }])).toEqual([without]);
    expect(fitCurves([...full.points, ...moba.points])).not.toHaveProperty("size_ratios");
  });
});

describe("a ladder", () => {
  // Seeds whose losses lie e^0.02 and e^0.01 apart scatter by 0.02 and 0.01 over the root of 2: 1.41 % and 0.71 %.
  const ladder = ["d3", "d4", "d5"].flatMap((model, i) =>
    [1, 2].flatMap((seed) => {
      const sign = seed === 1 ? 1 : -1;
      const at = { model, seed, budget: 3 ** i };
      return [
        run("full", { ...at, loss: 2 * Math.exp(0.01 * sign), light: 2, heavy: 2, reach: 1e9 }),
        // Documents of 64 tokens 1 % apart each way by seed, of which the mean counts.
        run("moba-b512-k3", {
          ...{ ...at, loss: 2.1 * Math.exp(0.005 * sign), reach: 1536 },
          ...{ light: 2.02 * (1 + 0.01 * sign), heavy: 2.06 * (1 - 0.01 * sign) },
        }),
      ];
    }),
  );

  it("tells what seeds alone change, and means over pairs of seeds", () => {
    const words = about([...ladder, run("window-b512-k3", { loss: 1.96 * Math.exp(0.01), budget: 9 })]);
    // cosh(0.01) of 2 and cosh(0.005) of 2.1: 4.996 % apart; window against the full run of its seed -2 %. Seeds: the
    // mean of 0.02^2 / 2 and 0.01^2 / 2 with 6 degrees of freedom is 0.000125; 2.447 times the root of twice that is
    // 3.87 %, a factor of 1.0394. All is 2 before 1k, so shares scatter as much.
    expect(words[0]).toBe(
      "Single sizes, so with 95 % intervals over 8 documents, not over seeds (two runs that differ only by their seeds " +
        "would end up to 3.9 % apart in 95 of 100 cases): losses at 1k-2k against full attention, at d5 MoBA +5.0 % (+4.3 % to +5.7 %), window-b512-k3 -2.0 % (-2.0 % to -2.0 %, within what seeds alone do).",
    );
    // 5.0 % and what 2.0 % lower makes of it: 7.2 % between runs of one seed, 1.071 by means.
    expect(words[1]).toMatch(
      /^Losses at 1k-2k against window-b512-k3, from which MoBA differs by routing alone, with 95 % intervals over 8 documents \(by seeds alone two runs end up to 3\.9 % apart\): MoBA \+\d\.\d % \([^,]*\) at d5\.$/,
    );
    expect(shares([...ladder, run("window-b512-k3", { budget: 9, reach: 1536 })])[0]).toContain(
      ", with 95 % intervals over 8 documents (by seeds alone two runs end up to 3.9 % apart): at d5 against full attention MoBA +5.0 % (",
    );
    expect(words[2]).toMatch(
      /: MoBA 0\.0 % \(.*\) at d3, 0\.0 % \(.*\) at d4, 0\.0 % \(.*\) at d5, all within what seeds alone do\.$/,
    );
    const { size_ratios: ratios } = fitted(ladder);
    expect(ratios!.map(({ seeds }) => seeds)).toEqual(Array(6).fill(2));
  });

  it("says which differences lie within what seeds alone do, means over several seeds within less", () => {
    // e^0.0379 is 3.87 %; of means over two pairs of seeds 0.0379 / sqrt(2) is 2.72 %.
    const windows = (share: number, seeds: readonly number[]) =>
      seeds.map((seed) => {
        const loss = 2 * Math.exp(0.01 * (seed === 1 ? 1 : -1)) * share;
        return run("window-b512-k3", { seed, loss, budget: 9 });
      });
    const about5 = (share: number, seeds: readonly number[]) =>
      about([...ladder, ...windows(share, seeds)]).find((words) => words.startsWith("Single sizes"))!;
    expect(about5(1.03, [1])).toMatch(/ window-b512-k3 \+3\.0 % \([^,]*, within what seeds alone do\)\.$/);
    expect(about5(1.045, [1])).toMatch(/ window-b512-k3 \+4\.5 % \([^,]*\)\.$/);
    expect(about5(1.03, [1, 2])).toMatch(/ window-b512-k3 \+3\.0 % \([^,]*\)\.$/);
    expect(about5(1.02, [1, 2])).toMatch(/ window-b512-k3 \+2\.0 % \([^,]*, within what seeds alone do\)\.$/);
  });

  it("that is whole has no single sizes, and a control of all sizes is told at each", () => {
    const controls = ["d3", "d4", "d5"].map((model, i) =>
      run("window-b512-k3", { model, budget: 3 ** i, loss: 1.96 }),
    );
    const words = about([...ladder, ...controls]);
    expect(words).toHaveLength(2);
    expect(words[0]).toMatch(
      /by routing alone, with 95 % intervals over 8 documents, not over seeds \(two runs that differ only by their seeds would end up to 3\.9 % apart in 95 of 100 cases\): MoBA \+7\.7 % .* at d3, \+7\.7 % .* at d4, \+7\.7 % .* at d5\.$/,
    );
  });

  it("tells what is lost from the first positions on, whatever the training of a size is worth", () => {
    const budget = (i: number) => 3 ** i;
    const made = (i: number, reach: number) => {
      // Training makes 5 % each way. Around 5 % lie 0.1, -0.2 and 0.1 %: no slope, s = sqrt(6) x 0.1 % with 1 degree
      // of freedom, so 12.706 x 0.1 % x sqrt(2) = 1.797 % each way at the middle.
      const training = [0.95, 1, 1.05][i];
      const lost = 1.05 * Math.exp([0.001, -0.002, 0.001][i]);
      const loss = 1.8 * training * lost;
      return run("moba-b512-k3", { model: `d${i}`, budget: budget(i), first: 2 * training, loss, reach });
    };
    const base = [0, 1, 2].map((i) =>
      run("full", { model: `d${i}`, budget: budget(i), loss: 1.8, reach: 1e9 }),
    );
    const sparse = (reach: number) => [0, 1, 2].map((i) => made(i, reach));
    const { growth_ratios, reading } = fitted([...base, ...sparse(1536)]);
    expect(growth_ratios).toHaveLength(1);
    const [growth] = growth_ratios!;
    expect(growth).toMatchObject({ ...BUCKETS[1], from_end: 1024, sizes: 3, other: "moba-b512-k3" });
    expect(growth.pflops_days).toBeCloseTo(3, 12);
    expect(growth.ratio).toBeCloseTo(1.05, 12);
    expect(growth.interval[0]).toBeCloseTo(1.05 * Math.exp(-0.01797), 4);
    expect(growth.interval[1]).toBeCloseTo(1.05 * Math.exp(0.01797), 4);
    expect(reading).toContain(
      "Relative to each one's own loss in the first 1k positions, the loss of MoBA is 5.0 % higher (95 % interval " +
        "+3.1 % to +6.9 %), over 3 sizes.",
    );
    // Blocks that do not cover the first bucket differ there by attention too; two sizes make no line.
    expect(fitted([...base, ...sparse(768)])).not.toHaveProperty("growth_ratios");
    expect(fitted([...base.slice(1), ...sparse(1536).slice(1)])).not.toHaveProperty("growth_ratios");
  });
});
