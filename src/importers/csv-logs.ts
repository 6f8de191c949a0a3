/** CSV logs: the chart export of Weights & Biases, Lightning's CSVLogger, the curves table, and any with named columns. */
import { InputError } from "../errors.ts";
import { csvRows } from "../fit/index.ts";
import { roleOf, type WantedColumns } from "./columns.ts";
import { numberOf } from "./numbers.ts";
import { type LongSeries, needRows, readLong, readWide, type XRole } from "./tables.ts";
import { excerpt } from "./text.ts";
import { type Log, type LoggedRun, SkipCounts, type TextSource } from "./types.ts";

interface Csv {
  readonly names: string[];
  readonly rows: { line: number; fields: string[] }[];
  readonly skipped: SkipCounts;
  readonly notes: string[];
}

/** Header and rows; a last row with fields missing was cut off and is skipped, any other is an error. */
function readCsv(source: TextSource): Csv {
  const { text } = source;
  const notes = [...source.notes];
  const [header, ...rows] = csvRowsOf(text, source.name);
  if (!/[\n\r"]$/.test(text)) {
    notes.push(
      `${source.name}: its last line has no end; if the file was cut off, its last number may be wrong`,
    );
  }
  const names = header.fields.map((field) => field.trim());
  const skipped = new SkipCounts();
  for (const [i, row] of rows.entries()) {
    if (row.fields.length === names.length) continue;
    if (i === rows.length - 1 && row.fields.length < names.length) {
      skipped.add("last row is cut off", `line ${row.line}`);
      rows.pop();
      break;
    }
    throw new InputError(
      `${source.name}, line ${row.line}: ${row.fields.length} fields where the header has ${names.length} columns`,
    );
  }
  needRows(rows.length, source.name);
  return { names, rows, skipped, notes };
}

function csvRowsOf(text: string, name: string): { line: number; fields: string[] }[] {
  const rows = csvRows(text, name);
  if (rows.length === 0) throw new InputError(`${name} is empty`);
  return rows;
}

const WANDB_EXTREME = /__(MIN|MAX)$/;

/** Whether a header is that of a Weights & Biases chart export: a twin of a column, or `run - metric` in all but the first. */
export function isWandbHeader(names: readonly string[]): boolean {
  if (names.length < 2) return false;
  return (
    names.some((name) => WANDB_EXTREME.test(name)) || names.slice(1).every((name) => name.includes(" - "))
  );
}

/**
 * Weights & Biases chart export: the x axis, then `run - metric` per run, each followed by its `__MIN` and `__MAX` over
 * the steps drawn as one. Rows of other runs leave a run's cells blank.
 */
export function readWandbCsv(source: TextSource, wanted: WantedColumns): Log {
  const { names, rows, skipped, notes } = readCsv(source);
  const x = xRole(names[0], wanted, source.name);
  const runs = new Map<string, Map<string, number>>();
  let twins = 0;
  for (const [c, name] of names.entries()) {
    if (c === 0) continue;
    if (WANDB_EXTREME.test(name)) {
      twins++;
      continue;
    }
    const cut = name.lastIndexOf(" - ");
    const run = cut < 0 ? "" : name.slice(0, cut);
    const metric = cut < 0 ? name : name.slice(cut + 3);
    // Two runs may share a name; the second and later get a number.
    let unique = run;
    for (let n = 2; runs.get(unique)?.has(metric); n++) unique = `${run} (${n})`;
    const columns = runs.get(unique) ?? new Map<string, number>();
    runs.set(unique, columns.set(metric, c));
  }
  if (twins > 0)
    notes.push(`${source.name}: ${twins} columns of smallest and largest values (__MIN, __MAX) left out`);
  const xs = rows.map(({ fields }) => numberOf(fields[0]));
  for (const [i, value] of xs.entries()) {
    if (value === undefined) skipped.add("row without a step", `line ${rows[i].line}`);
  }
  const logged: LoggedRun[] = [];
  for (const [name, columns] of runs) {
    const series = new Map<string, LongSeries>();
    for (const [metric, c] of columns) {
      const found: LongSeries = { steps: [], values: [], times: [] };
      for (const [i, { fields }] of rows.entries()) {
        const at = xs[i];
        const value = numberOf(fields[c]);
        if (at === undefined || value === undefined) continue;
        found.steps.push(at);
        found.values.push(value);
      }
      series.set(metric, found);
    }
    const run = name === "" ? source.name : `${source.name}, run ${name}`;
    const read = readLong(series, { losses: wanted.losses, roles: new Map() }, run, skipped, x);
    logged.push({ name, rows: read.rows, facts: {} });
    notes.push(...read.notes);
  }
  return { format: "Weights & Biases chart CSV", runs: logged, skipped: skipped.list(), notes };
}

function xRole(name: string, wanted: WantedColumns, source: string): XRole {
  const roles = ["step", "tokens", "pflops_days", "time_s"] as const;
  const asked = roles.find((role) => wanted.roles.get(role) === name);
  if (asked) return asked;
  const known = roleOf(name);
  const found = roles.find((role) => role === known);
  if (found) return found;
  throw new InputError(
    `${source}: the x axis ${excerpt(name)} is neither steps nor tokens that import knows; name it with --columns step=<name> or tokens=<name>`,
  );
}

const CURVES_COLUMNS = ["attention", "model", "pflops_days", "lm_loss"];

/** A CSV with a header, one row per log call: Lightning's CSVLogger, a curves table, or any other. */
export function readNamedCsv(source: TextSource, wanted: WantedColumns): Log {
  const { names, rows, skipped, notes } = readCsv(source);
  const isCurves = CURVES_COLUMNS.every((name) => names.includes(name));
  const table = {
    names,
    rows: rows.length,
    value: (row: number, column: number) => rows[row].fields[column],
    place: (row: number) => `line ${rows[row].line}`,
  };
  const read = readWide(table, wanted, source.name, skipped, isCurves ? "eval" : undefined);
  return {
    format: isCurves ? "curves table" : isLightningHeader(names) ? "Lightning CSVLogger" : "CSV",
    runs: read.runs,
    skipped: skipped.list(),
    notes: [...notes, ...read.notes],
  };
}

/** CSVLogger always writes the columns epoch and step. */
function isLightningHeader(names: readonly string[]): boolean {
  return names.includes("epoch") && names.includes("step");
}
