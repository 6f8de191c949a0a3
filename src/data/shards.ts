/** Token shards in llm.c / modded-nanogpt `.bin` form: a header of 256 int32 (magic, version, tokens), then the ids. */
import { closeSync, fstatSync, openSync, readSync, writeSync } from "node:fs";
import { crc32 } from "node:zlib";
import { InputError } from "../errors.ts";

export const SHARD_HEADER_BYTES = 256 * 4;
/** [magic, version] by bytes per token, as llm.c's `dev/data` writes them. */
const KINDS = { 2: [20240520, 1], 4: [20240801, 7] } as const;
/** The header counts tokens in an int32. */
const MAX_TOKENS = 2 ** 31 - 1;
/** One system call moves at most 2^31 - 1 bytes. */
const CHUNK_BYTES = 1 << 28;

export type Tokens = Uint16Array | Uint32Array;

/** Bytes per token for a vocabulary: 16-bit ids up to 65,536, else 32-bit. */
export function tokenWidth(vocabulary: number): 2 | 4 {
  return vocabulary <= 65_536 ? 2 : 4;
}

/** Writes a shard piece by piece; the header is filled in by `close`. */
export class ShardWriter {
  readonly #file: number;
  readonly #path: string;
  readonly #width: 2 | 4;
  #tokens = 0;
  #crc = 0;

  constructor(path: string, vocabulary: number) {
    this.#path = path;
    this.#width = tokenWidth(vocabulary);
    this.#file = openSync(path, "w");
    writeFully(this.#file, new Uint8Array(SHARD_HEADER_BYTES));
  }

  write(tokens: Int32Array): void {
    const ids = this.#width === 2 ? new Uint16Array(tokens) : new Uint32Array(tokens);
    const bytes = new Uint8Array(ids.buffer);
    this.#crc = crc32(bytes, this.#crc);
    this.#tokens += ids.length;
    if (this.#tokens > MAX_TOKENS) {
      throw new InputError(`${this.#path} would hold more than ${MAX_TOKENS} tokens; give less text`);
    }
    writeFully(this.#file, bytes);
  }

  /** Tokens written and the CRC-32 of their bytes. */
  close(): { tokens: number; crc32: number } {
    const header = new Int32Array(256);
    header.set([...KINDS[this.#width], this.#tokens]);
    writeSync(this.#file, new Uint8Array(header.buffer), 0, SHARD_HEADER_BYTES, 0);
    closeSync(this.#file);
    return { tokens: this.#tokens, crc32: this.#crc };
  }

  /** Closes the file without finishing it, after a failure. */
  abandon(): void {
    closeSync(this.#file);
  }
}

/** All tokens of a shard. InputError when the file is no shard or is cut short. */
export function readShard(path: string): { tokens: Tokens; crc32: () => number } {
  const file = openSync(path, "r");
  try {
    const size = fstatSync(file).size;
    const header = new Int32Array(256);
    const got = readFully(file, new Uint8Array(header.buffer), 0);
    if (got < SHARD_HEADER_BYTES) {
      throw new InputError(
        `${path} is ${size} bytes, too short for a token shard's header of ${SHARD_HEADER_BYTES} bytes`,
      );
    }
    const [magic, version, count] = header;
    const width = magic === KINDS[2][0] ? 2 : magic === KINDS[4][0] ? 4 : null;
    if (width === null) {
      throw new InputError(
        `${path} is not a token shard: it starts with ${magic} where ${KINDS[2][0]} (16-bit) or ${KINDS[4][0]} (32-bit) belongs`,
      );
    }
    if (version !== KINDS[width][1]) {
      throw new InputError(
        `${path} is a token shard of version ${version}; version ${KINDS[width][1]} is read`,
      );
    }
    const expected = SHARD_HEADER_BYTES + count * width;
    if (count < 0 || size !== expected) {
      throw new InputError(
        `${path} is ${size} bytes, but its header announces ${count} tokens, which make ${expected}`,
      );
    }
    // Shared with the thread that makes batches of it.
    const memory = new SharedArrayBuffer(count * width);
    const tokens = width === 2 ? new Uint16Array(memory) : new Uint32Array(memory);
    const bytes = new Uint8Array(tokens.buffer);
    if (readFully(file, bytes, SHARD_HEADER_BYTES) < bytes.length) {
      throw new InputError(`${path} became shorter while it was read`);
    }
    return { tokens, crc32: () => crcOf(bytes) };
  } finally {
    closeSync(file);
  }
}

function crcOf(bytes: Uint8Array): number {
  let crc = 0;
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES)
    crc = crc32(bytes.subarray(at, at + CHUNK_BYTES), crc);
  return crc;
}

/** Reads until `into` is full or the file ends; how many bytes. */
export function readFully(file: number, into: Uint8Array, position: number): number {
  let done = 0;
  while (done < into.length) {
    const got = readSync(file, into, done, Math.min(CHUNK_BYTES, into.length - done), position + done);
    if (got === 0) break;
    done += got;
  }
  return done;
}

export function writeFully(file: number, bytes: Uint8Array): void {
  let done = 0;
  while (done < bytes.length)
    done += writeSync(file, bytes, done, Math.min(CHUNK_BYTES, bytes.length - done));
}
