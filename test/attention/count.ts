/** Counts by going through every query and key, for tests of the closed forms. */
import { type Attention, staticGate } from "../../src/attention/attention.ts";

/** (query, key) pairs: any choice of min(k - 1, block) earlier blocks attends to as many as the first ones. */
export function countPairs(attention: Attention, length: number): number {
  let pairs = 0;
  for (let t = 0; t < length; t++) {
    if (attention.kind === "full") {
      pairs += t + 1;
      continue;
    }
    const own = Math.floor(t / attention.blockSize);
    const selected =
      attention.kind === "moba"
        ? Array.from({ length: own }, (_, b) => b).slice(0, attention.topK - 1)
        : staticGate(attention, own);
    const open = new Set([...selected, own]);
    for (let s = 0; s <= t; s++) if (open.has(Math.floor(s / attention.blockSize))) pairs++;
  }
  return pairs;
}

/** Gate scores: one per query and earlier block, none when nothing is chosen by score. */
export function countScores(attention: Attention, length: number): number {
  let scores = 0;
  if (attention.kind !== "moba" || attention.topK < 2) return 0;
  for (let t = 0; t < length; t++) {
    for (let b = 0; (b + 1) * attention.blockSize <= t; b++) scores++;
  }
  return scores;
}
