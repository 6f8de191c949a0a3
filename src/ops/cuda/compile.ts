/**
 * From a kernel file to what the card runs: compiled ahead by nvcc (build.ts), or kept from an earlier run, or
 * compiled now by NVRTC.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { InputError } from "../../errors.ts";
import { writeWhole } from "../../files.ts";
import { openNvrtc } from "./library.ts";

const ROOT = packageRoot();
/** The sources travel with the package. */
export const KERNELS = join(ROOT, "src", "ops", "cuda", "kernels");
export const BUILD = join(ROOT, "build", "cuda");

/** The folder of package.json: this file may lie in src/, dist/ or a build of the tests. */
function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, "package.json"))) folder = dirname(folder);
  return folder;
}

/** What is compiled ahead. A cubin runs on later cards of its generation ("a": of that very one); PTX on all later ones. */
export interface Target {
  /** Folder below build/cuda. */
  readonly name: string;
  readonly extension: "cubin" | "ptx";
  readonly nvcc: readonly string[];
  readonly runsOn: (capability: number) => boolean;
}

/** In order of preference. */
export const TARGETS: readonly Target[] = [
  {
    name: "sm_90a",
    extension: "cubin",
    nvcc: ["-cubin", "-gencode", "arch=compute_90a,code=sm_90a"],
    runsOn: (capability) => capability === 90,
  },
  {
    name: "sm_80",
    extension: "cubin",
    nvcc: ["-cubin", "-gencode", "arch=compute_80,code=sm_80"],
    runsOn: (capability) => capability >= 80 && capability < 90,
  },
  {
    name: "compute_90",
    extension: "ptx",
    nvcc: ["-ptx", "-arch=compute_90"],
    runsOn: (capability) => capability > 90,
  },
];

/** Files of kernels/hopper/ use instructions that no other cards have. */
export function targetsOf(file: string): readonly Target[] {
  return file.startsWith("hopper/") ? TARGETS.filter(({ name }) => name === "sm_90a") : TARGETS;
}

/** Options of nvcc and NVRTC alike. */
export const OPTIONS = ["--std=c++17", "-lineinfo"] as const;

/** The image of a kernel file for a card, ready for the driver. Throws `InputError` when it cannot be had. */
export function kernelImage(file: string, capability: number): Uint8Array {
  return builtImage(file, capability) ?? image(compiledNow(file, capability));
}

/** What `npm run build:cuda` made of a file; null when it did not, or from other sources. */
export function builtImage(file: string, capability: number): Uint8Array | null {
  const target = targetsOf(file).find(({ runsOn }) => runsOn(capability));
  if (!target) return null;
  const built = join(BUILD, target.name, `${file}.${target.extension}`);
  return isBuilt(built, sourceHash(file)) ? image(readFileSync(built)) : null;
}

/** PTX is text and must end in a zero byte; a cubin does not mind one. */
function image(bytes: Uint8Array): Uint8Array {
  const copy = new Uint8Array(new ArrayBuffer(bytes.length + 1));
  copy.set(bytes);
  return copy;
}

/** Where build.ts notes which sources a file was made from, so that edited kernels are compiled again. */
export function hashPath(built: string): string {
  return `${built}.sha256`;
}

export function isBuilt(built: string, hash: string): boolean {
  return existsSync(built) && existsSync(hashPath(built)) && readFileSync(hashPath(built), "utf8") === hash;
}

/** Names of all kernel files, as `launch` knows them. */
export function kernelFiles(): string[] {
  if (!existsSync(KERNELS)) return [];
  return sources().flatMap((name) => (name.endsWith(".cu") ? [name.slice(0, -3)] : []));
}

function sources(): string[] {
  return readdirSync(KERNELS, { recursive: true, encoding: "utf8" })
    .filter((name) => /\.cuh?$/.test(name))
    .sort();
}

/** Of a kernel file, all headers beside it and the options. Throws `InputError` when there is no such file. */
export function sourceHash(file: string): string {
  const path = join(KERNELS, `${file}.cu`);
  if (!existsSync(path))
    throw new InputError(`the kernel file ${path} is missing, expected it with the package`);
  const hash = createHash("sha256").update(JSON.stringify(OPTIONS));
  for (const name of [`${file}.cu`, ...sources().filter((name) => name.endsWith(".cuh"))]) {
    hash.update(`\0${name}\0`).update(readFileSync(join(KERNELS, name)));
  }
  return hash.digest("hex");
}

// --- at first use ---------------------------------------------------------------------------------------------------

function cacheFolder(): string {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "mobalab");
}

/** By NVRTC, or what it made earlier. */
export function compiledNow(file: string, capability: number): Uint8Array {
  const hash = sourceHash(file);
  const nvrtc = openNvrtc();
  const architecture = capability === 90 ? "sm_90a" : `sm_${capability}`;
  const name = `${file.replaceAll("/", "-")}.${architecture}.nvrtc${nvrtc.version}.${hash.slice(0, 32)}.cubin`;
  const kept = join(cacheFolder(), name);
  if (existsSync(kept)) return readFileSync(kept);
  const path = join(KERNELS, `${file}.cu`);
  const compiled = nvrtc.compile(readFileSync(path, "utf8"), path, [
    `--gpu-architecture=${architecture}`,
    ...OPTIONS,
    ...[...new Set(sources().map((name) => `--include-path=${dirname(join(KERNELS, name))}`))],
  ]);
  keep(kept, compiled);
  return compiled;
}

/** Other processes see all of it or nothing. A cache that cannot be written is done without. */
function keep(path: string, bytes: Uint8Array): void {
  try {
    mkdirSync(dirname(path), { recursive: true });
    writeWhole(path, bytes);
  } catch {}
}
