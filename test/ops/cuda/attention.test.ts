/** Attention on the null device: what is launched with which grids, and that documents and steps change none of it. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type Attention, attentionLabel } from "../../../src/attention/attention.ts";
import type { AttentionShape, Backend } from "../../../src/ops/contract.ts";
import { KERNELS } from "../../../src/ops/cuda/compile.ts";
import { createNullBackend, type NullBackend } from "../../../src/ops/cuda/null.ts";

const moba = (blockSize: number, topK: number, sharedGate = false): Attention => ({
  kind: "moba",
  blockSize,
  topK,
  sharedGate,
});

function layer(b: Backend, options: Partial<AttentionShape> & Pick<AttentionShape, "attention">) {
  const shape = { tokens: 4096, heads: 8, kvHeads: 2, headDim: 64, maxDocuments: 3, ...options };
  const { tokens: T, heads: H, kvHeads: G, headDim: D, maxDocuments } = shape;
  const state = b.attentionState(shape);
  const documents = b.documents(T, maxDocuments);
  const [q, k, v] = [H, G, G].map((heads) => b.tensor([T, heads, D], "activation"));
  const [out, dOut, dQ] = [1, 2, 3].map(() => b.tensor([T, H, D], "activation"));
  const [dK, dV] = [1, 2].map(() => b.tensor([T, G, D], "activation"));
  const forward = () => b.attentionForward(state, out, q, k, v, documents);
  const step = () => {
    b.route(state, q, k, documents);
    forward();
    b.attentionBackward(state, dQ, dK, dV, dOut, out, q, k, v, documents);
  };
  return { state, documents, forward, step };
}

/** "forward_own_d64 32x8x1" of each launch of a call. */
function launches(b: NullBackend, run: () => void): string[] {
  b.mock.launches.length = 0;
  run();
  return b.mock.launches.map(({ kernel, grid }) => `${kernel.replace("attention_", "")} ${grid.join("x")}`);
}

test("full attention: queries forward; delta, keys and queries backward", () => {
  const b = createNullBackend({ hopper: false });
  const { step } = layer(b, { attention: { kind: "full" } });
  expect(launches(b, step)).toEqual([
    "forward_own_d64 32x8x1",
    "delta_d64 1024x1x1",
    "backward_keys128_d64 32x2x1",
    "backward_own_d64 32x8x1",
  ]);
});

test("MoBA: blocks, means, choice; lists; past and own in both directions", () => {
  const b = createNullBackend({ hopper: false });
  const { step } = layer(b, { attention: moba(512, 3), headDim: 128 });
  // 8 whole blocks; 4096 * 2 entries in tiles of 128 and a last tile for each list.
  expect(launches(b, step)).toEqual([
    "blocks 1x1x1",
    "means 2x8x1",
    "route_d128_s3 32x8x1",
    "blocks 1x1x1",
    "lists_count 4x8x1",
    "lists_scan 8x1x1",
    "lists_fill 4x8x1",
    "forward_past_d128 72x8x1",
    "forward_own_d128 32x8x1",
    "delta_d128 2048x1x1",
    "backward_keys128_d128 44x2x1",
    "backward_past_d128 72x8x1",
    "backward_own_d128 32x8x1",
  ]);
});

test("Hopper: blocks that stay, as many as there are multiprocessors or tiles", () => {
  const b = createNullBackend();
  const forward = (attention: Attention, options: Partial<AttentionShape> = {}) =>
    launches(b, layer(b, { attention, ...options }).forward).filter((name) => name.includes("forward"));
  expect(forward({ kind: "full" })).toEqual(["hopper_forward_full_d64 132x1x1"]);
  expect(forward({ kind: "full" }, { tokens: 400, headDim: 128 })).toEqual([
    "hopper_forward_full_d128 32x1x1",
  ]);
  expect(forward(moba(512, 3))).toEqual([
    "hopper_forward_past_d64 132x1x1",
    "hopper_forward_own_d64 132x1x1",
  ]);
  expect(forward(moba(512, 1))).toEqual(["hopper_forward_full_d64 132x1x1"]);
  expect(forward(moba(128, 3))[0]).toBe("hopper_forward_small_d64 132x1x1");
  expect(forward(moba(8192, 3))).toEqual([
    "hopper_forward_past_d64 132x1x1",
    "hopper_forward_own_d64 132x1x1",
  ]);
  const choice = (attention: Attention) => launches(b, layer(b, { attention }).step)[2];
  expect(choice(moba(512, 3))).toBe("hopper_route_d64_s3 128x1x1");
  expect(choice(moba(64, 8, true))).toBe("route_shared_d64_s7 32x2x1");
  const a100 = createNullBackend({ capability: 80 });
  expect(launches(a100, layer(a100, { attention: { kind: "full" } }).forward)).toEqual([
    "forward_own_d64 32x8x1",
  ]);
});

test("Hopper backward: as many heads in turn as fit the cache, units of lists, sums of a few heads at a time", () => {
  const b = createNullBackend();
  const backward = (attention: Attention, options: Partial<AttentionShape> = {}) =>
    launches(b, layer(b, { attention, ...options }).step)
      .filter((name) => !/forward|lists|blocks 1x1x1|means|route/.test(name))
      .map((name) => name.replace("hopper_", ""));
  const of128 = { heads: 16, kvHeads: 16, headDim: 128, maxDocuments: 1 };
  expect(backward({ kind: "full" })).toEqual([
    "backward_stats_d64 1024x1x1",
    "backward_full_d64 64x1x1",
    "query_gradients_full_d64 2048x1x1",
  ]);
  for (const [tokens, grid] of [
    [8192, "1024x1x1"],
    [32_768, "1024x4x1"],
    [131_072, "2048x8x1"],
  ] as const) {
    expect(backward({ kind: "full" }, { ...of128, tokens })[1]).toBe(`backward_full_d128 ${grid}`);
  }
  // Packed documents are as short as they are many.
  const packed = { ...of128, tokens: 131_072, maxDocuments: 16 };
  expect(backward({ kind: "full" }, packed)[1]).toBe("backward_full_d128 16384x1x1");
  // None alone.
  const three = { heads: 3, kvHeads: 3, tokens: 131_072, maxDocuments: 1 };
  expect(backward({ kind: "full" }, three)[1]).toBe("backward_full_d64 3072x1x1");
  // 2^20 * 128 * 4 bytes of sums for each head.
  expect(backward({ kind: "full" }, { ...of128, tokens: 2 ** 20 }).slice(1)).toEqual(
    Array.from({ length: 8 }, () => [
      "backward_full_d128 16384x1x1",
      "query_gradients_full_d128 262144x1x1",
    ]).flat(),
  );
  // 8 blocks; lists of 128 + 8 tiles at most, with those of a group 4 * 68 in a unit: 2 more; 3 documents.
  expect(backward(moba(512, 3), { headDim: 128 })).toEqual([
    "backward_stats_d128 2048x1x1",
    "list_units_d128 2x1x1",
    "backward_blocks_d128 52x2x1",
    "query_gradients_blocks_d128 4096x1x1",
  ]);
});

test("a shared gate chooses once per key/value head, k up to 16, static gates without means", () => {
  const b = createNullBackend({ hopper: false });
  const first = (attention: Attention) => launches(b, layer(b, { attention }).step).slice(1, 3);
  expect(first(moba(64, 8, true))[1]).toBe("route_shared_d64_s7 32x2x1");
  expect(first(moba(64, 16))[1]).toBe("route_d64_s15 32x8x1");
  expect(first({ kind: "sink", blockSize: 64, topK: 3 })).toEqual(["static_gate 256x1x1", "blocks 1x1x1"]);
  expect(first(moba(64, 1))).toEqual(["forward_own_d64 32x8x1", "delta_d64 1024x1x1"]);
  // A block larger than the batch: nothing to choose from.
  expect(first(moba(8192, 3))).toContain("route_d64_s3 32x8x1");
});

test.each([false, true])(
  "grids do not depend on documents, and a step allocates nothing (hopper: %s)",
  (hopper) => {
    for (const attention of [{ kind: "full" } as const, moba(128, 3), moba(48, 8, true)]) {
      const b = createNullBackend({ hopper });
      const { step, documents } = layer(b, { attention });
      const before = launches(b, step);
      const memory = b.memory();
      b.setDocuments(documents, [0, 1, 130, 4096]);
      expect(launches(b, step), attentionLabel(attention)).toEqual(before);
      b.record(step)();
      expect(b.memory()).toBe(memory);
    }
  },
);

test.each([
  [false, "forward_past_d128 65536x1x1", 2.5e9],
  // Backward has sums in 32 bit, in tiles that are not all full: 4.8 GB for each head, for which forward does not ask.
  [true, "hopper_forward_small_d128 132x1x1", 7.5e9],
])(
  "a million tokens: partial results are made a few heads at a time, nothing is quadratic (hopper: %s)",
  (hopper, past, bytes) => {
    const b = createNullBackend({ hopper });
    const [T, H, D] = [2 ** 20, 16, 128];
    const { step } = layer(b, {
      tokens: T,
      heads: H,
      kvHeads: H,
      headDim: D,
      maxDocuments: 1,
      attention: moba(128, 8),
    });
    const tensors = b.memory();
    const seen = launches(b, step);
    // 2^20 * 7 * 128 * 2 bytes of partial results for each head: 1.9 GB.
    expect(seen.filter((name) => /forward_(past|small)/.test(name))).toEqual(new Array(H).fill(past));
    expect(b.memory() - tensors).toBeLessThan(bytes);
  },
);

test.each([
  ["moba-b512-k3", 512, 3, 1.5e9, 3e9],
  ["moba-b128-k8", 128, 8, 4e9, 5e9],
])(
  "memory of a layer of 128k tokens beyond its tensors, in the goals: %s",
  (_, blockSize, topK, most, mostTraining) => {
    const b = createNullBackend();
    const shape = { tokens: 2 ** 17, heads: 16, kvHeads: 16, headDim: 128, maxDocuments: 1 };
    const { forward, step } = layer(b, { ...shape, attention: moba(blockSize, topK) });
    const tensors = b.memory();
    forward();
    expect(b.memory() - tensors).toBeLessThan(most);
    step();
    expect(b.memory() - tensors).toBeLessThan(mostTraining);
  },
);

test("decoding: one query, means of the blocks in front of its own", () => {
  const b = createNullBackend();
  const [q, out] = [1, 2].map(() => b.tensor([8, 64], "activation"));
  const [k, v] = [1, 2].map(() => b.tensor([1000, 2, 64], "activation"));
  const decode = (length: number, attention: Attention) =>
    launches(b, () => b.attentionDecode(out, q, k, v, length, attention));
  expect(decode(700, moba(100, 3))).toEqual(["means 1x6x1", "route_d64_s3 1x8x1", "decode_d64 8x1x1"]);
  expect(decode(100, moba(100, 3))).toEqual(["route_d64_s3 1x8x1", "decode_d64 8x1x1"]);
  expect(decode(700, { kind: "window", blockSize: 100, topK: 3 })).toEqual([
    "static_gate 1x1x1",
    "decode_d64 8x1x1",
  ]);
  expect(decode(700, { kind: "full" })).toEqual(["decode_d64 8x1x1"]);
});

test("what there is no kernel for is refused by name", () => {
  const b = createNullBackend();
  const shape = { tokens: 64, heads: 2, kvHeads: 1, headDim: 64, maxDocuments: 1, attention: moba(16, 3) };
  expect(() => b.attentionState({ ...shape, headDim: 96 })).toThrow(
    new RangeError("attentionState: headDim is 96, expected 64 or 128"),
  );
  expect(() => b.attentionState({ ...shape, attention: moba(16, 17) })).toThrow(
    new RangeError("attentionState: topK is 17, expected at most 16"),
  );
  const [q, out] = [1, 2].map(() => b.tensor([2, 32], "activation"));
  const [k, v] = [1, 2].map(() => b.tensor([8, 1, 32], "activation"));
  expect(() => b.attentionDecode(out, q, k, v, 3, { kind: "full" })).toThrow(
    new RangeError("attentionDecode: headDim is 32, expected 64 or 128"),
  );
});

test("a state of another backend, and a routing that the documents have outgrown, are refused", () => {
  const [one, other] = [createNullBackend(), createNullBackend()];
  const { state } = layer(one, { attention: moba(64, 3) });
  expect(() => other.readRouting(state)).toThrow("the attention state belongs to another backend");
  const b = createNullBackend({ stored: true });
  const written = layer(b, { attention: moba(64, 3), tokens: 256, heads: 2 });
  const selected = new Int32Array(256 * 2 * 2).fill(-1);
  selected[4 * 255] = 2;
  b.writeRouting(written.state, selected, written.documents);
  written.forward();
  b.setDocuments(written.documents, [0, 128, 256]);
  expect(written.forward).toThrow(/attentionForward: selected_THS\[1020\] \(query 255 in block 1\) is 2/);
});

test("the sizes of tiles are those of the kernels", () => {
  const source = (name: string) => readFileSync(join(KERNELS, "attention", name), "utf8");
  const tiles = (text: string) =>
    [...text.matchAll(/= QueryTile<(\d+), (\d+), (\d+), (\d+)>/g)].map((match) => match.slice(1).map(Number));
  for (const [file, keys] of [
    ["forward.cu", 64],
    ["backward.cu", 32],
  ] as const) {
    const found = tiles(source(file));
    expect(found.map(([D]) => D)).toEqual([64, 128]);
    for (const [, m, warps, keysAtOnce] of found)
      expect([16 * m * warps, 32 * warps, keysAtOnce]).toEqual([128, 128, keys]);
  }
  const keyTiles = [
    ...source("backward.cu").matchAll(/Keys(\d+)_(\d+) = KeyTile<(\d+), (\d+), (\d+), (\d+)>/g),
  ];
  expect(
    keyTiles.map((match) => {
      const [keys, D, headDim, m, warps, queries] = match.slice(1).map(Number);
      expect([headDim, 16 * m * warps]).toEqual([D, keys]);
      return { keys, D, threads: 32 * warps, queries };
    }),
  ).toEqual([
    { keys: 64, D: 64, threads: 128, queries: 64 },
    { keys: 64, D: 128, threads: 128, queries: 64 },
    { keys: 128, D: 64, threads: 128, queries: 32 },
    { keys: 128, D: 128, threads: 256, queries: 64 },
  ]);
  expect(source("lists.cu")).toContain("RANGE = 8192;");
  expect(source("routing.cu")).toContain("ROUTE_BLOCKS = 32;");
});
