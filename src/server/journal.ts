/** The changes of late, numbered: who reads them hears of new ones, who comes back hears of those it missed. */
import { randomBytes } from "node:crypto";
import type { Change, Cursor } from "./api.ts";

/** A change as it goes over the wire. */
export interface Entry {
  readonly number: number;
  readonly text: string;
}

/** How much is kept for those who come back: minutes of a large study. */
const KEPT_BYTES = 2 * 2 ** 20;

export class Journal {
  /** Numbers of another process mean nothing here. */
  readonly #life = randomBytes(6).toString("hex");
  #entries: Entry[] = [];
  #bytes = 0;
  #number = 0;
  readonly #listeners = new Set<(entry: Entry) => void>();

  get cursor(): Cursor {
    return this.#cursorOf(this.#number);
  }

  add(change: Change): void {
    const number = ++this.#number;
    const entry = { number, text: this.#format(change, number) };
    this.#entries.push(entry);
    this.#bytes += entry.text.length;
    let dropped = 0;
    while (this.#bytes > KEPT_BYTES && dropped < this.#entries.length) {
      this.#bytes -= this.#entries[dropped++].text.length;
    }
    if (dropped > 0) this.#entries = this.#entries.slice(dropped);
    for (const listener of this.#listeners) listener(entry);
  }

  /** The text of what came after a cursor: a `reset` when that is not known any more, or never was. */
  since(cursor: Cursor | null): string {
    const match = /^([0-9a-f]+)-(\d{1,15})$/.exec(cursor ?? "");
    const number = Number(match?.[2] ?? Number.NaN);
    const oldest = this.#number - this.#entries.length;
    if (match?.[1] !== this.#life || !(number >= oldest && number <= this.#number)) {
      return this.#format({ kind: "reset" }, this.#number);
    }
    return this.#entries
      .slice(number - oldest)
      .map((entry) => entry.text)
      .join("");
  }

  /** Returns what ends the listening. */
  listen(listener: (entry: Entry) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #cursorOf(number: number): Cursor {
    return `${this.#life}-${number}`;
  }

  #format(change: Change, number: number): string {
    // JSON has no line breaks of its own, so the data is one line.
    return `id: ${this.#cursorOf(number)}\nevent: ${change.kind}\ndata: ${JSON.stringify(change)}\n\n`;
  }
}
