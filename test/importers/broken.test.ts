/** Logs that are cut, damaged, oddly encoded, empty or very large: a sentence or a result, never a crash or a hang. */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { InputError } from "../../src/errors.ts";
import { importBytes } from "../../src/importers/index.ts";
import * as made from "./made.ts";

const read = (content: string | Uint8Array) =>
  importBytes({ name: "x", bytes: typeof content === "string" ? made.bytesOf(content) : content });

/** The result, or the sentence; anything else fails the test. */
function outcome(content: string | Uint8Array) {
  try {
    return read(content);
  } catch (error) {
    if (error instanceof InputError) return error.message;
    throw error;
  }
}
const skipped = (content: string | Uint8Array) =>
  Object.fromEntries(read(content).sources[0].skipped.map(({ reason, count }) => [reason, count]));

const EVENTS = Buffer.concat([
  made.frame(made.VERSION_EVENT),
  ...[1, 2, 3].map((step) => made.frame(made.event(step, "loss", made.fixed(2, 5 - step, 4)))),
]);
const WANDB = made.wandbFile(
  [1, 2, 3].map((step) => made.wandbHistory({ loss: `${5 - step}`, _step: `${step}` })),
);
const FORMATS: Record<string, string | Uint8Array> = {
  "llm.c": made.LLM_C,
  nanoGPT: made.NANO_GPT,
  "modded-nanogpt": made.MODDED,
  torchtitan: made.TORCHTITAN,
  Megatron: made.MEGATRON,
  fairseq: made.FAIRSEQ,
  "fairseq JSON": made.FAIRSEQ_JSON,
  "Hugging Face console": made.TRAINER_CONSOLE,
  "Hugging Face": made.TRAINER_STATE,
  Lightning: made.LIGHTNING,
  "W&B CSV": made.WANDB_CSV,
  CSV: made.PLAIN_CSV,
  JSONL: made.JSONL,
  TensorBoard: EVENTS,
  ".wandb": WANDB,
};
const shared = fileURLToPath(new URL("../../../shared/data/logs/", import.meta.url));
for (const name of [
  "02_wandb_chart_export_minmax.csv",
  "06_lightning_csvlogger_slm.csv",
  "07_hf_trainer_state_cpt.json",
  "09_events.out.tfevents.duplicate_steps",
  "13_torchtitan_stdout.log",
]) {
  if (existsSync(shared)) FORMATS[name] = readFileSync(join(shared, name));
}
const asBytes = (content: string | Uint8Array) =>
  typeof content === "string" ? made.bytesOf(content) : content;

describe.each(Object.entries(FORMATS))("%s", (_, content) => {
  it("cut anywhere: what came before the cut, or a sentence; never a loss that the whole log does not have", () => {
    const bytes = asBytes(content);
    const whole = outcome(bytes);
    const losses = new Set(typeof whole === "string" ? [] : whole.points.map((p) => p.lm_loss));
    const stride = Math.max(1, Math.floor(bytes.length / 300));
    // A CSV's last number may be cut without a trace; other logs end their lines or say their lengths.
    const tolerant = String.fromCharCode(...bytes.subarray(0, 200))
      .split("\n")[0]
      .includes(",");
    for (let length = 0; length < bytes.length; length += stride) {
      const result = outcome(bytes.subarray(0, length));
      if (typeof result === "string") expect(result.length).toBeGreaterThan(4);
      else if (!tolerant) for (const point of result.points) expect(losses).toContain(point.lm_loss);
    }
  });

  it("in UTF-16, in Latin-1 and with a byte order mark", () => {
    if (typeof content !== "string") return;
    const points = read(content).points;
    const utf16 = Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(content, "utf16le")]);
    expect(read(utf16).points).toEqual(points);
    expect(read(utf16.subarray(2)).points).toEqual(points);
    expect(read(Buffer.from(utf16).swap16()).points).toEqual(points);
    expect(read(`\uFEFF${content}`).points).toEqual(points);
    expect(read(content.replaceAll("\n", "\r\n")).points).toEqual(points);
  });
});

describe("damage", () => {
  it("a wrong checksum is named with its place", () => {
    const first = made.frame(made.VERSION_EVENT).length;
    for (const [at, part] of [
      [first + 2, "length"],
      [first + 9, "length"],
      [first + 20, "data"],
      [EVENTS.length - 1, "data"],
    ] as const) {
      const bytes = Buffer.from(EVENTS);
      bytes[at] ^= 1;
      expect(outcome(bytes)).toMatch(
        new RegExp(`checksum of the ${part} of record \\d \\(byte \\d+\\) is wrong`),
      );
    }
    const bytes = Buffer.from(WANDB);
    bytes[40] ^= 1;
    expect(outcome(bytes)).toMatch(/checksum of the record at byte \d+ is wrong/);
    bytes[5] = 0;
    expect(outcome(bytes)).toMatch(/magic 0xe1 and version 0 where W&B's magic/);
  });

  it("the first record's checksum too", () => {
    const bytes = Buffer.from(EVENTS);
    bytes[8] ^= 1;
    expect(outcome(bytes)).toMatch(/checksum of the length of record 1/);
  });

  it("a cut last record or line is skipped and said", () => {
    expect(skipped(EVENTS.subarray(0, -5))).toEqual({ "last record is cut off": 1 });
    expect(skipped(WANDB.subarray(0, -5))).toEqual({ "last record is cut off": 1 });
    expect(skipped(made.LLM_C.trimEnd().slice(0, -1))["last line is cut off"]).toBe(1);
    expect(read(made.LLM_C.trimEnd()).points).toHaveLength(5);
    expect(skipped(made.JSONL.slice(0, 100))).toEqual({ "last line is cut off": 1 });
    expect(outcome(made.TRAINER_STATE.slice(0, 400))).toMatch(/is not whole JSON/);
    expect(outcome(made.WANDB_CSV.slice(0, -3))).toMatch(/quoted field is never closed/);
    expect(skipped("step,loss,x\n1,2,3\n2,1.5")).toEqual({ "last row is cut off": 1 });
    expect(read("step,loss\n1,2\n2,1.5").notes.join()).toMatch(/last line has no end/);
    expect(outcome("step,loss,x\n1,2\n2,1.5,3\n")).toMatch(/line 2: 2 fields where the header has 3/);
  });

  it("bytes of another encoding in a text are said", () => {
    const latin = Buffer.from('"Step","Stra\xdfe - loss"\n1,5\n', "latin1");
    expect(read(latin).notes.join()).toMatch(/bytes that are not UTF-8/);
    expect(outcome(Buffer.concat([made.bytesOf(made.LLM_C), Buffer.alloc(9)]))).toMatch(/is binary/);
  });
});

describe("numbers and sizes", () => {
  it("huge, infinite and negative values are skipped by reason", () => {
    const rows = [
      "1,5",
      "2,1e999",
      "3,-1",
      "4,0",
      "1e300,4",
      "-5,4",
      "1.5,4",
      "6,inf",
      "7,NaN",
      "8,abc",
      `9,${"9".repeat(500)}`,
      "10,1e308",
      "11,1e-300",
    ];
    expect(skipped(`step,loss\n${rows.join("\n")}\n`)).toEqual({
      "loss is infinite": 2,
      "loss is not above 0": 2,
      "loss is not from 1e-30 to 1e30": 2,
      "step is not a whole number from 0 to 9e15": 3,
      "loss is not a number": 3,
    });
    expect(outcome("step,loss\n1,nan\n")).toBe(
      "x has no loss that can be used (loss is not a number: 1, first at line 2)",
    );
  });

  it.each([
    ["step,loss\n", /x has no rows/],
    ["\n\n", /nothing but blanks/],
    ['{"log_history": []}', /log_history has no rows/],
    ['{"log_history": 3}', /no list log_history/],
    ["[]", /no format/],
    ["[1,2]", /has no rows/],
    ["{}\n", /no column that reads as a loss/],
    ["null", /no format/],
    [made.frame(made.VERSION_EVENT), /1 event records but no scalars/],
    [made.wandbFile([]), /0 records but no history/],
    [made.wandbFile([made.field(12, "x")]), /1 records but no history/],
    ["1,2\n3,4\n", /no format/],
    ["hello world\n", /no format/],
    [Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0, 0, 13]), /is binary/],
  ])("nothing to read: %j", (content, message) => {
    expect(outcome(content)).toMatch(message);
  });

  it.each([
    ["CSV", "step,loss\n", (i: number) => `${i},${5 - i / 1e6}\n`],
    ["llm.c", "", (i: number) => `s:${i} trl:${(5 - i / 1e6).toFixed(6)} lr:0.1 norm:1\n`],
    ["JSONL", "", (i: number) => `{"step":${i},"loss":${5 - i / 1e6}}\n`],
  ])("a million rows of %s", (_, header, row) => {
    const lines: string[] = [header];
    for (let i = 0; i < 1_000_000; i++) lines.push(row(i));
    const { points } = read(lines.join(""));
    expect(points).toHaveLength(1_000_000);
    expect(points[999_999].step).toBe(999_999);
  });

  it("long lines and deep nesting do not hang", () => {
    const start = performance.now();
    for (const text of [
      "step:".repeat(400_000),
      `${" ".repeat(1_000_000)}iter 1: loss`,
      `s:${"1".repeat(1_000_000)}`,
      `${'{"a":'.repeat(50_000)}1${"}".repeat(50_000)}`,
      `${"[".repeat(100_000)}`,
      '"\\"'.repeat(300_000),
      `{"a": "${'\\"'.repeat(300_000)}, NaN`,
      `"${",".repeat(1_000_000)}`,
      "| epoch 1 ".repeat(100_000),
      "{'loss': ".repeat(100_000),
      "{'a': 'loss': 1, ".repeat(100_000),
      `{'${"'loss': 1, ".repeat(300)}\n`.repeat(300),
      '{"log_history": [{"loss": NaN'.repeat(10_000),
    ]) {
      expect(typeof outcome(text)).toBe("string");
    }
    expect(performance.now() - start).toBeLessThan(10_000);
  });
});
