/** How often each piece occurs in a text: what a BPE is learned from. */
import { ownString } from "./bpe.ts";
import { forEachPiece, LEARNED_PATTERN, translatePattern } from "./pre-tokenize.ts";
import { utf8Runs } from "./utf8.ts";

/** How a learned BPE cuts text into pieces. */
export const LEARNED_SPLITS = [{ pattern: translatePattern(LEARNED_PATTERN), keepBetween: true }];

/** Counts in a form that moves between threads: the pieces' UTF-8 one after the other, their lengths in bytes, counts. */
export interface PackedCounts {
  readonly bytes: Uint8Array;
  readonly lengths: Uint32Array;
  readonly counts: Float64Array;
}

export class PieceCounts {
  readonly #counts = new Map<string, number>();
  readonly #one = (piece: string) => this.#add(piece, 1);

  /** Bytes that are no UTF-8 do not count. */
  add(text: Uint8Array): void {
    for (const { bytes, valid } of utf8Runs(text)) {
      if (valid)
        forEachPiece(
          Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("utf8"),
          LEARNED_SPLITS,
          this.#one,
        );
    }
  }

  #add(piece: string, times: number): void {
    const seen = this.#counts.get(piece);
    if (seen === undefined) this.#counts.set(ownString(piece), times);
    else this.#counts.set(piece, seen + times);
  }

  addPacked({ bytes, lengths, counts }: PackedCounts): void {
    const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    let at = 0;
    for (const [i, length] of lengths.entries()) {
      this.#add(view.toString("utf8", at, at + length), counts[i]);
      at += length;
    }
  }

  pack(): PackedCounts {
    const lengths = new Uint32Array(this.#counts.size);
    const counts = Float64Array.from(this.#counts.values());
    let total = 0;
    let index = 0;
    for (const piece of this.#counts.keys()) {
      lengths[index] = Buffer.byteLength(piece, "utf8");
      total += lengths[index++];
    }
    const bytes = new Uint8Array(total);
    const view = Buffer.from(bytes.buffer);
    let at = 0;
    for (const piece of this.#counts.keys()) at += view.write(piece, at, "utf8");
    return { bytes, lengths, counts };
  }
}
