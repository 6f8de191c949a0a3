/** The set of windows already seen: 64-bit hashes, each two words, in an open table of 8 bytes a slot. */

export class SeenWindows {
  /** Two words a slot; both 0: free. */
  #slots = new Uint32Array(2 << 16);
  #count = 0;

  /** How many of the windows are in the set. */
  countSeen(windows: Uint32Array): number {
    let seen = 0;
    for (let i = 0; i < windows.length; i += 2) {
      const slot = this.#find(windows[i], windows[i + 1]);
      if (this.#slots[slot] !== 0 || this.#slots[slot + 1] !== 0) seen++;
    }
    return seen;
  }

  add(windows: Uint32Array): void {
    while (this.#count + windows.length / 2 > 0.35 * this.#slots.length) this.#grow();
    for (let i = 0; i < windows.length; i += 2) this.#put(windows[i], windows[i + 1]);
  }

  #put(a: number, b: number): void {
    const slot = this.#find(a, b);
    if (this.#slots[slot] !== 0 || this.#slots[slot + 1] !== 0) return;
    this.#slots[slot] = a;
    this.#slots[slot + 1] = a === 0 && b === 0 ? 1 : b;
    this.#count++;
  }

  /** The slot that holds the window, or the free one where it belongs. */
  #find(a: number, b: number): number {
    const slots = this.#slots;
    const mask = slots.length - 1;
    const second = a === 0 && b === 0 ? 1 : b;
    let slot = (2 * ((a ^ (second >>> 7)) >>> 0)) & mask;
    while (
      (slots[slot] !== 0 || slots[slot + 1] !== 0) &&
      (slots[slot] !== a || slots[slot + 1] !== second)
    ) {
      slot = (slot + 2) & mask;
    }
    return slot;
  }

  #grow(): void {
    const old = this.#slots;
    this.#slots = new Uint32Array(2 * old.length);
    this.#count = 0;
    for (let i = 0; i < old.length; i += 2) {
      if (old[i] !== 0 || old[i + 1] !== 0) this.#put(old[i], old[i + 1]);
    }
  }
}
