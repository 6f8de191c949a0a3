import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { InputError, RunError } from "../../src/errors.ts";
import { writeWhole, writing } from "../../src/files.ts";
import { RecordWriter, readEvaluations, readMetrics } from "../../src/train/records.ts";
import type { MetricsRecord } from "../../src/train/types.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "mobalab-records-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

const line = (step: number, attempt: number, loss = step) => `${JSON.stringify({ step, attempt, loss })}\n`;
const record = (step: number, attempt: number) => ({ step, attempt, loss: step }) as MetricsRecord;
const seen = (file: string) => readMetrics(file).map(({ step, attempt }) => [step, attempt]);

test("each step's highest attempt, ascending", () => {
  const file = join(folder, "metrics.jsonl");
  writeFileSync(
    file,
    line(1, 1) + line(2, 1) + line(3, 1) + line(2, 2) + line(3, 2) + line(4, 2) + line(3, 3),
  );
  expect(seen(file)).toEqual([
    [1, 1],
    [2, 2],
    [3, 3],
    [4, 2],
  ]);
});

test("no file, no records", () => {
  expect(readEvaluations(join(folder, "eval.jsonl"))).toEqual([]);
});

test("a line torn anywhere is ignored, and repaired when the next attempt appends", () => {
  const whole = line(3, 1);
  for (let cut = 1; cut < whole.length; cut++) {
    const file = join(folder, `metrics-${cut}.jsonl`);
    writeFileSync(file, line(1, 1) + line(2, 1) + whole.slice(0, cut));
    const complete = cut === whole.length - 1; // only the newline is missing
    expect(seen(file).length).toBe(complete ? 3 : 2);
    const writer = new RecordWriter(file);
    writer.append(record(3, 2));
    writer.append(record(4, 2));
    writer.flush();
    expect(seen(file)).toEqual([
      [1, 1],
      [2, 1],
      [3, 2],
      [4, 2],
    ]);
  }
});

test("two attempts torn in a row", () => {
  const file = join(folder, "metrics.jsonl");
  writeFileSync(file, `${line(1, 1)}{"step":2,\n{"step":2,"att\n${line(2, 3)}`);
  expect(seen(file)).toEqual([
    [1, 1],
    [2, 3],
  ]);
});

test("garbage that no crash explains is an error with file and line", () => {
  const file = join(folder, "metrics.jsonl");
  writeFileSync(file, `${line(1, 1)}oops\n${line(2, 1)}`);
  expect(() => readMetrics(file)).toThrow(InputError);
  expect(() => readMetrics(file)).toThrow("metrics.jsonl, line 2: not a record");
});

test("nothing reaches the file before flush, and appending never rewrites", () => {
  const file = join(folder, "metrics.jsonl");
  const writer = new RecordWriter(file);
  writer.append(record(1, 1));
  expect(existsSync(file)).toBe(false);
  writer.flush();
  writer.append(record(2, 1));
  writer.flush();
  expect(readFileSync(file, "utf8")).toBe(line(1, 1) + line(2, 1));
});

test.skipIf(!existsSync("/dev/full"))("a full disk is a RunError that names file and reason", () => {
  const writer = new RecordWriter("/dev/full");
  for (const expected of [RunError, /cannot write \/dev\/full: ENOSPC/]) {
    writer.append(record(1, 1));
    expect(() => writer.flush()).toThrow(expected);
  }
});

test("a place that cannot be written is an InputError, which no repetition helps", () => {
  for (const [code, reason] of [
    ["EROFS", /cannot write here: its file system is read-only/],
    ["EACCES", /cannot write here: there is no permission/],
  ] as const) {
    const refuse = () => {
      throw Object.assign(new Error(code), { code, syscall: "open" });
    };
    expect(() => writing("here", refuse)).toThrow(InputError);
    expect(() => writing("here", refuse)).toThrow(reason);
  }
  expect(() => writeWhole(folder, "")).toThrow(`cannot write ${folder}: it is a folder, expected a file`);
});

test("a record without its losses is refused by line, not met later as a fault", () => {
  const file = join(folder, "eval.jsonl");
  writeFileSync(file, '{"step":1,"attempt":1}\n');
  expect(() => readEvaluations(file)).toThrow(/eval\.jsonl, line 1: the record of step 1 lacks its losses/);
  expect(() => readMetrics(file)).toThrow(InputError);
});
