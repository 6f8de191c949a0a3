/**
 * The study folder: plain files, safe to copy, merge and read while a run writes.
 * `study.json`, `data/`, `runs/<run>/...`, `curves.csv`, `laws.json`, `report.html`, `chart.svg`, `chart.png`.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { join } from "node:path";
import { InputError } from "../errors.ts";

export interface StudyFile {
  readonly format: 1;
  readonly name: string;
  /** ISO 8601. */
  readonly created: string;
  readonly mobalab: string;
  readonly commit: string | null;
  readonly host: {
    readonly processor: string;
    readonly cores: number;
    readonly memory_gb: number;
    readonly node: string;
    readonly device: string;
  };
  readonly preset: string;
  readonly command: string;
  readonly context: number;
  readonly buckets: number;
  readonly tokenizer: string;
  readonly source: string;
  readonly rule: string;
  /** Run names in the order planned, in which runs are listed and attentions named. */
  readonly runs: readonly string[];
}

export const paths = {
  study: (folder: string) => join(folder, "study.json"),
  data: (folder: string) => join(folder, "data"),
  runs: (folder: string) => join(folder, "runs"),
  run: (folder: string, run: string) => join(folder, "runs", run),
};

/** What a report reads of it, by type. */
const NEEDED = {
  name: "string",
  created: "string",
  mobalab: "string",
  host: "object",
  command: "string",
  context: "number",
  buckets: "number",
  tokenizer: "string",
  source: "string",
  rule: "string",
} as const;

/** Reads `study.json`; null when the folder holds no study. */
export function readStudyFile(folder: string): StudyFile | null {
  const path = paths.study(folder);
  if (!existsSync(path)) return null;
  let parsed: StudyFile;
  try {
    parsed = JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    throw new InputError(`${path} is not readable as JSON: ${(error as Error).message}`);
  }
  if (parsed?.format !== 1 || !Array.isArray(parsed.runs)) {
    throw new InputError(`${path} is not a mobalab study of format 1`);
  }
  for (const [field, kind] of Object.entries(NEEDED)) {
    const value = parsed[field as keyof typeof NEEDED];
    if (value === null || typeof value !== kind) {
      throw new InputError(`${path}: ${field} is ${JSON.stringify(value) ?? "missing"}, expected ${kind}`);
    }
  }
  return parsed;
}

/** What a study was made from, on and by, for readers. */
export function studyInWords(study: StudyFile): { source: string; hardware: string; version: string } {
  const { processor, cores, memory_gb, device, node } = study.host;
  const release = String(node).replace(/^v/, "");
  return {
    source: study.source === "demo" ? "State of the Union addresses (the demo corpus)" : study.source,
    hardware: `${processor}, ${cores} cores, ${memory_gb} GB, device ${device}, Node ${release}`,
    version: study.commit ? `mobalab ${study.mobalab} (${study.commit})` : `mobalab ${study.mobalab}`,
  };
}

/**
 * The runs present in the folder, in the order of `study.json`; after them, by name, those that it does not list, such as
 * those merged in from a copy of the study made elsewhere.
 */
export function listRuns(folder: string, study: StudyFile | null): string[] {
  const runs = paths.runs(folder);
  if (!existsSync(runs)) return [];
  const places = new Map(study?.runs.map((name, i) => [name, i]));
  const place = (name: string) => places.get(name) ?? places.size;
  const byName = new Intl.Collator("en", { numeric: true }).compare;
  return readdirSync(runs, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && existsSync(join(runs, entry.name, "config.json")))
    .map((entry) => entry.name)
    .sort((a, b) => place(a) - place(b) || byName(a, b));
}

/** A run whose files cannot be read, and why. */
export interface UnreadableRun {
  readonly name: string;
  readonly reason: string;
}

/** What `read` gives for each run of the folder; one that it cannot read, or that is listed only, loses the others nothing. */
export function readRuns<Read>(
  folder: string,
  read: (runFolder: string, name: string) => Read,
): { runs: Read[]; unreadable: UnreadableRun[] } {
  let study: StudyFile | null = null;
  try {
    study = readStudyFile(folder);
  } catch (error) {
    // Who needs it says so.
    reasonIn(folder, error);
  }
  const there = listRuns(folder, study);
  const { runs, unreadable } = readEach(folder, there, read);
  return { runs, unreadable: [...unreadable, ...missingRuns(study, there)] };
}

/** The same of the runs named. */
export function readEach<Read>(
  folder: string,
  names: readonly string[],
  read: (runFolder: string, name: string) => Read,
): { runs: Read[]; unreadable: UnreadableRun[] } {
  const runs: Read[] = [];
  const unreadable: UnreadableRun[] = [];
  for (const name of names) {
    const run = paths.run(folder, name);
    try {
      checkFiles(run);
      runs.push(read(run, name));
    } catch (error) {
      unreadable.push({ name, reason: reasonIn(run, error) });
    }
  }
  return { runs, unreadable };
}

/** Runs that `study.json` lists and the folder lacks. */
export function missingRuns(study: StudyFile | null, there: readonly string[]): UnreadableRun[] {
  const known = new Set(there);
  const missing = (study?.runs ?? []).filter((name) => typeof name === "string" && !known.has(name));
  return missing.map((name) => ({ name, reason: "study.json lists it, but its config.json is missing" }));
}

/** Why a file of a run cannot be read; throws what is a fault of the program. */
export function reasonIn(run: string, error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (!(error instanceof InputError) && code === undefined) throw error;
  return message.replaceAll(`${run}/`, "");
}

/** A pipe or a device would be read without an end. */
function checkFiles(run: string): void {
  for (const file of readdirSync(run)) {
    if (!/\.jsonl?$/.test(file)) continue;
    const state = statSync(join(run, file), { throwIfNoEntry: false });
    if (state && !state.isFile()) throw new InputError(`${file} is no file`);
  }
}

export function hostFacts(device: string): StudyFile["host"] {
  return {
    processor: cpus()[0]?.model.trim() ?? "unknown",
    cores: cpus().length,
    memory_gb: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    device,
  };
}

const ROOT = new URL("../../", import.meta.url);

export function packageVersion(): string {
  return JSON.parse(readFileSync(new URL("package.json", ROOT), "utf8")).version;
}

/** The package's version, and the commit that was built, `-dirty` with changes of its own; null when that is not known. */
export function codeVersion(): { mobalab: string; commit: string | null } {
  return { mobalab: packageVersion(), commit: builtCommit() ?? checkedOutCommit() };
}

/** What `npm run build:ts` wrote beside the code; empty without git, and not there where sources run as they are. */
function builtCommit(): string | null {
  const written = new URL("../commit.txt", import.meta.url);
  return existsSync(written) ? readFileSync(written, "utf8").trim() || null : null;
}

function checkedOutCommit(): string | null {
  if (!existsSync(new URL(".git", ROOT))) return null;
  try {
    return execFileSync("git", ["rev-parse", "--short=12", "HEAD"], {
      cwd: ROOT,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  } catch {
    return null;
  }
}
