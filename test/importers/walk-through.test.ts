/** The walk-through of docs/import.md: its log gives the laws that it was made from. */
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { fit as fitCurves } from "../../src/fit/index.ts";
import type { PowerLaw } from "../../src/fit/types.ts";
import { importPaths } from "../../src/importers/index.ts";

const path = (name: string) => fileURLToPath(new URL(`../../docs/import/${name}`, import.meta.url));

it("imports the example and fits the laws it was made from", () => {
  const { points, notes } = importPaths([path("wandb-export.csv")], { runMap: path("runs.csv") });
  expect(points).toHaveLength(400);
  expect(notes.filter((note) => !note.includes("__MIN"))).toEqual([]);
  const { laws, comparisons } = fitCurves(points);
  const within = ([low, high]: readonly number[], value: number) => low <= value && value <= high;
  const exponents: Record<string, number> = { full: -0.055, moba: -0.058 };
  for (const law of laws as PowerLaw[])
    expect(within(law.exponent_interval, exponents[law.attention])).toBe(true);
  const [{ ratio_at, crossing }] = comparisons;
  for (const at of ratio_at) expect(within(at.interval, 1.004 * at.pflops_days ** -0.003)).toBe(true);
  expect(within(crossing!.interval, 1.004 ** (1 / 0.003))).toBe(true);
});
