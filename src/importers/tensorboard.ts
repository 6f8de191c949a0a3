/**
 * TensorBoard event files: TFRecord frames (length, masked CRC-32C, data, masked CRC-32C) around Event messages. Scalars
 * stand as `simple_value` or, since TensorFlow 2, as a tensor of one element.
 */
import { InputError } from "../errors.ts";
import type { WantedColumns } from "./columns.ts";
import { maskedCrc } from "./crc.ts";
import { type Field, fieldsOf, packedVarints, textOf, viewOf, WireError } from "./protobuf.ts";
import { type LongSeries, readLong } from "./tables.ts";
import { type Log, SkipCounts, type Source } from "./types.ts";

const HEAD = 12;
const TAIL = 4;

/** Whether bytes start with a TFRecord frame whose length is checked (or, too short to check, an event's first bytes). */
export function isTfRecord(bytes: Uint8Array): boolean {
  if (bytes.length < HEAD) return false;
  const view = viewOf(bytes);
  if (view.getUint32(8, true) === maskedCrc(bytes.subarray(0, 8))) return true;
  // A broken checksum in the first frame still shows the version event.
  return view.getUint32(4, true) === 0 && bytes[HEAD] === 9 && includesVersion(bytes.subarray(0, 64));
}

function includesVersion(bytes: Uint8Array): boolean {
  return String.fromCharCode(...bytes).includes("brain.Event:");
}

/** Scalars of an event file. A last record that was cut off is skipped; a wrong checksum is an error. */
export function readTensorBoard(source: Source, wanted: WantedColumns): Log {
  const { name, bytes } = source;
  const view = viewOf(bytes);
  const skipped = new SkipCounts();
  const series = new Map<string, LongSeries>();
  let records = 0;
  for (let at = 0; at < bytes.length; ) {
    const place = `byte ${at}`;
    if (at + HEAD > bytes.length) {
      skipped.add("last record is cut off", place);
      break;
    }
    if (view.getUint32(at + 8, true) !== maskedCrc(bytes.subarray(at, at + 8)))
      throw corrupt(name, records, at, "length");
    const length = view.getUint32(at, true) + view.getUint32(at + 4, true) * 2 ** 32;
    const end = at + HEAD + length;
    if (end + TAIL > bytes.length) {
      skipped.add("last record is cut off", place);
      break;
    }
    const data = bytes.subarray(at + HEAD, end);
    if (view.getUint32(end, true) !== maskedCrc(data)) throw corrupt(name, records, at, "data");
    try {
      readEvent(data, series, skipped, place);
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      throw new InputError(`${name}: the record at byte ${at} is no TensorBoard event (${error.message})`);
    }
    records++;
    at = end + TAIL;
  }
  if (series.size === 0) throw new InputError(`${name} has ${records} event records but no scalars`);
  const read = readLong(series, wanted, name, skipped);
  return {
    format: "TensorBoard events",
    runs: [{ name: "", rows: read.rows, facts: {} }],
    skipped: skipped.list(),
    notes: [...read.notes],
  };
}

function corrupt(name: string, records: number, at: number, part: string): InputError {
  return new InputError(
    `${name}: the checksum of the ${part} of record ${records + 1} (byte ${at}) is wrong; the file is damaged, copy it again`,
  );
}

function readEvent(
  data: Uint8Array,
  series: Map<string, LongSeries>,
  skipped: SkipCounts,
  place: string,
): void {
  let wallTime = Number.NaN;
  let step = 0;
  const values: Uint8Array[] = [];
  for (const field of fieldsOf(data)) {
    if (field.number === 1 && field.wire === 1) wallTime = viewOf(field.bytes).getFloat64(0, true);
    else if (field.number === 2 && field.wire === 0) step = field.varint;
    else if (field.number === 5 && field.wire === 2) {
      for (const inner of fieldsOf(field.bytes))
        if (inner.number === 1 && inner.wire === 2) values.push(inner.bytes);
    }
  }
  for (const bytes of values) {
    let tag = "";
    let value: number | undefined;
    for (const field of fieldsOf(bytes)) {
      if (field.number === 1 && field.wire === 2) tag = textOf(field);
      else if (field.number === 2 && field.wire === 5) value = viewOf(field.bytes).getFloat32(0, true);
      else if (field.number === 8 && field.wire === 2) value = tensorScalar(field.bytes);
    }
    if (value === undefined) {
      skipped.add("summary that is no scalar (text, image, histogram)", place);
      continue;
    }
    const known = series.get(tag) ?? { steps: [], values: [], times: [] };
    series.set(tag, known);
    known.steps.push(step);
    known.values.push(value);
    known.times.push(wallTime);
  }
}

/** TensorProto's types of real numbers: bytes per element in `tensor_content`, and how to read them. */
const ELEMENTS: Readonly<Record<number, { size: number; read: (view: DataView) => number }>> = {
  1: { size: 4, read: (view) => view.getFloat32(0, true) },
  2: { size: 8, read: (view) => view.getFloat64(0, true) },
  3: { size: 4, read: (view) => view.getInt32(0, true) },
  9: { size: 8, read: (view) => Number(view.getBigInt64(0, true)) },
  14: { size: 2, read: (view) => bfloat16(view.getUint16(0, true)) },
  19: { size: 2, read: (view) => float16(view.getUint16(0, true)) },
};

/** The number in a tensor of one element; undefined for any other tensor. */
function tensorScalar(bytes: Uint8Array): number | undefined {
  let type = 0;
  const values: number[] = [];
  let content: Uint8Array | undefined;
  for (const field of fieldsOf(bytes)) {
    if (field.number === 1 && field.wire === 0) type = field.varint;
    else if (field.number === 2 && field.wire === 2 && elementsOf(field.bytes) !== 1) return undefined;
    else if (field.number === 4 && field.wire === 2) content = field.bytes;
    else if (field.number === 5) numbersOf(field, 4, (view) => view.getFloat32(0, true), values);
    else if (field.number === 6) numbersOf(field, 8, (view) => view.getFloat64(0, true), values);
    else if (field.number === 7 || field.number === 10) varintsOf(field, values);
    else if (field.number === 13) {
      const halves: number[] = [];
      varintsOf(field, halves);
      values.push(...halves.map(type === 14 ? bfloat16 : float16));
    }
  }
  const element = ELEMENTS[type];
  if (element === undefined) return undefined;
  if (content !== undefined && content.length === element.size) return element.read(viewOf(content));
  return values.length === 1 ? values[0] : undefined;
}

/** Product of a TensorShapeProto's dimensions; 1 for a scalar. */
function elementsOf(shape: Uint8Array): number {
  let product = 1;
  for (const dimension of fieldsOf(shape)) {
    if (dimension.number !== 2 || dimension.wire !== 2) continue;
    let size = 0;
    for (const field of fieldsOf(dimension.bytes)) if (field.number === 1) size = field.varint;
    product *= size;
  }
  return product;
}

/** Most values kept of a tensor; a scalar has one. */
const MOST = 2;

function numbersOf(field: Field, size: number, read: (view: DataView) => number, into: number[]): void {
  for (let at = 0; at + size <= field.bytes.length && into.length < MOST; at += size)
    into.push(read(viewOf(field.bytes.subarray(at, at + size))));
}

/** A repeated integer, packed or one at a time. */
function varintsOf(field: Field, into: number[]): void {
  if (field.wire === 0) into.push(field.varint);
  else for (const value of packedVarints(field.bytes, MOST - into.length)) into.push(value);
}

function bfloat16(bits: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint16(0, bits & 0xffff);
  return view.getFloat32(0);
}

function float16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Infinity;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
