/** CSV as RFC 4180 has it: text to records, piece by piece, and a value to a field. */
import { InputError } from "../errors.ts";

const [QUOTE, COMMA, POINT, PLUS, MINUS, LF, CR] = [34, 44, 46, 43, 45, 10, 13];
/** Powers of ten that doubles hold exactly. */
const POWERS = Array.from({ length: 23 }, (_, i) => Number(`1e${i}`));

/**
 * Cuts text that arrives in pieces into records and visits each; what a visit sees is valid during it only. A quoted
 * field may hold commas, line ends and doubled quotes; blank lines are skipped. Throws InputError, in which `name` is
 * what the text is called.
 */
export class CsvReader {
  /** Number of fields of the record, and the line it starts on. */
  length = 0;
  line = 1;
  private readonly name: string;
  private readonly visit: (record: CsvReader) => void;
  private source = "";
  private at = 0;
  private nextLine = 1;
  private readonly starts: number[] = [];
  private readonly ends: number[] = [];
  /** Values of quoted fields, by field. */
  private readonly quoted: (string | undefined)[] = [];

  constructor(name: string, visit: (record: CsvReader) => void) {
    this.name = name;
    this.visit = visit;
  }

  write(piece: string): void {
    this.source = this.source.slice(this.at) + piece;
    this.at = 0;
    while (this.next(false));
  }

  /** No more pieces will come. */
  end(): void {
    while (this.next(true));
  }

  /** The text of a field. */
  text(field: number): string {
    return this.quoted[field] ?? this.source.slice(this.starts[field], this.ends[field]);
  }

  /** A field's value when it is a plain decimal that a double holds after one rounding, else NaN. */
  decimal(field: number): number {
    if (this.quoted[field] !== undefined) return Number.NaN;
    const { source } = this;
    const end = this.ends[field];
    let i = this.starts[field];
    const negative = source.charCodeAt(i) === MINUS;
    if (negative || source.charCodeAt(i) === PLUS) i++;
    let mantissa = 0;
    let digits = 0;
    let scale = 0;
    let fraction = false;
    for (; i < end; i++) {
      const code = source.charCodeAt(i);
      if (code >= 48 && code <= 57) {
        mantissa = mantissa * 10 + (code - 48);
        digits++;
        if (fraction) scale--;
      } else if (code === POINT && !fraction) fraction = true;
      else break;
    }
    if (digits === 0 || mantissa > Number.MAX_SAFE_INTEGER) return Number.NaN;
    if (i < end) {
      if ((source.charCodeAt(i) | 32) !== 101) return Number.NaN;
      i++;
      const down = source.charCodeAt(i) === MINUS;
      if (down || source.charCodeAt(i) === PLUS) i++;
      if (i === end || end - i > 3) return Number.NaN;
      let exponent = 0;
      for (; i < end; i++) {
        const digit = source.charCodeAt(i) - 48;
        if (!(digit >= 0 && digit <= 9)) return Number.NaN;
        exponent = exponent * 10 + digit;
      }
      scale += down ? -exponent : exponent;
    }
    // Exact integers and exact powers of ten: one multiplication or division rounds once (Clinger).
    if (scale > 22 || scale < -22) return mantissa === 0 ? 0 : Number.NaN;
    const value = scale < 0 ? mantissa / POWERS[-scale] : mantissa * POWERS[scale];
    return negative ? -value : value;
  }

  /** Reads and visits one record; false when the text, or what is known of it so far, holds no more whole record. */
  private next(last: boolean): boolean {
    const { source, starts, ends, quoted } = this;
    let { at, nextLine } = this;
    const size = source.length;
    if (at >= size) return false;
    let length = 0;
    for (;;) {
      if (source.charCodeAt(at) === QUOTE) {
        let value = "";
        for (;;) {
          const quote = source.indexOf('"', at + 1);
          if (quote < 0 || (quote + 1 === size && !last)) {
            if (!last) return false;
            throw new InputError(`${this.name}, line ${this.nextLine}: a quoted field is never closed`);
          }
          value += source.slice(at + 1, quote);
          at = quote + 1;
          if (source.charCodeAt(at) !== QUOTE) break;
          value += '"';
        }
        nextLine += value.split("\n").length - 1;
        if (at < size && !",\r\n".includes(source[at])) {
          throw new InputError(
            `${this.name}, line ${nextLine}: ${JSON.stringify(source[at])} follows a closing quote`,
          );
        }
        quoted[length] = value;
      } else {
        starts[length] = at;
        for (; at < size; at++) {
          const code = source.charCodeAt(at);
          if (code === COMMA || code === LF || code === CR) break;
        }
        ends[length] = at;
        quoted[length] = undefined;
      }
      length++;
      if (source.charCodeAt(at) !== COMMA) break;
      at++;
    }
    // A line end may be cut between its two characters.
    if (!last && (at >= size || (source.charCodeAt(at) === CR && at + 1 === size))) return false;
    if (source.charCodeAt(at) === CR) at++;
    if (source.charCodeAt(at) === LF) at++;
    this.line = this.nextLine;
    this.nextLine = nextLine + 1;
    this.at = at;
    this.length = length;
    if (length > 1 || this.text(0).trim() !== "") this.visit(this);
    return true;
  }
}

/** The records of a CSV text, each with the line it starts on. Throws as `CsvReader` does. */
export function csvRows(text: string, name: string): { line: number; fields: string[] }[] {
  const rows: { line: number; fields: string[] }[] = [];
  const reader = new CsvReader(name, (record) =>
    rows.push({ line: record.line, fields: Array.from({ length: record.length }, (_, i) => record.text(i)) }),
  );
  reader.write(text);
  reader.end();
  return rows;
}

/** A value as a field, quoted where needed. */
export function csvField(value: string | number | null | undefined): string {
  if (value === null || value === undefined) return "";
  const text = String(value);
  // A field with outer blanks is quoted as well, for readers that trim.
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
