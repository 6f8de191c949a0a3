/** The terminal's tables: every figure there, 80 columns, no control characters. */

import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { fit as fitLaws, readCurves } from "../../src/fit/index.ts";
import { formatComparison, formatFit, formatLaws, formatReading } from "../../src/report/index.ts";
import { madeUpCurves } from "./fixture.ts";

const REPORT = fileURLToPath(new URL("../../../shared/data/fits/moba-report-curves.csv", import.meta.url));

function widest(text: string): number {
  return Math.max(...text.split("\n").map((line) => line.length));
}

describe.skipIf(!existsSync(REPORT))("the published curves (needs ../shared/data)", () => {
  const result = fitLaws(readCurves(REPORT));

  it("lists 32 laws, with the coefficients of Table 3 to 1.5 %", () => {
    const rows = formatLaws(result)
      .split("\n")
      .filter((line) => /^\d+k-\d+k /.test(line));
    expect(rows).toHaveLength(32);
    const coefficients = rows
      .filter((row) => row.startsWith("10k-12k"))
      .map((row) => Number(row.split(/\s+/)[1]));
    expect(Math.abs(coefficients[0]! / 1.6973 - 1)).toBeLessThan(0.015);
    expect(Math.abs(coefficients[1]! / 1.721 - 1)).toBeLessThan(0.015);
  });

  it("compares sixteen buckets: higher at the end, a crossing at 2k-4k, undecided at 10k-12k", () => {
    const rows = formatComparison(result).split("\n");
    const row = (bucket: string) => rows.find((line) => line.startsWith(bucket))!;
    expect(row("30k-32k")).toMatch(/higher$/);
    expect(row("10k-12k")).toMatch(/-\s+undecided$/);
    expect(row("2k-4k")).toMatch(/2\.5\d? \[1\.\d+, 2\d(\.\d)?\]\s+crossing$/);
  });

  it("fits 80 columns", () => {
    expect(widest(formatFit(result))).toBeLessThanOrEqual(80);
  });
});

describe("plain text", () => {
  it("fits 80 columns for tiny budgets and long labels, in both conventions", () => {
    const points = madeUpCurves({ attentions: ["full", "moba-b128-k4+full@0.9"], buckets: 16 }).map(
      (point, i) => ({
        ...point,
        lm_loss: point.lm_loss * (1 + 0.01 * Math.sin(i * i)),
      }),
    );
    const text = formatFit(fitLaws(points));
    expect(widest(text)).toBeLessThanOrEqual(80);
    expect(text).toContain("by 6ND");
    expect(text).toContain("operations as attended");
    expect(text).toContain("Loss of moba-b128-k4+full@0.9 / loss of full");
  });

  it("carries every sentence of the reading, the claims and the warnings", () => {
    const result = fitLaws(madeUpCurves({ models: ["d2", "d3", "d4"] }));
    const words = formatReading(result).replace(/\s+/g, " ");
    for (const sentence of [...result.reading, ...result.warnings]) expect(words).toContain(sentence);
    expect(result.warnings.length).toBeGreaterThan(0);
    expect(words).toMatch(/MoBA is lower throughout: (supported|refuted|undecided)\./);
  });

  it("tells the reading in parts, or in short the first of them, the claims and the warnings", () => {
    const result = fitLaws(madeUpCurves({ models: ["d2", "d3", "d4"] }));
    const headings = (words: string) => words.split("\n").filter((line) => /^\S/.test(line));
    const [first, ...rest] = result.reading_parts.map(({ title }) => title);
    const others = [expect.stringMatching(/^Claims for moba.* against full/), "Warnings"];
    expect(rest.length).toBeGreaterThan(3);
    expect(headings(formatReading(result))).toEqual([first, ...rest, ...others]);
    const short = formatReading(result, undefined, { short: true });
    expect(headings(short)).toEqual([first, ...others]);
    const words = short.replace(/\s+/g, " ");
    const told = result.reading.filter((sentence) => words.includes(sentence));
    expect(told).toEqual(result.reading.slice(0, result.reading_parts[0].sentences));
  });

  it("of a fit begins with the answer, then the tables, then the rest of the words", () => {
    const result = fitLaws(madeUpCurves({ models: ["d2", "d3", "d4"] }));
    const text = formatFit(result);
    const [answer, ...rest] = formatReading(result).split("\n\n");
    expect(text).toBe([answer, formatLaws(result), formatComparison(result), ...rest].join("\n\n"));
    expect(text).toMatch(/^In short\n/);
  });

  it("leaves out a convention that no law was fitted in", () => {
    const result = fitLaws(madeUpCurves());
    const laws = result.laws.filter(({ convention }) => convention === "attended");
    expect(result.comparisons.some(({ convention }) => convention === "6ND")).toBe(true);
    const text = formatLaws({ ...result, laws });
    expect(text).toContain("operations as attended");
    expect(text).not.toContain("by 6ND");
  });

  it("says when there is nothing", () => {
    const nothing = { laws: [], comparisons: [], warnings: [], reading: [], reading_parts: [] };
    expect(formatFit(nothing)).toBe(
      "No law was fitted.\n\nNothing was compared: that takes two attentions at the same sizes.",
    );
  });

  it("lets no control character of a label through", () => {
    const points = madeUpCurves({ attentions: ["full", "evil\u001b[2J\nlabel"] });
    const text = formatFit(fitLaws(points));
    expect(text).toContain("evil�[2J label");
    expect(text).not.toContain("\u001b");
  });
});
