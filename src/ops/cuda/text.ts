/** Sizes in words. */

/** "1.50 GB", "12.0 MB", "300 bytes" (powers of 1000). */
export function bytesText(bytes: number): string {
  for (const [unit, size] of [
    ["TB", 1e12],
    ["GB", 1e9],
    ["MB", 1e6],
    ["kB", 1e3],
  ] as const) {
    if (bytes >= size) return `${(bytes / size).toPrecision(3)} ${unit}`;
  }
  return `${bytes} bytes`;
}
