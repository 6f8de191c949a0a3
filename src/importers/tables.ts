/** Tables with named columns, one row per log call or one series per column, as logged rows. */
import { InputError } from "../errors.ts";
import { type ChosenColumns, chooseColumns, needPlace, type Role, type WantedColumns } from "./columns.ts";
import { factOf, numberOf, pushRow } from "./numbers.ts";
import {
  type LoggedRow,
  type LoggedRun,
  newRow,
  type RunFacts,
  type SkipCounts,
  type Split,
} from "./types.ts";

/** Rows of named values, as a CSV or JSONL file has them. */
export interface WideTable {
  readonly names: readonly string[];
  readonly rows: number;
  /** The value of a row in the column at an index of `names`; undefined where the row has none. */
  value(row: number, column: number): unknown;
  /** How messages call a row. */
  place(row: number): string;
}

/** Numbers beside a loss that are copied as they are. */
const BESIDE = [
  "tokens",
  "time_s",
  "tokens_per_second",
  "pflops_days",
  "pflops_days_attended",
  "parameters",
  "predicted_tokens",
  "bits_per_byte",
] as const;

/** Those of them that place a row in training, where it has no step. */
const PLACES: ReadonlySet<string> = new Set(["tokens", "pflops_days", "time_s"]);

/**
 * The losses of a wide table. Rows of one run are those with the same values in the columns run, attention, model and
 * seed, where there are such. `split` is that of rows that say nothing of it; by the loss's name when undefined.
 */
export function readWide(
  table: WideTable,
  wanted: WantedColumns,
  source: string,
  skipped: SkipCounts,
  split?: Split,
): { runs: LoggedRun[]; notes: string[] } {
  const { names } = table;
  const chosen = chooseColumns(names, wanted, source);
  needPlace(chosen, names, source);
  const notes = [...chosen.notes];
  const at = (role: Role) => {
    const name = chosen.roles.get(role);
    return name === undefined ? -1 : names.indexOf(name);
  };
  const step = at("step");
  const splitColumn = at("split");
  const bounds = [at("position_start"), at("position_end")];
  const labels = (["run", "attention", "model", "seed"] as const).map(at);
  const beside = BESIDE.map((role) => ({
    role,
    column: at(role),
    value: undefined as number | undefined,
  })).filter(({ column }) => column >= 0);
  const losses = chosen.losses.map((loss) => ({ ...loss, column: names.indexOf(loss.name) }));
  const hasLabels = labels.some((column) => column >= 0);
  const runs = new Map<string, LoggedRun>();
  let current: LoggedRun = { name: "", rows: [], facts: {} };
  if (!hasLabels) runs.set("", current);

  for (let r = 0; r < table.rows; r++) {
    const stepValue = step < 0 ? undefined : numberOf(table.value(r, step));
    let placed = stepValue !== undefined;
    for (let b = 0; b < beside.length; b++) {
      beside[b].value = factOf(table.value(r, beside[b].column));
      if (beside[b].value !== undefined && PLACES.has(beside[b].role)) placed = true;
    }
    if (!placed) {
      skipped.add("row without a step", table.place(r));
      continue;
    }
    if (hasLabels) {
      const texts = labels.map((column) => (column < 0 ? "" : textOf(table.value(r, column))));
      const key = texts.join("\u0001");
      const known = runs.get(key);
      if (known) current = known;
      else {
        current = { name: runName(texts), rows: [], facts: labelFacts(texts) };
        runs.set(key, current);
      }
    }
    let found = false;
    for (const loss of losses) {
      const value = numberOf(table.value(r, loss.column));
      if (value === undefined) continue;
      found = true;
      const rowSplit =
        splitColumn < 0
          ? (split ?? loss.split)
          : splitOfText(textOf(table.value(r, splitColumn)), loss.split);
      const row = newRow(rowSplit, value, loss.position_start, loss.position_end);
      for (const { role, value: fact } of beside) if (fact !== undefined) row[role] = fact;
      if (stepValue !== undefined) row.step = stepValue;
      if (bounds[0] >= 0 && bounds[1] >= 0 && !placeBounds(row, table, r, bounds)) {
        skipped.add("positions are not whole numbers, start below end", table.place(r));
        continue;
      }
      pushRow(current.rows, row, skipped, table.place(r));
    }
    if (!found) skipped.add("row without a loss", table.place(r));
  }
  return { runs: [...runs.values()], notes };
}

function placeBounds(row: LoggedRow, table: WideTable, r: number, bounds: readonly number[]): boolean {
  const [start, end] = bounds.map((column) => numberOf(table.value(r, column)));
  if (start === undefined && end === undefined) return true;
  if (!(Number.isSafeInteger(start) && Number.isSafeInteger(end) && start! >= 0 && start! < end!))
    return false;
  row.position_start = start!;
  row.position_end = end!;
  return true;
}

function textOf(value: unknown): string {
  return value === undefined || value === null ? "" : String(value).trim();
}

function runName([run, attention, model, seed]: readonly string[]): string {
  if (run !== "") return run;
  return [attention, model, seed === "" ? "" : `seed ${seed}`].filter((label) => label !== "").join(" ");
}

function labelFacts([, attention, model, seed]: readonly string[]): RunFacts {
  const number = numberOf(seed);
  return {
    ...(attention !== "" && { attention }),
    ...(model !== "" && { model }),
    ...(number !== undefined && Number.isSafeInteger(number) && { seed: number }),
  };
}

function splitOfText(text: string, otherwise: Split): Split {
  if (text === "") return otherwise;
  return /^train/i.test(text) ? "train" : "eval";
}

/** One named series, as TensorBoard and MLflow keep them: parallel arrays in the order of logging. */
export interface LongSeries {
  readonly steps: number[];
  readonly values: number[];
  /** Seconds since 1970; empty when unknown. */
  readonly times: number[];
}

/** What a series' positions are: steps, unless its x axis is another. */
export type XRole = "step" | "tokens" | "time_s" | "pflops_days";

/** The losses of one run's series by name. Tokens and tokens per second are taken from the series of the same step. */
export function readLong(
  series: ReadonlyMap<string, LongSeries>,
  wanted: WantedColumns,
  source: string,
  skipped: SkipCounts,
  x: XRole = "step",
): { rows: LoggedRow[]; notes: readonly string[] } {
  const chosen: ChosenColumns = chooseColumns([...series.keys()], wanted, source);
  const beside = (["tokens", "tokens_per_second"] as const).flatMap((role) => {
    const found = series.get(chosen.roles.get(role) ?? "");
    return found ? [{ role, byStep: new Map(found.steps.map((at, i) => [at, found.values[i]])) }] : [];
  });
  let start = Infinity;
  for (const { times } of series.values()) for (const time of times) if (time < start) start = time;
  const rows: LoggedRow[] = [];
  for (const loss of chosen.losses) {
    const { steps, values, times } = series.get(loss.name)!;
    if (x === "step" && steps.length > 1 && steps.every((step) => step === 0)) {
      skipped.add("step was never set (it is 0 throughout)", loss.name, steps.length);
      continue;
    }
    for (let i = 0; i < steps.length; i++) {
      const row = newRow(loss.split, values[i], loss.position_start, loss.position_end);
      row[x] = steps[i];
      if (times[i] >= start) row.time_s = times[i] - start;
      for (const { role, byStep } of beside) {
        const value = factOf(byStep.get(steps[i]));
        if (value !== undefined) row[role] = value;
      }
      pushRow(rows, row, skipped, `${loss.name} at ${x} ${steps[i]}`);
    }
  }
  return { rows, notes: chosen.notes };
}

/** Throws when a table has a header and nothing below it. */
export function needRows(rows: number, source: string): void {
  if (rows === 0) throw new InputError(`${source} has no rows`);
}
