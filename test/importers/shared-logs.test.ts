/** The logs of ../shared/data/logs, where that folder exists, against what their table says must come out. */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { importPaths, parseColumns } from "../../src/importers/index.ts";

const folder = fileURLToPath(new URL("../../../shared/data/logs", import.meta.url));
const read = (name: string, columns?: string) =>
  importPaths([join(folder, name)], { columns: columns === undefined ? undefined : parseColumns(columns) });
const text = (name: string) => readFileSync(join(folder, name), "utf8");

if (!existsSync(folder)) console.log(`skipped: ${folder} does not exist`);

describe.skipIf(!existsSync(folder))("logs as trainers wrote them", () => {
  it("llm.c: two curves on step", () => {
    const name = "01_llmc_main.log";
    const result = read(name);
    for (const [split, kind] of [
      ["train", "trl"],
      ["eval", "tel"],
    ]) {
      const expected = [...text(name).matchAll(new RegExp(`^s:(\\d+) ${kind}:([\\d.]+)`, "gm"))].map((m) => [
        Number(m[1]),
        Number(m[2]),
      ]);
      expect(expected.length).toBeGreaterThan(79);
      expect(result.points.filter((p) => p.split === split).map((p) => [p.step, p.lm_loss])).toEqual(
        expected,
      );
    }
    expect(result.sources[0].skipped).toEqual([]);
  });

  it("Weights & Biases chart export: 8 runs, no twins, no empty points", () => {
    const name = "02_wandb_chart_export_minmax.csv";
    const result = read(name);
    const rows = text(name)
      .trim()
      .split("\n")
      .map((line) => line.slice(1, -1).split('","'));
    expect(result.runs).toHaveLength(8);
    for (const [i, run] of result.runs.entries()) {
      expect(`${run.run} - train/loss`).toBe(rows[0][1 + 3 * i]);
      const expected = rows
        .slice(1)
        .filter((row) => row[1 + 3 * i] !== "")
        .map((row) => [Number(row[0]), Number(row[1 + 3 * i])]);
      expect(result.points.filter((p) => p.run === run.run).map((p) => [p.step, p.lm_loss])).toEqual(
        expected,
      );
    }
    expect(new Set(result.runs.map(({ points }) => points.train))).toEqual(
      new Set([51, 57, 166, 150, 128, 386, 118]),
    );
  });

  it("Lightning CSVLogger: a curve without blanks", () => {
    const result = read("06_lightning_csvlogger_slm.csv");
    expect(result.sources[0].format).toBe("Lightning CSVLogger");
    expect(result.points.slice(0, 2).map((p) => [p.step, p.lm_loss])).toEqual([
      [49, 9.44075870513916],
      [99, 9.037506103515625],
    ]);
    expect(result.points).toHaveLength(1511);
  });

  it("Hugging Face: train and eval curves, the step-less rows reported as skipped", () => {
    const name = "07_hf_trainer_state_cpt.json";
    const result = read(name);
    const history: Record<string, number>[] = JSON.parse(text(name)).log_history;
    for (const [split, key] of [
      ["train", "loss"],
      ["eval", "eval_loss"],
    ]) {
      const expected = history.filter((row) => key in row).map((row) => [row.step, row[key]]);
      expect(expected).toHaveLength(10);
      expect(result.points.filter((p) => p.split === split).map((p) => [p.step, p.lm_loss])).toEqual(
        expected,
      );
    }
    const stepless = result.sources[0].skipped.find(({ reason }) => reason === "row without a step")!;
    expect(stepless.count).toBe(history.filter((row) => !("step" in row)).length);
  });

  it("TensorBoard: of 210 points 200 remain, the later of two at a step", () => {
    const name = "09_events.out.tfevents.duplicate_steps";
    const result = read(name, "loss=dup_steps/foo");
    expect(result.points).toHaveLength(200);
    expect(result.points.map((p) => p.step)).toEqual(Array.from({ length: 200 }, (_, step) => step));
    expect(result.runs[0]).toMatchObject({ replaced: 10, rollbacks: 1, abandoned: 0 });
    // The value of the second record at step 95, found by its tag's bytes: the 4 bytes after `foo` and 0x15.
    const bytes = readFileSync(join(folder, name));
    const values: number[] = [];
    for (
      let at = bytes.indexOf("dup_steps/foo\x15");
      at >= 0;
      at = bytes.indexOf("dup_steps/foo\x15", at + 1)
    )
      values.push(bytes.readFloatLE(at + 14));
    expect(values).toHaveLength(210);
    expect(result.points[95].lm_loss).toBe(values[105]);
    expect(() => read(name)).toThrow(/it has dup_steps\/foo, dup_steps\/bar/);
  });

  it("torchtitan: loss and tokens per second on step", () => {
    const result = read("13_torchtitan_stdout.log");
    expect(result.points.map((p) => p.step)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(result.points[1]).toMatchObject({
      lm_loss: 7.7082,
      tokens_per_second: 301_092,
      tokens: 2 * 64 * 2048,
    });
    expect(result.points[9]).toMatchObject({ lm_loss: 3.9761, tokens_per_second: 324_245 });
  });

  it("a folder of logs: what cannot be read is said", () => {
    const result = importPaths([folder]);
    expect(result.sources).toHaveLength(5);
    expect(result.passed).toHaveLength(1);
    expect(result.runs).toHaveLength(12);
  });
});
