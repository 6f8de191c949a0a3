/** The C parameters of every driver function bound over FFI, against the toolkit's own cuda.h where there is one. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { DRIVER_FUNCTIONS, OPTIONAL_FUNCTIONS } from "../../../src/ops/cuda/driver.ts";

const header = [process.env.CUDA_HOME, process.env.CUDA_PATH, "/usr/local/cuda"]
  .flatMap((home) => (home ? [join(home, "include", "cuda.h")] : []))
  .find((path) => existsSync(path));

if (!header) test.skip("cuda.h was not found in CUDA_HOME, CUDA_PATH or /usr/local/cuda", () => {});
else {
  const text = readFileSync(header, "utf8").replace(/\/\*[\s\S]*?\*\//g, "");
  for (const [name, letters] of Object.entries({ ...DRIVER_FUNCTIONS, ...OPTIONAL_FUNCTIONS })) {
    test(name, () => {
      expect(parameters(text, name).map(kinds)).toEqual(
        [...letters].map((letter) => expect.stringContaining(letter)),
      );
    });
  }
}

/** The parameters of a function as the header declares them, under its versioned name or the plain one. */
function parameters(text: string, name: string): string[] {
  const plain = name.replace(/_v\d+$/, "").replace("WithFlags", "");
  const declaration = new RegExp(`CUresult CUDAAPI (?:${name}|${plain})\\(([^)]*)\\);`).exec(text);
  if (!declaration) throw new Error(`${header} does not declare ${name}`);
  return declaration[1].split(",").map((parameter) => parameter.trim());
}

/** The letters of driver.ts that fit a C parameter. Device addresses and handles pass as numbers. */
function kinds(parameter: string): string {
  const type = parameter.replace(/\w+$/, "").replace("const", "").trim();
  if (type.includes("*")) return "ph";
  if (/^CU(deviceptr|stream|event|module|function|context|graph|graphExec)$/.test(type)) return "h";
  if (/^(size_t|unsigned long long)$/.test(type)) return "nh";
  if (/^(unsigned int|cuuint32_t)$/.test(type)) return "u";
  if (type === "unsigned char") return "b";
  // CUdevice and the enumerations.
  return /^(int|CU\w+)$/.test(type) ? "i" : "";
}
