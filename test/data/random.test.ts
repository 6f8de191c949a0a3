import { describe, expect, it } from "vitest";
import { permutation, Random } from "../../src/data/index.ts";
import { hashName } from "../../src/data/random.ts";

describe("random numbers", () => {
  it("are xoshiro128** (published outputs for the state 1, 2, 3, 4)", () => {
    const random = Random.fromState([1, 2, 3, 4]);
    const expected = [
      11520, 0, 5927040, 70819200, 2031721883, 1637235492, 1287239034, 3734860849, 3729100597, 4258142804,
    ];
    expect(expected.map(() => random.next())).toEqual(expected);
  });

  it("differ by seed and stream, and come again for the same", () => {
    const draws = [
      [0, 0],
      [1, 0],
      [0, 1],
      [2 ** 32, 0],
      [0, 2 ** 32],
    ].map(([seed, stream]) => {
      const random = new Random(seed, stream);
      return Array.from({ length: 4 }, () => random.next()).join();
    });
    expect(new Set(draws).size).toBe(draws.length);
    const again = new Random(1);
    expect(Array.from({ length: 4 }, () => again.next()).join()).toBe(draws[1]);
  });

  it("have the moments of their distributions", () => {
    const random = new Random(7);
    const n = 200_000;
    let sum = 0;
    let square = 0;
    let fourth = 0;
    let uniform = 0;
    for (let i = 0; i < n; i++) {
      const x = random.gaussian();
      sum += x;
      square += x * x;
      fourth += x ** 4;
      uniform += random.uniform();
    }
    // five standard errors each
    expect(Math.abs(sum / n)).toBeLessThan(5 / Math.sqrt(n));
    expect(Math.abs(square / n - 1)).toBeLessThan(5 * Math.sqrt(2 / n));
    expect(Math.abs(fourth / n - 3)).toBeLessThan(5 * Math.sqrt(96 / n));
    expect(Math.abs(uniform / n - 0.5)).toBeLessThan(5 * Math.sqrt(1 / 12 / n));
  });

  it("permute uniformly", () => {
    const counts = new Map<string, number>();
    for (let seed = 0; seed < 6000; seed++) {
      const order = permutation(3, seed).join();
      counts.set(order, (counts.get(order) ?? 0) + 1);
    }
    expect(counts.size).toBe(6);
    // chi-squared with 5 degrees of freedom: 20.5 is its 99.9 % point
    const chi = [...counts.values()].reduce((total, count) => total + (count - 1000) ** 2 / 1000, 0);
    expect(chi).toBeLessThan(20.5);
    const large = permutation(10_000, 3, 1);
    expect([...large].sort((a, b) => a - b)).toEqual(Array.from({ length: 10_000 }, (_, i) => i));
  });

  it("hash names evenly", () => {
    const values = Array.from({ length: 2000 }, (_, i) => hashName(0, `documents/${i}.txt`));
    const mean = values.reduce((a, b) => a + b) / values.length;
    expect(Math.abs(mean - 0.5)).toBeLessThan(0.04);
    expect(hashName(0, "a")).not.toBe(hashName(1, "a"));
  });

  it("refuse a seed that is no whole number", () => {
    expect(() => new Random(-1)).toThrow("seed is -1");
    expect(() => new Random(0.5)).toThrow("seed is 0.5");
  });
});
