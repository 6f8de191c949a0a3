/** What the laws of a study say of its runs beside their curves. */
import { describe, expect, it } from "vitest";
import { partsOf } from "../../src/fit/parts.ts";
import { fitStudy, type RunEnd } from "../../src/study/laws.ts";
import { madeUpCurves } from "../report/fixture.ts";
import { randomNumbers } from "../train/tiny.ts";

const CONTEXT = 2048;
const points = madeUpCurves({ context: CONTEXT });

/** Twenty documents of one window, each with a level of its own, losing 10 %, then 5 %, then nothing, with noise on top. */
function documents(noise: number): RunEnd["documents"] {
  const uniform = randomNumbers(7);
  return Array.from({ length: 20 }, (_, i) => {
    const level = 2 + uniform();
    const buckets = [1, 0.9, 0.855, 0.855].map((share, b) => ({
      position_start: 512 * b,
      position_end: 512 * (b + 1),
      lm_loss: level * share * (1 + noise * (2 * uniform() - 1)),
      predicted_tokens: 512,
    }));
    return { document: `document ${i}`, buckets };
  });
}

function reading(more: (attention: string, name: string) => Partial<RunEnd>): string {
  const names = new Map(points.map(({ run, attention }) => [run!, attention]));
  const runs = [...names].map(([name, attention]): RunEnd => {
    const config = { attention, context: CONTEXT, shape: { layers: 2 } };
    return { name, finished: true, config, ...more(attention, name) };
  });
  const { reading: words, warnings } = fitStudy(points, runs, { bootstrap: 0 });
  return [...words, ...warnings].join("\n");
}

describe("the reading of a study", () => {
  it("says how far the loss falls with position, over documents, where they are enough", () => {
    const words = reading(() => ({ documents: documents(0.01) }));
    expect(words).toMatch(/The loss of full attention falls with position up to 1k-2k at least/);
    expect(words).toMatch(/512-1024 -(9\.[5-9]|10\.[0-5]) % \(-1\d\.\d % to -9\.\d %\), 1k-2k -[45]\.\d %/);
    expect(reading(() => ({ documents: documents(0.3) }))).toMatch(/1k-2k [-+]\d+\.\d % \(-\d+\.\d % to \+/);
    expect(reading(() => ({ documents: documents(0.01)!.slice(0, 5) }))).not.toMatch(/with position up to/);
  });

  it("tells apart what differs where an attention leaves nothing out: its blocks, in all layers", () => {
    const words = (layers: number) =>
      reading((attention) => ({
        config: { attention, context: CONTEXT, shape: { layers } },
        documents: documents(0.01),
      }));
    // Blocks of 128, of which 4 reach 512, all of the first bucket; there the ratio is 1 - 0.004.
    expect(words(2)).toMatch(
      /In the first 512 positions, where MoBA attends to everything as full attention does, .*: MoBA -0\.4 % \(-0\.4 % to -0\.4 %\) at d2, /,
    );
  });

  it("says that all runs are past their drop, and names those that are not", () => {
    const drop = { middle: 100e6, end: 120e6, before: 3, after: 2, atEnd: false };
    const LOST = [{ what: "drops", reason: "log is missing" }];
    expect(reading(() => ({ drop }))).toContain("Every finished run ends past a sudden drop");
    expect(reading(() => ({ drop: null }))).not.toContain("drop");
    const unknown = reading((_, name) => (name === "full-d2-s1" ? { lost: LOST } : { drop }));
    expect(unknown).toContain("left out of drops: full-d2-s1, whose log is missing");
    expect(unknown).toContain("7 of 7 finished runs whose training log and losses are known end past");
    expect(unknown).not.toContain("no sudden drop");
    const words = reading((attention) => ({ drop: attention === "full" ? drop : { ...drop, atEnd: true } }));
    expect(words).toContain("4 of 8 finished runs end past a sudden drop");
    expect(words).toMatch(
      /ends in or just after a sudden drop of the training loss, .*: moba-b128-k4-d2-s1, /,
    );
    const one = reading((_, name) => ({ drop: name === "moba-b128-k4-d5-s1" ? drop : null }));
    expect(one).toMatch(/a sudden drop .*, which most runs have not, .*: moba-b128-k4-d5-s1$/m);
    expect(one).not.toContain("finished runs end past");
    expect(reading((attention) => ({ drop: attention === "full" ? drop : null }))).toMatch(
      /no sudden drop of the training loss, which others have, .*: moba-b128-k4-d2-s1, /,
    );
  });

  it("puts what it adds into the parts of the reading", () => {
    const drop = { middle: 100e6, end: 120e6, before: 3, after: 2, atEnd: false };
    const names = new Map(points.map(({ run, attention }) => [run!, attention]));
    const runs = [...names].map(([name, attention]): RunEnd => {
      const config = { attention, context: CONTEXT, shape: { layers: 2 } };
      return { name, finished: true, config, documents: documents(0.01), drop, time_s: 60, evaluation_s: 1 };
    });
    const result = fitStudy(points, runs, { bootstrap: 0 });
    const parts = partsOf(result);
    expect(parts.flatMap(({ sentences }) => sentences)).toEqual(result.reading);
    expect(new Set(result.reading).size).toBe(result.reading.length);
    const part = (name: string) => parts.find(({ title }) => title === name)!.sentences;
    expect(part("By position")).toContainEqual(
      expect.stringMatching(/^The loss of MoBA falls with position up to/),
    );
    expect(part("Training and cost")).toEqual([
      expect.stringMatching(/^Every finished run ends past a sudden drop/),
      expect.stringMatching(/^8 runs trained for 8\.0 minutes/),
    ]);
  });

  it("names sizes that are of another recipe than the others", () => {
    const words = (of: (model: string, attention: string) => object, more: object = {}) => {
      const text = reading((attention, name) => {
        const model = /d\d/.exec(name)![0];
        const shape = { layers: Number(model[1]), ropeTheta: 500_000, keyConvolution: 0 };
        const optimizer = { learningRate: Number(model[1]), beta1: 0.9 };
        const config = { attention, context: CONTEXT, model, optimizer, sequencesPerStep: shape.layers };
        const own = { ...config, ...more, shape: { ...shape, ...of(model, attention) } };
        return { config: own as unknown as RunEnd["config"] };
      });
      return text.match(/the sizes differ.*/g);
    };
    expect(words(() => ({}))).toBeNull();
    expect(words((model) => (model === "d5" ? { ropeTheta: 10_000 } : {}))).toEqual([
      "the sizes differ in ropeTheta: 500000 (d2, d3, d4) and 10000 (d5); laws through them are those of no one recipe",
    ]);
    expect(words((model) => (model < "d4" ? {} : { keyConvolution: 3 }))).toEqual([
      "the sizes differ in keyConvolution: 0 (d2, d3) and 3 (d4, d5); laws through them are those of no one recipe",
    ]);
    // Sizes that differ in themselves are named as such.
    expect(words((_, attention) => (attention === "full" ? {} : { keyConvolution: 3 }))).toBeNull();
  });

  it("names runs without what the others measured at their end", () => {
    const truncated = {
      ...{ model: "d2", parameters: 1 },
      result: { windows: 1, contexts: [1, 2], lm_loss: [1, 1], predicted_tokens: 1, documents: [] },
    };
    const lost = [{ what: "losses with less context", reason: "truncated.json is not JSON" }];
    const told = (more: (attention: string, name: string) => Partial<RunEnd>) =>
      reading(more).match(/left out of losses with less context.*/g);
    expect(told(() => ({}))).toBeNull();
    expect(told(() => ({ truncated }))).toBeNull();
    expect(told((_, name) => (name === "full-d2-s1" ? {} : { truncated }))).toEqual([
      "left out of losses with less context: full-d2-s1, which has no truncated.json",
    ]);
    expect(
      told((attention, name) =>
        attention === "full" ? (name === "full-d2-s1" ? { lost } : {}) : { truncated },
      ),
    ).toEqual([
      "left out of losses with less context: full-d2-s1, whose truncated.json is not JSON",
      "left out of losses with less context: full-d3-s1, full-d4-s1, full-d5-s1, which have no truncated.json",
    ]);
    // Recall is measured where the configuration asks for it.
    const recall = { model: "d2", parameters: 1, result: { windows: 1, chance: 1, bands: [] } };
    const asking = { recall: 0, context: CONTEXT, shape: { layers: 2 } };
    const words = reading((attention, name) => ({
      config: name === "full-d3-s1" ? { ...asking, attention, recall: undefined } : { ...asking, attention },
      ...(/^full-d[23]/.test(name) ? {} : { recall }),
    }));
    expect(words.match(/left out of recall.*/g)).toEqual([
      "left out of recall by distance: full-d2-s1, which has no recall.json",
    ]);
  });

  it("stays short however many runs are lost, for however many reasons", () => {
    const problem = "cannot be read: config.json is missing";
    const lost = (reason: string) => [{ what: "recall by distance", reason }];
    const ends = Array.from({ length: 900 }, (_, i): RunEnd => {
      const name = `x${i}`;
      if (i < 300) return { name, finished: false, problem };
      if (i < 600) return { name, finished: false, lost: lost("recall.json is cut") };
      return { name, finished: false, lost: lost(`recall.json ends at ${i}`) };
    });
    const known = points.map(({ run }) => run!);
    const runs = [...new Set(known)].map((name): RunEnd => ({ name, finished: true }));
    const { warnings } = fitStudy(points, [...runs, ...ends], { bootstrap: 0 });
    expect(warnings.filter((words) => words.includes("x1"))).toEqual(
      [
        `left out of the laws: x0, x1, x2 and 297 more, each of which ${problem}`,
        "not finished, so left out of the laws: x300, x301, x302, x303, x304, x305, x306, x307, x308, x309, x310 and 589 more",
      ].filter((words) => words.includes("x1")),
    );
    const recalls = warnings.filter((words) => words.startsWith("left out of recall by distance: "));
    expect(recalls).toHaveLength(7);
    expect(recalls[0]).toBe(
      "left out of recall by distance: x300, x301, x302 and 297 more, whose recall.json is cut",
    );
    expect(recalls[6]).toBe("left out of recall by distance: 295 more runs, for other reasons");
  });

  it("names models of a sweep that laws go through, and attentions up to six one by one", () => {
    const words = (rate: (model: string) => number) =>
      reading((attention, name) => {
        const model = /d\d/.exec(name)![0];
        const optimizer = { learningRate: rate(model) };
        const config = { attention, context: CONTEXT, model, optimizer, shape: { layers: 2 } };
        return { config: config as unknown as RunEnd["config"], documents: documents(0.01) };
      }).match(/.*nothing but their learning rate.*/g);
    expect(words(() => 1e-3)).toBeNull();
    expect(words((model) => (model === "d5" ? 2e-3 : 1e-3))).toEqual([
      "models that differ in nothing but their learning rate count as sizes (d2, d3, d4, d5); laws through them are those of no one recipe",
    ]);
    const many = Array.from({ length: 8 }, (_, i) =>
      ["d2", "d3"].map((model) => ({
        ...points[0],
        attention: `window-b16-k${i + 1}`,
        model,
        run: `${model}-k${i}`,
      })),
    ).flat();
    const runs = many.map(({ run, attention }): RunEnd => {
      const config = { attention, context: CONTEXT, shape: { layers: 2 } };
      return { name: run, finished: true, config, documents: documents(0.01) };
    });
    const { reading: told } = fitStudy(many, runs, { bootstrap: 0 });
    expect(told.filter((words) => words.includes(" with position up to "))).toHaveLength(6);
    expect(told).toContain("The same of 2 more attentions is in the chart.");
  });

  it("names sizes whose runs are not of one shape and recipe", () => {
    const words = (size: (attention: string, name: string) => object) =>
      reading((attention, name) => {
        const model = /d\d/.exec(name)![0];
        const { shape, ...more } = { shape: {}, ...size(attention, model) };
        const config = {
          attention,
          context: CONTEXT,
          model,
          shape: { layers: 2, ropeTheta: 10_000, ...shape },
        };
        return { config: { ...config, ...more } as RunEnd["config"] };
      });
    expect(words((_, model) => ({ shape: { layers: Number(model[1]) } }))).not.toContain("differ in");
    // What attention, seed and device change.
    const own = (attention: string) => (attention === "full" ? 1 : 2);
    expect(words((attention) => ({ seed: own(attention), sequencesPerPass: own(attention) }))).not.toContain(
      "differ in",
    );
    const apart = words((attention, model) =>
      model === "d3" && attention === "full" ? { shape: { ropeTheta: 500_000 }, horizon: { tokens: 5 } } : {},
    );
    expect(apart.match(/runs of d.*/g)).toEqual([
      "runs of d3 differ in ropeTheta: 500000 and 10000, horizon.tokens: 5 and none; they are compared as one size",
    ]);
  });
});
