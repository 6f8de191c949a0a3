/** The import: paths to sources, sources to runs, runs to the curves table and an account of what was read. */
import { lstatSync, readdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, extname, join, relative } from "node:path";
import { InputError } from "../errors.ts";
import type { CurvePoint } from "../fit/types.ts";
import { assembleRun, type ImportedRun, UNNAMED_ATTENTION } from "./assemble.ts";
import type { WantedColumns } from "./columns.ts";
import { isMlflowRun, readMlflowRun } from "./mlflow.ts";
import { readLog } from "./recognise.ts";
import { readRunMap } from "./run-map.ts";
import { someOf } from "./text.ts";
import type { Log, LoggedRow, RunFacts, Skipped, Source, Split } from "./types.ts";

export interface ImportOptions {
  /** Facts of all runs; those of `runMap` go before them, and they before what the log says. */
  readonly facts?: RunFacts;
  /** Which columns hold what, in logs with named columns; by their names when absent. */
  readonly columns?: WantedColumns;
  /** The name of the one run that all sources are of, in the order it logged them. */
  readonly run?: string;
  /** Path of the table that names the runs to import and what they are. */
  readonly runMap?: string;
  /** Keeps this split only. */
  readonly split?: Split;
}

/** A source as read: its format, the points that came of it, and what did not. */
export interface ImportedSource {
  readonly source: string;
  readonly format: string;
  readonly runs: number;
  readonly rows: number;
  readonly skipped: readonly Skipped[];
}

export interface ImportResult {
  readonly points: CurvePoint[];
  readonly sources: readonly ImportedSource[];
  readonly runs: readonly ImportedRun[];
  /** Files of a folder that were left out, with the reason. */
  readonly passed: readonly { readonly source: string; readonly reason: string }[];
  /** Sentences about choices made and facts that are missing. */
  readonly notes: readonly string[];
}

const NO_COLUMNS: WantedColumns = { losses: [], roles: new Map() };

/** A log with the name its runs get when it holds one without a name. */
interface NamedLog {
  readonly source: string;
  readonly fallback: string;
  readonly log: Log;
}

/**
 * Imports files and folders (looked through for logs). Throws InputError, naming the source, when a file that was asked
 * for cannot be read, when a folder holds no log, or when the options do not fit what was found.
 */
export function importPaths(paths: readonly string[], options: ImportOptions = {}): ImportResult {
  const wanted = options.columns ?? NO_COLUMNS;
  const logs: NamedLog[] = [];
  const passed: { source: string; reason: string }[] = [];
  const seen = new Set<string>();
  for (const path of paths) {
    const real = realPath(path);
    if (seen.has(real)) throw new InputError(`${path} is given twice`);
    seen.add(real);
    if (!statSync(path).isDirectory()) {
      logs.push({ source: path, fallback: path, log: readLog(fileSource(path), wanted) });
      continue;
    }
    const found = readFolder(path, wanted);
    passed.push(...found.passed);
    logs.push(...found.logs);
    if (found.logs.length === 0) {
      const [first] = found.passed;
      throw new InputError(
        `${path} holds no log that import can read${first ? ` (${found.passed.length} files; the first: ${first.reason})` : ""}`,
      );
    }
  }
  return assemble(logs, passed, options);
}

/** Imports one log from its bytes, as `importPaths` does a file; `name` is what messages and the run are called by. */
export function importBytes(source: Source, options: ImportOptions = {}): ImportResult {
  const log = readLog(source, options.columns ?? NO_COLUMNS);
  return assemble([{ source: source.name, fallback: source.name, log }], [], options);
}

function realPath(path: string): string {
  try {
    // An empty path would be the working directory.
    if (path !== "") return realpathSync(path);
  } catch {
    // As an empty path.
  }
  throw new InputError(`cannot read ${path === "" ? '""' : path}: there is no such file or folder`);
}

function fileSource(path: string): Source {
  try {
    return { name: path, bytes: readFileSync(path) };
  } catch (error) {
    const { code = "", message } = error as NodeJS.ErrnoException;
    const reasons: Record<string, string> = {
      ERR_FS_FILE_TOO_LARGE: "it is larger than the 2 GiB that can be read at once",
      EISDIR: "it is a folder, expected a file",
      ENOENT: "there is no such file",
    };
    const reason = reasons[code] ?? message;
    throw new InputError(`cannot read ${path}: ${reason}`);
  }
}

/** Past this many files a folder is taken for the wrong one. */
const MOST_FILES = 10_000;

/** The logs below a folder, in order of path; links are not followed. Event files of one folder are of one run. */
function readFolder(
  top: string,
  wanted: WantedColumns,
): { logs: NamedLog[]; passed: { source: string; reason: string }[] } {
  const logs: NamedLog[] = [];
  const passed: { source: string; reason: string }[] = [];
  let files = 0;
  const attempt = (source: string, fallback: (log: Log) => string, read: () => Log) => {
    try {
      const log = read();
      logs.push({ source, fallback: fallback(log), log });
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      passed.push({ source, reason: error.message });
    }
  };
  const walk = (folder: string): void => {
    if (isMlflowRun(folder)) {
      attempt(
        folder,
        () => folder,
        () => readMlflowRun(folder, wanted),
      );
      return;
    }
    for (const name of readdirSync(folder).sort()) {
      const path = join(folder, name);
      const entry = lstatSync(path);
      if (entry.isDirectory()) walk(path);
      else if (entry.isFile()) {
        if (++files > MOST_FILES) {
          throw new InputError(
            `${top} holds more than ${MOST_FILES} files; name the folder of the logs themselves`,
          );
        }
        const ofFolder = (log: Log) =>
          log.format === "TensorBoard events" ? relative(dirname(top), folder) || folder : path;
        attempt(path, ofFolder, () => readLog(fileSource(path), wanted));
      }
    }
  };
  walk(top);
  return { logs, passed };
}

/** Rows of one run, from one or several sources. */
interface GatheredRun {
  readonly rows: LoggedRow[];
  readonly facts: RunFacts;
}

function assemble(
  logs: readonly NamedLog[],
  passed: readonly { source: string; reason: string }[],
  options: ImportOptions,
): ImportResult {
  const notes = logs.flatMap(({ log }) => log.notes);
  const gathered = gather(logs, options);
  const map = options.runMap === undefined ? undefined : readRunMap(fileSource(options.runMap));
  if (map) {
    const unknown = [...map.keys()].filter((run) => !gathered.has(run));
    if (unknown.length > 0) {
      throw new InputError(
        `${options.runMap} names run ${someOf(unknown)}, which the logs do not hold; they hold ${someOf([...gathered.keys()])}`,
      );
    }
    const left = [...gathered.keys()].filter((run) => !map.has(run));
    if (left.length > 0)
      notes.push(`runs that ${options.runMap} does not name were left out (${left.length}): ${someOf(left)}`);
  }
  const points: CurvePoint[] = [];
  const runs: ImportedRun[] = [];
  const empty: string[] = [];
  for (const [run, { rows, facts }] of gathered) {
    if (map && !map.has(run)) continue;
    const kept = options.split === undefined ? rows : rows.filter((row) => row.split === options.split);
    if (kept.length === 0) {
      empty.push(run);
      continue;
    }
    const assembled = assembleRun(run, kept, { ...facts, ...options.facts, ...map?.get(run) });
    for (const point of assembled.points) points.push(point);
    runs.push(assembled.summary);
  }
  if (points.length === 0) throw nothingLeft(logs, options);
  if (empty.length > 0) notes.push(`no ${options.split ?? ""} losses in ${someOf(empty)}`.replace("  ", " "));
  notes.push(...aboutFacts(runs, points, options));
  return {
    points,
    sources: logs.map(({ source, log }) => ({
      source,
      format: log.format,
      runs: log.runs.length,
      rows: log.runs.reduce((sum, { rows }) => sum + rows.length, 0),
      skipped: log.skipped,
    })),
    runs,
    passed,
    notes,
  };
}

/** The runs by name. Several sources of one run are joined in their order; runs that only share a name are told apart. */
function gather(logs: readonly NamedLog[], options: ImportOptions): Map<string, GatheredRun> {
  const joined = new Map<string, GatheredRun>();
  const add = (name: string, rows: readonly LoggedRow[], facts: RunFacts) => {
    const known = joined.get(name);
    if (!known) joined.set(name, { rows: [...rows], facts: { ...facts } });
    else {
      for (const row of rows) known.rows.push(row);
      Object.assign(known.facts, facts);
    }
  };
  if (options.run !== undefined) {
    for (const { source, log } of logs) {
      if (log.runs.length > 1) {
        const names = log.runs.map(({ name }) => name);
        throw new InputError(
          `--run names one run, but ${source} holds ${names.length}: ${someOf(names)}; use --run-map`,
        );
      }
      for (const { rows, facts } of log.runs) add(options.run, rows, facts);
    }
    return joined;
  }
  const fallbacks = shortNames([...new Set(logs.map(({ fallback }) => fallback))]);
  const owner = new Map<string, string>();
  for (const { fallback, log } of logs) {
    for (const { name, rows, facts } of log.runs) {
      const short = fallbacks.get(fallback)!;
      let run = name === "" ? short : name;
      if ((owner.get(run) ?? fallback) !== fallback) run = `${short}/${run}`;
      owner.set(run, fallback);
      add(run, rows, facts);
    }
  }
  return joined;
}

/** Each path's last part without its ending, with as many folders before it as it takes to differ from the others. */
function shortNames(paths: readonly string[]): Map<string, string> {
  const parts = paths.map((path) => {
    const folders = path.split(/[\\/]+/).filter((part) => part !== "" && part !== ".");
    const last = folders.pop() ?? path;
    const stem = /tfevents/.test(last) ? last : basename(last, extname(last));
    return [...folders, stem];
  });
  const names = new Map<string, string>();
  for (let length = 1; names.size < paths.length; length++) {
    const counts = new Map<string, number>();
    const candidates = parts.map((part) => part.slice(-length).join("/"));
    for (const candidate of candidates) counts.set(candidate, (counts.get(candidate) ?? 0) + 1);
    for (const [i, path] of paths.entries()) {
      if (names.has(path)) continue;
      if (counts.get(candidates[i]) === 1) names.set(path, candidates[i]);
      else if (length >= parts[i].length) names.set(path, path);
    }
  }
  return names;
}

function nothingLeft(logs: readonly NamedLog[], options: ImportOptions): InputError {
  const names = someOf(logs.map(({ source }) => source));
  const skipped = logs.flatMap(({ log }) => log.skipped);
  if (options.split !== undefined && logs.some(({ log }) => log.runs.some(({ rows }) => rows.length > 0))) {
    const other = options.split === "train" ? "eval" : "train";
    return new InputError(`${names} has no ${options.split} losses, only ${other}`);
  }
  const reasons = skipped.map(({ reason, count, first }) => `${reason}: ${count}, first at ${first}`);
  return new InputError(
    `${names} has no loss that can be used${reasons.length > 0 ? ` (${reasons.join("; ")})` : ""}`,
  );
}

/** What a fit will need and the logs do not say, in one sentence each. */
function aboutFacts(
  runs: readonly ImportedRun[],
  points: readonly CurvePoint[],
  options: ImportOptions,
): string[] {
  const notes: string[] = [];
  const lacking = runs.filter(({ missing }) => missing.length > 0);
  if (lacking.length > 0) {
    const facts = new Set(lacking.flatMap(({ missing }) => missing.map((option) => `--${option}`)));
    notes.push(
      `compute (pflops_days) is empty for ${lacking.length} of ${runs.length} runs, and a fit needs it: give ` +
        `${[...facts].join(" and ")}${facts.has("--parameters") ? " (or --flops-per-token)" : ""}` +
        `${runs.length > 1 ? ", or each run's own with --run-map" : ""}`,
    );
  }
  if (
    options.facts?.flops_per_token !== undefined &&
    points.some((point) => point.parameters === undefined)
  ) {
    notes.push(
      "without --parameters the compute of --flops-per-token stands in for 6ND, in the column pflops_days",
    );
  }
  const unnamed = runs.filter(({ attention }) => attention === UNNAMED_ATTENTION);
  if (unnamed.length > 0) {
    notes.push(
      `no log names the attention of ${unnamed.length} run${unnamed.length === 1 ? "" : "s"}, now labelled ${UNNAMED_ATTENTION}: ` +
        "give --attention (such as full), or each run's own with --run-map",
    );
  }
  return notes;
}
