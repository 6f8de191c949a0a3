/** JSON logs: Hugging Face trainer_state.json, and JSONL (or one array) of objects with named values. */
import { InputError } from "../errors.ts";
import type { WantedColumns } from "./columns.ts";
import { flatten, parseJson } from "./json.ts";
import { numberOf } from "./numbers.ts";
import { needRows, readWide, type WideTable } from "./tables.ts";
import { excerpt } from "./text.ts";
import { type Log, SkipCounts, type TextSource } from "./types.ts";

type Values = ReadonlyMap<string, unknown>;

function tableOf(rows: readonly Values[], place: (row: number) => string): WideTable {
  const names = new Set<string>();
  for (const row of rows) for (const name of row.keys()) names.add(name);
  const list = [...names];
  return {
    names: list,
    rows: rows.length,
    value: (row, column) => rows[row].get(list[column]),
    place,
  };
}

/** Rows that sum a run up hold means over it, and are no points of its curve. */
const SUMMARY_KEYS = ["train_runtime", "train_loss"];

/**
 * `trainer_state.json` of Hugging Face's Trainer: `log_history` holds rows of `loss`, rows of `eval_*`, rows of a
 * prediction (without a step) and one that sums the run up.
 */
export function readTrainerState(source: TextSource, wanted: WantedColumns): Log {
  const { text, notes } = source;
  const state = parsed(text, source.name);
  const history = (state as { log_history?: unknown }).log_history;
  if (!Array.isArray(history)) throw new InputError(`${source.name} has no list log_history`);
  const skipped = new SkipCounts();
  const rows: Values[] = [];
  const places: string[] = [];
  for (const [i, entry] of history.entries()) {
    const place = `log_history[${i}]`;
    if (typeof entry !== "object" || entry === null || Array.isArray(entry)) {
      skipped.add("entry is not an object", place);
      continue;
    }
    const values = flatten(entry);
    if (SUMMARY_KEYS.every((key) => values.has(key))) {
      skipped.add("row sums the run up (train_loss is a mean over it)", place);
      continue;
    }
    // The Trainer writes 0 for tokens that it was not told to count.
    if (numberOf(values.get("num_input_tokens_seen")) === 0 && numberOf(values.get("step")) !== 0)
      values.delete("num_input_tokens_seen");
    rows.push(values);
    places.push(place);
  }
  needRows(rows.length, `${source.name}, log_history`);
  const read = readWide(
    tableOf(rows, (row) => places[row]),
    wanted,
    source.name,
    skipped,
  );
  return {
    format: "Hugging Face trainer_state.json",
    runs: read.runs,
    skipped: skipped.list(),
    notes: [...notes, ...read.notes],
  };
}

function parsed(text: string, name: string): object {
  let value: unknown;
  try {
    value = parseJson(text);
  } catch {
    throw new InputError(
      `${name} is not whole JSON; it may have been cut off while it was copied or written`,
    );
  }
  if (typeof value !== "object" || value === null) throw new InputError(`${name} holds no object or list`);
  return value;
}

/** Objects, one a line or in one list; a torn last line is skipped. */
export function readJsonRows(source: TextSource, wanted: WantedColumns): Log {
  const { text, notes } = source;
  const skipped = new SkipCounts();
  const rows: Values[] = [];
  const places: number[] = [];
  const isList = text.trimStart().startsWith("[");
  if (isList) {
    const list = parsed(text, source.name);
    if (!Array.isArray(list)) throw new InputError(`${source.name} holds no list`);
    for (const [i, entry] of list.entries()) {
      if (typeof entry !== "object" || entry === null || Array.isArray(entry)) {
        skipped.add("entry is not an object", `entry ${i + 1}`);
        continue;
      }
      rows.push(flatten(entry));
      places.push(i + 1);
    }
  } else {
    const lines = text.split("\n");
    for (const [i, line] of lines.entries()) {
      if (line.trim() === "") continue;
      let value: unknown;
      try {
        value = parseJson(line);
      } catch {
        if (i !== lines.length - 1 || rows.length === 0) {
          throw new InputError(
            `${source.name}, line ${i + 1}: ${excerpt(line)} is not JSON; each line of JSONL is an object`,
          );
        }
        skipped.add("last line is cut off", `line ${i + 1}`);
        break;
      }
      if (typeof value !== "object" || value === null || Array.isArray(value)) {
        throw new InputError(
          `${source.name}, line ${i + 1}: ${excerpt(line)} is not an object; each line of JSONL is one`,
        );
      }
      rows.push(flatten(value));
      places.push(i + 1);
    }
  }
  needRows(rows.length, source.name);
  const word = isList ? "entry" : "line";
  const read = readWide(
    tableOf(rows, (row) => `${word} ${places[row]}`),
    wanted,
    source.name,
    skipped,
  );
  return {
    format: isList ? "JSON list" : "JSONL",
    runs: read.runs,
    skipped: skipped.list(),
    notes: [...notes, ...read.notes],
  };
}
