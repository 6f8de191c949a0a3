/** Random test data, the same on every machine: numbers from a seed. */

/** Uniform numbers in [0, 1) from a 32-bit seed (mulberry32). */
export function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Standard normal numbers (Box-Muller). */
export function normals(next: () => number, length: number): Float64Array {
  return Float64Array.from(
    { length },
    () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next()),
  );
}

export function integers(next: () => number, length: number, below: number): Int32Array {
  return Int32Array.from({ length }, () => Math.floor(next() * below));
}
