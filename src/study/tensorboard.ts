/**
 * TensorBoard event files: TFRecord frames (length, masked CRC-32C, data, masked CRC-32C) around Event messages.
 * Format: tensorflow/core/lib/io/record_writer and tensorflow/core/util/event.proto.
 */

import { maskedCrc } from "../importers/index.ts";

export interface Scalar {
  readonly tag: string;
  readonly step: number;
  readonly value: number;
  /** Seconds since 1970. */
  readonly wallTime: number;
}

/** The bytes of an event file that holds the scalars in the given order. */
export function eventFile(scalars: readonly Scalar[]): Buffer {
  const version = bytesField(3, Buffer.from("brain.Event:2"));
  const events = [frame(Buffer.concat([doubleField(1, scalars[0]?.wallTime ?? 0), version]))];
  for (const { tag, step, value, wallTime } of scalars) {
    const simple = Buffer.alloc(5);
    simple[0] = (2 << 3) | 5;
    simple.writeFloatLE(value, 1);
    const summary = bytesField(1, Buffer.concat([bytesField(1, Buffer.from(tag)), simple]));
    events.push(
      frame(Buffer.concat([doubleField(1, wallTime), varintField(2, step), bytesField(5, summary)])),
    );
  }
  return Buffer.concat(events);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  bytes.push(rest);
  return Buffer.from(bytes);
}

function varintField(field: number, value: number): Buffer {
  return Buffer.concat([varint(field << 3), varint(value)]);
}

function bytesField(field: number, value: Buffer): Buffer {
  return Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);
}

function doubleField(field: number, value: number): Buffer {
  const bytes = Buffer.alloc(9);
  bytes[0] = (field << 3) | 1;
  bytes.writeDoubleLE(value, 1);
  return bytes;
}

function frame(data: Buffer): Buffer {
  const out = Buffer.alloc(data.length + 16);
  out.writeBigUInt64LE(BigInt(data.length), 0);
  out.writeUInt32LE(maskedCrc(out.subarray(0, 8)), 8);
  data.copy(out, 12);
  out.writeUInt32LE(maskedCrc(data), data.length + 12);
  return out;
}
