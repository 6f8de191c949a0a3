/** From a file's bytes to its reader: the format is recognised from the content, never from the name. */
import { InputError } from "../errors.ts";
import type { WantedColumns } from "./columns.ts";
import { consoleFormatOf, readConsole } from "./console.ts";
import { consoleFormats } from "./console-formats.ts";
import { isWandbHeader, readNamedCsv, readWandbCsv } from "./csv-logs.ts";
import { readJsonRows, readTrainerState } from "./json-logs.ts";
import { isTfRecord, readTensorBoard } from "./tensorboard.ts";
import { decodeText, linesOf } from "./text.ts";
import type { Log, Source } from "./types.ts";
import { isWandb, readWandb } from "./wandb.ts";

/** A record file's first bytes say enough; a text is looked at as far as needed. */
const HEAD = 4096;

/** Reads a log. Throws InputError naming the source for one that is of no known format, broken, or without losses. */
export function readLog(source: Source, wanted: WantedColumns): Log {
  const { name, bytes } = source;
  if (bytes.length === 0) throw new InputError(`${name} is empty`);
  if (isWandb(bytes)) return readWandb(source, wanted);
  if (isTfRecord(bytes)) return readTensorBoard(source, wanted);
  const decoded = decodeText(source);
  const { text } = decoded;
  const start = text.slice(0, HEAD).trimStart();
  if (start === "") throw new InputError(`${name} holds nothing but blanks`);
  // A dict of Python is no JSON.
  const isObject = start.startsWith("{") && !start.startsWith("{'");
  if (isObject && text.includes('"log_history"')) return readTrainerState(decoded, wanted);
  if (isObject || /^\[\s*\{/.test(start)) return readJsonRows(decoded, wanted);
  const format = consoleFormatOf(text, consoleFormats());
  if (format) {
    if (wanted.losses.length > 0 || wanted.roles.size > 0) {
      throw new InputError(
        `${name} is a ${format.format}, which has no named columns: --columns does not apply`,
      );
    }
    return readConsole(decoded, format);
  }
  const header = headerOf(text);
  if (header.length > 1)
    return isWandbHeader(header) ? readWandbCsv(decoded, wanted) : readNamedCsv(decoded, wanted);
  throw new InputError(
    `${name} is of no format that import knows: not a Weights & Biases, TensorBoard, Hugging Face, Lightning or MLflow` +
      " log, no console line of llm.c, nanoGPT, modded-nanogpt, torchtitan, Megatron, fairseq or Hugging Face, no CSV or JSONL",
  );
}

/** The names of the first line, when it reads as a CSV's header: two or more, none of them a number. */
function headerOf(text: string): string[] {
  const line = linesOf(text.slice(0, 2 ** 20)).find((candidate) => candidate.trim() !== "") ?? "";
  const names = line.split(",").map((name) => name.trim().replace(/^"|"$/g, ""));
  return names.some((name) => /^[+-]?[\d.]+(e[+-]?\d+)?$/i.test(name)) ? [] : names;
}
