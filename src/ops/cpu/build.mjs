/**
 * Compiles the AssemblyScript kernels to build/cpu.wasm (SIMD), build/cpu-relaxed.wasm (the same sources with fused
 * multiply-add from relaxed SIMD) and build/cpu-alone.wasm (SIMD, in a memory that is not shared: where browsers share
 * none, as on a page opened from disk). Run by `npm run build:wasm`; takes a few seconds.
 */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import v8 from "node:v8";
import asc from "assemblyscript/asc";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const entry = "src/ops/cpu/kernels/index.ts";

function accepted(binary) {
  if (WebAssembly.validate(binary)) return true;
  // Node 20 has relaxed SIMD behind a flag, which later versions no longer know.
  v8.setFlagsFromString("--experimental-wasm-relaxed-simd");
  return WebAssembly.validate(binary);
}

async function compile(name, features, { shared }) {
  const outputs = new Map();
  const { error, stderr } = await asc.main(
    [
      entry,
      ...["--baseDir", root, "--outFile", name],
      ...["-O3", "--noAssert", "--runtime", "stub"],
      ...["--importMemory", "--noExportMemory", ...(shared ? ["--sharedMemory"] : [])],
      // The module's own data would start at memoryBase; the host uses the memory from 64 KiB on.
      ...["--initialMemory", "1", "--maximumMemory", "65536", "--memoryBase", "1024"],
      ...features.flatMap((feature) => ["--enable", feature]),
    ],
    { writeFile: (file, contents) => outputs.set(file, contents) },
  );
  if (error) {
    process.stderr.write(stderr.toString());
    throw new Error(`compiling ${entry} to ${name} failed: ${error.message}`);
  }
  const binary = outputs.get(name);
  if (!accepted(binary)) throw new Error(`${name} is not a valid WebAssembly module`);
  mkdirSync(`${root}build`, { recursive: true });
  writeFileSync(`${root}build/${name}.tmp`, binary);
  renameSync(`${root}build/${name}.tmp`, `${root}build/${name}`);
  console.log(`build/${name}: ${binary.length} bytes`);
}

await compile("cpu.wasm", ["simd", "threads"], { shared: true });
await compile("cpu-relaxed.wasm", ["simd", "threads", "relaxed-simd"], { shared: true });
await compile("cpu-alone.wasm", ["simd", "threads"], { shared: false });
