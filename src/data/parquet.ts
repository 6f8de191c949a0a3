/** Documents in Parquet files: one row each, its text in one column. */
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { InputError } from "../errors.ts";

/** Rows from 1, read a row group at a time. A null is an empty text. InputError names what is wrong with the file. */
export async function* readParquet(
  path: string,
  column: string,
): AsyncGenerator<{ row: number; text: Uint8Array }> {
  try {
    const file = await asyncBufferFromFile(path);
    const metadata = await parquetMetadataAsync(file);
    const names = (metadata.row_groups[0]?.columns ?? []).map((chunk) =>
      chunk.meta_data?.path_in_schema.join("."),
    );
    if (names.length > 0 && !names.includes(column)) {
      throw new InputError(
        `${path} has no column "${column}"; its columns are ${names.map((n) => `"${n}"`).join(", ")}`,
      );
    }
    let row = 0;
    for (const group of metadata.row_groups) {
      const chunk = group.columns.find(
        (one) => one.meta_data?.path_in_schema.join(".") === column,
      )?.meta_data;
      if (chunk?.type !== "BYTE_ARRAY") {
        throw new InputError(`${path}: column "${column}" holds ${chunk?.type}; it must hold strings`);
      }
      if (chunk.codec !== "UNCOMPRESSED" && compressors[chunk.codec] === undefined) {
        throw new InputError(
          `${path}: column "${column}" is compressed with ${chunk.codec}; ${Object.keys(compressors).join(", ")} are read`,
        );
      }
      const rowEnd = row + Number(group.num_rows);
      const objects = await parquetReadObjects({
        file,
        metadata,
        columns: [column],
        rowStart: row,
        rowEnd,
        compressors,
        utf8: false,
        // text stays the bytes it is: no decoding to a string and back
        parsers: { stringFromBytes: (bytes: Uint8Array) => bytes },
      });
      for (const object of objects) yield { row: ++row, text: bytesOf(object[column], path, column) };
    }
  } catch (error) {
    if (error instanceof InputError) throw error;
    throw new InputError(`${path} cannot be read as Parquet: ${(error as Error).message}`);
  }
}

function bytesOf(value: unknown, path: string, column: string): Uint8Array {
  if (value === null || value === undefined) return new Uint8Array(0);
  if (value instanceof Uint8Array) return value;
  throw new InputError(`${path}: column "${column}" holds ${typeof value} values; it must hold strings`);
}
