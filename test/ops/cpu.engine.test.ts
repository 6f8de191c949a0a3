/** What the shared suite does not see of the CPU backend: its pool, its memory and the bits of its products. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { RunError } from "../../src/errors.ts";

const built = existsSync(new URL("../../build/cpu.wasm", import.meta.url));
const { createCpuBackend } = await import("../../src/ops/cpu/index.ts");
const { Memory } = await import("../../src/ops/cpu/memory.ts");
const { Pool } = await import("../../src/ops/cpu/pool.ts");
const { threadedEngine } = await import("../../src/ops/cpu/threads.ts");

/** Numbers in [-1, 1), the same ones each time. */
function numbers(length: number, seed: number): Float32Array {
  let state = seed;
  return Float32Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return state / 2 ** 31;
  });
}

describe.skipIf(!built)("products", () => {
  const shapes = [
    [100, 29, 300],
    [7, 264, 513],
    [193, 8, 31],
    [13, 70, 1],
  ];
  test.each(shapes)("rows of %i x %i (K = %i) have the same bits alone", (T, N, K) => {
    const backend = createCpuBackend({ threads: 2 });
    const [x, w] = [numbers(T * K, 1), numbers(N * K, 2)];
    const weight = backend.tensor([N, K], "weight");
    backend.write(weight, w);
    const product = (first: number, rows: number) => {
      const [input, out] = [backend.tensor([rows, K], "activation"), backend.tensor([rows, N], "activation")];
      backend.write(input, x.slice(first * K, (first + rows) * K));
      backend.linearForward(out, input, weight);
      return backend.read(out);
    };
    const whole = product(0, T);
    for (const row of [0, 1, T >> 1, T - 1]) {
      expect(product(row, 1)).toEqual(whole.slice(row * N, (row + 1) * N));
      for (const n of [0, N - 1]) {
        let sum = 0;
        for (let k = 0; k < K; k++) sum += x[row * K + k] * w[n * K + k];
        expect(Math.abs(whole[row * N + n] - sum)).toBeLessThan(1e-5 * Math.sqrt(K));
      }
    }
    backend.close();
  });
});

test.skipIf(!built)("SiLU keeps its accuracy over the whole range, and infinities and NaN", () => {
  const backend = createCpuBackend({ threads: 1 });
  const gates = [...Array.from({ length: 2001 }, (_, i) => (i - 1000) / 10), Infinity, -1e30, NaN];
  const F = gates.length;
  const [gateUp, out] = [backend.tensor([1, 2 * F], "activation"), backend.tensor([1, F], "activation")];
  backend.write(gateUp, [...gates, ...gates.map(() => 1)]);
  backend.swigluForward(out, gateUp);
  const values = backend.read(out);
  for (let i = 0; i < 2001; i++) {
    const gate = Math.fround(gates[i]);
    const exact = gate / (1 + Math.exp(-gate));
    expect(Math.abs(values[i] - exact)).toBeLessThanOrEqual(5e-7 * Math.abs(exact) + 1e-36);
  }
  expect([...values.slice(2001)]).toEqual([Infinity, expect.closeTo(0, 6), NaN]);
  backend.close();
});

describe.skipIf(!built)("memory", () => {
  test("counts exactly, and a repeated operation allocates nothing", () => {
    const backend = createCpuBackend({ threads: 2 });
    const before = backend.memory();
    const [x, out] = [backend.tensor([100, 30], "activation"), backend.tensor([100, 7], "activation")];
    const w = backend.tensor([7, 30], "weight");
    // Rounded up to 64 bytes: 12000, 2800 and 840 bytes.
    expect(backend.memory() - before).toBe(12032 + 2816 + 896);
    backend.linearForward(out, x, w);
    const after = backend.memory();
    for (let i = 0; i < 5; i++) backend.linearForward(out, x, w);
    expect(backend.memory()).toBe(after);
    backend.close();
  });
  test("over 4 GiB: a RunError with what was asked and what is free", () => {
    const backend = createCpuBackend({ threads: 1 });
    expect(() => backend.tensor([2 ** 30], "float")).toThrow(RunError);
    expect(() => backend.tensor([2 ** 30], "float")).toThrow(/asked for 4294967296 bytes, 429\d+ .* free/);
    // The addresses beyond 2 GiB work.
    const big = backend.tensor([3 * 2 ** 28], "float");
    const end = backend.view(big, 3 * 2 ** 28 - 4, [4]);
    backend.write(end, [1, 2, 3, 4]);
    const copy = backend.tensor([4], "float");
    backend.copy(copy, end);
    expect([...backend.read(copy)]).toEqual([1, 2, 3, 4]);
    backend.close();
  });
  test("tensors of another backend are refused", () => {
    const [one, other] = [createCpuBackend({ threads: 1 }), createCpuBackend({ threads: 1 })];
    expect(() => one.zero(other.tensor([3], "float"))).toThrow(/another backend/);
    one.close();
    other.close();
  });
});

describe.skipIf(!built)("pool", () => {
  test("ten thousand small jobs in a row, each seen whole by the next", () => {
    const backend = createCpuBackend({ threads: 4 });
    const P = 5 * 16384 + 3;
    const [a, b] = [backend.tensor([P], "float"), backend.tensor([P], "float")];
    const small = backend.view(b, 0, [16384 + 1]);
    backend.write(a, numbers(P, 3));
    for (let i = 0; i < 2500; i++) {
      backend.zero(small);
      backend.copy(small, backend.view(a, i, [16384 + 1]));
      backend.copy(backend.view(b, 3 * 16384, [16384 + 1]), small);
      backend.zero(small);
    }
    const values = backend.read(b);
    expect(values.slice(3 * 16384, 4 * 16384 + 1)).toEqual(backend.read(a).slice(2499, 2499 + 16384 + 1));
    expect(values.slice(0, 16385).every((value) => value === 0)).toBe(true);
    backend.close();
  });
  test("a failing kernel is a RunError, and the pool stays unusable", () => {
    const pool = new Pool(new Memory({ shared: true }), threadedEngine(3));
    expect(() => pool.run(63, [], 100)).toThrow(RunError);
    expect(() => pool.run(2, [], 1)).toThrow(/failed/);
    pool.close();
  });
  test("a wrong number of threads is refused", () => {
    expect(() => createCpuBackend({ threads: 0 })).toThrow(/threads is 0, expected/);
  });
  test("idle workers sleep", async () => {
    const backend = createCpuBackend({ threads: 3 });
    backend.zero(backend.tensor([10 * 16384], "float"));
    await new Promise((resolve) => setTimeout(resolve, 200));
    const start = process.cpuUsage();
    await new Promise((resolve) => setTimeout(resolve, 500));
    const { user, system } = process.cpuUsage(start);
    // Spinning workers would take 1,000,000 microseconds.
    expect(user + system).toBeLessThan(250_000);
    backend.close();
  });
  const child = (lines: string) => {
    const module = new URL("../../src/ops/cpu/index.ts", import.meta.url);
    const script = `const { createCpuBackend } = await import(${JSON.stringify(module.href)});
      const backend = createCpuBackend({ threads: 3 });
      backend.zero(backend.tensor([100000], "float"));
      ${lines}`;
    return spawnSync(process.execPath, ["--import", "tsx", "--input-type=module", "--eval", script], {
      cwd: fileURLToPath(new URL("../../", import.meta.url)),
      timeout: 20_000,
      encoding: "utf8",
    });
  };
  test.each([
    ["that is done, without close", "", 0],
    ["after close", "backend.close();", 0],
    ["that throws", 'throw new Error("broken");', 1],
  ])("threads do not keep a process alive %s", (_, lines, status) => {
    const result = child(lines);
    expect(result.signal).toBe(null);
    expect(result.status).toBe(status);
  });
});
