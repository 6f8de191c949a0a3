/**
 * Seeded random numbers: xoshiro128** (Blackman and Vigna 2018), its state filled by a 32-bit splitmix. The same
 * numbers on every machine; streams of one seed are independent. Every room that needs chance takes it from here.
 */

/** Murmur3's finalizer: spreads a 32-bit integer over all 32 bits. */
function mix32(x: number): number {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

function rotateLeft(x: number, bits: number): number {
  return (x << bits) | (x >>> (32 - bits));
}

function requireInteger(name: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new RangeError(`${name} is ${value}; it must be a whole number from 0 to 2^53 - 1`);
  }
}

/** A generator for (seed, stream); both are whole numbers from 0 to 2^53 - 1, else a RangeError. */
export class Random {
  readonly #state = new Int32Array(4);
  #spareGaussian: number | null = null;

  constructor(seed: number, stream = 0) {
    requireInteger("seed", seed);
    requireInteger("stream", stream);
    let chain = 0;
    for (const word of [seed, seed / 2 ** 32, stream, stream / 2 ** 32]) {
      chain = mix32((chain + Math.floor(word) + 0x9e3779b9) | 0);
    }
    for (let i = 0; i < 4; i++) {
      chain = (chain + 0x9e3779b9) | 0;
      this.#state[i] = mix32(chain);
    }
  }

  /** A generator that continues from four 32-bit words, not all zero. */
  static fromState(words: readonly [number, number, number, number]): Random {
    const random = new Random(0);
    random.#state.set(words.map((word) => word | 0));
    return random;
  }

  /** The next 32 bits, as a whole number from 0 to 2^32 - 1. */
  next(): number {
    const s = this.#state;
    const result = Math.imul(rotateLeft(Math.imul(s[1], 5), 7), 9) >>> 0;
    const t = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotateLeft(s[3], 11);
    return result;
  }

  /** Uniform in [0, 1), 53 bits. */
  uniform(): number {
    const high = this.next() >>> 5;
    const low = this.next() >>> 6;
    return (high * 2 ** 26 + low) / 2 ** 53;
  }

  /** Uniform whole number from 0 to `n - 1`, `1 <= n <= 2^32`; unbiased (draws again in the incomplete last part). */
  below(n: number): number {
    const whole = 2 ** 32 - (2 ** 32 % n);
    let x = this.next();
    while (x >= whole) x = this.next();
    return x % n;
  }

  /** Normal with mean 0 and variance 1 (Marsaglia's polar method). */
  gaussian(): number {
    if (this.#spareGaussian !== null) {
      const spare = this.#spareGaussian;
      this.#spareGaussian = null;
      return spare;
    }
    for (;;) {
      const u = 2 * this.uniform() - 1;
      const v = 2 * this.uniform() - 1;
      const square = u * u + v * v;
      if (square > 0 && square < 1) {
        const scale = Math.sqrt((-2 * Math.log(square)) / square);
        this.#spareGaussian = v * scale;
        return u * scale;
      }
    }
  }
}

/** A uniformly chosen order of `0 .. n - 1` (Fisher-Yates), a function of (n, seed, stream). */
export function permutation(n: number, seed: number, stream = 0): Uint32Array {
  const random = new Random(seed, stream);
  const order = new Uint32Array(n);
  for (let i = 0; i < n; i++) order[i] = i;
  for (let i = n - 1; i > 0; i--) {
    const j = random.below(i + 1);
    const swap = order[i];
    order[i] = order[j];
    order[j] = swap;
  }
  return order;
}

/** A uniform number in [0, 1) from a seed and a name: the same whatever else exists. */
export function hashName(seed: number, name: string): number {
  let hash = 0x811c9dc5; // FNV-1a over UTF-16 units, then spread by the generator's seeding
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return new Random(seed, hash >>> 0).uniform();
}
