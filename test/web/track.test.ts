/** What the browser keeps of a run: steps aligned over attempts, a bounded length, and smoothing that runs share. */
import { describe, expect, it } from "vitest";
import { smooth } from "../../src/fit/smooth.ts";
import type { MetricColumns, Value } from "../../src/server/api.ts";
import { LIMIT, Track } from "../../web/track.ts";

function columns(steps: readonly number[], loss: (step: number) => Value, attempt = 1): MetricColumns {
  const of = (value: (step: number) => Value) => steps.map(value);
  return {
    run: "r",
    recorded: steps.length,
    step: steps,
    tokens: of((step) => step * 100),
    attempt: steps.map(() => attempt),
    loss: of(loss),
    gradNorm: of(() => 1),
    learningRate: of(() => 1e-3),
    tokensPerSecond: of(() => null),
    time_s: of((step) => step),
    pflops_days: of((step) => step * 1e-12),
    pflops_days_attended: of((step) => step * 1e-12),
  };
}

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

describe("a track", () => {
  it("keeps each step's highest attempt, whatever comes first", () => {
    const first = columns(range(1, 10), () => 1);
    const second = columns(range(7, 12), () => 2, 2);
    for (const order of [
      [first, second],
      [second, first],
      [first, second, first, second],
    ]) {
      const track = new Track();
      for (const rows of order) track.append(rows);
      expect(track.columns.step).toEqual(range(1, 12));
      expect(track.columns.loss).toEqual([1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
      expect(track.columns.attempt).toEqual([1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    }
  });

  it("says by its version that rows came, which is all that a chart redraws a line for", () => {
    const track = new Track();
    track.append(columns(range(1, 10), () => 1));
    const { version } = track;
    track.append(columns([], () => 1));
    expect(track.version).toBe(version);
    track.append(columns([5], () => 2, 2));
    expect(track.version).not.toBe(version);
  });

  it("drops what an earlier attempt left between thinned steps of a later one", () => {
    const track = new Track();
    track.append(columns(range(1, 20), () => 1));
    track.append(columns([10, 15, 20], () => 2, 2));
    expect(track.columns.step).toEqual([...range(1, 9), 10, 15, 20]);
  });

  it("has a smoothed line that stays positive past a spike", () => {
    const tokens = range(1, 200);
    const smoothed = smooth(
      tokens,
      tokens.map((at) => (at === 50 ? 1e30 : 3)),
      0.05,
    );
    expect(Math.min(...smoothed)).toBeGreaterThan(0);
  });

  it("stays bounded whatever it is fed", () => {
    const every = { tokens: [null], loss: ["NaN"], attempt: [1] };
    for (const odd of [
      (_: number) => ({ tokens: every.tokens }),
      (step: number) => ({ loss: step % 2 ? every.loss : [3] }),
      (step: number) => ({ attempt: [step] }),
      (_: number) => ({ tokens: [-4] }),
    ]) {
      const track = new Track();
      for (let step = 1; step <= 5000; step++)
        track.append({ ...columns([step], () => 3 + Math.sin(step)), ...odd(step) });
      expect(track.length).toBeLessThanOrEqual(LIMIT);
      expect(track.length).toBeGreaterThan(LIMIT / 8);
      expect(track.columns.step.at(-1)).toBe(5000);
    }
  });

  it("stays bounded, with spikes, gaps and resumes in it", () => {
    const track = new Track();
    const loss = (step: number): Value => (step === 4321 ? 99 : step === 7000 ? "NaN" : 5 / step ** 0.1);
    for (let step = 1; step <= 50_000; step++) track.append(columns([step], loss, step > 30_000 ? 2 : 1));
    expect(track.length).toBeLessThanOrEqual(LIMIT);
    expect(track.length).toBeGreaterThan(LIMIT / 4);
    const { step, attempt, loss: kept } = track.columns;
    expect(step[0]).toBe(1);
    expect(step.at(-1)).toBe(50_000);
    expect(kept[step.indexOf(4321)]).toBe(99);
    expect(kept[step.indexOf(7000)]).toBeNaN();
    expect(step[attempt.indexOf(2)]).toBe(30_001);
    for (let i = 1; i < step.length; i++) expect(step[i]).toBeGreaterThan(step[i - 1]);
  });

  it("carries the mean of what thinning leaves out", () => {
    const track = new Track();
    const loss = (step: number) => 3 + (step % 2);
    for (let step = 1; step <= 20_000; step++) track.append(columns([step], loss));
    const { step, meanLoss } = track.columns;
    let sum = 0;
    for (let i = 0; i < step.length; i++) sum += meanLoss[i] * (step[i] - (step[i - 1] ?? 0));
    expect(sum / 20_000).toBeCloseTo(3.5, 9);
  });
});

describe("smoothing", () => {
  const tokens = range(1, 4000).map((step) => step * 100);
  const noisy = tokens.map((count, i) => 8 * count ** -0.1 + Math.sin(i * 12.9898) * 0.2);

  it("does not depend on how long the run is", () => {
    const whole = smooth(tokens, noisy, 0.05);
    const half = smooth(tokens.slice(0, 2000), noisy.slice(0, 2000), 0.05);
    expect([...whole.slice(0, 2000)]).toEqual([...half]);
  });

  it("hardly depends on how many steps were recorded", () => {
    const whole = smooth(tokens, noisy, 0.05);
    // Every tenth step, each the mean of ten.
    const tenths = range(1, 400).map((k) => k * 10 - 1);
    const means = tenths.map((i) => noisy.slice(i - 9, i + 1).reduce((sum, loss) => sum + loss, 0) / 10);
    const coarse = smooth(
      tenths.map((i) => tokens[i]),
      means,
      0.05,
    );
    // The noise is 8 %.
    for (let k = 20; k < 400; k++) expect(Math.abs(coarse[k] / whole[tenths[k]] - 1)).toBeLessThan(0.01);
  });

  it("follows the trend and passes over what is not finite", () => {
    const broken = noisy.map((loss, i) =>
      i === 500 ? Number.NaN : i === 600 ? Number.POSITIVE_INFINITY : loss,
    );
    const smoothed = smooth(tokens, broken, 0.05);
    for (let i = 1000; i < 4000; i++) {
      expect(Math.abs(smoothed[i] / (8 * tokens[i] ** -0.1) - 1)).toBeLessThan(0.02);
    }
    expect([...smooth(tokens, noisy, 0)]).toEqual(noisy);
  });
});
