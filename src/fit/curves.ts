/** The curves table as a file: CSV (RFC 4180) or JSONL in, CSV out. */
import { readFileSync } from "node:fs";
import { InputError } from "../errors.ts";
import { csvField, csvRows } from "./csv.ts";
import type { CurvePoint } from "./types.ts";

const REQUIRED = ["attention", "model", "position_start", "position_end", "pflops_days", "lm_loss"] as const;
const OPTIONAL = [
  "seed",
  "run",
  "step",
  "tokens",
  "parameters",
  "pflops_days_attended",
  "split",
  "time_s",
  "tokens_per_second",
  "predicted_tokens",
  "bits_per_byte",
] as const;
const COLUMNS: readonly string[] = [...REQUIRED, ...OPTIONAL];
type Column = (typeof REQUIRED)[number] | (typeof OPTIONAL)[number];

const TEXT: ReadonlySet<string> = new Set(["attention", "model", "run", "split"]);
const INTEGER: ReadonlySet<string> = new Set(["position_start", "position_end", "seed", "step"]);

export interface CurvesTable {
  readonly points: CurvePoint[];
  /** Columns of the file that the table does not know; they were left out. */
  readonly ignored_columns: string[];
}

/** A record's values by column, as text or as JSON has them, with the line it starts on. */
interface RawRecord {
  readonly line: number;
  readonly values: ReadonlyMap<string, unknown>;
}

/** The rows of a curves table. Throws InputError naming file, line, column and value. */
export function readCurves(path: string): CurvePoint[] {
  return readCurvesTable(path).points;
}

/** As `readCurves`, and the columns that were ignored. JSONL when the first character is `{`, else CSV. */
export function readCurvesTable(path: string): CurvesTable {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const reason =
      (error as NodeJS.ErrnoException).code === "ENOENT" ? "there is no such file" : String(error);
    throw new InputError(`cannot read the curves table ${path}: ${reason}`);
  }
  return parseCurves(text, path);
}

/** `name` is what errors call the text. */
export function parseCurves(text: string, name: string): CurvesTable {
  const body = text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  if (body.trim() === "") throw new InputError(`${name} is empty; a curves table has a header and rows`);
  const { columns, records } = body.trimStart().startsWith("{")
    ? jsonlRecords(body, name)
    : csvRecords(body, name);
  const missing = REQUIRED.filter((column) => !columns.includes(column));
  if (missing.length > 0) {
    throw new InputError(
      `${name}, line 1: column ${missing.join(", ")} is missing; a curves table has ${REQUIRED.join(", ")}` +
        ` (found ${columns.join(", ")})`,
    );
  }
  if (records.length === 0) throw new InputError(`${name} has a header but no rows`);
  const points = records.map((record) => toPoint(record, name));
  return { points, ignored_columns: columns.filter((column) => !COLUMNS.includes(column)) };
}

function csvRecords(text: string, name: string): { columns: string[]; records: RawRecord[] } {
  const rows = csvRows(text, name);
  const columns = rows[0].fields.map((field) => field.trim());
  const repeated = columns.find((column, i) => columns.indexOf(column) !== i);
  if (repeated !== undefined) {
    throw new InputError(
      `${name}, line 1: column ${JSON.stringify(repeated)} appears twice; names must differ`,
    );
  }
  const records = rows.slice(1).map(({ line, fields }) => {
    if (fields.length !== columns.length) {
      throw new InputError(
        `${name}, line ${line}: ${fields.length} fields where the header has ${columns.length} columns`,
      );
    }
    return { line, values: new Map(columns.map((column, i) => [column, fields[i]])) };
  });
  return { columns, records };
}

function jsonlRecords(text: string, name: string): { columns: string[]; records: RawRecord[] } {
  const columns = new Set<string>();
  const records: RawRecord[] = [];
  for (const [i, row] of text.split("\n").entries()) {
    if (row.trim() === "") continue;
    let value: unknown;
    try {
      value = JSON.parse(row);
    } catch {
      throw new InputError(
        `${name}, line ${i + 1}: ${excerpt(row)} is not JSON; each line of JSONL is an object`,
      );
    }
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw new InputError(
        `${name}, line ${i + 1}: ${excerpt(row)} is not an object; each line of JSONL is one`,
      );
    }
    const values = new Map(Object.entries(value));
    for (const key of values.keys()) columns.add(key);
    records.push({ line: i + 1, values });
  }
  return { columns: [...columns], records };
}

function excerpt(text: string): string {
  const trimmed = text.trim();
  return JSON.stringify(trimmed.length > 40 ? `${trimmed.slice(0, 40)}...` : trimmed);
}

const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

/** The value of a column: text, a finite number, or undefined when empty. */
function cell(record: RawRecord, column: Column, name: string): string | number | undefined {
  const raw = record.values.get(column);
  const text = typeof raw === "string" ? raw.trim() : raw;
  if (text === undefined || text === null || text === "") return undefined;
  const fail = (want: string): never => {
    throw new InputError(
      `${name}, line ${record.line}, column ${column}: ${excerpt(String(raw))} where ${want} should be`,
    );
  };
  if (TEXT.has(column)) {
    if (typeof text !== "string" && typeof text !== "number") return fail("a label");
    return String(text);
  }
  if (typeof text === "number") {
    if (!Number.isFinite(text)) return fail("a finite number");
    return text;
  }
  if (typeof text !== "string") return fail("a number");
  if (!DECIMAL.test(text))
    return fail(/^[+-]?(nan|inf|infinity)$/i.test(text) ? "a finite number" : "a number");
  const number = Number(text);
  if (!Number.isFinite(number)) return fail("a finite number");
  return number;
}

function toPoint(record: RawRecord, name: string): CurvePoint {
  const row: Record<string, string | number | null> = {};
  const fail = (column: string, want: string): never => {
    const value = record.values.get(column);
    const shown = value === undefined || value === null || value === "" ? "nothing" : excerpt(String(value));
    throw new InputError(`${name}, line ${record.line}, column ${column}: ${shown} where ${want} should be`);
  };
  for (const column of [...REQUIRED, ...OPTIONAL]) {
    const value = cell(record, column, name);
    if (value === undefined) {
      if (column === "attention" || column === "model") fail(column, "a label");
      if (column === "lm_loss") fail(column, "a positive loss");
      if ((REQUIRED as readonly string[]).includes(column)) row[column] = null;
      continue;
    }
    if (typeof value === "number") {
      if (INTEGER.has(column) && !Number.isInteger(value)) fail(column, "a whole number");
      if (column === "lm_loss" && !(value > 0)) fail(column, "a positive loss");
      if (column !== "seed" && value < 0) fail(column, "a number not below 0");
    }
    row[column] = value;
  }
  const { position_start: start, position_end: end } = row;
  if ((start === null) !== (end === null)) {
    fail(
      start === null ? "position_start" : "position_end",
      "a position (both bounds, or neither for all positions)",
    );
  }
  if (start !== null && end !== null && start >= end)
    fail("position_end", `a position above position_start (${start})`);
  return row as unknown as CurvePoint;
}

/** The table as CSV with a header; optional columns only when a row has them. Numbers are written exactly. */
export function formatCurves(points: readonly CurvePoint[]): string {
  const used = new Set<string>(REQUIRED);
  for (const point of points) {
    for (const column of OPTIONAL) if (point[column] !== undefined) used.add(column);
  }
  const columns = COLUMNS.filter((column) => used.has(column)) as Column[];
  const lines = [columns.join(",")];
  for (const point of points) lines.push(columns.map((column) => csvField(point[column])).join(","));
  return `${lines.join("\n")}\n`;
}
