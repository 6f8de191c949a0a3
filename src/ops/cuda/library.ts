/**
 * Finds NVIDIA's shared libraries: on the loader's path, in a CUDA toolkit (CUDA_HOME, CUDA_PATH,
 * /usr/local/cuda*), or in the wheels of a Python on the PATH. Nothing is opened before it is asked for.
 */
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
import type { LibraryHandle } from "koffi";
import { InputError } from "../../errors.ts";
import { ffi } from "./ffi.ts";
import { Nvrtc } from "./nvrtc.ts";

interface Wanted {
  /** Newest first. */
  readonly files: readonly string[];
  /** What does not work without it. */
  readonly needed: string;
  /** Where it comes from. */
  readonly source: string;
}

const LIBRARIES = {
  cuda: {
    files: ["libcuda.so.1"],
    needed: "anything on the card",
    source: "the NVIDIA driver",
  },
  nvrtc: {
    files: ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    needed: "compiling kernels at first use (not after `npm run build:cuda`)",
    source: "a CUDA toolkit or the Python package nvidia-cuda-nvrtc",
  },
  cublasLt: {
    files: ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
    needed: "linear layers on the card",
    source: "a CUDA toolkit or the Python package nvidia-cublas",
  },
  nccl: {
    files: ["libnccl.so.2"],
    needed: "runs on several cards (--gpus)",
    source: "NCCL or the Python package nvidia-nccl-cu13",
  },
} as const satisfies Record<string, Wanted>;

export type LibraryName = keyof typeof LIBRARIES;

export interface OpenLibrary {
  readonly handle: LibraryHandle;
  readonly path: string;
}

const opened = new Map<LibraryName, OpenLibrary>();

/** Throws `InputError` saying what it is needed for and where it comes from. */
export function openLibrary(name: LibraryName): OpenLibrary {
  const known = opened.get(name);
  if (known) return known;
  const { files, needed, source } = LIBRARIES[name];
  const found = tryPaths(files) ?? tryPaths(present(files));
  if (!found) {
    throw new InputError(
      `${files[0]} was not found (\`mobalab doctor\` lists the places looked at); it is needed for ${needed} and comes with ${source}`,
    );
  }
  opened.set(name, found);
  return found;
}

/** The first that opens. */
function tryPaths(paths: readonly string[]): OpenLibrary | null {
  for (const path of paths) {
    try {
      const handle = ffi().load(path);
      return { handle, path: path.includes("/") ? path : mappedPath(path) };
    } catch {}
  }
  return null;
}

/** Paths of these files in the folders that may hold them. */
function present(files: readonly string[]): string[] {
  return files
    .flatMap((file) => libraryFolders().map((folder) => join(folder, file)))
    .filter((path) => existsSync(path));
}

export interface LibraryFact {
  readonly name: LibraryName;
  /** Its newest file name. */
  readonly library: string;
  /** Where it was found. */
  readonly path: string | null;
  readonly needed: string;
  /** Why it cannot be used; null when it can. */
  readonly problem: string | null;
  /** Files of it that are there but do not open. */
  readonly refused: readonly string[];
}

/** For each library: where it is, or why it cannot be used. */
export function libraryFacts(): LibraryFact[] {
  return (Object.keys(LIBRARIES) as LibraryName[]).map((name) => {
    const { files, needed } = LIBRARIES[name];
    try {
      return { name, library: files[0], path: openLibrary(name).path, needed, problem: null, refused: [] };
    } catch (error) {
      const problem = (error as Error).message;
      return { name, library: files[0], path: null, needed, problem, refused: present(files) };
    }
  });
}

let nvrtc: Nvrtc | undefined;

export function openNvrtc(): Nvrtc {
  return (nvrtc ??= new Nvrtc(openLibrary("nvrtc").handle));
}

// --- where to look --------------------------------------------------------------------------------------------------

/** Besides the loader's path: folders that are there and may hold a library. */
export function libraryFolders(): string[] {
  const folders = [
    ...toolkits().flatMap((toolkit) => [join(toolkit, "lib64"), join(toolkit, "lib")]),
    ...sitePackages().flatMap((packages) => [
      ...subfolders(join(packages, "nvidia"), "lib"),
      join(packages, "torch", "lib"),
    ]),
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
  ];
  return folders.filter((folder) => existsSync(folder));
}

/** The user's own choice, then the system's newest. */
function toolkits(): string[] {
  const chosen = [process.env.CUDA_HOME, process.env.CUDA_PATH].filter((folder) => folder !== undefined);
  const numbered = list("/usr/local")
    .filter((name) => /^cuda-\d/.test(name))
    .sort((a, b) => b.localeCompare(a, "en", { numeric: true }));
  return [...chosen, ...["cuda", ...numbered].map((name) => join("/usr/local", name))].filter((folder) =>
    existsSync(folder),
  );
}

/** The package folders of every python3 on the PATH, and of those its links point to (virtual environments). */
function sitePackages(): string[] {
  const prefixes = new Set<string>();
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    let python = join(folder, "python3");
    for (let hops = 0; hops < 8 && existsSync(python); hops++) {
      prefixes.add(dirname(dirname(python)));
      try {
        python = resolve(dirname(python), readlinkSync(python));
      } catch {
        break;
      }
    }
  }
  return [...prefixes].flatMap((prefix) =>
    list(join(prefix, "lib"))
      .filter((name) => /^python3/.test(name))
      .flatMap((name) =>
        ["site-packages", "dist-packages"].map((packages) => join(prefix, "lib", name, packages)),
      )
      .filter((folder) => existsSync(folder)),
  );
}

function subfolders(parent: string, name: string): string[] {
  return list(parent)
    .map((child) => join(parent, child, name))
    .filter((folder) => existsSync(folder));
}

function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Where the loader found a library of this process. */
function mappedPath(file: string): string {
  try {
    const line = readFileSync("/proc/self/maps", "utf8")
      .split("\n")
      .find((text) => text.includes(`/${file.replace(/\.so.*/, ".so")}`));
    return line?.slice(line.indexOf("/")) ?? file;
  } catch {
    return file;
  }
}
