/** Other trainers' logs to the curves table. */
export type { ImportedRun } from "./assemble.ts";
export { parseColumns, type WantedColumns } from "./columns.ts";
export { maskedCrc } from "./crc.ts";
export {
  type ImportedSource,
  type ImportOptions,
  type ImportResult,
  importBytes,
  importPaths,
} from "./import.ts";
export type { RunFacts, Source, Split } from "./types.ts";
export { formatImport } from "./words.ts";
