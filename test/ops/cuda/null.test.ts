/** A model's training step on the null device: memory is what the plan says, and nothing is allocated in a step. */
import { expect, test } from "vitest";
import { createNullBackend } from "../../../src/ops/cuda/null.ts";

test("a layer larger than any card's memory is refused, a large one is counted", () => {
  const backend = createNullBackend({ totalBytes: 80e9 });
  const w = backend.tensor([100_000, 100_000], "weight");
  expect(backend.memory()).toBe(20e9);
  expect(() => backend.tensor([400_000, 100_000], "weight")).toThrow(
    /80\.0 GB\) was asked for, 60\.0 GB are free/,
  );
  expect(backend.read(backend.view(w, 5, [3]))).toEqual(new Float32Array(3));
});

test("a recorded step allocates nothing, and each replay is one call to the driver", () => {
  const backend = createNullBackend();
  const [T, N, K] = [64, 128, 256];
  const [x, w] = [backend.tensor([T, K], "activation"), backend.tensor([N, K], "weight")];
  const [out, dW] = [backend.tensor([T, N], "activation"), backend.tensor([N, K], "float")];
  const replay = backend.record(() => {
    backend.zero(dW);
    backend.linearForward(out, x, w);
    backend.linearBackward(x, dW, out, x, w);
  });
  const before = backend.memory();
  backend.mock.calls.length = 0;
  for (let step = 0; step < 3; step++) replay();
  expect(backend.mock.calls).toEqual(["cuGraphLaunch", "cuGraphLaunch", "cuGraphLaunch"]);
  expect(backend.memory()).toBe(before);
});
