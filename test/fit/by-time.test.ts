/** Attentions by training time: the same losses in half the time, exactly, so that every figure is known. */
import { describe, expect, it } from "vitest";
import { fit as fitCurves, type RunFacts } from "../../src/fit/index.ts";
import { end } from "./made.ts";

const BUCKET = { position_start: 0, position_end: 1024 };
const facts = new Map<string, RunFacts>([["any", {}]]);

/** Three sizes, the loss 2 x 2^(-0.1 i), each trained for `seconds[i]`. */
function arm(attention: string, seconds: readonly (number | undefined)[]) {
  return seconds.map((time_s, i) => {
    const more = { ...BUCKET, run: `${attention} ${i}`, seed: 1, time_s };
    return end(attention, `d${i}`, 3 ** i, 2 * 2 ** (-0.1 * i), more);
  });
}

const full = arm("full", [100, 200, 400]);

describe("attentions by training time", () => {
  it("are compared at equal times, where theirs overlap", () => {
    const { time_ratios, reading } = fitCurves([...full, ...arm("moba", [50, 100, 200])], { runs: facts });
    const [found] = time_ratios!;
    // The middle of all six times is 100 sqrt(2) seconds.
    expect(found.time_s).toBeCloseTo(100 * Math.SQRT2, 9);
    expect(found.ratio).toBeCloseTo(2 ** -0.1, 12);
    expect(found.multiplier).toBeCloseTo(0.5, 9);
    expect(reading).toContain(
      "By the time that runs trained, at 2.36 minutes, the loss of MoBA is 6.7 % lower (95 % interval -6.7 % " +
        "to -6.7 %); the same loss takes 0.50 times as long (0.50 to 0.50).",
    );
  });

  it("are not where a run's time is unknown, sizes are few, or times may be those of several machines", () => {
    const without = [...full, ...arm("moba", [50, undefined, 200])];
    const few = [...full, ...arm("moba", [50, 100])];
    for (const points of [without, few]) {
      expect(fitCurves(points, { runs: facts })).not.toHaveProperty("time_ratios");
    }
    // One size at three learning rates takes as long each time, give or take.
    const rates = (seconds: readonly number[], attention: string) =>
      arm(attention, seconds).map((point) => ({ ...point, pflops_days: 1 }));
    const sweep = [...rates([100, 103, 107], "full"), ...rates([50, 52, 54], "moba")];
    expect(fitCurves(sweep, { runs: facts })).not.toHaveProperty("time_ratios");
    const table = [...full, ...arm("moba", [50, 100, 200])];
    expect(fitCurves(table)).not.toHaveProperty("time_ratios");
  });
});
