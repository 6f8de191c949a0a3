/** The suite on the CPU backend, with one thread and with more, and the same bits from both. */
import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { sameBits } from "./suite/harness.ts";
import { opSuite, sampleOutputs } from "./suite.ts";

const wasm = new URL("../../build/cpu.wasm", import.meta.url);
const source = new URL("../../src/ops/cpu/index.ts", import.meta.url);
if (!existsSync(wasm) || !existsSync(source)) {
  test.skip("build/cpu.wasm is not there: npm run build:wasm", () => {});
} else {
  const { createCpuBackend } = await import("../../src/ops/cpu/index.ts");
  describe.each([1, 3])("%i threads", (threads) => {
    for (const { name, run } of opSuite(() => createCpuBackend({ threads }))) test(name, run);
  });
  test("one, two and five threads give the same bits", () => {
    const outputs = [1, 2, 5].map((threads) => {
      const backend = createCpuBackend({ threads });
      const sample = sampleOutputs(backend);
      backend.close();
      return sample;
    });
    for (const other of outputs.slice(1)) {
      expect(Object.keys(other)).toEqual(Object.keys(outputs[0]));
      for (const [name, values] of Object.entries(outputs[0])) sameBits(name, other[name], values);
    }
  });
}
