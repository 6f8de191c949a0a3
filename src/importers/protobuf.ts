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

/** The fields of a message. Throws WireError for bytes that are no message. */
export function* fieldsOf(message: Uint8Array): Generator<Field> {
  let at = 0;
  const varint = (): number => {
    let low = 0;
    let high = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      if (at >= message.length) throw new WireError("a number runs past the end");
      const byte = message[at++];
      if (shift < 28) low += (byte & 127) * 2 ** shift;
      else high += (byte & 127) * 2 ** (shift - 28);
      if (byte < 128) {
        const value = high * 2 ** 28 + low;
        return high >= 2 ** 35 ? value - 2 ** 64 : value;
      }
    }
    throw new WireError("a number is longer than ten bytes");
  };
  const empty = message.subarray(0, 0);
  while (at < message.length) {
    const key = varint();
    const number = Math.floor(key / 8);
    const wire = key % 8;
    if (number < 1) throw new WireError(`field number ${number}`);
    if (wire === 0) {
      yield { number, wire, varint: varint(), bytes: empty };
      continue;
    }
    const length = wire === 1 ? 8 : wire === 5 ? 4 : wire === 2 ? varint() : -1;
    if (length < 0) throw new WireError(`wire type ${wire}`);
    if (at + length > message.length) throw new WireError("a field runs past the end");
    yield { number, wire, varint: 0, bytes: message.subarray(at, at + length) };
    at += length;
  }
}

const decoder = new TextDecoder();

export function textOf(field: Field): string {
  return decoder.decode(field.bytes);
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
