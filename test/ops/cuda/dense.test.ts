/**
 * The dense operations on the null device: which kernels run on which grids, what they are given, and what is refused.
 * Arguments are seen only after `npm run build:cuda`.
 */
import { expect, test } from "vitest";
import type { Role } from "../../../src/ops/contract.ts";
import { pointerOf } from "../../../src/ops/cuda/context.ts";
import { createNullBackend } from "../../../src/ops/cuda/null.ts";

function open() {
  const backend = createNullBackend();
  const { launches, calls } = backend.mock;
  const tensor = (shape: number[], role: Role = "activation") => backend.tensor(shape, role);
  /** "kernel grid block shared" of what `run` launches; twice, as a step is repeated. */
  const launched = (run: () => void): string[] => {
    run();
    const memory = backend.memory();
    launches.length = 0;
    calls.length = 0;
    run();
    expect(backend.memory(), "memory after the first call").toBe(memory);
    return launches.map(
      ({ kernel, grid, block, sharedBytes }) =>
        `${kernel} ${grid.slice(0, 2).join("x")} ${block.slice(0, 2).join("x")} ${sharedBytes}`,
    );
  };
  return { backend, launches, calls, tensor, launched };
}

test("norms: a warp per row up to 2048 columns, a block per row above", () => {
  const { backend, tensor, launched } = open();
  const norms = (T: number, C: number) => {
    const [x, delta, sum, out, dX] = [0, 1, 2, 3, 4].map(() => tensor([T, C]));
    const [rstd, gain, dGain] = [tensor([T], "float"), tensor([C], "weight"), tensor([C], "float")];
    return launched(() => {
      backend.rmsNormForward(out, rstd, x, gain, 1e-5);
      backend.addRmsNormForward(sum, out, rstd, x, delta, gain, 1e-5);
      backend.rmsNormBackward(dX, dGain, out, x, gain, rstd);
    });
  };
  // 132 multiprocessors; the backward grid is what they hold at once.
  expect(norms(65_536, 640)).toEqual([
    "norm_forward_v3 8192x1 256x1 0",
    "add_norm_forward_v3 8192x1 256x1 0",
    "norm_backward_v3 264x1 256x1 2560",
    "add_partials 20x1 32x32 0",
  ]);
  expect(norms(32_768, 1792)).toEqual([
    "norm_forward_v7 4096x1 256x1 0",
    "add_norm_forward_v7 4096x1 256x1 0",
    "norm_backward_v7 132x1 256x1 7168",
    "add_partials 56x1 32x32 0",
  ]);
  expect(norms(1, 8)).toEqual([
    "norm_forward_v1 1x1 256x1 0",
    "add_norm_forward_v1 1x1 256x1 0",
    "norm_backward_v1 1x1 256x1 32",
    "add_partials 1x1 32x32 0",
  ]);
  expect(norms(100, 4096)).toEqual([
    "norm_forward_wide 100x1 256x1 0",
    "add_norm_forward_wide 100x1 256x1 0",
    "norm_backward_wide 100x1 256x1 0",
    "add_partials 128x1 32x32 0",
  ]);
});

test("embedding: as many sorting passes as the vocabulary's digits of 9 bits", () => {
  const { backend, tensor, launched } = open();
  const embedding = (T: number, V: number, C: number) => {
    const [tokens, table] = [tensor([T], "index"), tensor([V, C], "weight")];
    const [out, dTable] = [tensor([T, C]), tensor([V, C], "float")];
    return launched(() => {
      backend.embeddingForward(out, table, tokens);
      backend.embeddingBackward(dTable, out, tokens);
    });
  };
  const pass = (tiles: number) => [
    `embedding_histogram ${tiles}x1 1024x1 0`,
    "embedding_scan 1x1 1024x1 0",
    `embedding_scatter ${tiles}x1 1024x1 0`,
  ];
  expect(embedding(65_536, 131_072, 1792)).toEqual([
    "embedding_forward 8192x1 256x1 0",
    ...pass(64),
    ...pass(64),
    "embedding_runs 2048x2 128x1 0",
    "embedding_crossings 2048x2 128x1 0",
  ]);
  expect(embedding(33, 512, 64)).toEqual([
    "embedding_forward 5x1 256x1 0",
    ...pass(1),
    "embedding_runs 2x1 32x1 0",
    "embedding_crossings 2x1 32x1 0",
  ]);
  expect(embedding(33, 513, 64).length).toBe(9);
  expect(embedding(33, 1, 64).length).toBe(6);
});

test("RoPE and key convolution: grids, and the parameters in the kernels' order", () => {
  const { backend, launches, tensor, launched } = open();
  const [T, H, G, D, W] = [600, 8, 2, 128, 5];
  const E = (H + 2 * G) * D;
  const [qkv, q, k, v] = [tensor([T, E]), tensor([T, H, D]), tensor([T, G, D]), tensor([T, G, D])];
  const [keys, w, dW] = [tensor([T, G, D]), tensor([W, G, D], "weight"), tensor([W, G, D], "float")];
  const documents = backend.documents(T, 3);
  const run = () => {
    backend.keyConvForward(qkv, keys, w, documents, G);
    backend.splitRopeForward(q, k, v, qkv, documents, 10_000, 77);
    backend.splitRopeBackward(qkv, q, k, v, documents, 10_000);
    backend.keyConvBackward(qkv, dW, keys, w, documents, G);
  };
  expect(launched(run)).toEqual([
    "key_columns_copy 75x1 256x1 0",
    "key_conv_forward_w5 3x2 32x8 0",
    "split_rope_forward_d128 75x1 256x1 0",
    "split_rope_backward_d128 75x1 256x1 0",
    "key_columns_copy 75x1 256x1 0",
    "key_conv_backward_w5 3x2 32x8 0",
    "add_partials 40x1 32x32 0",
  ]);
  if (launches[0].args.length === 0) return;
  const args = launches.map(({ args }) => args.map(({ buffer }) => new DataView(buffer)));
  const [copy, forward, rope, back] = args;
  const pointer = (view: DataView) => view.getBigUint64(0, true);
  const columns = pointerOf(qkv) + BigInt(2 * H * D);
  expect([pointer(copy[0]), pointer(copy[1])]).toEqual([pointerOf(keys), columns]);
  expect(forward.slice(0, 3).map(pointer)).toEqual([columns, pointerOf(keys), pointerOf(w)]);
  expect(forward.slice(5).map((view) => view.getInt32(0, true))).toEqual([T, E, G * D]);
  for (const views of [rope, back]) {
    expect(views.slice(0, 4).map(pointer)).toEqual([q, k, v, qkv].map(pointerOf));
    expect(views[6].getFloat64(0, true)).toBeCloseTo(10_000 ** (-2 / D), 15);
  }
  expect(rope.slice(7).map((view) => view.getInt32(0, true))).toEqual([T, H, G, 77]);
  expect(back.slice(7).map((view) => view.getInt32(0, true))).toEqual([T, H, G, 0]);
});

test("SwiGLU covers every vector", () => {
  const { backend, tensor, launched } = open();
  for (const [T, F] of [
    [1, 8],
    [65_536, 1728],
  ]) {
    const [gateUp, out] = [tensor([T, 2 * F]), tensor([T, F])];
    const blocks = Math.ceil((T * F) / 8 / 512);
    const run = () => {
      backend.swigluForward(out, gateUp);
      backend.swigluBackward(gateUp, out, gateUp);
    };
    expect(launched(run)).toEqual([
      `swiglu_forward ${blocks}x1 256x1 0`,
      `swiglu_backward ${blocks}x1 256x1 0`,
    ]);
  }
});

test("loss: chunks of at most 512 MiB of logits, equal ones, rows in registers as long as they fit", () => {
  for (const [T, V, alone, withGradient] of [
    [
      65_536,
      8192,
      new Array(4).fill("loss_rows 16384x1 512x1 0"),
      new Array(2).fill("loss_gradient_4 32768x1 256x1 0"),
    ],
    [
      32_768,
      32_768,
      new Array(8).fill("loss_rows 4096x1 1024x1 0"),
      new Array(4).fill("loss_gradient_8 8192x1 512x1 0"),
    ],
    [
      2500,
      131_072,
      ["1024", "1024", "452"].map((n) => `loss_rows ${n}x1 1024x1 0`),
      ["1280", "1220"].map((n) => `loss_gradient_long ${n}x1 1024x1 0`),
    ],
    [3, 8, ["loss_rows 3x1 32x1 0"], ["loss_gradient_4 3x1 32x1 0"]],
  ] as const) {
    const { backend, calls, tensor, launched } = open();
    const C = 64;
    const [x, dX, w, dW] = [
      tensor([T, C]),
      tensor([T, C]),
      tensor([V, C], "weight"),
      tensor([V, C], "float"),
    ];
    const [losses, targets, scale] = [tensor([T], "float"), tensor([T], "index"), tensor([1], "float")];
    const before = backend.memory();
    expect(launched(() => backend.lossForward(losses, x, w, targets))).toEqual(alone);
    expect(calls.filter((call) => call === "cublasLtMatmul").length).toBe(alone.length);
    const run = () => backend.lossForwardBackward(losses, dX, dW, x, w, targets, scale);
    expect(launched(run)).toEqual(withGradient);
    expect(calls.filter((call) => call === "cublasLtMatmul").length).toBe(3 * withGradient.length);
    // Logits, and what cuBLASLt works in.
    expect(backend.memory() - before).toBeLessThanOrEqual((512 + 64) * 2 ** 20);
  }
});

test("gradient norm and AdamW: 64-bit lengths", () => {
  const { backend, launches, tensor, launched } = open();
  const P = 3 * 2 ** 30 + 5;
  const [master, grads, m, v] = [0, 1, 2, 3].map(() => tensor([P], "float"));
  const [weights, hyper, norm] = [tensor([P], "weight"), tensor([8], "float"), tensor([1], "float")];
  const run = () => {
    backend.gradNorm(norm, grads);
    backend.adamw(master, weights, grads, m, v, P - 7, hyper, norm);
  };
  expect(launched(run)).toEqual([
    "grad_squares 1024x1 256x1 0",
    "grad_norm 1x1 256x1 0",
    `adamw ${Math.ceil(P / 2048)}x1 256x1 0`,
  ]);
  if (launches[0].args.length === 0) return;
  const [squares, , adamw] = launches.map(({ args }) => args.map(({ buffer }) => new DataView(buffer)));
  expect(squares[2].getBigInt64(0, true)).toBe(BigInt(P));
  expect(adamw.slice(7).map((view) => view.getBigInt64(0, true))).toEqual([BigInt(P), BigInt(P - 7)]);
});

test("widths, heads and views that the kernels cannot do are refused by name", () => {
  const { backend, tensor } = open();
  const T = 4;
  const norm = (C: number) => () =>
    backend.rmsNormForward(tensor([T, C]), tensor([T], "float"), tensor([T, C]), tensor([C], "weight"), 1e-5);
  expect(norm(20)).toThrow("rmsNormForward: the width C is 20, expected a multiple of 8 on a CUDA card");
  expect(norm(16_392)).toThrow("rmsNormForward: the width C is 16392, expected at most 16384 on a CUDA card");
  expect(norm(16_384)).not.toThrow();
  const rope = () => {
    const [q, k, v] = [0, 1, 2].map(() => tensor([T, 1, 32]));
    backend.splitRopeForward(q, k, v, tensor([T, 96]), backend.documents(T, 1), 1e4);
  };
  expect(rope).toThrow("splitRopeForward: the head dimension D is 32, expected 64 or 128 on a CUDA card");
  const loss = () => {
    const [losses, targets] = [tensor([T], "float"), tensor([T], "index")];
    backend.lossForward(losses, tensor([T, 8]), tensor([50_257, 8], "weight"), targets);
  };
  expect(loss).toThrow("lossForward: the vocabulary V is 50257, expected a multiple of 8 on a CUDA card");
  const swiglu = () => backend.swigluForward(tensor([T, 8]), backend.view(tensor([T * 16 + 4]), 4, [T, 16]));
  expect(swiglu).toThrow(
    "swigluForward: gateUp_T2F starts 8 bytes behind a multiple of 16 bytes, expected a view that starts at one",
  );
});
