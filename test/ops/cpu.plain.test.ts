/** The suite on the CPU backend's plain kernels, which engines without relaxed SIMD get. */
import { existsSync } from "node:fs";
import { test } from "vitest";
import { opSuite } from "./suite.ts";

if (!existsSync(new URL("../../build/cpu.wasm", import.meta.url))) {
  test.skip("build/cpu.wasm is not there: npm run build:wasm", () => {});
} else {
  const { createCpuBackend } = await import("../../src/ops/cpu/index.ts");
  for (const { name, run } of opSuite(() => createCpuBackend({ threads: 2, variant: "plain" }))) {
    test(name, run);
  }
}
