/** Numbers as logs write them. */
import type { LoggedRow, SkipCounts } from "./types.ts";

const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
const GROUPED = /^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$/;
const BLANK = /^(|null|none|-|n\/a)$/i;
const MOST_DIGITS = 400;

/** The number in a cell: undefined when it is blank, NaN when it holds something else. Thousands separators are read. */
export function numberOf(value: unknown): number | undefined {
  if (typeof value === "number") return value;
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "string") return Number.NaN;
  const text = value.trim();
  if (text.length > MOST_DIGITS) return Number.NaN;
  if (DECIMAL.test(text)) return Number(text);
  if (BLANK.test(text)) return undefined;
  if (GROUPED.test(text)) return Number(text.replaceAll(",", ""));
  if (/^[+-]?inf(inity)?$/i.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
  return Number.NaN;
}

/** Why a loss cannot stand in the curves table, or undefined when it can. */
export function lossFault(loss: number): string | undefined {
  if (Number.isNaN(loss)) return "loss is not a number";
  if (!Number.isFinite(loss)) return "loss is infinite";
  if (loss <= 0) return "loss is not above 0";
  // The bounds of a curves table.
  if (loss < 1e-30 || loss > 1e30) return "loss is not from 1e-30 to 1e30";
  return undefined;
}

/** Why a step cannot stand in the curves table, or undefined when it can. */
export function stepFault(step: number): string | undefined {
  if (Number.isSafeInteger(step) && step >= 0) return undefined;
  return "step is not a whole number from 0 to 9e15";
}

/** What may stand beside a loss; anything not finite or below 0 is taken for absent. */
export function factOf(value: unknown): number | undefined {
  const number = numberOf(value);
  return number !== undefined && Number.isFinite(number) && number >= 0 ? number : undefined;
}

/** Adds the row when its loss and step can stand in the curves table, else counts why not. */
export function pushRow(rows: LoggedRow[], row: LoggedRow, skipped: SkipCounts, place: string): void {
  const fault = lossFault(row.lm_loss) ?? (row.step === undefined ? undefined : stepFault(row.step));
  if (fault) skipped.add(fault, place);
  else rows.push(row);
}
