/**
 * Time of every operation outside attention at two training shapes, on the card, beside its floor: bytes that must
 * move over 4.3 TB/s (a copy's rate on an H200), or operations over 790 TFLOP/s (the largest product's rate), whichever
 * is longer. Prints a table; nothing is asserted but that all ran.
 *
 *   npm run build:gpu && node --test build/gpu/test/gpu/dense-speed.test.js
 *
 * Predicted floors of one step, ms ("torch": a whole step with attention, torch 2.11 compiled):
 *
 *   shape                T        torch  embedding  norms  RoPE  SwiGLU  linear  loss products  loss kernel  optimizer
 *   2.2M d192 L5 H3      8 x 16k   47.8       0.04   1.01  0.70    1.25    2.20           1.57         1.00       0.05
 *   8.9M d384 L5 H6      4 x 16k   48.2       0.04   1.01  0.70    1.25    4.40           1.57         0.50       0.13
 *   29.8M d640 L6 H10    4 x 16k  101.6       0.07   1.99  1.40    2.53   14.80           2.61         0.50       0.36
 *   85M d768 L12 H12     8 x 8k   182.6       0.12   4.64  3.37    5.99   42.28          12.53         2.00       1.20
 *   85M d768 L12 H6      8 x 8k   167.2       0.12   4.64  3.37    5.99   42.28          12.53         2.00       1.20
 *   541M d1792 L14 H14   4 x 8k   315.1       0.19   6.28  4.59    8.19  134.66          14.61         1.00       5.82
 *
 * Expected of the kernels: 0.85 of the copy's rate and better where rows are long, 0.75 at d192 (24 of 32 lanes at
 * work); products at 0.75 to 0.95 of the largest one's rate where their inner dimension is 640 and more. (Products of
 * narrow models are bound by memory as well: the linear floors of d192 and d384 are double what is said here.)
 */
import { test } from "node:test";
import { type Backend, HYPER_LENGTH, Hyper, type Role, type Tensor } from "../../src/ops/contract.ts";
import { createCudaBackend } from "../../src/ops/cuda/index.ts";
import { integers, normals, uniform } from "../ops/random.ts";
import { skip } from "./card.ts";

const BYTES_PER_MS = 4.3e9;
const FLOPS_PER_MS = 790e9;

interface Shape {
  readonly name: string;
  readonly T: number;
  readonly C: number;
  readonly L: number;
  readonly H: number;
  readonly D: number;
  readonly F: number;
  readonly V: number;
}

const SHAPES: readonly Shape[] = [
  { name: "29.8M, 4 x 16k", T: 65_536, C: 640, L: 6, H: 10, D: 64, F: 1728, V: 8192 },
  { name: "541M, 4 x 8k", T: 32_768, C: 1792, L: 14, H: 14, D: 128, F: 4800, V: 32_768 },
];

/** One operation of a step. `count`: calls per step; `bytes` and `flops` of one call. */
interface Row {
  readonly name: string;
  readonly count: number;
  readonly bytes: number;
  readonly flops?: number;
  readonly run: () => void;
}

for (const shape of SHAPES) {
  test(`operations at ${shape.name}`, { skip }, (t) => {
    const backend = createCudaBackend();
    t.after(() => backend.close());
    console.log(`  ${shape.name} tokens, d${shape.C} L${shape.L} H${shape.H} V${shape.V}`);
    console.log("  operation                       ms   floor  ratio    TB/s  TFLOP/s   per step  floor");
    let [total, floors] = [0, 0];
    for (const { name, count, bytes, flops = 0, run } of rows(backend, shape)) {
      const ms = time(backend, run);
      const floor = Math.max(bytes / BYTES_PER_MS, flops / FLOPS_PER_MS);
      total += count * ms;
      floors += count * floor;
      const columns = [
        ms.toFixed(3).padStart(8),
        floor.toFixed(3).padStart(7),
        (ms / floor).toFixed(2).padStart(6),
        (bytes / ms / 1e9).toFixed(2).padStart(7),
        flops ? (flops / ms / 1e9).toFixed(0).padStart(8) : "        ",
        (count * ms).toFixed(2).padStart(10),
        (count * floor).toFixed(2).padStart(6),
      ];
      console.log(`  ${name.padEnd(26)} ${columns.join(" ")}`);
    }
    console.log(`  all outside attention: ${total.toFixed(2)} ms per step, floor ${floors.toFixed(2)} ms`);
  });
}

function rows(b: Backend, { T, C, L, H, D, F, V }: Shape): Row[] {
  const E = 3 * H * D;
  const P = L * (4 * C * H * D + 3 * C * F + 2 * C) + 2 * V * C + C;
  const next = uniform(1);
  const make = (shape: number[], role: Role = "activation", scale = 1) => filled(b, shape, role, scale, next);
  const [x, delta, sum, out, dX] = [0, 1, 2, 3, 4].map(() => make([T, C]));
  const [gain, dGain, rstd] = [make([C], "weight"), make([C], "float"), make([T], "float")];
  const [qkv, q, k, v] = [make([T, E]), make([T, H, D]), make([T, H, D]), make([T, H, D])];
  const [gateUp, dGateUp] = [make([T, 2 * F]), make([T, 2 * F])];
  const [hidden, dHidden] = [make([T, F]), make([T, F])];
  const documents = b.documents(T, 1);
  const [tokens, targets] = [b.tensor([T], "index"), b.tensor([T], "index")];
  // Zipf's law, as text has it.
  b.write(
    tokens,
    Int32Array.from({ length: T }, () => Math.floor(V ** next()) % V),
  );
  b.write(targets, integers(next, T, V));
  const used = new Set(b.read(tokens)).size;
  const weights = make([P], "weight", 0.02);
  const [master, grads, m, v2] = [0, 1, 2, 3].map(() => make([P], "float", 0.02));
  const weight = (rows: number, columns: number) => b.view(weights, 0, [rows, columns]);
  const grad = (rows: number, columns: number) => b.view(grads, 0, [rows, columns]);
  const [losses, scale, norm] = [make([T], "float"), b.tensor([1], "float"), b.tensor([1], "float")];
  b.write(scale, [1 / T]);
  const hyper = b.tensor([HYPER_LENGTH], "float");
  const values = new Float32Array(HYPER_LENGTH);
  Object.assign(values, { [Hyper.learningRate]: 1e-4, [Hyper.beta1]: 0.9, [Hyper.beta2]: 0.95 });
  Object.assign(values, { [Hyper.epsilon]: 1e-8, [Hyper.weightDecay]: 0.1, [Hyper.maxNorm]: 1 });
  Object.assign(values, { [Hyper.bias1]: 0.1, [Hyper.bias2]: 0.05 });
  b.write(hyper, values);

  const linear = (name: string, out: Tensor, input: Tensor, N: number, K: number): Row[] => [
    {
      name: `${name} forward`,
      count: L,
      bytes: 2 * (T * N + T * K + N * K),
      flops: 2 * T * N * K,
      run: () => b.linearForward(out, input, weight(N, K)),
    },
    {
      name: `${name} backward`,
      count: L,
      // dOut and x or w twice, dX, and dW read and written in f32.
      bytes: 2 * (2 * T * N + 2 * T * K + N * K) + 8 * N * K,
      flops: 4 * T * N * K,
      run: () => b.linearBackward(K === F ? dHidden : dX, grad(N, K), out, input, weight(N, K)),
    },
  ];
  return [
    {
      name: "embedding forward",
      count: 1,
      bytes: 4 * T * C,
      run: () => b.embeddingForward(out, weight(V, C), tokens),
    },
    {
      name: "embedding backward",
      count: 1,
      bytes: 2 * T * C + 8 * used * C,
      run: () => b.embeddingBackward(grad(V, C), out, tokens),
    },
    {
      name: "norm forward",
      count: 1,
      bytes: 4 * T * C,
      run: () => b.rmsNormForward(out, rstd, x, gain, 1e-5),
    },
    {
      name: "add + norm forward",
      count: 2 * L,
      bytes: 8 * T * C,
      run: () => b.addRmsNormForward(sum, out, rstd, x, delta, gain, 1e-5),
    },
    {
      name: "norm backward",
      count: 2 * L + 1,
      bytes: 8 * T * C,
      run: () => b.rmsNormBackward(dX, dGain, delta, x, gain, rstd),
    },
    {
      name: "RoPE forward",
      count: L,
      bytes: 4 * T * E,
      run: () => b.splitRopeForward(q, k, v, qkv, documents, 10_000),
    },
    {
      name: "RoPE backward",
      count: L,
      bytes: 4 * T * E,
      run: () => b.splitRopeBackward(qkv, q, k, v, documents, 10_000),
    },
    { name: "SwiGLU forward", count: L, bytes: 6 * T * F, run: () => b.swigluForward(hidden, gateUp) },
    {
      name: "SwiGLU backward",
      count: L,
      bytes: 10 * T * F,
      run: () => b.swigluBackward(dGateUp, hidden, gateUp),
    },
    ...linear("qkv", qkv, x, E, C),
    ...linear("attention output", sum, b.view(q, 0, [T, H * D]), C, H * D),
    ...linear("gate and up", gateUp, x, 2 * F, C),
    ...linear("down", sum, hidden, C, F),
    {
      name: "loss with gradient",
      count: 1,
      // The kernel's traffic comes on top of the products: their floors add up.
      bytes: 4 * T * V + (6 * T * V * C * BYTES_PER_MS) / FLOPS_PER_MS,
      flops: 6 * T * V * C,
      run: () => b.lossForwardBackward(losses, dX, grad(V, C), x, weight(V, C), targets, scale),
    },
    {
      name: "loss alone",
      count: 0,
      bytes: 4 * T * V + (2 * T * V * C * BYTES_PER_MS) / FLOPS_PER_MS,
      flops: 2 * T * V * C,
      run: () => b.lossForward(losses, x, weight(V, C), targets),
    },
    { name: "zero gradients", count: 1, bytes: 4 * P, run: () => b.zero(grads) },
    { name: "gradient norm", count: 1, bytes: 4 * P, run: () => b.gradNorm(norm, master) },
    {
      name: "AdamW",
      count: 1,
      bytes: 30 * P,
      run: () => b.adamw(master, weights, grads, m, v2, P, hyper, norm),
    },
  ];
}

const PATTERN = 2 ** 20;

/** Random values, a megabyte-long pattern of them over and over: zeros would run faster than training does. */
function filled(b: Backend, shape: number[], role: Role, scale: number, next: () => number): Tensor {
  const tensor = b.tensor(shape, role);
  const first = Math.min(tensor.length, PATTERN);
  b.write(
    b.view(tensor, 0, [first]),
    normals(next, first).map((x) => scale * x),
  );
  for (let done = first; done < tensor.length; ) {
    const count = Math.min(done, tensor.length - done);
    b.copy(b.view(tensor, done, [count]), b.view(tensor, 0, [count]));
    done += count;
  }
  return tensor;
}

const CALLS = 10;
const RUNS = 7;
const RUN_MS = 10;

/** Milliseconds of a call: ten of them recorded, replayed for a while, the median of several such runs. */
function time(b: Backend, run: () => void): number {
  run();
  const replay = b.record(() => {
    for (let i = 0; i < CALLS; i++) run();
  });
  const timed = (replays: number) => {
    b.synchronize();
    const start = performance.now();
    for (let i = 0; i < replays; i++) replay();
    b.synchronize();
    return (performance.now() - start) / replays / CALLS;
  };
  const once = timed(2);
  const replays = Math.max(1, Math.ceil(RUN_MS / once / CALLS));
  const times = Array.from({ length: RUNS }, () => timed(replays)).sort((a, b) => a - b);
  return times[RUNS >> 1];
}
