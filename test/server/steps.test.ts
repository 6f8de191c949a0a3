/** Columns of steps against a plain map, and what thinning keeps. */
import { describe, expect, it } from "vitest";
import { numberOf, StepColumns, short } from "../../src/server/steps.ts";

function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return state / 2 ** 31;
  };
}

describe("steps of a run in columns", () => {
  it("keep each step's highest attempt, the later of two, in whatever order they come", () => {
    const draw = random(7);
    const columns = new StepColumns();
    const kept = new Map<number, { attempt: number; loss: number }>();
    for (let i = 0; i < 3000; i++) {
      const record = { step: Math.floor(draw() * 700), attempt: 1 + Math.floor(draw() * 4), loss: draw() };
      const before = kept.get(record.step);
      const wins = before === undefined || record.attempt >= before.attempt;
      if (wins) kept.set(record.step, record);
      expect(columns.put(record)).toBe(wins);
    }
    const expected = [...kept.keys()].sort((a, b) => a - b);
    const { step, attempt, loss, recorded } = columns.columns("r", columns.thin(1000), columns.length);
    expect(recorded).toBe(expected.length);
    expect(step).toEqual(expected);
    expect(attempt).toEqual(expected.map((s) => kept.get(s)!.attempt));
    expect(loss).toEqual(expected.map((s) => kept.get(s)!.loss));
  });

  it("are thinned to about what is asked for, with extremes, ends, resumes and what is not finite", () => {
    const draw = random(11);
    const columns = new StepColumns();
    const losses: number[] = [];
    for (let step = 1; step <= 20_000; step++) {
      let loss = 2 + 5 / Math.sqrt(step) + 0.1 * draw();
      if (step === 7777) loss = 99;
      if (step === 15_001) loss = 0.001;
      if (step >= 12_000 && step < 12_100) loss = Number.NaN;
      if (step === 3000) loss = Number.POSITIVE_INFINITY;
      losses.push(loss);
      columns.put({ step, attempt: step < 9000 ? 1 : 2, loss });
    }
    const thinned = columns.columns("r", columns.thin(500), columns.length);
    expect(thinned.step.length).toBeGreaterThan(400);
    expect(thinned.step.length).toBeLessThan(560);
    for (const step of [1, 3000, 7777, 9000, 12_000, 15_001, 20_000]) expect(thinned.step).toContain(step);
    expect(thinned.loss[thinned.step.indexOf(12_000)]).toBe("NaN");
    expect(thinned.loss[thinned.step.indexOf(3000)]).toBe("Infinity");
    // Points stay where they are, in order, and both axes have theirs.
    for (const [i, step] of thinned.step.entries()) {
      expect(numberOf(thinned.loss[i])).toBe(losses[step - 1]);
      if (i > 0) expect(step).toBeGreaterThan(thinned.step[i - 1]);
    }
    expect(thinned.step.filter((step) => step <= 100).length).toBeGreaterThan(50);
    expect(thinned.step.filter((step) => step > 10_000).length).toBeGreaterThan(100);
  });

  it("are cut to a range of steps, both ends included", () => {
    const columns = new StepColumns();
    for (let step = 10; step <= 100; step += 10) columns.put({ step, attempt: 1, loss: step });
    const within = (from: number, to: number) => {
      const [start, end] = columns.range(from, to);
      return columns.columns("r", columns.thin(100, start, end), end - start).step;
    };
    expect(within(20, 40)).toEqual([20, 30, 40]);
    expect(within(21, 39)).toEqual([30]);
    expect(within(0, 10)).toEqual([10]);
    expect(within(101, 200)).toEqual([]);
    expect(within(50, 20)).toEqual([]);
  });

  it("are rounded to seven digits, to the nearest", () => {
    const draw = random(3);
    const edges = [0, 1, 10, 1e6, 9999999, 99999995, 0.1, 1e-22, 1e22, 1e-300, -0.00012345678];
    const drawn = Array.from({ length: 20_000 }, () =>
      Math.fround((draw() - 0.5) * 10 ** Math.floor(60 * draw() - 30)),
    );
    for (const x of [...edges, ...drawn]) {
      const rounded = Number(short(x));
      expect(rounded).toBe(Number(rounded.toPrecision(7)));
      const nearest = Math.abs(Number(x.toPrecision(7)) - x);
      expect(Math.abs(rounded - x)).toBeLessThanOrEqual(nearest * (1 + 1e-6));
    }
  });

  it("spell in JSON what JSON has no number for, and tell it from what is missing", () => {
    const columns = new StepColumns();
    columns.put({ step: 1, attempt: 1, loss: null, gradNorm: "Infinity", tokens: undefined });
    columns.put({ step: 2, attempt: 1, loss: "-Infinity", learningRate: 0.1 });
    const { loss, gradNorm, tokens, learningRate } = columns.columns("r", [0, 1], 2);
    expect(JSON.parse(JSON.stringify({ loss, gradNorm, tokens, learningRate }))).toEqual({
      loss: ["NaN", "-Infinity"],
      gradNorm: ["Infinity", null],
      tokens: [null, null],
      learningRate: [null, 0.1],
    });
  });
});
