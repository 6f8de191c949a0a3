import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, describe, expect, test } from "vitest";
import { InputError } from "../../src/errors.ts";
import {
  type CurvePoint,
  formatCurves,
  parseCurves,
  readCurves,
  readCurvesTable,
} from "../../src/fit/index.ts";

const folder = mkdtempSync(join(tmpdir(), "curves-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** A row as an object of the columns that it has. */
const plain = (point: CurvePoint) =>
  Object.fromEntries(
    [...HEADER.split(","), ...OPTIONAL]
      .map((column) => [column, point[column as keyof CurvePoint]])
      .filter(([, value]) => value !== undefined),
  );
const OPTIONAL =
  "seed,run,step,tokens,parameters,pflops_days_attended,split,time_s,tokens_per_second,predicted_tokens,bits_per_byte".split(
    ",",
  );
const HEADER = "attention,model,position_start,position_end,pflops_days,lm_loss";

describe("reading", () => {
  test("CSV with a byte order mark, CRLF, quotes, blank lines and unknown columns", () => {
    const text = `\uFEFF${HEADER},seed,note\r\nfull,"d ""4"", wide",0,128,0.5,2.5,1,"two\r\nlines"\r\n\r\nmoba,d4,,,,3e0,,x`;
    const { points, ignored_columns } = parseCurves(text, "t.csv");
    expect(ignored_columns).toEqual(["note"]);
    expect(points.map(plain)).toEqual([
      {
        attention: "full",
        model: 'd "4", wide',
        position_start: 0,
        position_end: 128,
        pflops_days: 0.5,
        lm_loss: 2.5,
        seed: 1,
      },
      {
        attention: "moba",
        model: "d4",
        position_start: null,
        position_end: null,
        pflops_days: null,
        lm_loss: 3,
      },
    ]);
  });

  test("JSONL, with labels that look like numbers", () => {
    const text = `{"attention":"full","model":4,"position_start":null,"position_end":null,"pflops_days":1,"lm_loss":2}
{"attention":"full","model":"4","pflops_days":2,"lm_loss":1.9,"extra":{}}`;
    const { points, ignored_columns } = parseCurves(text, "t.jsonl");
    expect(ignored_columns).toEqual(["extra"]);
    expect(points.map((point) => [point.model, point.pflops_days, point.position_start])).toEqual([
      ["4", 1, null],
      ["4", 2, null],
    ]);
  });

  test.each([
    ["empty", "", /is empty/],
    ["a header alone", HEADER, /has a header but no rows/],
    [
      "a missing column",
      "attention,model,position_start,position_end,pflops_days\nfull,a,,,1",
      /line 1: column lm_loss is missing/,
    ],
    ["a column twice", `${HEADER},model\nfull,a,,,1,2,b`, /"model" appears twice/],
    [
      "text for a number",
      `${HEADER}\nfull,a,,,1,2\nfull,a,,,1,low`,
      /line 3, column lm_loss: "low" where a number should be/,
    ],
    ["text for compute", `${HEADER}\nfull,a,,,1 PF,2`, /line 2, column pflops_days: "1 PF" where a number/],
    ["a hexadecimal number", `${HEADER}\nfull,a,,,0x10,2`, /column pflops_days: "0x10" where a number/],
    ["NaN", `${HEADER}\nfull,a,,,1,NaN`, /line 2, column lm_loss: "NaN" where a finite number/],
    ["infinity", `${HEADER}\nfull,a,,,1,1e999`, /"1e999" where a finite number/],
    ["a loss of 0", `${HEADER}\nfull,a,,,1,0`, /column lm_loss: "0" where a positive loss/],
    ["a negative loss", `${HEADER}\nfull,a,,,1,-2`, /"-2" where a positive loss/],
    ["no loss", `${HEADER}\nfull,a,,,1,`, /column lm_loss: nothing where a positive loss/],
    ["no label", `${HEADER}\n,a,,,1,2`, /column attention: nothing where a label/],
    ["negative compute", `${HEADER}\nfull,a,,,-1,2`, /column pflops_days: "-1" where a number not below 0/],
    ["half a bucket", `${HEADER}\nfull,a,0,,1,2`, /column position_end: nothing where a position/],
    ["a bucket backwards", `${HEADER}\nfull,a,8,8,1,2`, /column position_end: "8" where a position above/],
    ["a broken position", `${HEADER}\nfull,a,0.5,8,1,2`, /"0.5" where a whole number/],
    ["too few fields", `${HEADER}\nfull,a,,,1`, /line 2: 5 fields where the header has 6/],
    ["an open quote", `${HEADER}\nfull,"a,,,1,2\n`, /line 2: a quoted field is never closed/],
    ["text after a quote", `${HEADER}\nfull,"a"b,,,1,2\n`, /"b" follows a closing quote/],
    ["broken JSON", '{"attention":"full"\n', /line 1: .* is not JSON/],
    [
      "a JSON list",
      '{"attention":"full","model":"a","position_start":null,"position_end":null,"pflops_days":1,"lm_loss":2}\n[1]',
      /line 2: "\[1\]" is not an object/,
    ],
    [
      "a JSON object for a number",
      '{"attention":"full","model":"a","position_start":null,"position_end":null,"pflops_days":{},"lm_loss":2}',
      /column pflops_days: .* where a number/,
    ],
  ])("refuses %s", (_, text, message) => {
    const path = join(folder, "bad.csv");
    writeFileSync(path, text);
    expect(() => readCurves(path)).toThrow(InputError);
    expect(() => readCurves(path)).toThrow(message);
    expect(() => readCurves(path)).toThrow(path);
  });

  test("refuses a file that is not there and a folder", () => {
    expect(() => readCurves(join(folder, "none.csv"))).toThrow(/there is no such file/);
    expect(() => readCurves(folder)).toThrow(InputError);
  });

  test("rows share what they have in common, and nothing else", () => {
    const rows = [
      "full,a,0,128,1,3,r,7,50,2",
      "full,a,128,256,1,2.9,r,7,,2",
      "full,a,256,384,1,2.8,r,7,60,",
      "full,a,0,128,1,2.7,r,8,50,2",
      "moba,a,0,128,1,2.6,r,8,50,2",
      "moba,a,0,128,,2.5,,8,50,2",
      "moba,a,,,,2.4,,,,",
    ];
    const text = `${HEADER},run,step,predicted_tokens,bits_per_byte\n${rows.join("\n")}\n`;
    expect(formatCurves(parseCurves(text, "t").points)).toBe(text);
    const names = text.split("\n")[0].split(",");
    const json = rows.map((row) => {
      const fields = row.split(",").map((field, i) => [names[i], field === "" ? undefined : field]);
      return JSON.stringify(Object.fromEntries(fields));
    });
    expect(formatCurves(parseCurves(json.join("\n"), "t").points)).toBe(text);
  });

  test("35,000 rows in well under a second", () => {
    const rows = Array.from({ length: 35_000 }, (_, i) => `full,545M,0,2048,${(i + 1) / 1e5},${3 - i / 1e5}`);
    const path = join(folder, "many.csv");
    writeFileSync(path, [HEADER, ...rows].join("\n"));
    const start = performance.now();
    expect(readCurvesTable(path).points.length).toBe(35_000);
    expect(performance.now() - start).toBeLessThan(1500);
  });

  test("a row among 16 buckets is kept in 128 bytes", () => {
    const columns = "run,step,tokens,parameters,pflops_days_attended,time_s,predicted_tokens";
    const rows = Array.from({ length: 160_000 }, (_, i) => {
      const [step, bucket] = [Math.floor(i / 16) + 0.5, i % 16];
      const shared = `r,${step - 0.5},${step * 1e9},${1e9},${step / 7},${step / 3},65536`;
      return `full,d4,${bucket * 128},${(bucket + 1) * 128},${step / 9},${3 - i / 1e6},${shared}`;
    });
    const path = join(folder, "buckets.csv");
    writeFileSync(path, [`${HEADER},${columns}`, ...rows].join("\n"));
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const used = () => {
      collect();
      return process.memoryUsage().heapUsed;
    };
    const before = used();
    const points = readCurves(path);
    const bytes = (used() - before) / rows.length;
    expect(bytes).toBeLessThan(128);
    expect(points).toHaveLength(rows.length);
  });
});

describe("writing", () => {
  test("what is written is read back, number for number", () => {
    const points: CurvePoint[] = [
      {
        attention: "moba-b512-k3",
        model: 'a,"b"\nc',
        position_start: 0,
        position_end: 128,
        pflops_days: 1 / 3,
        lm_loss: Math.PI,
        seed: -1,
        run: " padded",
        step: 7,
        tokens: 12345678901,
        predicted_tokens: 5,
        split: "held-out",
      },
      {
        attention: "full",
        model: "x",
        position_start: null,
        position_end: null,
        pflops_days: null,
        lm_loss: 1e-7,
      },
    ];
    const text = formatCurves(points);
    expect(text.split("\n")[0]).toBe(`${HEADER},seed,run,step,tokens,split,predicted_tokens`);
    const back = parseCurves(text, "t").points.map(plain);
    expect(back).toEqual([{ ...points[0], run: "padded" }, points[1]]);
  });
});
