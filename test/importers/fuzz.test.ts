/**
 * 100,000 mutated logs: each ends in rows that the curves table takes, or in an InputError of one sentence, and quickly.
 * The seed is fixed; half of the record files get their checksums right again, so that what is inside is reached.
 */
import { expect, it } from "vitest";
import { InputError } from "../../src/errors.ts";
import { formatCurves, parseCurves } from "../../src/fit/index.ts";
import { importBytes } from "../../src/importers/index.ts";
import * as made from "./made.ts";

const INPUTS = 100_000;

/** mulberry32. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
const random = randomOf(5);
const below = (n: number) => Math.floor(random() * n);

const tensor = made.field(
  8,
  Buffer.concat([
    made.field(1, 1),
    made.field(2, Buffer.alloc(0)),
    made.field(4, Buffer.from([0, 0, 32, 64])),
  ]),
);
const EVENTS = [
  made.VERSION_EVENT,
  made.event(1, "loss", made.fixed(2, 3, 4)),
  made.event(2, "loss", tensor),
  made.event(3, "val/loss", made.fixed(2, 2, 4)),
];
const RECORDS = [
  made.wandbRun("id", "name"),
  made.wandbHistory({ loss: "3.5", _step: "1", "a.b": '{"c": 1}' }),
  made.wandbHistory({ loss: "3.25", _step: "2" }, true),
];
const TEXTS = [
  made.LLM_C,
  made.NANO_GPT,
  made.MODDED,
  made.TORCHTITAN,
  made.MEGATRON,
  made.FAIRSEQ,
  made.FAIRSEQ_JSON,
  made.TRAINER_CONSOLE,
  made.TRAINER_STATE,
  made.LIGHTNING,
  made.WANDB_CSV,
  made.PLAIN_CSV,
  made.JSONL,
].map((text) => Buffer.from(text));
const TOKENS = [
  "1e999",
  "-1",
  "NaN",
  "Infinity",
  '"',
  ",",
  "\n",
  "\r",
  "\0",
  "{",
  "}",
  "[",
  "null",
  "9007199254740993",
  "\uFEFF",
  "\u001b[31m",
  "__MIN",
  " - ",
  "|",
  ":",
  "1,234,567",
  "0x10",
  "\xff\xfe",
  "s:1 trl:",
  "{'loss': ",
  "1".repeat(50),
].map((text) => Buffer.from(text, "latin1"));

function mutate(input: Buffer): Buffer {
  let bytes = Buffer.from(input);
  for (let n = 1 + below(4); n > 0; n--) {
    const at = below(bytes.length + 1);
    const length = below(1 + Math.min(40, bytes.length - at));
    const before = bytes.subarray(0, at);
    switch (below(8)) {
      case 0:
        bytes = Buffer.from(before);
        break;
      case 1:
        if (at < bytes.length) bytes[at] ^= 1 << below(8);
        break;
      case 2:
        if (at < bytes.length) bytes[at] = below(256);
        break;
      case 3:
        bytes = Buffer.concat([before, bytes.subarray(at + length)]);
        break;
      case 4:
        bytes = Buffer.concat([before, bytes.subarray(at, at + length), bytes.subarray(at)]);
        break;
      case 5:
        bytes = Buffer.concat([before, TOKENS[below(TOKENS.length)], bytes.subarray(at + below(3))]);
        break;
      case 6: {
        const other = TEXTS[below(TEXTS.length)];
        bytes = Buffer.concat([before, other.subarray(below(other.length))]);
        break;
      }
      default:
        // A digit for a digit: what is wrong is then in the numbers.
        for (let i = at; i < bytes.length; i++) {
          if (bytes[i] < 48 || bytes[i] > 57) continue;
          bytes[i] = 48 + below(10);
          break;
        }
    }
  }
  return bytes;
}

function input(n: number): Buffer {
  const kind = n % (TEXTS.length + 4);
  if (kind < TEXTS.length) return mutate(TEXTS[kind]);
  const inside = kind % 2 === 0;
  const isWandb = kind >= TEXTS.length + 2;
  const parts = [...(isWandb ? RECORDS : EVENTS)];
  if (inside) {
    const at = below(parts.length);
    parts[at] = mutate(parts[at]);
  }
  const file = isWandb ? made.wandbFile(parts) : Buffer.concat(parts.map(made.frame));
  return inside ? file : mutate(file);
}

it(`${INPUTS.toLocaleString("en-US")} mutated logs: rows or a sentence`, { timeout: 300_000 }, () => {
  let rows = 0;
  let sentences = 0;
  let slowest = 0;
  for (let n = 0; n < INPUTS; n++) {
    const bytes = input(n);
    const start = performance.now();
    try {
      const { points } = importBytes({ name: "x", bytes });
      rows++;
      // Every row is one that the curves table takes.
      const text = formatCurves(points);
      expect(parseCurves(text, "x").points).toHaveLength(points.length);
      for (const { lm_loss, step } of points) {
        if (!(lm_loss > 0 && lm_loss < Infinity) || (step !== undefined && !(step >= 0)))
          throw new Error(`loss ${lm_loss} at step ${step}`);
      }
    } catch (error) {
      if (!(error instanceof InputError)) {
        throw new Error(`input ${n}, ${JSON.stringify(bytes.toString("latin1"))}: ${(error as Error).stack}`);
      }
      sentences++;
      if (error.message.length > 1500 || /undefined|\[object/.test(error.message)) {
        throw new Error(`input ${n} is answered by ${JSON.stringify(error.message)}`);
      }
    }
    slowest = Math.max(slowest, performance.now() - start);
  }
  expect(rows).toBeGreaterThan(INPUTS / 4);
  expect(sentences).toBeGreaterThan(INPUTS / 20);
  expect(slowest).toBeLessThan(5000);
  console.log(`${rows} gave rows, ${sentences} a sentence; the slowest took ${slowest.toFixed(0)} ms`);
});
