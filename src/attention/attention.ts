/**
 * What an attention is: its kinds, its label (the one spelling used on the command line, in the curves table and
 * in run names), and which blocks of a document a query may attend to.
 *
 * `T` tokens of a document, `B` block size, `k` top-k (counts the query's own block).
 * Source: MoBA technical report (arXiv 2502.13189), sections 2 and 3.
 */

/**
 * - `full`: causal attention to the whole document.
 * - `moba`: own block (causal) and the `topK - 1` earlier blocks with the largest gate score.
 * - `window`: own block and the `topK - 1` most recent earlier blocks.
 * - `sink`: own block, block 0, and the most recent earlier blocks, `topK` blocks in all.
 *
 * `sharedGate`: all query heads of a key/value group share one choice, scored with the summed query.
 */
export type Attention =
  | { readonly kind: "full" }
  | {
      readonly kind: "moba";
      readonly blockSize: number;
      readonly topK: number;
      readonly sharedGate?: boolean;
    }
  | { readonly kind: "window"; readonly blockSize: number; readonly topK: number }
  | { readonly kind: "sink"; readonly blockSize: number; readonly topK: number };

/** `full`, `moba-b512-k3`, `moba-b512-k3-shared`, `window-b512-k3`, `sink-b512-k3`. */
export function attentionLabel(attention: Attention): string {
  if (attention.kind === "full") return "full";
  const shared = attention.kind === "moba" && attention.sharedGate ? "-shared" : "";
  return `${attention.kind}-b${attention.blockSize}-k${attention.topK}${shared}`;
}

/** Reads a label back. Throws a `RangeError` that names the label and what is allowed. */
export function parseAttention(label: string): Attention {
  if (label === "full") return { kind: "full" };
  const match = /^(moba|window|sink)-b(\d+)-k(\d+)(-shared)?$/.exec(label);
  if (!match || (match[4] && match[1] !== "moba")) {
    throw new RangeError(
      `unknown attention "${label}": expected full, moba-b<block>-k<top-k>[-shared], window-b<block>-k<top-k> or sink-b<block>-k<top-k>, such as moba-b128-k4`,
    );
  }
  const blockSize = Number(match[2]);
  const topK = Number(match[3]);
  const attention: Attention =
    match[1] === "moba"
      ? { kind: "moba", blockSize, topK, ...(match[4] ? { sharedGate: true } : {}) }
      : { kind: match[1] as "window" | "sink", blockSize, topK };
  checkAttention(attention);
  return attention;
}

/** Throws a `RangeError` naming the argument, its value and what is allowed when the options are out of range. */
export function checkAttention(attention: Attention): void {
  if (attention.kind === "full") return;
  for (const name of ["blockSize", "topK"] as const) {
    const value = attention[name];
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new RangeError(
        `${attention.kind} attention: ${name} is ${value}, expected a whole number of at least 1`,
      );
    }
  }
}

/** Number of earlier blocks a query may choose, `topK - 1`; 0 for full attention (which chooses nothing). */
export function earlierBlocks(attention: Attention): number {
  return attention.kind === "full" ? 0 : attention.topK - 1;
}

/**
 * The earlier blocks a static gate selects for a query of block `block`, ascending, at most `topK - 1`.
 * Full attention and MoBA have no static gate: throws.
 */
export function staticGate(attention: Attention, block: number): number[] {
  if (attention.kind === "full" || attention.kind === "moba") {
    throw new RangeError(`${attention.kind} attention has no static gate`);
  }
  const count = Math.min(attention.topK - 1, block);
  const selected: number[] = [];
  if (attention.kind === "sink" && count > 0) {
    selected.push(0);
    for (let b = block - count + 1; b < block; b++) selected.push(b);
  } else {
    for (let b = block - count; b < block; b++) selected.push(b);
  }
  return selected;
}
