/** Sudden drops in training curves as they are: thousands of steps, each with the noise of its few windows. */
import { describe, expect, it } from "vitest";
import { isDense, largestRise, suddenDrop } from "../../src/fit/drops.ts";
import type { CurvePoint } from "../../src/fit/types.ts";
import { randomNumbers } from "../train/tiny.ts";

const TOKENS = 320e6;
const STEPS = 4000;

/** A power law down to 2.9 nats, times `after` from `at` on, reached within `width` of log tokens; noise of 0.12 nats. */
function curve(seed: number, drop?: { at: number; after: number; width: number }): CurvePoint[] {
  const uniform = randomNumbers(seed);
  return Array.from({ length: STEPS - 40 }, (_, i) => {
    const step = i + 41;
    const tokens = (step / STEPS) * TOKENS;
    let loss = 2.9 * (tokens / TOKENS) ** -0.09;
    if (drop) {
      const through = Math.min(1, Math.max(0, Math.log(tokens / drop.at) / drop.width));
      loss *= 1 + through * (drop.after - 1);
    }
    const noise = 0.12 * (uniform() + uniform() + uniform() - 1.5) * 2;
    const run = {
      attention: "full",
      model: "d4",
      position_start: null,
      position_end: null,
      pflops_days: null,
    };
    return { ...run, step, tokens, lm_loss: loss + noise };
  });
}

describe("sudden drops of noisy training curves", () => {
  it("are found where they end", () => {
    for (let seed = 1; seed <= 10; seed++) {
      const found = suddenDrop(curve(seed, { at: 100e6, after: 0.72, width: 0.25 }));
      expect(found, `seed ${seed}`).not.toBeNull();
      // It ends at 100 M x e^0.25 = 128 M; cells are 12 % wide.
      expect(found!.end / 128e6).toBeGreaterThan(0.85);
      expect(found!.end / 128e6).toBeLessThan(1.25);
      // Half of it is lost at 100 M x e^0.125 = 113 M.
      expect(found!.middle / 113e6).toBeGreaterThan(0.88);
      expect(found!.middle / 113e6).toBeLessThan(1.14);
      // The trend loses a little beside it.
      expect(found!.after / found!.before).toBeGreaterThan(0.66);
      expect(found!.after / found!.before).toBeLessThan(0.76);
      expect(found!.atEnd).toBe(false);
    }
  });

  it("are at the end of a run that ends on them", () => {
    const found = suddenDrop(curve(1, { at: 260e6, after: 0.72, width: 0.3 }));
    expect(found?.atEnd).toBe(true);
  });

  it("are not seen in curves without one", () => {
    for (let seed = 1; seed <= 10; seed++) expect(suddenDrop(curve(seed)), `seed ${seed}`).toBeNull();
  });
});

describe("rises of noisy training curves", () => {
  it("are none without one, and are found where they are", () => {
    for (let seed = 1; seed <= 10; seed++) expect(largestRise(curve(seed)), `seed ${seed}`).toBeNull();
    const risen = curve(1).map((point) =>
      point.tokens! > 150e6 && point.tokens! < 200e6 ? { ...point, lm_loss: 1.5 * point.lm_loss } : point,
    );
    const { at, factor } = largestRise(risen)!;
    expect(at).toBeGreaterThan(150e6);
    expect(at).toBeLessThan(200e6);
    expect(Math.abs(factor - 1.5)).toBeLessThan(0.15);
  });
});

it("a curve of few evaluations does not tell that it has no drop", () => {
  const every = (n: number) => curve(1).filter((_, i, all) => (all.length - 1 - i) % n === 0);
  expect(isDense(every(1))).toBe(true);
  const sparse = curve(1).filter(
    ({ tokens }, i, all) => i === 0 || Math.log2(tokens! / all[0].tokens!) % 1 === 0,
  );
  expect(isDense(sparse)).toBe(false);
});
