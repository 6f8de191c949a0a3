/** The finding in words. */
import type { Bucket } from "./points.ts";
import type { Comparison, Law } from "./types.ts";
export function readingInWords(_: {
  laws: readonly Law[];
  comparisons: readonly Comparison[];
  headline: Bucket;
  margin: number;
}): string[] {
  return [];
}
