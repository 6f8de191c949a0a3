/** The table that says what the runs of a log are: one row per run, with its labels and the facts its log lacks. */
import { InputError } from "../errors.ts";
import { csvRows } from "../fit/index.ts";
import { numberOf } from "./numbers.ts";
import { decodeText, someOf } from "./text.ts";
import type { RunFacts, Source } from "./types.ts";

const NUMBERS = ["seed", "parameters", "tokens_per_step", "flops_per_token"] as const;
const LABELS = ["attention", "model"] as const;
const COLUMNS: readonly string[] = ["run", ...LABELS, ...NUMBERS];

/** Facts by run name. A blank cell says nothing. Throws InputError naming line and column. */
export function readRunMap(source: Source): Map<string, RunFacts> {
  const { name } = source;
  const [header, ...rows] = csvRows(decodeText(source).text, name);
  const columns = header?.fields.map((field) => field.trim()) ?? [];
  const unknown = columns.filter((column, i) => !COLUMNS.includes(column) || columns.indexOf(column) !== i);
  if (!columns.includes("run") || unknown.length > 0) {
    throw new InputError(
      `${name}, line 1: columns ${someOf(columns) || "(none)"} where run and any of ${COLUMNS.slice(1).join(", ")} should be`,
    );
  }
  if (rows.length === 0) throw new InputError(`${name} has no rows; it has one per run to import`);
  const map = new Map<string, RunFacts>();
  for (const { line, fields } of rows) {
    if (fields.length !== columns.length) {
      throw new InputError(
        `${name}, line ${line}: ${fields.length} fields where the header has ${columns.length} columns`,
      );
    }
    const cell = (column: string) => fields[columns.indexOf(column)]?.trim() ?? "";
    const run = cell("run");
    if (run === "" || map.has(run)) {
      throw new InputError(
        `${name}, line ${line}: run ${JSON.stringify(run)} is ${run === "" ? "blank" : "named twice"}`,
      );
    }
    const facts: RunFacts = {};
    for (const label of LABELS) if (cell(label) !== "") facts[label] = cell(label);
    for (const column of NUMBERS) {
      const value = numberOf(cell(column));
      if (value === undefined) continue;
      const isSeed = column === "seed";
      if (!Number.isFinite(value) || (isSeed ? !Number.isSafeInteger(value) : value <= 0)) {
        const want = isSeed ? "a whole number" : "a number above 0";
        throw new InputError(
          `${name}, line ${line}, column ${column}: ${JSON.stringify(cell(column))} where ${want} should be`,
        );
      }
      facts[column] = value;
    }
    map.set(run, facts);
  }
  return map;
}
