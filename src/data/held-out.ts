/** Which documents are held out for evaluation: whole ones, by name or by a hash. */
import { InputError } from "../errors.ts";
import { hashName } from "./random.ts";
import type { DocumentInfo } from "./types.ts";

/** Chosen documents are taken until they hold this share of all tokens ... */
const ENOUGH = 0.05;
/** ... and one that would take them over this share is passed by. */
const TOO_MUCH = 0.08;

/**
 * Indices of the held-out documents. By default documents of at least `context + 1` tokens (one full window) in the
 * order of a hash of the seed and their name, so that a document's place does not depend on the others, until they hold
 * 5 % of all tokens, none that takes them over 8 %; the shortest one when every one is larger than that. With `names`
 * exactly those. InputError when no document is long enough, a name is unknown, or nothing is left to train on.
 */
export function chooseHeldOut(
  documents: readonly DocumentInfo[],
  options: { context: number; seed: number; names?: readonly string[] },
): Set<number> {
  const { context, seed, names } = options;
  const chosen = names ? byName(documents, names) : byHash(documents, context, seed);
  const longest = [...chosen].reduce((most, index) => Math.max(most, documents[index].tokens), 0);
  if (longest < context + 1) {
    throw new InputError(
      `the longest held-out document has ${longest} tokens, but a context of ${context} needs ${context + 1}; hold out a longer one or take a smaller context`,
    );
  }
  const trains = documents.some((document, index) => !chosen.has(index) && document.tokens >= 2);
  if (!trains) {
    throw new InputError(
      `nothing is left to train on: ${chosen.size} of ${documents.length} documents held out; at least one document of 2 tokens or more must remain (split a single text into several files)`,
    );
  }
  return chosen;
}

function byName(documents: readonly DocumentInfo[], names: readonly string[]): Set<number> {
  const indices = new Map(documents.map((document, index) => [document.name, index]));
  const chosen = new Set<number>();
  for (const name of names) {
    const index = indices.get(name);
    if (index === undefined) {
      const some = documents.slice(0, 3).map((document) => `"${document.name}"`);
      throw new InputError(
        `held-out document "${name}" is not among the ${documents.length} documents (such as ${some.join(", ")})`,
      );
    }
    chosen.add(index);
  }
  return chosen;
}

function byHash(documents: readonly DocumentInfo[], context: number, seed: number): Set<number> {
  let total = 0;
  let longest = documents[0];
  for (const document of documents) {
    total += document.tokens;
    if (document.tokens > longest.tokens) longest = document;
  }
  if (longest.tokens < context + 1) {
    throw new InputError(
      `the longest document ("${longest.name}") has ${longest.tokens} tokens, but a context of ${context} needs ${context + 1} for one full window; give longer documents or take a smaller context`,
    );
  }
  const candidates = documents
    .map((document, index) => ({ index, tokens: document.tokens, rank: hashName(seed, document.name) }))
    .filter((candidate) => candidate.tokens >= context + 1)
    .sort((a, b) => a.rank - b.rank || a.index - b.index);
  const chosen = new Set<number>();
  let held = 0;
  for (const { index, tokens } of candidates) {
    if (held >= ENOUGH * total) break;
    if (held + tokens > TOO_MUCH * total) continue;
    chosen.add(index);
    held += tokens;
  }
  if (chosen.size === 0) {
    chosen.add(candidates.reduce((best, one) => (one.tokens < best.tokens ? one : best)).index);
  }
  return chosen;
}
