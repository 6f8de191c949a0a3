import { describe, expect, it } from "vitest";
import { maskedCrc } from "../../src/importers/index.ts";
import { eventFile } from "../../src/study/tensorboard.ts";

const unmask = (masked: number) => {
  const rotated = (masked - 0xa282ead8) >>> 0;
  return ((rotated >>> 17) | (rotated << 15)) >>> 0;
};

describe("TensorBoard event files", () => {
  it("uses CRC-32C: the check value of RFC 3720", () => {
    expect(unmask(maskedCrc(Buffer.from("123456789")))).toBe(0xe3069283);
  });

  it("frames a version and one event per scalar", () => {
    const file = eventFile([{ tag: "a", step: 300, value: 1.5, wallTime: 2 }]);
    const frames: Buffer[] = [];
    for (let at = 0; at < file.length; ) {
      const length = Number(file.readBigUInt64LE(at));
      expect(file.readUInt32LE(at + 8)).toBe(maskedCrc(file.subarray(at, at + 8)));
      const data = file.subarray(at + 12, at + 12 + length);
      expect(file.readUInt32LE(at + 12 + length)).toBe(maskedCrc(data));
      frames.push(data);
      at += length + 16;
    }
    expect(frames).toHaveLength(2);
    expect(frames[0].includes("brain.Event:2")).toBe(true);
    // wall_time 2.0 | step 300 as varint ac 02 | summary { value { tag "a", simple_value 1.5f } }
    expect(frames[1].toString("hex")).toBe("09000000000000004010ac022a0a0a080a0161150000c03f");
  });
});
