/**
 * Compiles every kernel for every target into build/cuda by nvcc, on all cores, warnings as errors; what is already
 * built from the same sources is left alone. Run by `npm run build:cuda [-- [--verbose] FILE...]`, or from dist/ by
 * node alone. `--verbose` compiles again and prints registers, spills and shared memory of each kernel; a FILE
 * ("attention/forward") restricts it to that one.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import {
  BUILD,
  hashPath,
  isBuilt,
  KERNELS,
  kernelFiles,
  OPTIONS,
  sourceHash,
  TARGETS,
  type Target,
  targetsOf,
} from "./compile.ts";

const WARNINGS = ["-Werror", "all-warnings", "-Xptxas", "-v"];
const SERIALIZED = /wgmma\.mma_async instructions are serialized/;

interface Job {
  readonly file: string;
  readonly target: Target;
  readonly out: string;
  readonly hash: string;
}

function findNvcc(): string | null {
  const toolkits = [process.env.CUDA_HOME, process.env.CUDA_PATH, "/usr/local/cuda"];
  const candidates = ["nvcc", ...toolkits.flatMap((home) => (home ? [join(home, "bin", "nvcc")] : []))];
  return candidates.find((nvcc) => spawnSync(nvcc, ["--version"]).status === 0) ?? null;
}

/** Resolves to what ptxas says; rejects with the compiler's words. */
function compile(nvcc: string, { file, target, out, hash }: Job): Promise<string> {
  mkdirSync(dirname(out), { recursive: true });
  const aside = `${out}.${process.pid}.tmp`;
  const source = join(KERNELS, `${file}.cu`);
  return new Promise((done, failed) => {
    const child = spawn(nvcc, [...target.nvcc, ...OPTIONS, ...WARNINGS, source, "-o", aside]);
    let said = "";
    child.stdout.on("data", (text) => (said += text));
    child.stderr.on("data", (text) => (said += text));
    child.on("error", failed);
    child.on("close", (code) => {
      // Not a warning to the compiler: it says so when it does Hopper's products one after another.
      if (code !== 0 || SERIALIZED.test(said)) {
        rmSync(aside, { force: true });
        failed(new Error(`${source} does not compile for ${target.name}:\n${said.trim()}`));
        return;
      }
      // In this order: a note never stands beside what it does not speak of.
      rmSync(hashPath(out), { force: true });
      renameSync(aside, out);
      writeFileSync(hashPath(out), hash);
      done(said);
    });
  });
}

/** "  attention_forward_d64: 128 registers, 0 bytes spilled, 49152 bytes shared" for each kernel of ptxas' report. */
function resources(said: string): string[] {
  return said
    .split(/Compiling entry function '/)
    .slice(1)
    .map((text) => {
      const name = text.slice(0, text.indexOf("'"));
      const number = (pattern: RegExp) => pattern.exec(text)?.[1] ?? "0";
      const registers = number(/Used (\d+) registers/);
      const spilled = number(/(\d+) bytes spill stores/);
      const shared = number(/(\d+) bytes smem/);
      return `  ${name}: ${registers} registers, ${spilled} bytes spilled, ${shared} bytes static shared`;
    });
}

async function main(): Promise<number> {
  const args = process.argv.slice(2);
  const verbose = args.includes("--verbose");
  const only = args.filter((arg) => arg !== "--verbose");
  const files = kernelFiles().filter((file) => only.length === 0 || only.includes(file));
  const unknown = only.filter((file) => !files.includes(file));
  if (unknown.length > 0) {
    console.error(`no kernel file ${unknown.join(", ")}, expected some of ${kernelFiles().join(", ")}`);
    return 2;
  }
  const nvcc = findNvcc();
  if (!nvcc) {
    console.error(
      "nvcc was not found on the PATH, in CUDA_HOME or in /usr/local/cuda; it comes with a CUDA toolkit",
    );
    return 2;
  }
  const jobs = files.flatMap((file) => {
    const hash = sourceHash(file);
    return targetsOf(file).map((target) => ({
      ...{ file, target, hash },
      out: join(BUILD, target.name, `${file}.${target.extension}`),
    }));
  });
  const todo = jobs.filter(({ out, hash }) => verbose || !isBuilt(out, hash));
  let failures = 0;
  const worker = async () => {
    for (let job = todo.shift(); job; job = todo.shift()) {
      try {
        const said = await compile(nvcc, job);
        if (verbose) console.log([`${job.file} for ${job.target.name}`, ...resources(said)].join("\n"));
      } catch (error) {
        failures++;
        console.error((error as Error).message);
      }
    }
  };
  const compiled = todo.length;
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  const names = TARGETS.map(({ name }) => name).join(", ");
  console.log(
    `build/cuda: ${files.length} kernel files for ${names}; ${compiled - failures} compiled, ${failures} failed, ${jobs.length - compiled} unchanged`,
  );
  return failures > 0 ? 1 : 0;
}

process.exitCode = await main();
