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

/** Training losses of two runs, means over steps of 8 % in tokens: million tokens and loss. */
const SLOW = {
  "in two stages": `
    3.473:6.36 4.129:5.95 4.784:5.68 5.439:5.64 6.095:5.45 6.75:5.41 7.406:5.21 8.061:5.14 9.044:5.1
    10.35:4.91 11.67:4.9 12.98:4.76 14.29:4.58 15.6:4.55 17.24:4.54 19.2:4.4 21.17:4.29 23.13:4.25 25.1:4.24
    27.39:4.17 30.02:4.14 32.64:4.03 35.59:3.95 38.86:3.96 42.14:3.81 45.74:3.75 49.68:3.63 53.94:3.52
    58.52:3.35 63.44:3.14 69.01:2.87 74.91:2.7 81.13:2.5 88.01:2.42 95.55:2.31 103.7:2.25 112.6:2.17
    122.1:2.12 132.3:2.06 143.1:2.03 154.9:1.97 167.6:1.92 181.4:1.86 196.5:1.83 212.5:1.78 229.6:1.74
    248.3:1.71 268.6:1.66 290.5:1.64 311.2:1.61`,
  "slow at first": `
    2.851:7.15 3.342:6.77 3.834:6.31 4.325:6.12 4.817:5.93 5.308:5.74 5.8:5.6 6.537:5.53 7.52:5.31
    8.503:5.32 9.486:5.14 10.47:5.09 11.45:4.94 12.44:4.82 13.66:4.73 15.14:4.61 16.61:4.59 18.09:4.57
    19.81:4.47 21.77:4.38 23.74:4.3 25.95:4.26 28.41:4.14 30.87:4.1 33.57:4.06 36.52:3.99 39.71:3.94
    43.16:3.81 46.84:3.82 50.77:3.67 54.95:3.62 59.62:3.47 64.78:3.28 70.43:3.12 76.33:3.03 82.48:2.86
    89.11:2.74 96.49:2.48 104.6:2.19 113.2:2.08 122.5:1.99 132.6:1.94 143.4:1.88 155.2:1.83 168:1.77
    181.8:1.76 196.5:1.75 212.5:1.69 229.7:1.66 242:1.62`,
};

describe("drops that begin slowly", () => {
  const [first] = curve(1);
  const points = (text: string, end = Number.POSITIVE_INFINITY) =>
    (text.match(/\S+/g) ?? []).flatMap((pair) => {
      const [tokens, lm_loss] = pair.split(":").map(Number);
      return tokens < end ? [{ ...first, tokens: tokens * 1e6, lm_loss }] : [];
    });

  it.each([
    ["in two stages", 70],
    ["slow at first", 92],
  ] as const)("are found: %s, steepest near %d million tokens", (name, steepest) => {
    const found = suddenDrop(points(SLOW[name]))!;
    expect(Math.abs(Math.log(found.middle / (steepest * 1e6)))).toBeLessThan(0.2);
    expect(found.before).toBeGreaterThan(3.5);
    expect(found.after).toBeLessThan(2.6);
    expect(found.atEnd).toBe(false);
  });

  it("are none in a run that ends before them", () => {
    for (const end of [25, 30, 35, 40, 45, 50]) {
      expect(suddenDrop(points(SLOW["in two stages"], end)), `${end} million`).toBeNull();
    }
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
