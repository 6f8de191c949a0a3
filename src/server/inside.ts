/** Reading the files of a study folder, and nothing else: what leads out of it by a link is refused. */
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  readSync,
  realpathSync,
} from "node:fs";
import { dirname, sep } from "node:path";

/** A sentence's end for a note: the file is there, and is not read. */
export class Unreadable extends Error {}

/** What tells one state of a file from another; null when it is not there. */
export interface FileState {
  readonly id: string;
  readonly size: number;
  readonly modified: number;
  /** 0 where the file system does not say. */
  readonly created: number;
}

export function stateOf(path: string): FileState | null {
  try {
    const { dev, ino, size, mtimeMs, birthtimeMs } = lstatSync(path);
    return { id: `${dev} ${ino}`, size, modified: mtimeMs, created: birthtimeMs };
  } catch {
    return null;
  }
}

/** Throws `Unreadable` when a folder, through links, is not within `root` (a real path). */
export function checkInside(root: string, folder: string): void {
  const real = realpathSync(folder);
  if (real !== root && !real.startsWith(root + sep)) {
    throw new Unreadable("leads out of the study folder and is not read");
  }
}

/**
 * Opens a file of the folder `root` (a real path). Throws `Unreadable` when it is a link, or is reached by one that leads
 * out, or is no plain file (a pipe would never end).
 */
export function openInside(root: string, path: string): { file: number; size: number; close(): void } {
  checkInside(root, dirname(path));
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ELOOP") throw new Unreadable("is a link and is not read");
    throw error;
  }
  const facts = fstatSync(file);
  if (!facts.isFile()) {
    closeSync(file);
    throw new Unreadable("is no file");
  }
  return { file, size: facts.size, close: () => closeSync(file) };
}

/** Opens a file as `openInside`, hands its descriptor to `use`, and closes it. */
export function withFileInside<T>(root: string, path: string, use: (file: number, size: number) => T): T {
  const { file, size, close } = openInside(root, path);
  try {
    return use(file, size);
  } finally {
    close();
  }
}

/** The JSON in a small file. Throws `Unreadable`. */
export function readJsonInside(root: string, path: string, mostBytes: number): unknown {
  const text = withFileInside(root, path, (file, size) => {
    if (size > mostBytes) throw new Unreadable(`has ${size} bytes, more than ${mostBytes}, and is not read`);
    return readFileSync(file, "utf8");
  });
  if (text.trim() === "") throw new Unreadable("is empty");
  try {
    return JSON.parse(text);
  } catch {
    throw new Unreadable("is not JSON");
  }
}

const PIECE = 1 << 18;
/** Bytes: more than a step's number and its figures take. */
const COMPARED = 256;

/** A file of lines that grows: hands out whole lines, once each, however little is appended at a time. */
export class Tail {
  readonly #root: string;
  readonly #path: string;
  readonly #longest: number;
  #id = "";
  #offset = 0;
  #modified = 0;
  /** Of a line whose end is not there yet. */
  #rest: Buffer = Buffer.alloc(0);
  /** The last bytes read, which tell a file that grew from one that was written anew over itself. */
  #before: Buffer = Buffer.alloc(0);
  /** In a line that is too long: up to its end nothing is kept. */
  #skipping = false;

  constructor(root: string, path: string, longestLine: number) {
    this.#root = root;
    this.#path = path;
    this.#longest = longestLine;
  }

  /** Whether the file is another one than was read, or was cut: what came from it is no longer there. */
  rewritten(state: FileState | null): boolean {
    if (this.#id === "") return false;
    if (state === null || state.id !== this.#id || state.size < this.#offset) return true;
    return this.grown(state) && !this.#continues();
  }

  #continues(): boolean {
    const { length } = this.#before;
    const there = Buffer.alloc(length);
    try {
      withFileInside(this.#root, this.#path, (file) =>
        readSync(file, there, 0, length, this.#offset - length),
      );
    } catch {
      // Reading it says why.
      return true;
    }
    return there.equals(this.#before);
  }

  grown(state: FileState | null): boolean {
    if (state === null) return false;
    return state.id !== this.#id || state.size !== this.#offset || state.modified !== this.#modified;
  }

  restart(): void {
    this.#id = "";
    this.#offset = 0;
    this.#rest = Buffer.alloc(0);
    this.#before = Buffer.alloc(0);
    this.#skipping = false;
  }

  /** The whole lines appended since, a piece of the file at a time; null for a line that is too long. */
  *read(state: FileState): Generator<(string | null)[]> {
    this.#id = state.id;
    this.#modified = state.modified;
    const buffer = Buffer.allocUnsafe(PIECE);
    for (;;) {
      const size = withFileInside(this.#root, this.#path, (file) =>
        readSync(file, buffer, 0, PIECE, this.#offset),
      );
      if (size === 0) return;
      this.#offset += size;
      this.#before = Buffer.concat([
        this.#before,
        buffer.subarray(Math.max(0, size - COMPARED), size),
      ]).subarray(-COMPARED);
      yield this.#lines(buffer.subarray(0, size));
      // Less than asked for: the end, as of now.
      if (size < PIECE) return;
    }
  }

  #lines(piece: Buffer): (string | null)[] {
    const end = piece.lastIndexOf(10);
    if (end < 0) {
      this.#keep(piece);
      return [];
    }
    const text = this.#skipping
      ? piece.toString("utf8", 0, end)
      : Buffer.concat([this.#rest, piece.subarray(0, end)]).toString("utf8");
    const lines: (string | null)[] = text.split("\n");
    if (this.#skipping) lines[0] = null;
    this.#skipping = false;
    this.#rest = Buffer.alloc(0);
    this.#keep(piece.subarray(end + 1));
    return lines;
  }

  #keep(piece: Buffer): void {
    if (this.#skipping) return;
    if (this.#rest.length + piece.length > this.#longest) {
      this.#skipping = true;
      this.#rest = Buffer.alloc(0);
    } else {
      this.#rest = Buffer.concat([this.#rest, piece]);
    }
  }
}
