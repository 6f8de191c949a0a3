/** Which bytes of a text are UTF-8. */
import { isUtf8 } from "node:buffer";

/** A stretch of bytes that is valid UTF-8, or of bytes that belong to no valid character. */
export interface Run {
  readonly bytes: Uint8Array;
  readonly valid: boolean;
}

/** The text as runs, in order; one valid run for a valid text. */
export function utf8Runs(text: Uint8Array): Run[] {
  if (isUtf8(text)) return text.length === 0 ? [] : [{ bytes: text, valid: true }];
  const runs: Run[] = [];
  let start = 0;
  let valid = characterLength(text, 0) > 0;
  for (let at = 0; at <= text.length; ) {
    const length = at < text.length ? characterLength(text, at) : -1;
    if (at === text.length || length > 0 !== valid) {
      runs.push({ bytes: text.subarray(start, at), valid });
      start = at;
      valid = length > 0;
    }
    at += Math.max(1, length);
  }
  return runs;
}

/** Bytes of the character that starts at `at`, 0 when none does (Unicode 15, table 3-7). */
function characterLength(text: Uint8Array, at: number): number {
  const lead = text[at];
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (at + length > text.length) return 0;
  const second = text[at + 1];
  const low = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
  const high = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
  if (second < low || second > high) return 0;
  for (let i = 2; i < length; i++) if ((text[at + i] & 0xc0) !== 0x80) return 0;
  return length;
}
