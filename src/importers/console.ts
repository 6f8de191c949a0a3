/** Console logs, read line by line; the formats themselves are in console-formats.ts. */
import { InputError } from "../errors.ts";
import { factOf, numberOf, pushRow } from "./numbers.ts";
import { linesOf } from "./text.ts";
import {
  type Log,
  type LoggedRow,
  newRow,
  type RunFacts,
  SkipCounts,
  type Split,
  type TextSource,
} from "./types.ts";

/** Data lines are far shorter; longer ones are never matched. */
const LONGEST_LINE = 4000;

/** What a line of the log says, handed on as texts. */
export interface LineSink {
  loss(split: Split, step: string, loss: string, beside?: Partial<Record<Beside, string | number>>): void;
  skip(reason: string): void;
  /** What messages call the line. */
  place: string;
  facts: RunFacts;
  /** Said once each. */
  note(sentence: string): void;
}

type Beside = "tokens" | "time_s" | "tokens_per_second";

export interface ConsoleFormat {
  readonly format: string;
  /** What a line with a loss looks like, and no other format's line does. */
  readonly data: RegExp;
  /** Whether a line that matches `data` is whole: the format marks where its lines end. */
  readonly closed?: boolean;
  /** Reads one line; false when it is none of the format's. */
  read(line: string, sink: LineSink): boolean;
  /** Called after the last line. */
  finish?(sink: LineSink): void;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape character starts a colour.
const COLOUR = /\u001b\[[0-9;]*[A-Za-z]/g;
/** The process a line comes from, as torchrun (`[rank0]:`, `[default0]:`) and `srun -l` (`0: `) write it. */
const RANK = /^\s*(?:\[(?:rank|default)?(\d{1,6})\]:\s?|(\d{1,6}): )/;

function clean(line: string): { text: string; rank: string } {
  const plain = line.includes("\u001b") ? line.replace(COLOUR, "") : line;
  const rank = RANK.exec(plain);
  return rank ? { text: plain.slice(rank[0].length), rank: rank[1] ?? rank[2] } : { text: plain, rank: "" };
}

/** The format that a text's first data line shows. */
export function consoleFormatOf(text: string, formats: readonly ConsoleFormat[]): ConsoleFormat | undefined {
  for (const line of linesOf(text)) {
    if (line.length > LONGEST_LINE) continue;
    const found = formats.find(({ data }) => data.test(clean(line).text));
    if (found) return found;
  }
  return undefined;
}

/** Digits made alike, so that two lines written by one format string look the same. */
function shapeOf(line: string): string {
  return line.replace(/(\.?)\d+/g, (digits, dot) => (dot ? digits.replace(/\d/g, "0") : "0"));
}

/**
 * Reads a console log. A last line without an end is kept only when it has the shape of an earlier one: a log cut in the
 * middle of a number would otherwise end in a wrong loss.
 */
export function readConsole(source: TextSource, format: ConsoleFormat): Log {
  const { text, notes } = source;
  const lines = linesOf(text);
  const skipped = new SkipCounts();
  const rows: LoggedRow[] = [];
  const facts: RunFacts = {};
  const said = new Set<string>();
  const sink: LineSink = {
    facts,
    place: "",
    note: (sentence) => said.add(`${source.name}: ${sentence}`),
    skip: (reason) => skipped.add(reason, sink.place),
    loss: (split, step, loss, beside = {}) => {
      const row = newRow(split, numberOf(loss) ?? Number.NaN);
      row.step = numberOf(step) ?? Number.NaN;
      for (const [name, value] of Object.entries(beside)) {
        const fact = factOf(value);
        if (fact !== undefined) row[name as Beside] = fact;
      }
      pushRow(rows, row, skipped, sink.place);
    },
  };
  let rank: string | undefined;
  let lastData = -1;
  for (const [i, raw] of lines.entries()) {
    if (raw.length > LONGEST_LINE) continue;
    const line = clean(raw);
    sink.place = `line ${i + 1}`;
    const isData = format.data.test(line.text);
    if (isData) {
      rank ??= line.rank;
      if (line.rank !== rank) {
        skipped.add(
          `line of another process than the first (${rank === "" ? "no rank" : `rank ${rank}`})`,
          sink.place,
        );
        continue;
      }
      if (i === lines.length - 1 && !format.closed) {
        const shape = shapeOf(line.text);
        const alike = lines.slice(0, lastData + 1).some((earlier) => shapeOf(clean(earlier).text) === shape);
        if (!alike) {
          skipped.add("last line is cut off", sink.place);
          break;
        }
      }
    }
    if (format.read(line.text, sink) && isData) lastData = i;
  }
  format.finish?.(sink);
  if (rows.length === 0 && skipped.list().length === 0)
    throw new InputError(`${source.name} has no line with a loss`);
  return {
    format: format.format,
    runs: [{ name: "", rows, facts }],
    skipped: skipped.list(),
    notes: [...notes, ...said],
  };
}
