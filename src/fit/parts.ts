/** The parts of the reading: where in its flat list of sentences they begin. */
import type { FitResult } from "./types.ts";

/** Their titles, in the order in which they are told; the first holds the answer. */
const TITLES = [
  "In short",
  "Laws",
  "At equal compute",
  "Single sizes",
  "By position",
  "Context",
  "Noise and hold-out",
  "Beyond the data",
  "Training and cost",
] as const;

/** Sentences by the part they belong to. */
export type Sentences = Partial<Record<(typeof TITLES)[number], readonly string[]>>;

type Reading = Pick<FitResult, "reading" | "reading_parts">;

/** A reading with `more` at the ends of its parts. */
export function withSentences(reading: Reading, more: Sentences): Reading {
  const old = new Map(partsOf(reading).map(({ title, sentences }) => [title, sentences]));
  const parts = TITLES.flatMap((title) => {
    const sentences = [...(old.get(title) ?? []), ...(more[title] ?? [])];
    return sentences.length > 0 ? [{ title, sentences }] : [];
  });
  return {
    reading: parts.flatMap(({ sentences }) => sentences),
    reading_parts: parts.map(({ title, sentences }) => ({ title, sentences: sentences.length })),
  };
}

/** The parts with their sentences. */
export function partsOf({ reading, reading_parts }: Reading): { title: string; sentences: string[] }[] {
  let end = 0;
  return reading_parts.map(({ title, sentences }) => {
    end += sentences;
    return { title, sentences: reading.slice(end - sentences, end) };
  });
}
