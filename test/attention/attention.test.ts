/** Labels, option checks and static gates. */
import { expect, test } from "vitest";
import {
  type Attention,
  attentionLabel,
  checkAttention,
  earlierBlocks,
  parseAttention,
  staticGate,
} from "../../src/attention/attention.ts";

const labelled: [string, Attention][] = [
  ["full", { kind: "full" }],
  ["moba-b512-k3", { kind: "moba", blockSize: 512, topK: 3 }],
  ["moba-b1-k1-shared", { kind: "moba", blockSize: 1, topK: 1, sharedGate: true }],
  ["window-b128-k4", { kind: "window", blockSize: 128, topK: 4 }],
  ["sink-b16-k12", { kind: "sink", blockSize: 16, topK: 12 }],
];

test.each(labelled)("label %s goes there and back", (label, attention) => {
  expect(attentionLabel(attention)).toBe(label);
  expect(parseAttention(label)).toEqual(attention);
});

test("a gate that is not shared has no suffix", () => {
  expect(attentionLabel({ kind: "moba", blockSize: 8, topK: 2, sharedGate: false })).toBe("moba-b8-k2");
});

test.each([
  "",
  "Full",
  "full-b512-k3",
  "moba",
  "moba-b512",
  "moba-k3-b512",
  "moba-b512-k3-",
  "moba-b-1-k3",
  "moba-b1.5-k3",
  "window-b512-k3-shared",
  " moba-b512-k3",
])("label %j is refused by name", (label) => {
  expect(() => parseAttention(label)).toThrow(RangeError);
  expect(() => parseAttention(label)).toThrow(`"${label}"`);
});

test.each([
  ["moba-b0-k3", /blockSize is 0/],
  ["window-b4-k0", /topK is 0/],
  ["moba-b99999999999999999999-k2", /blockSize is 1/],
])("label %s is out of range", (label, message) => {
  expect(() => parseAttention(label)).toThrow(message);
});

test.each([0, -1, 1.5, Number.NaN, Infinity])("options of %d are refused", (value) => {
  for (const kind of ["moba", "window", "sink"] as const) {
    expect(() => checkAttention({ kind, blockSize: value, topK: 2 })).toThrow(
      `${kind} attention: blockSize is ${value}`,
    );
    expect(() => checkAttention({ kind, blockSize: 2, topK: value })).toThrow(
      `${kind} attention: topK is ${value}`,
    );
  }
});

test("earlier blocks: topK less the own block, none for full", () => {
  expect(earlierBlocks({ kind: "full" })).toBe(0);
  expect(earlierBlocks({ kind: "moba", blockSize: 4, topK: 1 })).toBe(0);
  expect(earlierBlocks({ kind: "sink", blockSize: 4, topK: 5 })).toBe(4);
});

test("static gates, worked by hand", () => {
  const gates = (kind: "window" | "sink", topK: number) =>
    [0, 1, 2, 3, 4, 5].map((block) => staticGate({ kind, blockSize: 8, topK }, block));
  expect(gates("window", 1)).toEqual([[], [], [], [], [], []]);
  expect(gates("window", 3)).toEqual([[], [0], [0, 1], [1, 2], [2, 3], [3, 4]]);
  expect(gates("sink", 1)).toEqual([[], [], [], [], [], []]);
  expect(gates("sink", 2)).toEqual([[], [0], [0], [0], [0], [0]]);
  expect(gates("sink", 4)).toEqual([[], [0], [0, 1], [0, 1, 2], [0, 2, 3], [0, 3, 4]]);
});

test("full attention and MoBA have no static gate", () => {
  expect(() => staticGate({ kind: "full" }, 3)).toThrow(/full attention has no static gate/);
  expect(() => staticGate({ kind: "moba", blockSize: 4, topK: 2 }, 3)).toThrow(/moba attention/);
});
