/** What every kernel file must keep to so that NVRTC compiles it too, and so that null.ts can check its launches. */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { compiledNow, KERNELS, kernelFiles, sourceHash } from "../../../src/ops/cuda/compile.ts";
import { libraryFacts } from "../../../src/ops/cuda/library.ts";

const files = kernelFiles();
if (files.length === 0) test.skip("there are no kernel files", () => {});

// NVRTC has no C or C++ library; these come with the toolkit and need none.
const TOOLKIT = ["cuda_bf16.h", "cuda_fp16.h", "mma.h"];

for (const file of files) {
  test(`${file}.cu includes only files beside it and ${TOOLKIT.join(", ")}`, () => {
    const seen = new Set<string>();
    const visit = (path: string) => {
      if (seen.has(path)) return;
      seen.add(path);
      for (const [, quoted, angled] of readFileSync(path, "utf8").matchAll(
        /^\s*#\s*include\s*(?:"(.*)"|<(.*)>)/gm,
      )) {
        if (angled !== undefined) expect(TOOLKIT, path).toContain(angled);
        else {
          const included = join(dirname(path), quoted);
          expect(existsSync(included), `${path} includes ${quoted}`).toBe(true);
          // Otherwise an edit would not be noticed (`sourceHash`).
          expect(quoted).toMatch(/\.cuh$/);
          visit(included);
        }
      }
    };
    visit(join(KERNELS, `${file}.cu`));
    expect(sourceHash(file)).toMatch(/^[0-9a-f]{64}$/);
  });
}

// Needs no card. LD_LIBRARY_PATH may name the folder of a libnvrtc.
const nvrtc = libraryFacts().find(({ name }) => name === "nvrtc")!;
describe.skipIf(nvrtc.problem !== null)("NVRTC compiles, for sm_90a,", () => {
  test.each(files)("%s.cu", { timeout: 120_000 }, (file) => {
    expect(compiledNow(file, 90).length).toBeGreaterThan(0);
  });
});
