/** Axis limits, ticks and number spellings, by hand-worked cases. */
import { describe, expect, it } from "vitest";
import { computeDomain, floor125, linearTicks, logTicks, lossDomain } from "../../src/report/axes.ts";
import {
  attentionColours,
  attentionTitles,
  formatCount,
  formatNumber,
  lossTitle,
  tickLabel,
} from "../../src/report/labels.ts";
import { textTable, wrap } from "../../src/report/table.ts";
import { thinByColumn } from "../../src/report/thin.ts";
import { randomNumbers } from "../train/tiny.ts";

describe("limits", () => {
  it("steps down to 1, 2 or 5 and goes about a decade past the data", () => {
    expect([0.0359, 5.0778, 50, 1, 9.99e-10, 2e-9].map(floor125)).toEqual([0.02, 5, 50, 1, 5e-10, 2e-9]);
    expect(computeDomain(0.0359, 5.0778)).toEqual([0.02, 50]);
    expect(computeDomain(Number.NaN, 0)).toEqual([0.1, 10]);
  });

  it("rounds the loss axis and keeps final losses inside", () => {
    expect(lossDomain([6.344, 1.2], [1.89, 1.48])).toEqual([1, 6]);
    expect(lossDomain([5.54, 2.2], [2.9, 2.4])).toEqual([2, 5]);
    // Cutting 1.95 down to 1.5 would lose the final loss of 1.8.
    expect(lossDomain([1.95, 1.7], [1.8, 1.7])).toEqual([1.5, 2]);
    expect(lossDomain([2], [2])).toEqual([2, 3]);
    expect(lossDomain([], [])).toEqual([1, 10]);
  });
});

describe("ticks", () => {
  it("labels 1-2-5 where there is room and decades where there is not", () => {
    expect(logTicks([0.02, 50], 760, () => 45).labelled).toEqual([
      0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50,
    ]);
    expect(logTicks([0.02, 50], 200, () => 45).labelled).toEqual([0.1, 1, 10]);
    // A spike to the largest number there is.
    expect(logTicks([2, 1e308], 400, () => 22).labelled.length).toBeGreaterThan(5);
    expect(logTicks([1, 6], 500, () => 22).labelled).toEqual([1, 2, 3, 4, 5, 6]);
    expect(logTicks([1e-12, 1e-2], 300, () => 60).labelled.length).toBe(6);
    expect(linearTicks([0.95, 1.09], 7)).toEqual([0.96, 0.98, 1, 1.02, 1.04, 1.06, 1.08]);
  });

  it("spells ordinary values plainly and tiny ones as powers", () => {
    expect([0.02, 0.1, 50, 0.001, 1e-9, 2e-12, 1e6].map(tickLabel)).toEqual([
      "0.02",
      "0.1",
      "50",
      "0.001",
      "10⁻⁹",
      "2×10⁻¹²",
      "10⁶",
    ]);
    expect([1.0084, 0.0512, 3.2e-9, 1234.6, 0, Number.POSITIVE_INFINITY].map((v) => formatNumber(v))).toEqual(
      ["1.01", "0.0512", "3.20e-9", "1235", "0", "∞"],
    );
    expect([545e6, 10.8e9, 98_304, 12].map(formatCount)).toEqual(["545M", "10.8B", "98.3k", "12"]);
  });
});

describe("names", () => {
  it("titles buckets as the report does", () => {
    expect(lossTitle({ position_start: 10240, position_end: 12288 })).toBe("LM loss 10k-12k");
    expect(lossTitle({ position_start: 1920, position_end: 2048 })).toBe("LM loss 1920-2048");
    expect(lossTitle({ position_start: null, position_end: null })).toBe("LM loss");
  });

  it("names attentions by kind, and by more where kinds repeat or change in a run", () => {
    const titles = attentionTitles([
      "sink-b64-k2",
      "moba-b128-k4",
      "moba-b128-k4+full@0.9",
      "full",
      "linear",
    ]);
    expect([...titles]).toEqual([
      ["full", "Full attention"],
      ["sink-b64-k2", "Sink + window"],
      ["moba-b128-k4", "MoBA b128 k4"],
      ["moba-b128-k4+full@0.9", "MoBA b128 k4+full@0.9"],
      ["linear", "linear"],
    ]);
  });

  it("gives colours in the order named, red to full attention and blue to the first MoBA", () => {
    expect([...attentionColours(["b", "moba-b512-k3", "full", "moba-b128-k8", "b", "a"])]).toEqual([
      ["full", "#d0222b"],
      ["b", "#008763"],
      ["moba-b512-k3", "#1f4fd0"],
      ["moba-b128-k8", "#c77700"],
      ["a", "#a64d8f"],
    ]);
  });
});

describe("thinning", () => {
  it("keeps both ends and each column's extremes, in order", () => {
    const spike = Array.from({ length: 1000 }, (_, i) => ({
      x: i / 100,
      y: i === 437 ? 9 : i === 431 ? -9 : Math.sin(i),
    }));
    const kept = thinByColumn(
      spike.map((point) => point.x),
      spike.map((point) => point.y),
      1,
    ).map((i) => spike[i]!);
    expect(kept.length).toBeLessThanOrEqual(22);
    expect(kept[0]).toBe(spike[0]);
    expect(kept.at(-1)).toBe(spike[999]);
    expect(kept).toContain(spike[437]);
    expect(kept.indexOf(spike[431]!)).toBe(kept.indexOf(spike[437]!) - 1);
    expect(kept.every((point, i) => i === 0 || point.x > kept[i - 1]!.x)).toBe(true);
  });
});

describe("plain text", () => {
  it("continues a table below where it is wider than 80 columns, each part with the names of its rows", () => {
    const uniform = randomNumbers(3);
    const below = (n: number) => Math.floor(n * uniform());
    for (let trial = 0; trial < 300; trial++) {
      const lefts = 1 + below(3);
      const columns = Array.from({ length: lefts + 1 + below(9) }, (_, i) => ({
        title: `c${i}`,
        align: i < lefts ? ("left" as const) : ("right" as const),
      }));
      const rows = Array.from({ length: 1 + below(4) }, (_, r) =>
        columns.map((_, c) => `r${r}c${c}${"x".repeat(below(24))}`),
      );
      const text = textTable({ columns, rows });
      const parts = text.split("\n\n").map((part) => part.split("\n").map((line) => line.trim().split(/ +/)));
      expect(Math.max(...text.split("\n").map((line) => line.length))).toBeLessThanOrEqual(80);
      for (const [r, row] of [columns.map(({ title }) => title), ...rows].entries()) {
        expect(parts.every((part) => part.length === rows.length + 1 && part[r]![0] === row[0])).toBe(true);
        expect(new Set(parts.flatMap((part) => part[r]!))).toEqual(new Set(row));
      }
    }
  });

  it("pads columns and breaks words at 80 columns", () => {
    const table = {
      columns: [
        { title: "a", align: "left" as const },
        { title: "b", align: "right" as const },
      ],
      rows: [
        ["x\u001b[31m\n", "1"],
        ["yy", "22"],
      ],
    };
    expect(textTable(table)).toBe("a         b\nx�[31m    1\nyy       22");
    const text = wrap("word ".repeat(60).trim(), "  ");
    expect(text.split("\n").every((line) => line.length <= 80 && line.startsWith("  word"))).toBe(true);
    expect(text.replace(/\s+/g, " ").trim().split(" ")).toHaveLength(60);
  });
});
