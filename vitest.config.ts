import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["test/**/*.test.ts"], exclude: ["test/gpu/**"], testTimeout: 60_000, maxWorkers: 2 },
});
