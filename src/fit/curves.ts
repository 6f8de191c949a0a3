/** The curves table as a file: CSV (RFC 4180) or JSONL in, CSV out. */
import { closeSync, openSync, readSync } from "node:fs";
import { StringDecoder } from "node:string_decoder";
import { InputError } from "../errors.ts";
import { CsvReader, csvField } from "./csv.ts";
import type { CurvePoint } from "./types.ts";
import { fewOf } from "./words.ts";

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
type Column = (typeof REQUIRED)[number] | (typeof OPTIONAL)[number];
const COLUMNS: readonly Column[] = [...REQUIRED, ...OPTIONAL];

/** What may differ between the rows of one evaluation; the rest is kept once for all of them. */
const OWN = ["position_start", "position_end", "lm_loss", "predicted_tokens", "bits_per_byte"] as const;
type Own = Pick<CurvePoint, (typeof OWN)[number]>;
type Shared = Omit<CurvePoint, keyof Own>;
const IS_OWN = COLUMNS.map((column) => (OWN as readonly string[]).includes(column));

/** A row of a table. With 16 buckets to an evaluation it takes half the memory of an object of all columns. */
class Row implements CurvePoint {
  readonly position_start: number | null;
  readonly position_end: number | null;
  readonly lm_loss: number;
  readonly predicted_tokens: number | undefined;
  readonly bits_per_byte: number | undefined;
  private readonly evaluation: Shared;

  constructor(evaluation: Shared, own: Own) {
    this.position_start = own.position_start;
    this.position_end = own.position_end;
    this.lm_loss = own.lm_loss;
    this.predicted_tokens = own.predicted_tokens;
    this.bits_per_byte = own.bits_per_byte;
    this.evaluation = evaluation;
  }

  get attention() {
    return this.evaluation.attention;
  }
  get model() {
    return this.evaluation.model;
  }
  get pflops_days() {
    return this.evaluation.pflops_days;
  }
  get seed() {
    return this.evaluation.seed;
  }
  get run() {
    return this.evaluation.run;
  }
  get step() {
    return this.evaluation.step;
  }
  get tokens() {
    return this.evaluation.tokens;
  }
  get parameters() {
    return this.evaluation.parameters;
  }
  get pflops_days_attended() {
    return this.evaluation.pflops_days_attended;
  }
  get split() {
    return this.evaluation.split;
  }
  get time_s() {
    return this.evaluation.time_s;
  }
  get tokens_per_second() {
    return this.evaluation.tokens_per_second;
  }
}

const TEXT: ReadonlySet<string> = new Set(["attention", "model", "run", "split"]);
const INTEGER: ReadonlySet<string> = new Set(["position_start", "position_end", "seed", "step"]);

export interface CurvesTable {
  readonly points: CurvePoint[];
  /** Columns of the file that the table does not know; they were left out. */
  readonly ignored_columns: string[];
}

export interface ReadOptions {
  /** The column that tells the compared runs apart, in place of `attention`. */
  readonly group?: string;
}

/** Bytes read at a time: the file is never in memory as a whole. */
const PIECE = 1 << 16;

/** The rows of a curves table. Throws InputError naming file, line, column and value. */
export function readCurves(path: string, options: ReadOptions = {}): CurvePoint[] {
  return readCurvesTable(path, options).points;
}

/** As `readCurves`, and the columns that were ignored. JSONL when the first character is `{`, else CSV. */
export function readCurvesTable(path: string, options: ReadOptions = {}): CurvesTable {
  const reader = new TableReader(path, options);
  let file: number | null = null;
  try {
    file = openSync(path, "r");
    const decoder = new StringDecoder("utf8");
    const buffer = Buffer.alloc(PIECE);
    for (let size = readSync(file, buffer); size > 0; size = readSync(file, buffer)) {
      reader.write(decoder.write(buffer.subarray(0, size)));
    }
    reader.write(decoder.end());
  } catch (error) {
    if (error instanceof InputError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    const reason =
      code === "ENOENT"
        ? "there is no such file"
        : code === "EISDIR"
          ? "it is a folder; name the table in it, such as its curves.csv"
          : String(error);
    throw new InputError(`cannot read the curves table ${path}: ${reason}`);
  } finally {
    if (file !== null) closeSync(file);
  }
  return reader.end();
}

/** `name` is what errors call the text. */
export function parseCurves(text: string, name: string, options: ReadOptions = {}): CurvesTable {
  const reader = new TableReader(name, options);
  reader.write(text);
  return reader.end();
}

/** A row's values in the order of COLUMNS, as text or as JSON has them; undefined for what is absent. */
type Values = unknown[];

/** A curves table that arrives in pieces. */
class TableReader {
  private readonly name: string;
  private readonly group: string | undefined;
  private readonly points: CurvePoint[] = [];
  private readonly labels = new Map<string, string>();
  /** Names in the file, in order. */
  private readonly columns = new Set<string>();
  /** Until the first character that is no blank decides, what came before it. */
  private pending = "";
  private csv: CsvReader | null = null;
  private jsonl: { rest: string; line: number } | null = null;
  /** Where the CSV's fields go in `values`, and whether a column holds numbers. */
  private slots: { readonly field: number; readonly column: number; readonly text: boolean }[] = [];
  private fields = 0;
  private readonly values: Values = COLUMNS.map(() => undefined);
  private template: Shared = {} as Shared;
  /** Columns of the template, where rows bring their own. */
  private shape = "";
  /** Of the row before, until a value of it changes. */
  private evaluation: Shared | null = null;
  private readonly own = {} as Own;

  constructor(name: string, { group }: ReadOptions) {
    this.name = name;
    this.group = group;
  }

  write(piece: string): void {
    let text = piece;
    if (this.csv === null && this.jsonl === null) {
      text = this.pending + piece;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
      // Also the halves of UTF-16, and what is left of a compressed file that was read as text.
      if (text.includes("\0") || text.startsWith("\x1f")) {
        throw new InputError(`${this.name} is no UTF-8 text; a curves table is CSV or JSONL, not compressed`);
      }
      const first = text.trimStart();
      if (first === "") {
        this.pending = text;
        return;
      }
      if (first.startsWith("{")) this.jsonl = { rest: "", line: 0 };
      else this.csv = new CsvReader(this.name, (record) => this.csvRecord(record));
    }
    if (this.csv) this.csv.write(text);
    else this.jsonlLines(text.split("\n"));
  }

  end(): CurvesTable {
    if (this.csv === null && this.jsonl === null) {
      throw new InputError(`${this.name} is empty; a curves table has a header and rows`);
    }
    this.csv?.end();
    if (this.jsonl) this.jsonlLines(["", ""]);
    this.requireColumns();
    if (this.points.length === 0) throw new InputError(`${this.name} has a header but no rows`);
    const known: ReadonlySet<string> = new Set([
      ...COLUMNS,
      ...(this.group === undefined ? [] : [this.group]),
    ]);
    return { points: this.points, ignored_columns: [...this.columns].filter((column) => !known.has(column)) };
  }

  private requireColumns(): void {
    const required = REQUIRED.filter((column) => column !== "attention" || this.group === undefined);
    const missing = required.filter((column) => !this.columns.has(column));
    if (missing.length > 0) {
      throw new InputError(
        `${this.name}, line 1: column ${missing.join(", ")} is missing; a curves table has ${required.join(", ")}` +
          ` (found ${columnsFound(this.columns)})`,
      );
    }
    if (this.group !== undefined && !this.columns.has(this.group)) {
      throw new InputError(
        `column ${JSON.stringify(this.group)} to group by is not in ${this.name} (found ${columnsFound(this.columns)})`,
      );
    }
  }

  private csvRecord(record: CsvReader): void {
    const { name } = this;
    if (this.columns.size === 0) {
      this.fields = record.length;
      for (let i = 0; i < record.length; i++) {
        const column = record.text(i).trim();
        if (this.columns.has(column)) {
          throw new InputError(
            `${name}, line 1: column ${JSON.stringify(column)} appears twice; names must differ`,
          );
        }
        this.columns.add(column);
      }
      this.requireColumns();
      const names = [...this.columns];
      this.slots = COLUMNS.map((column, i) => ({
        field: names.indexOf(this.sourceOf(column)),
        column: i,
        text: TEXT.has(column),
      })).filter(({ field }) => field >= 0);
      this.template = templateOf(this.slots.map(({ column }) => COLUMNS[column]));
      return;
    }
    if (record.length !== this.fields) {
      throw new InputError(
        `${name}, line ${record.line}: ${record.length} fields where the header has ${this.fields} columns`,
      );
    }
    for (const { field, column, text } of this.slots) {
      const number = text ? Number.NaN : record.decimal(field);
      const value = Number.isNaN(number) ? record.text(field) : number;
      if (value === this.values[column]) continue;
      this.values[column] = value;
      if (!IS_OWN[column]) this.evaluation = null;
    }
    this.add(record.line);
  }

  private jsonlLines(lines: string[]): void {
    const { name, jsonl } = this;
    if (jsonl === null) return;
    lines[0] = jsonl.rest + lines[0];
    jsonl.rest = lines.pop()!;
    for (const row of lines) {
      jsonl.line++;
      if (row.trim() === "") continue;
      let value: unknown;
      try {
        value = JSON.parse(row);
      } catch {
        throw new InputError(
          `${name}, line ${jsonl.line}: ${excerpt(row)} is not JSON; each line of JSONL is an object`,
        );
      }
      if (typeof value !== "object" || value === null || Array.isArray(value)) {
        throw new InputError(
          `${name}, line ${jsonl.line}: ${excerpt(row)} is not an object; each line of JSONL is one`,
        );
      }
      const object = value as Record<string, unknown>;
      for (const key in object) this.columns.add(key);
      for (const [i, column] of COLUMNS.entries()) {
        const value = object[this.sourceOf(column)];
        if (value === this.values[i]) continue;
        this.values[i] = value;
        if (!IS_OWN[i]) this.evaluation = null;
      }
      if (this.evaluation === null) {
        const present = COLUMNS.filter((_, i) => this.values[i] !== undefined);
        const shape = present.join();
        if (shape !== this.shape) this.template = templateOf(present);
        this.shape = shape;
      }
      this.add(jsonl.line);
    }
  }

  private sourceOf(column: Column): string {
    return column === "attention" && this.group !== undefined ? this.group : column;
  }

  private add(line: number): void {
    const { values, own, labels } = this;
    const known = this.evaluation !== null;
    const evaluation = this.evaluation ?? { ...this.template };
    fillRow(values, own, evaluation, known, labels, { name: this.name, line });
    this.evaluation = evaluation;
    this.points.push(new Row(evaluation, own));
  }
}

/** What rows share, with the given columns in place: those made from it have one shape, which keeps them small. */
function templateOf(columns: readonly Column[]): Shared {
  const shared = COLUMNS.filter(
    (column, i) => !IS_OWN[i] && (i < REQUIRED.length || columns.includes(column)),
  );
  return JSON.parse(JSON.stringify(Object.fromEntries(shared.map((column) => [column, null])))) as Shared;
}

function excerpt(text: string): string {
  const trimmed = text.trim();
  return JSON.stringify(trimmed.length > 40 ? `${trimmed.slice(0, 40)}...` : trimmed);
}

/** The names of a header, fit for a sentence: few, short, control characters escaped. */
function columnsFound(columns: Iterable<string>): string {
  const names = [...columns].map((name) => {
    const short = excerpt(name);
    return short === `"${name}"` ? name : short;
  });
  return fewOf(names, 24);
}

/** What a double's arithmetic can carry through logarithms, projections and charts; no measured value lies beyond. */
const [SMALLEST, LARGEST] = [1e-30, 1e30];
const BOUNDED: ReadonlySet<string> = new Set([
  "lm_loss",
  "pflops_days",
  "pflops_days_attended",
  "tokens",
  "parameters",
  "step",
  "time_s",
]);

const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

/** Where a row stands in the file. */
interface Place {
  readonly name: string;
  readonly line: number;
}

/** The value of a column: text, a finite number, or undefined when empty. */
function cell(raw: unknown, column: Column, place: Place): string | number | undefined {
  const text = typeof raw === "string" ? raw.trim() : raw;
  if (text === undefined || text === null || text === "") return undefined;
  if (TEXT.has(column)) {
    if (typeof text !== "string" && typeof text !== "number") return refuse(raw, column, place, "a label");
    return String(text);
  }
  if (typeof text === "number") {
    if (!Number.isFinite(text)) return refuse(raw, column, place, "a finite number");
    return text;
  }
  if (typeof text !== "string") return refuse(raw, column, place, "a number");
  if (!DECIMAL.test(text)) {
    const infinite = /^[+-]?(nan|inf|infinity)$/i.test(text);
    return refuse(raw, column, place, infinite ? "a finite number" : "a number");
  }
  const number = Number(text);
  if (!Number.isFinite(number)) return refuse(raw, column, place, "a finite number");
  return number;
}

function refuse(raw: unknown, column: Column, { name, line }: Place, want: string): never {
  const shown = raw === undefined || raw === null || raw === "" ? "nothing" : excerpt(String(raw));
  throw new InputError(`${name}, line ${line}, column ${column}: ${shown} where ${want} should be`);
}

/** Checks a row and fills in what is its own and, unless that is known, what it shares. Labels are kept once. */
function fillRow(
  values: Values,
  own: Own,
  shared: Shared,
  known: boolean,
  labels: Map<string, string>,
  place: Place,
): void {
  for (let i = 0; i < COLUMNS.length; i++) {
    if (known && !IS_OWN[i]) continue;
    const column = COLUMNS[i];
    const row = (IS_OWN[i] ? own : shared) as {
      -readonly [K in Column]?: string | number | null | undefined;
    };
    const raw = values[i];
    if (raw === undefined && i >= REQUIRED.length) {
      if (IS_OWN[i]) row[column] = undefined;
      continue;
    }
    const value = cell(raw, column, place);
    if (value === undefined) {
      if (column === "attention" || column === "model") refuse(raw, column, place, "a label");
      if (column === "lm_loss") refuse(raw, column, place, "a positive loss");
      if (i < REQUIRED.length) row[column] = null;
      else row[column] = undefined;
      continue;
    }
    if (typeof value === "number") {
      if (INTEGER.has(column) && !Number.isInteger(value)) refuse(raw, column, place, "a whole number");
      if (column === "lm_loss" && !(value > 0)) refuse(raw, column, place, "a positive loss");
      if (column !== "seed" && value < 0) refuse(raw, column, place, "a number not below 0");
      if (BOUNDED.has(column) && value !== 0 && !(value >= SMALLEST && value <= LARGEST)) {
        refuse(raw, column, place, `a number from ${SMALLEST} to ${LARGEST}`);
      }
      row[column] = value;
      continue;
    }
    // Any other split counts as held out, so another spelling of this one would be taken for what it is not.
    if (column === "split" && value !== "train" && /^train/i.test(value)) {
      refuse(raw, column, place, "train, or the name of a held-out split,");
    }
    let label = labels.get(value);
    // A copy, because a part of a text keeps all of it in memory.
    if (label === undefined) labels.set(value, (label = Buffer.from(value).toString()));
    row[column] = label;
  }
  const { position_start: start, position_end: end } = own;
  if ((start === null) !== (end === null)) {
    const column = start === null ? "position_start" : "position_end";
    refuse(
      values[COLUMNS.indexOf(column)],
      column,
      place,
      "a position (both bounds, or neither for all positions)",
    );
  }
  if (typeof start === "number" && typeof end === "number" && start >= end) {
    refuse(end, "position_end", place, `a position above position_start (${start})`);
  }
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
