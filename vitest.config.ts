import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/gpu/**"],
    testTimeout: 60_000,
    maxWorkers: 2,
    // What a busy machine takes for a second's work.
    expect: { poll: { timeout: 15_000 } },
  },
});
