/**
 * One 512 x 512 x 512 product in f32 on one thread: this project's CPU backend beside jax-js and TensorFlow.js (their
 * WebAssembly backends), in turns within one run. Prints and writes bench/results/gemm_<cpu>_<date>.json.
 *
 *   npm --prefix bench ci && npm --prefix bench run gemm [-- --rounds 40]
 */
import { createRequire } from "node:module";
import { cpus } from "node:os";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { createCpuBackend } from "../src/ops/cpu/index.ts";
import { rounded, writeResult } from "./results.ts";
import { median } from "./timing.ts";

const { values } = parseArgs({ options: { rounds: { type: "string", default: "40" } } });
const rounds = Number(values.rounds);
const n = 512;
const warmUpRounds = 10;

/** A library's product of the two matrices; returns when it is done. `result` is the last one, row-major. */
interface Contestant {
  readonly name: string;
  readonly multiply: () => void | Promise<void>;
  readonly result: () => Float32Array | Promise<Float32Array>;
}

const require = createRequire(import.meta.url);
const a = Float32Array.from({ length: n * n }, (_, i) => Math.sin(i));
const b = Float32Array.from({ length: n * n }, (_, i) => Math.cos(3 * i));

function ours(variant: "relaxed" | "plain"): Contestant {
  const backend = createCpuBackend({ threads: 1, variant });
  const [out, x] = [backend.tensor([n, n], "activation"), backend.tensor([n, n], "activation")];
  const w = backend.tensor([n, n], "weight");
  backend.write(x, a);
  // A linear layer multiplies with the transposed weight.
  backend.write(
    w,
    b.map((_, i) => b[(i % n) * n + Math.floor(i / n)]),
  );
  return {
    name: `mobalab ${variant}`,
    multiply: () => backend.linearForward(out, x, w),
    result: () => backend.read(out) as Float32Array,
  };
}

// The rivals are this folder's own dependencies: typed here by what is used of them, so that the project's type
// check does not need them.
interface JaxArray {
  readonly ref: JaxArray;
  blockUntilReady(): Promise<JaxArray>;
  data(): Promise<Float32Array>;
  dispose(): void;
}
interface Jax {
  init(device: string): Promise<unknown>;
  defaultDevice(device: string): void;
  jit(f: (x: JaxArray, y: JaxArray) => JaxArray): (x: JaxArray, y: JaxArray) => JaxArray;
  numpy: {
    array(values: Float32Array, options: { shape: number[] }): JaxArray;
    matmul(x: JaxArray, y: JaxArray): JaxArray;
  };
}

async function jaxJs(): Promise<Contestant> {
  const name = "@jax-js/jax";
  const jax: Jax = await import(name);
  await jax.init("wasm");
  jax.defaultDevice("wasm");
  const x = jax.numpy.array(a, { shape: [n, n] });
  const y = jax.numpy.array(b, { shape: [n, n] });
  const product = jax.jit((p, q) => jax.numpy.matmul(p, q));
  let last: JaxArray | undefined;
  return {
    name: `jax-js ${version(name)} wasm`,
    async multiply() {
      last?.dispose();
      last = product(x.ref, y.ref);
      await last.blockUntilReady();
    },
    result: async () => await last!.ref.data(),
  };
}

interface TensorFlowTensor {
  dispose(): void;
  data(): Promise<Float32Array>;
  dataSync(): Float32Array;
}
interface TensorFlow {
  setBackend(name: string): Promise<boolean>;
  tensor2d(values: Float32Array, shape: number[]): TensorFlowTensor;
  matMul(x: TensorFlowTensor, y: TensorFlowTensor): TensorFlowTensor;
}
interface TensorFlowWasm {
  setWasmPaths(folder: string): void;
  setThreadsCount(threads: number): void;
}

async function tensorFlow(): Promise<Contestant> {
  const tf: TensorFlow = require("@tensorflow/tfjs");
  const name = "@tensorflow/tfjs-backend-wasm";
  const wasm: TensorFlowWasm = require(name);
  wasm.setWasmPaths(`${dirname(require.resolve(name))}/`);
  wasm.setThreadsCount(1);
  if (!(await tf.setBackend("wasm"))) throw new Error("TensorFlow.js has no wasm backend here");
  const x = tf.tensor2d(a, [n, n]);
  const y = tf.tensor2d(b, [n, n]);
  let last: TensorFlowTensor | undefined;
  return {
    name: `tfjs ${version("@tensorflow/tfjs")} wasm`,
    multiply() {
      last?.dispose();
      last = tf.matMul(x, y);
    },
    result: () => last!.data(),
  };
}

function version(name: string): string {
  const file = new URL(`node_modules/${name}/package.json`, import.meta.url);
  return (require(fileURLToPath(file)) as { version: string }).version;
}

const contestants = [ours("relaxed"), ours("plain"), await jaxJs(), await tensorFlow()];
const times = contestants.map(() => [] as number[]);
for (let round = -warmUpRounds; round < rounds; round++) {
  for (const [i, { multiply }] of contestants.entries()) {
    const start = performance.now();
    await multiply();
    if (round >= 0) times[i].push(performance.now() - start);
  }
}

const reference = await contestants[0].result();
const gflops = times.map((list) => (2 * n ** 3) / median(list) / 1e6);
const jaxRate = gflops[2];
const results = await Promise.all(
  contestants.map(async ({ name, result }, i) => {
    const other = await result();
    let difference = 0;
    for (let j = 0; j < reference.length; j++) {
      difference = Math.max(difference, Math.abs(reference[j] - other[j]));
    }
    if (!(difference < 1e-2)) throw new Error(`${name} computed another product: off by ${difference}`);
    return {
      name,
      gflops: rounded(gflops[i]),
      median_ms: rounded(median(times[i])),
      fastest_ms: rounded(Math.min(...times[i])),
      times_jax_js: rounded(gflops[i] / jaxRate),
    };
  }),
);

console.log(`${cpus()[0].model}, Node ${process.version}, ${n}^3 f32, one thread, median of ${rounds}`);
for (const { name, gflops, times_jax_js } of results) {
  console.log(
    `${name.padEnd(24)} ${gflops.toFixed(1).padStart(6)} GFLOP/s  ${times_jax_js.toFixed(2)} x jax-js`,
  );
}
writeResult("gemm", { n, threads: 1, rounds, results });
process.exit(0);
