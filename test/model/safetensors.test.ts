/** The safetensors format: hand-made files, round trips and every kind of corruption. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { InputError, RunError } from "../../src/errors.ts";
import { openSafetensors, readSafetensor, writeSafetensors } from "../../src/model/safetensors.ts";

const folder = mkdtempSync(join(tmpdir(), "safetensors-"));
afterAll(() => rmSync(folder, { recursive: true }));
const path = join(folder, "x.safetensors");

/** A file from its parts: the header (text as it is, else JSON) and the bytes behind it. */
function craft(header: unknown, data: Uint8Array, headerBytes?: bigint): string {
  const text = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(headerBytes ?? BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, data]));
  return path;
}

describe("reading", () => {
  it("widens F32, BF16 and F16 exactly", () => {
    const f32 = Buffer.from(Float32Array.of(1.5, -0, 1e-40).buffer);
    const bf16 = Buffer.from(Uint16Array.of(0x3fc0, 0xff80, 0x0001, 0x4049).buffer);
    const f16 = Buffer.from(Uint16Array.of(0x3e00, 0xfc00, 0x0001, 0x7bff, 0x8400, 0x7e00).buffer);
    craft(
      {
        __metadata__: { step: "7" },
        c: { dtype: "F16", shape: [6], data_offsets: [20, 32] },
        a: { dtype: "F32", shape: [3, 1], data_offsets: [0, 12] },
        b: { dtype: "BF16", shape: [2, 2], data_offsets: [12, 20] },
        empty: { dtype: "F32", shape: [0, 4], data_offsets: [12, 12] },
      },
      Buffer.concat([f32, bf16, f16]),
    );
    const file = openSafetensors(path);
    expect(file.metadata).toEqual({ step: "7" });
    expect(file.tensors.get("a")!.shape).toEqual([3, 1]);
    expect([...readSafetensor(file, "a")]).toEqual([1.5, -0, Math.fround(1e-40)]);
    expect([...readSafetensor(file, "b")]).toEqual([1.5, -Infinity, 2 ** -133, 3.140625]);
    expect([...readSafetensor(file, "c")]).toEqual([1.5, -Infinity, 2 ** -24, 65504, -(2 ** -14), NaN]);
    expect(readSafetensor(file, "empty")).toHaveLength(0);
    expect(() => readSafetensor(file, "d")).toThrow(`${path} has no tensor "d"`);
  });
});

describe("writing", () => {
  it("comes back bit for bit, and is laid out as the format says", () => {
    const values = Float32Array.of(Math.PI, -1e-30, Infinity, 0, 5, 6);
    const tensors = [
      { name: "model.x", shape: [2, 3], values: () => values },
      { name: "scalar", shape: [], values: () => [0.1] },
    ];
    writeSafetensors(path, tensors, { format: "pt" });
    const file = openSafetensors(path);
    expect(readSafetensor(file, "model.x")).toEqual(values);
    expect([...readSafetensor(file, "scalar")]).toEqual([Math.fround(0.1)]);
    expect(file.metadata).toEqual({ format: "pt" });
    const bytes = readFileSync(path);
    const headerBytes = Number(bytes.readBigUInt64LE());
    expect(headerBytes % 8).toBe(0);
    expect(JSON.parse(bytes.subarray(8, 8 + headerBytes).toString())).toEqual({
      __metadata__: { format: "pt" },
      "model.x": { dtype: "F32", shape: [2, 3], data_offsets: [0, 24] },
      scalar: { dtype: "F32", shape: [], data_offsets: [24, 28] },
    });
    expect(bytes.readFloatLE(8 + headerBytes)).toBe(Math.fround(Math.PI));
  });

  it("leaves the old file and nothing else when it fails", () => {
    writeSafetensors(path, [{ name: "x", shape: [1], values: () => [1] }]);
    const before = readFileSync(path);
    const broken = () => {
      throw Object.assign(new Error("ENOSPC: no space left on device, write"), { syscall: "write" });
    };
    const write = (values: () => ArrayLike<number>) => () =>
      writeSafetensors(path, [
        { name: "x", shape: [1], values: () => [2] },
        { name: "y", shape: [2], values },
      ]);
    expect(write(broken)).toThrow(RunError);
    expect(write(broken)).toThrow(`cannot write ${path}: ENOSPC`);
    expect(write(() => [1, 2, 3])).toThrow('tensor "y" has 3 values, its shape [2] has 2');
    expect(readFileSync(path)).toEqual(before);
    expect(readdirSync(folder)).toEqual(["x.safetensors"]);
    expect(() => writeSafetensors(join(folder, "no", "x"), [])).toThrow(RunError);
  });
});

describe("corrupt files are refused by name", () => {
  const x = { dtype: "F32", shape: [2], data_offsets: [0, 8] };
  const cases: [string, unknown, number, string, bigint?][] = [
    ["a header longer than the file", { x }, 8, "its header should have 9999 bytes, the file has", 9999n],
    ["a header of 2^63 bytes", { x }, 8, "its header should have", 2n ** 63n],
    ["a header cut short", { x }, 8, "its header is not JSON", 10n],
    ["no JSON", "hello", 0, "its header is not JSON"],
    ["a list", "[1]", 0, "its header is not a JSON object"],
    ["an entry that is a number", { x: 3 }, 0, 'tensor "x" is not described by a JSON object'],
    [
      "an unknown type",
      { x: { ...x, dtype: "I64" } },
      8,
      'tensor "x" has dtype "I64", expected F32, BF16, F16',
    ],
    ["an inherited name as type", { x: { ...x, dtype: "toString" } }, 8, 'tensor "x" has dtype "toString"'],
    ["no shape", { x: { ...x, shape: undefined } }, 8, 'tensor "x" has shape undefined'],
    [
      "a negative size",
      { x: { ...x, shape: [-2] } },
      8,
      'tensor "x" has shape [-2], expected a list of sizes',
    ],
    ["a fraction as size", { x: { ...x, shape: [1.5] } }, 8, 'tensor "x" has shape [1.5]'],
    ["three offsets", { x: { ...x, data_offsets: [0, 4, 8] } }, 8, 'tensor "x" has data_offsets [0,4,8]'],
    ["offsets the wrong way", { x: { ...x, data_offsets: [8, 0] } }, 8, 'tensor "x" has data_offsets [8,0]'],
    [
      "too few bytes",
      { x: { ...x, shape: [3] } },
      8,
      'tensor "x" has 8 bytes, its shape [3] in F32 needs 12',
    ],
    ["overlap", { x, y: { ...x, data_offsets: [4, 12] } }, 12, 'tensor "y" starts at byte 4, expected 8'],
    ["a gap", { x, y: { ...x, data_offsets: [12, 20] } }, 20, 'tensor "y" starts at byte 12, expected 8'],
    ["a file cut short", { x }, 7, 'tensor "x" ends at byte'],
    ["bytes behind the tensors", { x }, 9, "bytes, its tensors end at"],
    ["metadata that is no text", { __metadata__: { a: 1 }, x }, 8, '__metadata__ "a" is not a string'],
  ];
  it.each(cases)("%s", (_, header, bytes, message, headerBytes) => {
    craft(header, new Uint8Array(bytes), headerBytes);
    expect(() => openSafetensors(path)).toThrow(InputError);
    expect(() => openSafetensors(path)).toThrow(`${path} is not a valid safetensors file: `);
    expect(() => openSafetensors(path)).toThrow(message);
  });

  it("an empty and a missing file", () => {
    writeFileSync(path, "");
    expect(() => openSafetensors(path)).toThrow("it has 0 bytes, too few for the header's length");
    expect(() => openSafetensors(join(folder, "none"))).toThrow(InputError);
  });
});
