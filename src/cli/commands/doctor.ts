/** `mobalab doctor`: what this machine offers and what is missing for what. Exit code 2 when the main job cannot run. */
import { existsSync } from "node:fs";
import { availableParallelism, cpus, freemem, totalmem } from "node:os";
import { Command } from "commander";
import { demoCorpusPaths } from "../../data/index.ts";
import { InputError } from "../../errors.ts";
import { createCpuBackend } from "../../ops/cpu/index.ts";
import { cudaFacts } from "../../ops/cuda/index.ts";
import { wrap } from "../../report/table.ts";
import { codeVersion } from "../../study/folder.ts";
import { bytes } from "../format.ts";
import { jsonOption } from "../options.ts";

interface Check {
  readonly what: string;
  readonly ok: boolean;
  readonly found: string;
  /** What does not work without it. */
  readonly needed: string;
  /** Where libraries that were not found have been looked for. */
  readonly looked?: readonly string[];
}

export function doctorCommand(): Command {
  return new Command("doctor")
    .description("say what this machine offers and what is missing for what")
    .addOption(jsonOption())
    .addHelpText("after", "\nExample:\n  mobalab doctor")
    .action((options: { json?: boolean }) => {
      const checks = examine();
      if (options.json) process.stdout.write(`${JSON.stringify(checks, null, 2)}\n`);
      else {
        for (const { ok, what, found, looked = [] } of checks) {
          const line = wrap(`${what}: ${found}`, ok ? "ok       " : "MISSING  ");
          process.stdout.write(`${line}\n`);
          for (const place of looked) process.stdout.write(`${wrap(place, " ".repeat(11))}\n`);
        }
      }
      const missing = checks.filter((c) => !c.ok);
      if (missing.length > 0) {
        throw new InputError(missing.map((c) => `${c.what} is missing, needed for ${c.needed}`).join("; "));
      }
    });
}

function examine(): Check[] {
  const { mobalab, commit } = codeVersion();
  const [major, minor] = process.versions.node.split(".").map(Number);
  return [
    { what: "mobalab", ok: true, found: commit ? `${mobalab} (${commit})` : mobalab, needed: "everything" },
    {
      what: "node",
      ok: major > 20 || (major === 20 && minor >= 19),
      found: `${process.version} (20.19 or newer)`,
      needed: "everything",
    },
    {
      what: "processor",
      ok: true,
      found: `${cpus()[0]?.model.trim() ?? "unknown"}, ${availableParallelism()} cores`,
      needed: "everything",
    },
    {
      what: "memory",
      ok: true,
      found: `${bytes(freemem())} free of ${bytes(totalmem())}`,
      needed: "everything",
    },
    attempt("CPU kernels", "training", () => {
      const backend = createCpuBackend({ threads: 1 });
      try {
        return backend.variant === "relaxed" ? "SIMD with fused multiply-add" : "SIMD";
      } finally {
        backend.close();
      }
    }),
    ...cuda(),
    attempt("demo corpus", "studies without --text", () => {
      const paths = demoCorpusPaths();
      if (paths.length === 0 || !existsSync(paths[0])) throw new Error("not installed");
      return `${paths.length} documents`;
    }),
  ];
}

/**
 * A machine without a card is complete, and so is one card without NCCL: only cards that cannot be used, or not
 * together, are a fault.
 */
function cuda(): Check[] {
  const { cards, driver, libraries, folders, kernels, nccl, missing } = cudaFacts();
  const parts = [
    cards.map((card) => `${card.ordinal} ${card.name} (${bytes(card.totalBytes)})`).join(", "),
    driver && `driver for CUDA ${driver}`,
    ...libraries.map(({ name, path }) => name !== "nccl" && path),
    kernels.compiled > 0 && `${kernels.compiled} of ${kernels.files} kernel files compiled ahead`,
  ].filter((part) => part);
  const found =
    cards.length > 0 ? [...parts, ...missing].join("; ") : `no card; training uses the CPU (${missing[0]})`;
  const library = libraries.find(({ name }) => name === "nccl")!;
  const absent = libraries.filter(({ problem }) => problem !== null);
  const looked = [
    `looked for ${absent.map(({ library }) => library).join(", ")}:`,
    "on the loader's path (LD_LIBRARY_PATH, ldconfig)",
    "in lib64 and lib of CUDA_HOME, CUDA_PATH and /usr/local/cuda*, in the packages of each python3 on the PATH",
    ...folders.map((folder) => `in ${folder}`),
    ...absent.flatMap(({ refused }) => refused.map((file) => `there, but does not open: ${file}`)),
  ];
  return [
    {
      what: "CUDA",
      ok: cards.length === 0 || missing.length === 0,
      found,
      needed: "--device cuda",
      ...(absent.length > 0 ? { looked } : {}),
    },
    ...(cards.length === 0
      ? []
      : [
          {
            what: "NCCL",
            ok: cards.length < 2 || nccl !== null,
            found: nccl
              ? `${nccl}; ${library.path}`
              : `none, and runs use one card each (${library.problem})`,
            needed: "--gpus",
          },
        ]),
  ];
}

function attempt(what: string, needed: string, look: () => string): Check {
  try {
    return { what, ok: true, found: look(), needed };
  } catch (error) {
    return { what, ok: false, found: (error as Error).message, needed };
  }
}
