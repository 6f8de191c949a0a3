/** The heavy work on text that is spread over threads. Each thread has one of these. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { InputError } from "../errors.ts";
import { type BpeModel, ByteLevelBpe } from "./bpe.ts";
import { type PackedCounts, PieceCounts } from "./bpe-pieces.ts";
import { type CodeRule, inspectCodeFile } from "./code-file.ts";
import { byteTokenizer, type Tokenizer } from "./tokenizer.ts";

/** Files of a source tree after the rules for single files; what is kept of all of them lies one after the other. */
export interface InspectedFiles {
  /** In the order asked for: bytes on disk, and how much of `text` and `windows` is the file's, or why it is left out. */
  readonly files: readonly {
    readonly size: number;
    readonly kept: { readonly bytes: number; readonly words: number } | CodeRule;
  }[];
  readonly text: Uint8Array;
  readonly windows: Uint32Array;
}

export class Tasks {
  #pieces = new PieceCounts();
  #tokenizer: Tokenizer = byteTokenizer;

  inspect({ root, paths }: { root: string; paths: readonly string[] }): InspectedFiles {
    const files: InspectedFiles["files"][number][] = [];
    const texts: Uint8Array[] = [];
    const windows: Uint32Array[] = [];
    for (const path of paths) {
      const bytes = read(join(root, path));
      const found = inspectCodeFile(bytes);
      if (typeof found === "string") {
        files.push({ size: bytes.length, kept: found });
        continue;
      }
      files.push({ size: bytes.length, kept: { bytes: found.text.length, words: found.windows.length } });
      texts.push(found.text);
      windows.push(found.windows);
    }
    return { files, text: joined(Uint8Array, texts), windows: joined(Uint32Array, windows) };
  }

  /** Adds a text's pieces to this thread's counts. */
  count(text: Uint8Array): void {
    this.#pieces.add(text);
  }

  /** Hands over this thread's counts and starts anew. */
  takeCounts(): PackedCounts {
    const packed = this.#pieces.pack();
    this.#pieces = new PieceCounts();
    return packed;
  }

  /** The tokenizer that `encode` uses from now on; without it texts are bytes. */
  use(model: BpeModel): void {
    this.#tokenizer = new ByteLevelBpe(model);
  }

  encode(text: Uint8Array): Int32Array {
    return this.#tokenizer.encode(text);
  }
}

function read(path: string): Uint8Array {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new InputError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

/** One array in a buffer of its own, so that it can move to another thread. */
function joined<Words extends Uint8Array | Uint32Array>(
  kind: new (length: number) => Words,
  parts: readonly Words[],
): Words {
  const all = new kind(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
