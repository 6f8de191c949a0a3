/** Protocol Buffers' wire format, reading only: fields of a message in order, by number. */

/** Bytes that are no message; readers turn it into an InputError that names the place. */
export class WireError extends Error {
  override name = "WireError";
}

export interface Field {
  readonly number: number;
  /** 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes. */
  readonly wire: number;
  /** The value of a varint, two's complement; 0 for other wires. */
  readonly varint: number;
  /** The bytes of the value; empty for a varint. */
  readonly bytes: Uint8Array;
}

/** Reads varints off bytes, from a place that moves on. */
class Cursor {
  at = 0;
  readonly bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  varint(): number {
    let low = 0;
    let high = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      if (this.at >= this.bytes.length) throw new WireError("a number runs past the end");
      const byte = this.bytes[this.at++];
      if (shift < 28) low += (byte & 127) * 2 ** shift;
      else high += (byte & 127) * 2 ** (shift - 28);
      if (byte >= 128) continue;
      // Bit 63 is the sign; it is taken off the high part, before the sum would round.
      return (high >= 2 ** 35 ? high - 2 ** 36 : high) * 2 ** 28 + low;
    }
    throw new WireError("a number is longer than ten bytes");
  }
}

/** The first few integers of a packed field. */
export function packedVarints(bytes: Uint8Array, most: number): number[] {
  const cursor = new Cursor(bytes);
  const values: number[] = [];
  while (cursor.at < bytes.length && values.length < most) values.push(cursor.varint());
  return values;
}

/** The fields of a message. Throws WireError for bytes that are no message. */
export function* fieldsOf(message: Uint8Array): Generator<Field> {
  const cursor = new Cursor(message);
  const empty = message.subarray(0, 0);
  while (cursor.at < message.length) {
    const key = cursor.varint();
    const number = Math.floor(key / 8);
    const wire = key % 8;
    if (number < 1) throw new WireError(`field number ${number}`);
    if (wire === 0) {
      yield { number, wire, varint: cursor.varint(), bytes: empty };
      continue;
    }
    const length = wire === 1 ? 8 : wire === 5 ? 4 : wire === 2 ? cursor.varint() : -1;
    if (length < 0) throw new WireError(`wire type ${wire}`);
    const end = cursor.at + length;
    if (end > message.length) throw new WireError("a field runs past the end");
    yield { number, wire, varint: 0, bytes: message.subarray(cursor.at, end) };
    cursor.at = end;
  }
}

const decoder = new TextDecoder();

export function textOf(field: Field): string {
  return decoder.decode(field.bytes);
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
