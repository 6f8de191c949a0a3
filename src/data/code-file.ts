/** One source file of a code corpus: whether it is kept, what of its text, and its windows for the duplicate rule. */
import { deflateSync } from "node:zlib";

/** Why a file is left out; in the order in which the rules are asked. */
export const CODE_RULES = [
  /** Over 1,000,000 bytes. */
  "large",
  /** Says in its first 1,500 bytes that it is auto-generated. */
  "generated",
  /** Nothing but a licence. */
  "empty",
  /** Over 35 % of its lines are `#define NAME number`: a register header. */
  "registers",
  /** Four times its numeric literals are over 18 % of its bytes: a table. */
  "numbers",
  /** Over 20,000 bytes that zlib makes more than nine times smaller. */
  "repetitive",
  /** Over half of its windows occur in files kept before it. */
  "duplicate",
] as const;

export type CodeRule = (typeof CODE_RULES)[number];

export interface InspectedFile {
  /** The text without its licence, ending with a new line. */
  readonly text: Uint8Array;
  /**
   * A 64-bit hash, as two words, of every 5 neighbouring lines: white space at both ends of a line removed, inside it
   * made one space, blank lines left out.
   */
  readonly windows: Uint32Array;
}

const MOST_BYTES = 1_000_000;
const HEAD_BYTES = 1500;
const GENERATED = /auto(?:matically)?[ -]?generated/i;
const MOST_DEFINES = 0.35;
const DEFINE = /^\s*#\s*define\s+\w+\s+\(?[-+]?(?:0x[0-9a-f]+|\d+)[ul]*\)?\s*(?:\/[*/].*)?$/i;
const BYTES_OF_A_LITERAL = 4;
const MOST_LITERALS = 0.18;
const COMPRESSED_FROM = 20_000;
const MOST_COMPRESSION = 9;

/**
 * All rules but the last, which needs the other files. The rules look at the text without its licence, except for size
 * and the auto-generated mark, which often stands in the licence comment.
 */
export function inspectCodeFile(bytes: Uint8Array): InspectedFile | CodeRule {
  if (bytes.length > MOST_BYTES) return "large";
  if (GENERATED.test(latin1(bytes, 0, HEAD_BYTES))) return "generated";
  const text = withoutLicence(bytes);
  if (text.length === 0) return "empty";
  const { lines, defines, literals, windows } = scan(text);
  if (defines > MOST_DEFINES * lines) return "registers";
  if (BYTES_OF_A_LITERAL * literals > MOST_LITERALS * text.length) return "numbers";
  if (text.length > COMPRESSED_FROM && text.length > MOST_COMPRESSION * deflateSync(text).length) {
    return "repetitive";
  }
  return { text, windows };
}

const NEW_LINE = 0x0a;
const SLASH = 0x2f;
const STAR = 0x2a;

/**
 * The text after its leading comments that speak of a licence or copyright (`/* *\/`, or neighbouring `//` lines) and
 * after the blank lines behind them; ends with a new line. Empty when nothing but white space is left.
 */
function withoutLicence(bytes: Uint8Array): Uint8Array {
  let start = 0;
  for (let end = commentEnd(bytes, start); end > 0; end = commentEnd(bytes, start)) {
    if (!/SPDX|licen[cs]e|copyright|\(c\)/i.test(latin1(bytes, start, end))) break;
    start = end;
  }
  // blank lines, but not the indentation of the first line that is none
  for (let at = start; at < bytes.length && KIND[bytes[at]] <= SPACE; at++) {
    if (bytes[at] === NEW_LINE) start = at + 1;
  }
  let end = bytes.length;
  while (end > start && KIND[bytes[end - 1]] <= SPACE) end--;
  if (end === start) return new Uint8Array(0);
  const text = new Uint8Array(end - start + 1);
  text.set(bytes.subarray(start, end));
  text[end - start] = NEW_LINE;
  return text;
}

/** Where the comment ends that is next from `start`, white space aside; -1 when something else is next. */
function commentEnd(bytes: Uint8Array, start: number): number {
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = start;
  const skipSpace = () => {
    while (at < bytes.length && KIND[bytes[at]] <= SPACE) at++;
  };
  skipSpace();
  if (bytes[at] === SLASH && bytes[at + 1] === STAR) {
    const end = view.indexOf("*/", at + 2);
    return end < 0 ? -1 : end + 2;
  }
  let end = -1;
  while (bytes[at] === SLASH && bytes[at + 1] === SLASH) {
    const newLine = view.indexOf(NEW_LINE, at);
    end = newLine < 0 ? bytes.length : newLine + 1;
    at = end;
  }
  return end;
}

function latin1(bytes: Uint8Array, start: number, end: number): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1", start, end);
}

// what a byte is; white space first, so that one comparison finds it
const LINE_END = 0;
const SPACE = 1;
const OTHER = 2;
const LETTER = 3;
const DIGIT = 4;
const KIND = Uint8Array.from({ length: 256 }, (_, byte) => {
  const character = String.fromCharCode(byte);
  if (character === "\n") return LINE_END;
  if (/[ \t\r\v\f]/.test(character)) return SPACE;
  return /[0-9]/.test(character) ? DIGIT : /[A-Za-z_]/.test(character) ? LETTER : OTHER;
});

const WINDOW_LINES = 5;

/** Lines, those that define a number, numeric literals (words that begin with a digit), and the windows. */
function scan(text: Uint8Array): {
  lines: number;
  defines: number;
  literals: number;
  windows: Uint32Array;
} {
  let lines = 0;
  let defines = 0;
  let literals = 0;
  let filled = 0;
  // two independent hashes of each line that is not blank
  let hashes = new Uint32Array(256);
  let lineStart = 0;
  let first = 0;
  let a = SEED_A;
  let b = SEED_B;
  let spaceBefore = false;
  let inWord = false;
  for (let at = 0; at < text.length; at++) {
    const byte = text[at];
    const kind = KIND[byte];
    if (kind >= OTHER) {
      if (first === 0) first = byte;
      else if (spaceBefore) {
        a = Math.imul(a ^ 0x20, PRIME_A);
        b = Math.imul(b ^ 0x20, PRIME_B);
        b ^= b >>> 13;
      }
      spaceBefore = false;
      a = Math.imul(a ^ byte, PRIME_A);
      b = Math.imul(b ^ byte, PRIME_B);
      b ^= b >>> 13;
      if (kind === DIGIT && !inWord) literals++;
      inWord = kind >= LETTER;
    } else {
      inWord = false;
      if (kind === SPACE) {
        spaceBefore = true;
        continue;
      }
      lines++;
      if (first === HASH_SIGN && DEFINE.test(latin1(text, lineStart, at))) defines++;
      if (first !== 0) {
        if (2 * filled === hashes.length) {
          const larger = new Uint32Array(2 * hashes.length);
          larger.set(hashes);
          hashes = larger;
        }
        hashes[2 * filled] = a;
        hashes[2 * filled + 1] = b;
        filled++;
      }
      lineStart = at + 1;
      first = 0;
      a = SEED_A;
      b = SEED_B;
      spaceBefore = false;
    }
  }
  return { lines, defines, literals, windows: windowsOf(hashes, filled) };
}

const HASH_SIGN = 0x23;
const SEED_A = 0x811c9dc5 | 0;
const SEED_B = 0x9e3779b9 | 0;
const PRIME_A = 0x01000193;
const PRIME_B = 0x85ebca6b;

/** Hashes of every `WINDOW_LINES` neighbouring of `lines` lines, given each line's two words. */
function windowsOf(hashes: Uint32Array, lines: number): Uint32Array {
  const count = Math.max(0, lines - WINDOW_LINES + 1);
  const windows = new Uint32Array(2 * count);
  for (let window = 0; window < count; window++) {
    let a = SEED_A;
    let b = SEED_B;
    for (let line = window; line < window + WINDOW_LINES; line++) {
      a = Math.imul(a ^ hashes[2 * line], 0x9e3779b1);
      a ^= a >>> 15;
      b = Math.imul(b ^ hashes[2 * line + 1], 0xc2b2ae35);
      b ^= b >>> 16;
    }
    windows[2 * window] = a;
    windows[2 * window + 1] = b;
  }
  return windows;
}
