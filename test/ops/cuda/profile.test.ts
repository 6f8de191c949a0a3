/** The stopwatch of bench/gpu-step.ts: what is timed, under which name, and what is counted. */
import { expect, test } from "vitest";
import { profiler } from "../../../bench/gpu-profile.ts";
import { createMock } from "../../../src/ops/cuda/mock.ts";

test("products, kernels, copies and fills are timed by name, each call once", () => {
  const mock = createMock({ stored: false });
  let asked = 0;
  const elapsed = (milliseconds: Float32Array) => {
    milliseconds[0] = 0.5;
    asked++;
    return 0;
  };
  const { backend, profile } = profiler(mock.driver, mock.blas, elapsed, () => new Uint8Array(1));
  const [T, N, K] = [64, 128, 256];
  const [x, w] = [backend.tensor([T, K], "activation"), backend.tensor([N, K], "weight")];
  const [out, dX, dW] = [
    backend.tensor([T, N], "activation"),
    backend.tensor([T, K], "activation"),
    backend.tensor([N, K], "float"),
  ];
  const half = backend.tensor([T, K / 2], "activation");
  const timings = profile(() => {
    backend.linearForward(out, x, w);
    backend.linearForward(out, x, w);
    backend.linearBackward(dX, dW, out, x, w);
    backend.swigluForward(half, x);
    backend.copy(dX, x);
    backend.zero(dW);
  });
  const operations = 2 * T * N * K;
  const byName = Object.fromEntries(timings.map(({ name, ...rest }) => [name, rest]));
  expect(byName).toEqual({
    [`product [${T}, ${N}], inner ${K}`]: {
      ...{ calls: 2, milliseconds: 1, operations: 2 * operations, bytes: 0 },
    },
    [`product [${T}, ${K}], inner ${N}`]: { calls: 1, milliseconds: 0.5, operations, bytes: 0 },
    [`product [${N}, ${K}], inner ${T}`]: { calls: 1, milliseconds: 0.5, operations, bytes: 0 },
    swiglu_forward: { calls: 1, milliseconds: 0.5, operations: 0, bytes: 0 },
    copy: { calls: 1, milliseconds: 0.5, operations: 0, bytes: 4 * T * K },
    zero: { calls: 1, milliseconds: 0.5, operations: 0, bytes: 4 * N * K },
  });
  expect(asked).toBe(7);
  // Nothing is timed outside.
  mock.calls.length = 0;
  backend.linearForward(out, x, w);
  expect(mock.calls).not.toContain("cuEventRecord");
  backend.close();
});
