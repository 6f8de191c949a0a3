/** Which blocks queries attend to in layers that leave some out: those with what is looked for, and how far back. */
import type { AttentionShape } from "../ops/contract.ts";
import type { BlocksBack, RecallBand } from "./types.ts";

/** A query that looks for a token of its window. */
export interface Asked {
  /** Of the pass, whose windows of `context` tokens stand one after the other, each a document. */
  readonly row: number;
  readonly band: number;
  /** Place in the window of the token looked for. */
  readonly value: number;
}

export class RoutingTally {
  readonly #context: number;
  readonly #bands: Record<"answers" | "heads" | "atRandom" | "any" | "anyAtRandom" | "seen", number>[];
  /** By blocks back: choices, queries that have such a block, and expected choices at random, heads and layers each. */
  readonly #chosen: number[] = [];
  readonly #possible: number[] = [];
  readonly #expected: number[] = [];
  /** Of this pass: answers whose block some head has attended to, and how likely none had at random. */
  #found = new Set<Asked>();
  #missed = new Map<Asked, number>();

  constructor(context: number, bands: number) {
    this.#context = context;
    const none = { answers: 0, heads: 0, atRandom: 0, any: 0, anyAtRandom: 0, seen: 0 };
    this.#bands = Array.from({ length: bands }, () => ({ ...none }));
  }

  get used(): boolean {
    return this.#possible.length > 0;
  }

  /** What a layer chose, `selected_THS` (see `AttentionState`), in the first `windows` windows of a pass. */
  addLayer(
    { heads, kvHeads, attention }: AttentionShape,
    selected_THS: Int32Array,
    windows: number,
    asked: readonly Asked[],
  ): void {
    if (attention.kind === "full") return;
    const { kind, blockSize, topK } = attention;
    const S = topK - 1;
    const choosing = kind === "moba" && !attention.sharedGate ? heads : kind === "moba" ? kvHeads : 1;
    const rows = windows * this.#context;
    for (let t = 0; t < rows; t++) {
      const own = Math.floor((t % this.#context) / blockSize);
      for (let i = t * heads * S; i < (t + 1) * heads * S; i++) {
        if (selected_THS[i] >= 0) add(this.#chosen, own - selected_THS[i], 1);
      }
    }
    for (let start = 0, own = 0; start < this.#context; start += blockSize, own++) {
      const queries = windows * heads * Math.min(blockSize, this.#context - start);
      for (let back = 1; back <= own; back++) {
        add(this.#possible, back, queries);
        add(this.#expected, back, queries * Math.min(1, S / own));
      }
    }
    for (const query of asked) {
      const own = Math.floor((query.row % this.#context) / blockSize);
      const block = Math.floor(query.value / blockSize);
      let attending = 0;
      for (let head = 0; head < heads; head++) {
        const from = (query.row * heads + head) * S;
        if (block === own || selected_THS.subarray(from, from + S).includes(block)) attending++;
      }
      const band = this.#bands[query.band];
      band.seen++;
      band.heads += attending / heads;
      const atRandom = block === own ? 1 : Math.min(1, S / own);
      band.atRandom += atRandom;
      if (attending > 0) this.#found.add(query);
      this.#missed.set(query, (this.#missed.get(query) ?? 1) * (1 - atRandom) ** choosing);
    }
  }

  /** After the last layer of a pass. */
  endPass(asked: readonly Asked[]): void {
    for (const query of asked) {
      const band = this.#bands[query.band];
      band.answers++;
      if (this.#found.has(query)) band.any++;
      band.anyAtRandom += 1 - (this.#missed.get(query) ?? 1);
    }
    this.#found = new Set();
    this.#missed = new Map();
  }

  attended(band: number): RecallBand["attended"] {
    const { answers, heads, atRandom, any, anyAtRandom, seen } = this.#bands[band];
    if (seen === 0) return undefined;
    return {
      ...{ heads: heads / seen, heads_at_random: atRandom / seen },
      ...{ any: any / answers, any_at_random: anyAtRandom / answers },
    };
  }

  blocksBack(): BlocksBack[] {
    return this.#possible.flatMap((possible, back) =>
      possible > 0
        ? [
            {
              blocks_back: back,
              share: (this.#chosen[back] ?? 0) / possible,
              at_random: this.#expected[back] / possible,
            },
          ]
        : [],
    );
  }
}

function add(counts: number[], at: number, count: number): void {
  counts[at] = (counts[at] ?? 0) + count;
}
