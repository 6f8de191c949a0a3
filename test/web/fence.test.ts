/** Which values a chart's axis is made for, and which are told by marks. */
import { describe, expect, it } from "vitest";
import { fenced, fenceOf, isAway, middleOf } from "../../web/fence.ts";

/** A loss as it falls, with its noise. */
const falling = Array.from(
  { length: 400 },
  (_, i) => 5.5 * (i + 1) ** -0.15 * (1 + 0.05 * Math.sin(i * 1.7)),
);
const away = (lines: readonly (readonly number[])[]) => {
  const fence = fenceOf(lines.map(middleOf));
  return lines.map((line) => line.filter((value) => isAway(value, fence)));
};

describe("values far from all others", () => {
  it("are none in a curve of training, also with a spike of a decade", () => {
    expect(away([falling])).toEqual([[]]);
    expect(away([falling.with(200, 20)])).toEqual([[]]);
  });

  it.each([1e308, 1e-300, 1e6, 1e-4])("are told apart: %d among losses", (odd) => {
    expect(away([falling, falling.with(200, odd)])).toEqual([[], [odd]]);
    expect(away([[5, 4, odd, 3, 2.5]])).toEqual([[odd]]);
  });

  it("are those that a log axis has no place for", () => {
    const odd = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, -3];
    expect(away([[...falling, ...odd]])).toEqual([odd]);
    expect(away([odd])).toEqual([odd]);
  });

  it("may be a whole line among others, and never are of the only ones", () => {
    const lost = falling.map(() => 1.7e308);
    expect(away([falling, falling, lost])).toEqual([[], [], lost]);
    expect(away([falling, lost])).toEqual([[], lost]);
    expect(away([falling.map((loss) => 1e5 * loss), falling])[1]).toEqual([]);
    expect(away([falling.map((loss) => 1e5 * loss), falling])[0]).toHaveLength(falling.length);
    expect(away([lost])).toEqual([[]]);
    expect(away([falling, falling.map((loss) => loss * 300)])).toEqual([[], []]);
    expect(away([falling, falling, falling, falling.map((loss) => loss * 300)])).toEqual([[], [], [], []]);
  });

  it("leave the axis where it is while a line grows", () => {
    const limits = Array.from({ length: 300 }, (_, i) => fenceOf([middleOf(falling.slice(0, 100 + i))]));
    expect(new Set(limits.map(({ low, high }) => `${low} ${high}`)).size).toBeLessThanOrEqual(3);
  });

  it("are not drawn, and said: of many rows the first", () => {
    const row = { attention: "full", model: "d1", position_start: 0, position_end: 32, pflops_days: 1 };
    const rows = falling.map((lm_loss, step) => ({ ...row, run: "r", step, lm_loss }));
    expect(fenced(rows)).toEqual({ points: rows, note: null });
    const { points, note } = fenced([
      ...rows,
      { ...rows[0], lm_loss: 1e308 },
      { ...rows[0], lm_loss: 1e-300 },
    ]);
    expect(points).toEqual(rows);
    expect(note).toBe("Far from all others and not drawn: r with 1.0000e308 at 0-32, and 1 more.");
  });
});
