/** The CUDA backend's host code on the mock driver: memory, order, recording, and what it says when things fail. */
import { expect, test } from "vitest";
import { InputError, RunError } from "../../../src/errors.ts";
import { assemble } from "../../../src/ops/cuda/index.ts";
import { createMock, type MockOptions } from "../../../src/ops/cuda/mock.ts";
import { opSuite } from "../suite.ts";

function open(options: MockOptions = {}) {
  const mock = createMock(options);
  return {
    mock,
    backend: assemble(
      mock.driver,
      () => mock.blas,
      () => new Uint8Array(1),
      0,
    ),
  };
}

const suite = opSuite(() => open().backend);
// Those that need no results of operations.
for (const { name, run } of suite.filter(({ name }) => /^(memory|close):(?! record| sumLater)/.test(name)))
  test(name, run);

test("bf16 rounds to nearest, ties to even, and keeps NaN and infinities", () => {
  const { backend } = open();
  // Around 1, bf16 has steps of 2^-7.
  const step = 2 ** -7;
  const cases = [
    [1 + step / 2, 1],
    [1 + 1.5 * step, 1 + 2 * step],
    [1 + 0.51 * step, 1 + step],
    [-(1 + 1.5 * step), -(1 + 2 * step)],
    [3.4e38, Infinity],
    [Infinity, Infinity],
    [-Infinity, -Infinity],
    [Number.NaN, Number.NaN],
    [0, 0],
    [-0, -0],
    [1e-40, 1e-40],
  ];
  const tensor = backend.tensor([cases.length], "activation");
  backend.write(
    tensor,
    cases.map(([given]) => given),
  );
  backend.read(tensor).forEach((value, i) => {
    if (i < 10) expect(value).toBe(cases[i][1]);
    else expect(Math.abs(value - cases[i][1])).toBeLessThanOrEqual(2 ** -134);
  });
});

test("writes arrive in order however far the card lags behind the ring of page-locked memory", () => {
  const { backend } = open();
  const length = 5_000_000;
  const tensors = [1, 2, 3, 4].map(() => backend.tensor([length], "float"));
  tensors.forEach((tensor, t) => {
    backend.write(
      tensor,
      Float32Array.from({ length }, (_, i) => t + i),
    );
  });
  const small = backend.tensor([3], "index");
  for (let i = 0; i < 1000; i++) backend.write(small, [i, -i, 7]);
  tensors.forEach((tensor, t) => {
    const values = backend.read(tensor);
    for (let i = 0; i < length; i += 999) expect(values[i]).toBe(Math.fround(t + i));
    expect(values[length - 1]).toBe(Math.fround(t + length - 1));
  });
  expect([...backend.read(small)]).toEqual([999, -999, 7]);
});

test("a late read gives the values of its time, also when the next one is already under way", () => {
  const { backend } = open();
  const tensor = backend.tensor([4], "activation");
  const later = [1, 2, 3].map((n) => {
    backend.write(tensor, [n, n, n, n]);
    return backend.readLater(tensor);
  });
  backend.zero(tensor);
  expect(later.map((values) => values()[0])).toEqual([1, 2, 3]);
  const again = backend.readLater(tensor);
  expect(later[2]()[0]).toBe(3);
  expect(again()[0]).toBe(0);
});

test("late reads take no new page-locked memory once there is enough", () => {
  const { mock, backend } = open();
  const tensor = backend.tensor([64], "float");
  for (let i = 0; i < 10; i++) backend.readLater(tensor)();
  expect(mock.calls.filter((call) => call === "cuMemHostAlloc").length).toBe(1);
});

test("recorded operations run when replayed, not before, on what the tensors then hold", () => {
  const { mock, backend } = open();
  const [source, out, other] = [1, 2, 3].map(() => backend.tensor([2], "float"));
  let calls = 0;
  const replay = backend.record(() => {
    calls++;
    backend.copy(out, source);
    backend.zero(other);
  });
  expect(calls).toBeGreaterThan(0);
  const recorded = calls;
  backend.write(other, [5, 5]);
  for (const n of [1, 2]) {
    backend.write(source, [n, 10 * n]);
    expect([...backend.read(out)]).not.toEqual([n, 10 * n]);
    replay();
    expect([...backend.read(out)]).toEqual([n, 10 * n]);
  }
  expect([...backend.read(other)]).toEqual([0, 0]);
  expect(calls).toBe(recorded);
  expect(mock.calls.filter((call) => call === "cuGraphLaunch").length).toBe(2);
});

test("what cannot be replayed is refused while recording, and the backend is good afterwards", () => {
  const { backend } = open();
  const tensor = backend.tensor([2], "float");
  const documents = backend.documents(8, 2);
  const forbidden: Record<string, () => void> = {
    write: () => backend.write(tensor, [1, 2]),
    read: () => backend.read(tensor),
    readLater: () => backend.readLater(tensor),
    sumLater: () => backend.sumLater(tensor),
    tensor: () => backend.tensor([2], "float"),
    setDocuments: () => backend.setDocuments(documents, [0, 3, 8]),
    synchronize: () => backend.synchronize(),
    record: () => backend.record(() => {}),
  };
  for (const [name, run] of Object.entries(forbidden)) {
    expect(() => backend.record(run), name).toThrow(/^record: /);
  }
  expect([...documents.offsets]).toEqual([0, 8]);
  backend.write(tensor, [3, 4]);
  expect([...backend.read(tensor)]).toEqual([3, 4]);
});

test("a linear layer is three products, planned once per shape", () => {
  const { mock, backend } = open();
  const tensor = (shape: number[], role: "activation" | "weight" | "float") => backend.tensor(shape, role);
  const [x, w, out] = [
    tensor([33, 24], "activation"),
    tensor([40, 24], "weight"),
    tensor([33, 40], "activation"),
  ];
  const [dX, dW] = [tensor([33, 24], "activation"), tensor([40, 24], "float")];
  for (let step = 0; step < 3; step++) {
    backend.linearForward(out, x, w);
    backend.linearBackward(dX, dW, out, x, w);
    backend.linearBackward(null, dW, out, x, w);
  }
  const count = (name: string) => mock.calls.filter((call) => call === name).length;
  expect(count("cublasLtMatmulAlgoGetHeuristic")).toBe(3);
  expect(count("cublasLtMatmul")).toBe(3 * 4);
});

test("out of memory says what was asked for and what is free", () => {
  const { backend } = open({ totalBytes: 1e9 });
  backend.tensor([100_000_000], "float");
  expect(() => backend.tensor([500, 1_000_000], "float")).toThrow(
    new RunError(
      "out of memory on the card: a tensor of shape [500, 1000000] (2.00 GB) was asked for, 600 MB are free",
    ),
  );
});

test("no card, no such card, an old card, an old driver: one sentence each", () => {
  const attempt = (options: MockOptions, ordinal = 0) => {
    const mock = createMock(options);
    return () =>
      assemble(
        mock.driver,
        () => mock.blas,
        () => new Uint8Array(1),
        ordinal,
      );
  };
  expect(attempt({ cards: 0 })).toThrow(
    new InputError("the device cuda:0 cannot be used: no CUDA card was found"),
  );
  expect(attempt({ cards: 2 }, 2)).toThrow(
    new InputError("the device cuda:2 cannot be used: there are 2 CUDA cards, 0 to 1"),
  );
  expect(attempt({ capability: 75, name: "Tesla T4" })).toThrow(
    new InputError(
      "cuda:0 (Tesla T4) has compute capability 7.5, expected 8.0 or newer: there are no kernels for its architecture",
    ),
  );
  expect(attempt({ driverVersion: 11080 })).toThrow(
    new InputError("the CUDA driver supports CUDA 11.8, expected 12.0 or newer"),
  );
});

test("every call that fails is noticed", () => {
  const silent = new Set([
    // Asked for error texts and on the way out, where another error matters more.
    ...["cuGetErrorName", "cuGetErrorString", "cuDeviceGetCount", "cuMemGetInfo_v2", "cuFuncGetParamInfo"],
    ...["cuMemFree_v2", "cuMemFreeHost", "cuEventDestroy_v2", "cuStreamDestroy_v2", "cuGraphDestroy"],
    ...["cuGraphExecDestroy", "cuModuleUnload", "cuDevicePrimaryCtxRelease_v2"],
    ...["cublasLtDestroy", "cublasLtMatmulPreferenceDestroy"],
  ]);
  const scenario = (fail?: (call: string) => number) => {
    const { mock, backend } = open({ fail });
    const [x, w] = [backend.tensor([8, 8], "activation"), backend.tensor([8, 8], "weight")];
    const out = backend.tensor([8, 8], "activation");
    backend.write(x, new Float32Array(64));
    backend.record(() => backend.linearForward(out, x, w))();
    backend.copy(out, x);
    backend.readLater(out)();
    backend.read(out);
    backend.close();
    return mock.calls;
  };
  const seen = new Set(scenario());
  expect(seen.size).toBeGreaterThan(25);
  for (const call of seen) {
    if (silent.has(call))
      expect(() => scenario((name) => (name === call ? 1 : 0)), call).not.toThrow(TypeError);
    else expect(() => scenario((name) => (name === call ? 1 : 0)), call).toThrow(/failed|cannot|does not/);
  }
});

test("a failure on the card says which error it was, in the driver's words", () => {
  let broken = false;
  const { backend } = open({ fail: (call) => (broken && call === "cuStreamSynchronize" ? 700 : 0) });
  const tensor = backend.tensor([2], "float");
  broken = true;
  expect(() => backend.read(tensor)).toThrow(
    new RunError(
      "an operation enqueued earlier on the card failed: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)",
    ),
  );
});

test("closing frees all memory, also after a failure on the card", () => {
  let broken = false;
  const { mock, backend } = open({ fail: (call) => (broken && call === "cuStreamSynchronize" ? 700 : 0) });
  backend.tensor([1000], "float");
  backend.write(backend.tensor([1000], "weight"), new Float32Array(1000));
  expect(mock.allocatedBytes()).toBe(6000);
  expect(backend.memory()).toBe(6000);
  broken = true;
  backend.close();
  expect(mock.allocatedBytes()).toBe(0);
});

test("once closed, everything throws but closing again", () => {
  const { backend } = open();
  const [x, w] = [backend.tensor([8, 8], "activation"), backend.tensor([8, 8], "weight")];
  const out = backend.tensor([8, 8], "activation");
  const documents = backend.documents(8, 2);
  const float = backend.tensor([8], "float");
  const later = backend.readLater(x);
  const replay = backend.record(() => backend.copy(out, x));
  backend.close();
  backend.close();
  const closed = new RunError("the backend cuda:0 is closed");
  for (const run of [
    () => backend.tensor([1], "float"),
    () => backend.view(x, 0, [8]),
    () => backend.write(x, new Float32Array(64)),
    () => backend.read(x),
    () => backend.readLater(x),
    () => backend.sumLater(float),
    () => backend.copy(out, x),
    () => backend.zero(x),
    () => backend.synchronize(),
    () => backend.record(() => {}),
    () => backend.documents(8, 2),
    () => backend.setDocuments(documents, [0, 8]),
    () => backend.linearForward(out, x, w),
    later,
    replay,
  ]) {
    expect(run, run.toString()).toThrow(closed);
  }
});

test("tensors of another backend are refused", () => {
  const [one, other] = [open().backend, open().backend];
  const foreign = other.tensor([2], "float");
  expect(() => one.read(foreign)).toThrow(/another backend/);
  expect(() => one.copy(one.tensor([2], "float"), foreign)).toThrow(/another backend/);
});
