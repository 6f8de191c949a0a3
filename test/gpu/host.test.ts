/**
 * The host side on a real card: copies, recording, late reads, out of memory, matrix products, run-time compilation,
 * and what a launch costs. Prints its figures.
 *
 *   npm run build:gpu && node --test build/gpu/test/gpu/host.test.js
 */
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { RunError } from "../../src/errors.ts";
import type { Backend, Tensor } from "../../src/ops/contract.ts";
import { compiledNow } from "../../src/ops/cuda/compile.ts";
import { createCudaBackend, cudaFacts } from "../../src/ops/cuda/index.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { normals, uniform } from "../ops/random.ts";
import { relativeError } from "../ops/suite/harness.ts";
import { skip } from "./card.ts";

describe("host", { skip }, () => {
  let backend: Backend;
  before(() => {
    for (const line of facts()) console.log(line);
    backend = createCudaBackend();
  });
  after(() => backend?.close());

  test("100 MB there and back, f32, bf16 and i32", () => {
    const length = 25_000_000;
    const values = Float32Array.from({ length }, (_, i) => Math.fround(i % 251));
    for (const role of ["float", "activation", "index"] as const) {
      const tensor = backend.tensor([length], role);
      const start = performance.now();
      backend.write(tensor, role === "index" ? Int32Array.from(values) : values);
      backend.synchronize();
      const written = performance.now();
      const back = backend.read(tensor);
      const ms = [written - start, performance.now() - written];
      console.log(
        `  ${role}: write ${ms[0].toFixed(0)} ms, read ${ms[1].toFixed(0)} ms for ${length} elements`,
      );
      for (let i = 0; i < length; i++) if (back[i] !== values[i]) assert.fail(`${role}[${i}]: ${back[i]}`);
    }
  });

  test("late reads give the values of their time", () => {
    const tensor = backend.tensor([1000], "float");
    const later = Array.from({ length: 20 }, (_, n) => {
      backend.write(tensor, new Float32Array(1000).fill(n));
      return backend.readLater(tensor);
    });
    later.forEach((values, n) => {
      assert.ok(values().every((x) => x === n));
    });
  });

  test("products whose shape was never seen are recorded and replayed", () => {
    const [T, N, K] = [264, 136, 72];
    const step = linear(backend, T, N, K);
    const [x, w, dOut] = [normalsOf(1, T * K), normalsOf(2, N * K), normalsOf(3, T * N)];
    step.write(x, w, dOut);
    const replay = backend.record(step.run);
    replay();
    replay();
    step.compare(2);
  });

  for (const [T, N, K] of [
    [1, 8, 8],
    [129, 24, 40],
    [64, 1000, 256],
    [2048, 576, 192],
    [1031, 768, 640],
  ]) {
    test(`linear layer T=${T} N=${N} K=${K}`, () => {
      const step = linear(backend, T, N, K);
      step.write(normalsOf(1, T * K), normalsOf(2, N * K), normalsOf(3, T * N));
      step.run();
      step.compare(1);
    });
  }

  test("a linear layer of odd widths", () => {
    const [T, N, K] = [65, 67, 33];
    const step = linear(backend, T, N, K);
    step.write(normalsOf(1, T * K), normalsOf(2, N * K), normalsOf(3, T * N));
    step.run();
    step.compare(1);
  });

  test("the same bits again, with a long sum", () => {
    const [T, N, K] = [65_536, 192, 576];
    const step = linear(backend, T, N, K);
    step.write(normalsOf(1, T * K), normalsOf(2, N * K), normalsOf(3, T * N));
    const results = Array.from({ length: 3 }, () => {
      backend.zero(step.dW);
      step.run();
      return [step.out, step.dX, step.dW].map((tensor) => backend.read(tensor));
    });
    const bytes = results.map((values) => values.map(({ buffer }) => Buffer.from(buffer)));
    for (const again of bytes.slice(1)) assert.ok(again.every((b, i) => b.equals(bytes[0][i])));
  });

  test("out of memory is one sentence, and the backend is good afterwards", () => {
    const before = backend.memory();
    assert.throws(
      () => backend.tensor([1_000_000, 1_000_000], "float"),
      (error: Error) => {
        console.log(`  ${error.message}`);
        return error instanceof RunError && /4\.00 TB/.test(error.message) && /free/.test(error.message);
      },
    );
    assert.equal(backend.memory(), before);
    const tensor = backend.tensor([3], "float");
    backend.write(tensor, [1, 2, 3]);
    assert.deepEqual([...backend.read(tensor)], [1, 2, 3]);
  });

  test("NVRTC compiles a kernel file, once", (t) => {
    const cache = mkdtempSync(join(tmpdir(), "mobalab-cache-"));
    t.after(() => rmSync(cache, { recursive: true }));
    process.env.XDG_CACHE_HOME = cache;
    const { capability } = cudaFacts().cards[0];
    const time = () => {
      const start = performance.now();
      const image = compiledNow("norm", capability);
      return { ms: performance.now() - start, image };
    };
    const [first, second] = [time(), time()];
    console.log(`  norm.cu: ${first.ms.toFixed(0)} ms, then ${second.ms.toFixed(1)} ms from the cache`);
    assert.deepEqual(Buffer.from(second.image), Buffer.from(first.image));
    assert.equal(readdirSync(join(cache, "mobalab")).length, 1);
  });

  test("host time of a product, a copy and a replay", () => {
    const step = linear(backend, 64, 64, 64);
    const [a, b] = [backend.tensor([64], "float"), backend.tensor([64], "float")];
    const time = (what: string, calls: number, run: () => void) => {
      for (let i = 0; i < 100; i++) run();
      backend.synchronize();
      const start = performance.now();
      for (let i = 0; i < calls; i++) run();
      const enqueued = performance.now();
      backend.synchronize();
      const us = (end: number) => ((1000 * (end - start)) / calls).toFixed(2);
      console.log(`  ${what}: ${us(enqueued)} us to enqueue, ${us(performance.now())} us done`);
    };
    time("matrix product", 2000, () => backend.linearForward(step.out, step.x, step.w));
    time("copy", 2000, () => backend.copy(a, b));
    const replay = backend.record(() => {
      for (let i = 0; i < 100; i++) backend.linearForward(step.out, step.x, step.w);
    });
    time("replay of 100 products", 200, replay);
  });

  test("a second backend on the same card, after the first is closed", () => {
    const other = createCudaBackend();
    const tensor = other.tensor([2], "float");
    other.write(tensor, [4, 5]);
    assert.deepEqual([...other.read(tensor)], [4, 5]);
    other.close();
    const mine = backend.tensor([1], "float");
    backend.write(mine, [6]);
    assert.deepEqual([...backend.read(mine)], [6]);
  });

  test("the rate of large products", () => {
    const n = 8192;
    const x = backend.tensor([n, n], "activation");
    const w = backend.tensor([n, n], "weight");
    const out = backend.tensor([n, n], "activation");
    const values = Float32Array.from(normalsOf(9, 1 << 20));
    for (const tensor of [x, w]) {
      for (let at = 0; at < n * n; at += values.length) {
        backend.write(backend.view(tensor, at, [values.length]), values);
      }
    }
    const runs = 30;
    for (let i = 0; i < 5; i++) backend.linearForward(out, x, w);
    backend.synchronize();
    const start = performance.now();
    for (let i = 0; i < runs; i++) backend.linearForward(out, x, w);
    backend.synchronize();
    const ms = (performance.now() - start) / runs;
    console.log(`  8192^3 bf16: ${ms.toFixed(2)} ms, ${((2 * n ** 3) / ms / 1e9).toFixed(0)} TFLOP/s`);
  });
});

function facts(): string[] {
  const { cards, driver, libraries } = cudaFacts();
  return [
    ...cards.map((card) => `${card.name}, CUDA ${driver}: ${JSON.stringify(card)}`),
    ...libraries.map(({ library, path, problem }) => `${library}: ${path ?? problem}`),
  ];
}

function normalsOf(seed: number, length: number): Float64Array {
  return normals(uniform(seed), length);
}

/** A linear layer, forward and backward, with a way to compare it with the reference's. */
function linear(b: Backend, T: number, N: number, K: number) {
  const reference = createReferenceBackend();
  const both = (shape: number[], role: "activation" | "weight" | "float") =>
    [b.tensor(shape, role), reference.tensor(shape, role)] as const;
  const [x, w, dOut] = [both([T, K], "activation"), both([N, K], "weight"), both([T, N], "activation")];
  const [out, dX, dW] = [both([T, N], "activation"), both([T, K], "activation"), both([N, K], "float")];
  const run = (backend: Backend, side: 0 | 1) => {
    backend.linearForward(out[side], x[side], w[side]);
    backend.linearBackward(dX[side], dW[side], dOut[side], x[side], w[side]);
  };
  return {
    ...{ x: x[0], w: w[0], out: out[0], dX: dX[0], dW: dW[0] },
    run: () => run(b, 0),
    write(...values: Float64Array[]) {
      [x, w, dOut].forEach(([tested, exact]: readonly [Tensor, Tensor], i) => {
        b.write(tested, values[i]);
        reference.write(exact, b.read(tested));
      });
    },
    /** `times`: how often `run` has been called. */
    compare(times: number) {
      for (let i = 0; i < times; i++) run(reference, 1);
      for (const [name, [tested, exact], allowed] of [
        ["out", out, 4e-3],
        ["dX", dX, 4e-3],
        ["dW", dW, 1e-5],
      ] as const) {
        const error = relativeError(b.read(tested), reference.read(exact));
        assert.ok(error <= allowed, `${name}: relative error ${error}, at most ${allowed} allowed`);
      }
    },
  };
}
