/** What is said where libraries are missing or not what they should be. */
import { expect, test } from "vitest";
import { InputError } from "../../../src/errors.ts";
import { createCudaBackend, cudaAvailable, cudaFacts } from "../../../src/ops/cuda/index.ts";

const facts = cudaFacts();
const hasDriver = facts.libraries.find(({ name }) => name === "cuda")!.problem === null;

test("facts name every library, with its place or why it cannot be used", () => {
  expect(facts.libraries.map(({ name }) => name)).toEqual(["cuda", "nvrtc", "cublasLt", "nccl"]);
  for (const { library, path, problem, needed } of facts.libraries) {
    expect((path === null) !== (problem === null), library).toBe(true);
    if (problem)
      expect(problem).toMatch(new RegExp(`^${library} was not found .* it is needed for .*comes with`));
    expect(needed).not.toBe("");
  }
  expect(facts.kernels.compiled).toBeLessThanOrEqual(facts.kernels.files);
});

test.skipIf(hasDriver)("without a driver: not available, and one sentence", () => {
  expect(cudaAvailable()).toBe(false);
  expect(facts.cards).toEqual([]);
  expect(facts.missing[0]).toMatch(/^libcuda\.so\.1 was not found .* comes with the NVIDIA driver$/);
  expect(() => createCudaBackend()).toThrow(InputError);
  expect(() => createCudaBackend()).toThrow(facts.missing[0]);
});
