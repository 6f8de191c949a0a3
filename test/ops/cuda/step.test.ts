/**
 * A whole training step on the null device: every launch is checked against the compiled kernel (after
 * `npm run build:cuda`), memory is what the model's plan says, and a step allocates nothing.
 */
import { expect, test } from "vitest";
import type { Attention } from "../../../src/attention/attention.ts";
import type { ModelConfig } from "../../../src/model/config.ts";
import { planMemory } from "../../../src/model/memory.ts";
import { createNullBackend } from "../../../src/ops/cuda/null.ts";
import { makeStep, SMALL } from "./step.ts";

const full: Attention = { kind: "full" };
const moba: Attention = { kind: "moba", blockSize: 64, topK: 2 };

const cases: readonly (readonly [ModelConfig, Attention, boolean])[] = [
  [SMALL, full, false],
  [SMALL, moba, false],
  [SMALL, { ...moba, sharedGate: true }, true],
  [{ ...SMALL, headDim: 128, keyConvolution: 5, tiedOutput: true }, moba, false],
  [SMALL, { kind: "window", blockSize: 64, topK: 2 }, false],
  [SMALL, { kind: "sink", blockSize: 64, topK: 2 }, false],
];

test.each(cases)("%o, %o, recomputed: %s", (config, attention, recompute) => {
  const backend = createNullBackend();
  const lengths = [1, 63, 200, 320];
  const { model, enqueue } = makeStep(backend, config, attention, lengths, recompute);
  const options = { tokens: 584, maxDocuments: 4, training: true, recompute, attention: model.attention };
  const plan = planMemory(config, options, (role) => backend.dtype(role));
  // Besides the plan: documents, and the small tensors of the optimizer.
  const known = plan.total + 4 * (5 + 584) + 4 * (8 + 1 + 1);
  expect(backend.memory()).toBeGreaterThanOrEqual(known);
  const scratchOfStates = backend.memory() - known;
  expect(scratchOfStates).toBeLessThan(plan.total);

  const { mock } = backend;
  mock.launches.length = 0;
  const replay = backend.record(enqueue);
  const launched = mock.launches.length;
  expect(launched).toBeGreaterThan(20);
  const before = backend.memory();
  mock.calls.length = 0;
  replay();
  expect(mock.calls).toEqual(["cuGraphLaunch"]);
  enqueue();
  expect(mock.launches.length).toBe(2 * launched);
  expect(mock.calls).not.toContain("cuMemAlloc_v2");
  expect(mock.calls).not.toContain("cuStreamSynchronize");
  expect(mock.calls).not.toContain("cuEventSynchronize");
  expect(backend.memory()).toBe(before);
  backend.close();
});
