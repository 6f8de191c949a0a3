/** A file's bytes in pieces, decompressed on the way (gzip by zlib, Zstandard by fzstd). */
import { createReadStream } from "node:fs";
import { createGunzip } from "node:zlib";
import { Decompress } from "fzstd";
import { InputError } from "../errors.ts";

const PIECE_BYTES = 1 << 20;

/** InputError when the file does not decompress to its end. */
export async function* decompressed(
  path: string,
  compression: "" | "gz" | "zst",
): AsyncGenerator<Uint8Array> {
  const file = createReadStream(path, { highWaterMark: PIECE_BYTES });
  if (compression === "") {
    yield* file;
  } else if (compression === "gz") {
    const gunzip = createGunzip();
    file.on("error", (error) => gunzip.destroy(error));
    try {
      yield* file.pipe(gunzip);
    } catch (error) {
      throw new InputError(`${path} is not a whole gzip file: ${(error as Error).message}`);
    } finally {
      file.destroy();
    }
  } else {
    yield* unzstd(path, file);
  }
}

async function* unzstd(path: string, file: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let ready: Uint8Array[] = [];
  let ended = false;
  const stream = new Decompress((piece, final) => {
    // fzstd reuses its window, so a piece is copied before the next push
    if (piece.length > 0) ready.push(piece.slice());
    ended ||= final === true;
  });
  const push = (piece: Uint8Array, final: boolean) => {
    try {
      stream.push(piece, final);
    } catch (error) {
      throw new InputError(`${path} is not a whole Zstandard file: ${(error as Error).message}`);
    }
  };
  for await (const piece of file) {
    push(piece, false);
    yield* ready;
    ready = [];
  }
  push(new Uint8Array(0), true);
  yield* ready;
  if (!ended) throw new InputError(`${path} is not a whole Zstandard file: it ends early`);
}
