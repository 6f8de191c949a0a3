import { describe, expect, test } from "vitest";
import { fullReach, parseSchedule } from "../../src/attention/schedule.ts";
import { attentionAt, evaluationSteps, horizonSteps, learningRate } from "../../src/train/schedule.ts";
import { tinyConfig } from "./tiny.ts";

const { optimizer } = tinyConfig();
const full = { kind: "full" };
const moba = { kind: "moba", blockSize: 128, topK: 4 };

describe("learning rate", () => {
  test("cosine: warm-up, half way and end by hand", () => {
    const cosine = { ...optimizer, learningRate: 1, warmup: 0.1, finalShare: 0.2 };
    const at = (step: number) => learningRate(cosine, step, 100);
    expect(at(1)).toBeCloseTo(0.1, 12);
    expect(at(10)).toBeCloseTo(1, 12);
    expect(at(55)).toBeCloseTo(0.6, 12); // half way down from 1 to 0.2
    expect(at(100)).toBeCloseTo(0.2, 12);
  });

  test("wsd: stable, then linear over the last share", () => {
    const wsd = {
      ...optimizer,
      learningRate: 2,
      schedule: "wsd" as const,
      warmup: 0,
      decay: 0.25,
      finalShare: 0,
    };
    const at = (step: number) => learningRate(wsd, step, 40);
    expect([at(1), at(30), at(35), at(38), at(40)]).toEqual(
      [2, 2, 1, 0.4, 0].map((x) => expect.closeTo(x, 12)),
    );
  });

  test("a run of one step trains at the end of its decay, and never divides by zero", () => {
    for (const schedule of ["cosine", "wsd"] as const) {
      for (const warmup of [0, 1]) {
        expect(learningRate({ ...optimizer, schedule, warmup }, 1, 1)).toBeGreaterThan(0);
      }
    }
  });
});

describe("horizon", () => {
  const config = tinyConfig({ context: 100, sequencesPerStep: 5 });
  // 2 layers of 4 * 16 * 16 (attention) + 3 * 16 * 32 (feed-forward) + 2 * 16 (norms), and the last norm.
  const parameters = 2 * (1024 + 1536 + 32) + 16;
  test.each([
    [{ steps: 17 }, 17],
    [{ tokens: 5000 }, 10],
    [{ tokens: 1 }, 1],
    [{ tokensPerParameter: 20 }, Math.round((20 * parameters) / 500)],
    [{ pflopsDays: (6 * parameters * 123_500) / 8.64e19 }, 247],
  ])("%o is %d steps", (horizon, steps) => {
    expect(horizonSteps({ ...config, horizon })).toBe(steps);
  });
});

describe("evaluation steps", () => {
  test("log-spaced from 1.5 %, the end among them, no more than asked", () => {
    expect(evaluationSteps(1000, 4)).toEqual([15, 61, 247, 1000]); // 15 * (1000 / 15)^(i / 3)
    expect(evaluationSteps(1000, 1)).toEqual([1000]);
    expect(evaluationSteps(1, 12)).toEqual([1]);
  });

  test("from eight on, three lie in the last 3 %", () => {
    for (const steps of [100, 333, 1000, 123_457]) {
      const points = evaluationSteps(steps, 12);
      expect(points.length).toBeLessThanOrEqual(12);
      expect(points.at(-1)).toBe(steps);
      expect(points.filter((step) => step >= 0.97 * steps).length).toBe(3);
      expect(points[0]).toBeLessThanOrEqual(0.02 * steps);
      expect(new Set(points).size).toBe(points.length);
    }
  });
});

describe("attention schedule", () => {
  test("labels, last layers full, phases", () => {
    expect(parseSchedule("full", 2)).toEqual([{ fromShare: 0, layers: [full, full] }]);
    expect(parseSchedule("moba-b128-k4/full:2", 3)).toEqual([{ fromShare: 0, layers: [moba, full, full] }]);
    expect(parseSchedule("moba-b128-k4+moba-b128-k4/full:1@0.5+full@.9", 2)).toEqual([
      { fromShare: 0, layers: [moba, moba] },
      { fromShare: 0.5, layers: [moba, full] },
      { fromShare: 0.9, layers: [full, full] },
    ]);
  });

  test.each([
    "",
    "mob",
    "full@0.5",
    "moba-b128-k4/full:3",
    "moba-b128-k4/full:0",
    "moba-b128-k4/full",
    "moba-b128-k4/full:1/full:1",
    "moba-b128-k4+full",
    "moba-b128-k4+full@1",
    "moba-b128-k4+full@0",
    "moba-b128-k4+full@0.9@1",
    "moba-b128-k4+full@0.9+full@0.5",
    "moba-b0-k4",
  ])("refuses %o, naming it", (spelling) => {
    const refused = () => parseSchedule(spelling, 2);
    expect(refused).toThrow(RangeError);
    expect(refused).toThrow(/expected|should be/);
  });

  test.each([
    ["full", Number.POSITIVE_INFINITY],
    ["moba-b128-k4", 512],
    ["window-b128-k4/full:1", 512],
    ["moba-b128-k4+full@0.5+moba-b64-k3@0.9", 192],
  ])("%s leaves nothing out in the first %d tokens", (spelling, reach) => {
    expect(fullReach(spelling, 2)).toBe(reach);
  });

  test("a phase begins with the step whose preceding tokens reach its share", () => {
    const kind = (step: number, steps: number, schedule: string) =>
      attentionAt(parseSchedule(schedule, 1), step, steps)[0].kind;
    expect([kind(90, 100, "moba-b8-k2+full@0.9"), kind(91, 100, "moba-b8-k2+full@0.9")]).toEqual([
      "moba",
      "full",
    ]);
    expect([kind(7, 100, "moba-b8-k2+full@0.07"), kind(8, 100, "moba-b8-k2+full@0.07")]).toEqual([
      "moba",
      "full",
    ]);
    expect(kind(1, 1, "moba-b8-k2+full@0.9")).toBe("moba");
  });
});
