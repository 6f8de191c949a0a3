/**
 * Offline `.wandb` files: a header of 7 bytes, then LevelDB's log format (blocks of 32 KiB; records whole or in parts,
 * each with CRC-32, length and type) around Record messages of W&B's protocol, of which history, config and run are read.
 */
import { crc32 } from "node:zlib";
import { InputError } from "../errors.ts";
import type { WantedColumns } from "./columns.ts";
import { flatten, parseJson } from "./json.ts";
import { fieldsOf, textOf, viewOf, WireError } from "./protobuf.ts";
import { readWide } from "./tables.ts";
import { type Log, SkipCounts, type Source } from "./types.ts";

const FILE_HEADER = 7;
const BLOCK = 32768;
const RECORD_HEADER = 7;
const FULL = 1;
const FIRST = 2;
// 3 is a part between the first and the last.
const LAST = 4;

/** `:W&B`, which no other file starts with. */
export function isWandb(bytes: Uint8Array): boolean {
  return (
    bytes.length >= 4 && bytes[0] === 0x3a && bytes[1] === 0x57 && bytes[2] === 0x26 && bytes[3] === 0x42
  );
}

/** History of an offline run. A last record that was cut off is skipped; a wrong checksum is an error. */
export function readWandb(source: Source, wanted: WantedColumns): Log {
  const { name } = source;
  const skipped = new SkipCounts();
  const rows: Map<string, unknown>[] = [];
  let run = "";
  let records = 0;
  for (const data of recordsOf(source, skipped)) {
    records++;
    try {
      for (const field of fieldsOf(data)) {
        if (field.wire !== 2) continue;
        if (field.number === 2) rows.push(historyOf(field.bytes));
        else if (field.number === 17) {
          for (const inner of fieldsOf(field.bytes)) {
            if (inner.wire !== 2) continue;
            // The run's name, before its id when both are there.
            if (inner.number === 8 && inner.bytes.length > 0) run = textOf(inner);
            else if (inner.number === 1 && run === "") run = textOf(inner);
          }
        }
      }
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      throw new InputError(`${name}: record ${records} is no W&B record (${error.message})`);
    }
  }
  if (rows.length === 0) throw new InputError(`${name} has ${records} records but no history`);
  const names = new Set<string>();
  for (const row of rows) for (const key of row.keys()) names.add(key);
  const list = [...names];
  const table = {
    names: list,
    rows: rows.length,
    value: (row: number, column: number) => rows[row].get(list[column]),
    place: (row: number) => `history row ${row + 1}`,
  };
  const read = readWide(table, wanted, name, skipped);
  const [only] = read.runs;
  const runs = read.runs.length === 1 && only.name === "" ? [{ ...only, name: run }] : read.runs;
  return { format: "W&B offline run (.wandb)", runs, skipped: skipped.list(), notes: read.notes };
}

/** One history row: items of key (or nested keys) and value as JSON. */
function historyOf(message: Uint8Array): Map<string, unknown> {
  const values = new Map<string, unknown>();
  for (const field of fieldsOf(message)) {
    if (field.wire !== 2) continue;
    if (field.number === 1) {
      let key = "";
      const nested: string[] = [];
      let json = "";
      for (const inner of fieldsOf(field.bytes)) {
        if (inner.wire !== 2) continue;
        if (inner.number === 1) key = textOf(inner);
        else if (inner.number === 2) nested.push(textOf(inner));
        else if (inner.number === 16) json = textOf(inner);
      }
      addItem(values, key === "" ? nested.join(".") : key, json);
    } else if (field.number === 2) {
      for (const inner of fieldsOf(field.bytes)) {
        if (inner.number === 1 && inner.wire === 0 && !values.has("_step")) values.set("_step", inner.varint);
      }
    }
  }
  return values;
}

function addItem(values: Map<string, unknown>, key: string, json: string): void {
  let value: unknown;
  try {
    value = parseJson(json);
  } catch {
    value = json;
  }
  if (typeof value !== "object" || value === null) values.set(key, value);
  else if (!Array.isArray(value))
    for (const [inner, leaf] of flatten(value)) values.set(`${key}.${inner}`, leaf);
}

/** The data of each record, its parts joined. */
function* recordsOf({ name, bytes }: Source, skipped: SkipCounts): Generator<Uint8Array> {
  const view = viewOf(bytes);
  const expected = "W&B's magic 0xBEE1 and version 0";
  if (bytes.length < FILE_HEADER)
    throw new InputError(`${name} ends within its header of ${FILE_HEADER} bytes`);
  if (view.getUint16(4, true) !== 0xbee1 || bytes[6] !== 0) {
    throw new InputError(
      `${name} has magic 0x${view.getUint16(4, true).toString(16)} and version ${bytes[6]} where ${expected} should be`,
    );
  }
  let parts: Uint8Array[] = [];
  let at = FILE_HEADER;
  while (at < bytes.length) {
    const left = BLOCK - (at % BLOCK);
    if (left < RECORD_HEADER) {
      at += left;
      continue;
    }
    if (at + RECORD_HEADER > bytes.length) break;
    const length = view.getUint16(at + 4, true);
    const type = bytes[at + 6];
    const end = at + RECORD_HEADER + length;
    // A file that was preallocated, or whose writer died, ends in zeros.
    if (type === 0 && length === 0 && view.getUint32(at, true) === 0) break;
    if (type < FULL || type > LAST || RECORD_HEADER + length > left) {
      throw new InputError(
        `${name}: the record at byte ${at} has type ${type} and length ${length}; the file is damaged`,
      );
    }
    if (end > bytes.length) break;
    if (view.getUint32(at, true) !== crc32(bytes.subarray(at + 6, end))) {
      throw new InputError(
        `${name}: the checksum of the record at byte ${at} is wrong; the file is damaged, copy it again`,
      );
    }
    const data = bytes.subarray(at + RECORD_HEADER, end);
    at = end;
    if (type === FULL || type === FIRST) {
      if (parts.length > 0) skipped.add("record without its last part", `byte ${at}`);
      parts = [];
    } else if (parts.length === 0) {
      skipped.add("record without its first part", `byte ${at}`);
      continue;
    }
    parts.push(data);
    if (type === FULL || type === LAST) {
      yield parts.length === 1 ? data : Buffer.concat(parts);
      parts = [];
    }
  }
  if (at < bytes.length || parts.length > 0) skipped.add("last record is cut off", `byte ${at}`);
}
