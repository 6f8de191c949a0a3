/** Documents in JSON lines: one object per line, its text in one field. */
import { InputError } from "../errors.ts";

const NEWLINE = 10;

/** Rows by line number, from 1. Blank lines are skipped. InputError names the line at fault. */
export async function* readJsonLines(
  path: string,
  pieces: AsyncIterable<Uint8Array>,
  field: string,
): AsyncGenerator<{ row: number; text: Uint8Array }> {
  let row = 0;
  for await (const line of lines(pieces)) {
    row++;
    // A byte order mark, which Windows programs put before the first line, is none of its JSON.
    const source = line.toString("utf8").replace(/^\uFEFF/, "");
    if (source.trim() === "") continue;
    let value: unknown;
    try {
      value = JSON.parse(source);
    } catch (error) {
      throw new InputError(`${path} line ${row} is not JSON: ${(error as Error).message}`);
    }
    yield { row, text: Buffer.from(textOf(value, field, `${path} line ${row}`), "utf8") };
  }
}

function textOf(value: unknown, field: string, where: string): string {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new InputError(
      `${where} is no JSON object; each line is an object with the text in field "${field}"`,
    );
  }
  if (!Object.hasOwn(value, field)) {
    const there = Object.keys(value).map((key) => `"${key}"`);
    throw new InputError(`${where} has no field "${field}"; its fields are ${there.join(", ") || "none"}`);
  }
  const text = (value as Record<string, unknown>)[field];
  if (typeof text !== "string") {
    throw new InputError(
      `${where}: field "${field}" is ${JSON.stringify(text).slice(0, 40)}; it must be a string`,
    );
  }
  return text;
}

async function* lines(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let begun: Uint8Array[] = [];
  for await (const piece of pieces) {
    let start = 0;
    for (let end = piece.indexOf(NEWLINE); end >= 0; end = piece.indexOf(NEWLINE, start)) {
      yield Buffer.concat([...begun, piece.subarray(start, end)]);
      begun = [];
      start = end + 1;
    }
    if (start < piece.length) begun.push(piece.subarray(start));
  }
  if (begun.length > 0) yield Buffer.concat(begun);
}
