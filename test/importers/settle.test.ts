import { describe, expect, it } from "vitest";
import { settle } from "../../src/importers/settle.ts";

/** Rows named by step and place, such as 3b for the second row at step 3. */
const rows = (text: string) => text.split(" ").map((name) => ({ name, step: Number.parseInt(name, 10) }));
const run = (text: string) => {
  const settled = settle(rows(text), (row) => row.step);
  return { ...settled, rows: settled.rows.map(({ name }) => name).join(" ") };
};

describe("settling a curve", () => {
  it.each([
    ["in order", "1 2 3", "1 2 3", { replaced: 0, rollbacks: 0, abandoned: 0, sorted: false }],
    ["a repeated step", "1 2a 2b 3", "1 2b 3", { replaced: 1, rollbacks: 0 }],
    ["a resumed run", "1 2a 3a 2b 3b 4", "1 2b 3b 4", { replaced: 2, rollbacks: 1, abandoned: 0 }],
    [
      "one that ended sooner than what it gave up",
      "1 2a 3a 4a 2b 3b",
      "1 2b 3b",
      { replaced: 2, rollbacks: 1, abandoned: 1 },
    ],
    ["one resumed twice", "1a 2a 3a 2b 1c 2c", "1c 2c", { rollbacks: 2, abandoned: 1 }],
    ["a single late row", "1 2 4 3 5", "1 2 3 4 5", { replaced: 0, rollbacks: 0, sorted: false }],
    ["a late row at a known step", "1 2a 3 2b 4", "1 2b 3 4", { replaced: 1, rollbacks: 0 }],
    ["falling throughout", "5 4 3 2", "2 3 4 5", { replaced: 0, rollbacks: 0, sorted: true }],
    [
      "no order",
      "5 1 4 2 3a 9 8 0 6 7 3b",
      "0 1 2 3b 4 5 6 7 8 9",
      { replaced: 1, rollbacks: 0, sorted: true },
    ],
    ["a single row", "7", "7", { replaced: 0 }],
  ])("%s", (_, logged, kept, account) => {
    const settled = run(logged);
    expect(settled.rows).toBe(kept);
    expect(settled).toMatchObject(account);
  });

  it("takes a million rows, late ones among them, in linear time", () => {
    const many = Array.from({ length: 1_000_000 }, (_, i) => ({ step: i % 2 ? i - 3 : i + 3 }));
    const start = performance.now();
    const settled = settle(many, (row) => row.step);
    expect(settled.rows.every((row, i) => i === 0 || row.step > settled.rows[i - 1].step)).toBe(true);
    expect(performance.now() - start).toBeLessThan(10_000);
  });
});
