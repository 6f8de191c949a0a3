/** Bytes of a log as text, and its lines. */
import { InputError } from "../errors.ts";
import type { Source, TextSource } from "./types.ts";

/** Node's strings end near 2^29 characters. */
const MOST_TEXT_BYTES = 2 ** 29 - 2 ** 16;

/** UTF-8, or UTF-16 by its byte order mark (or its zero bytes); the mark is taken off. Throws InputError for bytes that are no text. */
export function decodeText({ name, bytes }: Source): TextSource {
  if (bytes.length > MOST_TEXT_BYTES) {
    throw new InputError(
      `${name} is ${(bytes.length / 2 ** 30).toFixed(1)} GiB; text logs of up to 0.5 GiB are read, so split it or thin it out`,
    );
  }
  const encoding = encodingOf(bytes);
  const text = new TextDecoder(encoding).decode(bytes);
  if (text.includes("\0")) throw new InputError(`${name} is binary, and of no format that import knows`);
  const notes = text.includes("\uFFFD")
    ? [`${name} has bytes that are not ${encoding.toUpperCase()}; they were replaced`]
    : [];
  return { name, text, notes };
}

function encodingOf(bytes: Uint8Array): string {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return "utf-16be";
  // Text of mostly ASCII in UTF-16 without a mark: every other byte is zero.
  const pairs = Math.min(bytes.length, 256) >> 1;
  let zeros = 0;
  for (let i = 0; i < pairs; i++) if (bytes[2 * i + 1] === 0 && bytes[2 * i] !== 0) zeros++;
  return pairs >= 2 && zeros > 0.9 * pairs ? "utf-16le" : "utf-8";
}

/** Lines, at any of the three line ends (progress bars return the carriage without a new line). */
export function linesOf(text: string): string[] {
  return text.split(/\r\n|\n|\r/);
}

/** At most 40 characters of a text, quoted for a message. */
export function excerpt(text: string): string {
  const trimmed = text.trim();
  return JSON.stringify(trimmed.length > 40 ? `${trimmed.slice(0, 40)}...` : trimmed);
}

/** The first few of many names, for a message. */
export function someOf(names: readonly string[], most = 8): string {
  const shown = names.slice(0, most).map((name) => (name.length > 60 ? `${name.slice(0, 60)}...` : name));
  const rest = names.length - shown.length;
  return `${shown.join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
}
