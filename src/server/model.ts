/** The trained model of a run, for the page that computes with it: checkpoint, tokenizer and held-out text. */
import { readSync } from "node:fs";
import { join, resolve } from "node:path";
import { FILES } from "../data/dataset-file.ts";
import { SHARD_HEADER_BYTES, tokenWidth } from "../data/shards.ts";
import { findCheckpoint } from "../train/checkpoint.ts";
import type { ModelView } from "./api.ts";
import { openInside, readJsonInside, stateOf, Unreadable, withFileInside } from "./inside.ts";

/** Bytes of weights: more is not computed with in a browser. */
const MOST_WEIGHTS = 50_000_000;
const MOST_CONFIG = 2 ** 16;
const MOST_DATASET = 2 ** 24;
const MOST_TOKENIZER = 2 ** 24;
/** Held-out documents, and tokens of each. */
const SAMPLES = { documents: 3, tokens: 2048 };
const PIECE = 2 ** 18;

const WEIGHTS = "model.safetensors";

/** Bytes of a run's weights; null when it has none, or more than a page takes. `root` is the study's real path. */
export function weightBytes(root: string, run: string): number | null {
  try {
    const checkpoint = findCheckpoint(run);
    if (checkpoint === null) return null;
    const size = withFileInside(root, join(checkpoint, WEIGHTS), (_, bytes) => bytes);
    return size <= MOST_WEIGHTS ? size : null;
  } catch {
    return null;
  }
}

/** The weights piece by piece; null as `weightBytes`. The file is opened when the first piece is asked for. */
export function weightStream(root: string, run: string): { size: number; body: ReadableStream } | null {
  const size = weightBytes(root, run);
  const checkpoint = findCheckpoint(run);
  if (size === null || checkpoint === null) return null;
  let opened: ReturnType<typeof openInside> | null = null;
  let offset = 0;
  const body = new ReadableStream(
    {
      pull(controller) {
        opened ??= openInside(root, join(checkpoint, WEIGHTS));
        const piece = new Uint8Array(Math.min(PIECE, size - offset));
        const count = readSync(opened.file, piece, 0, piece.length, offset);
        offset += count;
        if (count > 0) controller.enqueue(piece.subarray(0, count));
        if (count > 0 && offset < size) return;
        opened.close();
        // Cut meanwhile: the length that was announced is not reached.
        if (offset < size) controller.error(new Unreadable("became shorter"));
        else controller.close();
      },
      cancel: () => opened?.close(),
    },
    { highWaterMark: 0 },
  );
  return { size, body };
}

/** What is known beside the weights; null as `weightBytes`. `dataset` is the run's, as its configuration spells it. */
export function modelView(root: string, run: string, id: string, dataset: unknown): ModelView | null {
  const bytes = weightBytes(root, run);
  const checkpoint = findCheckpoint(run);
  if (bytes === null || checkpoint === null) return null;
  let config: unknown;
  try {
    config = readJsonInside(root, join(checkpoint, "config.json"), MOST_CONFIG);
  } catch {
    return null;
  }
  return { run: id, bytes, config, ...datasetView(root, run, dataset) };
}

function datasetView(
  root: string,
  run: string,
  dataset: unknown,
): Pick<ModelView, "tokenizer" | "samples" | "missing"> {
  try {
    if (typeof dataset !== "string") throw new Unreadable("is not named");
    const folder = resolve(run, dataset);
    const description = readJsonInside(root, join(folder, FILES.description), MOST_DATASET) as {
      tokenizer?: { kind?: unknown; name?: unknown };
      vocabulary?: unknown;
      heldOut?: readonly { name?: unknown; tokens?: unknown }[];
    };
    const { kind, name } = description.tokenizer ?? {};
    const samples = samplesOf(root, folder, description.vocabulary, description.heldOut);
    if (kind === "byte") return { tokenizer: { kind }, samples, missing: null };
    if (kind !== "bpe") throw new Unreadable("holds token ids of an unknown tokenizer");
    const file = readJsonInside(root, join(folder, FILES.tokenizer), MOST_TOKENIZER);
    return { tokenizer: { kind, name: String(name), file }, samples, missing: null };
  } catch (error) {
    const reason = error instanceof Unreadable ? error.message : "cannot be read";
    return { tokenizer: null, samples: [], missing: `the run's dataset ${reason}` };
  }
}

/** The beginnings of the first held-out documents. */
function samplesOf(
  root: string,
  folder: string,
  vocabulary: unknown,
  heldOut: unknown,
): ModelView["samples"] {
  const path = join(folder, FILES.heldOut);
  if (!Array.isArray(heldOut) || typeof vocabulary !== "number" || stateOf(path) === null) return [];
  const width = tokenWidth(vocabulary);
  return withFileInside(root, path, (file) => {
    let first = 0;
    return heldOut.slice(0, SAMPLES.documents).flatMap(({ name, tokens }) => {
      if (!Number.isSafeInteger(tokens) || tokens < 1) return [];
      const bytes = new Uint8Array(width * Math.min(tokens, SAMPLES.tokens));
      const read = readSync(file, bytes, 0, bytes.length, SHARD_HEADER_BYTES + width * first);
      first += tokens;
      const ids = width === 2 ? new Uint16Array(bytes.buffer) : new Uint32Array(bytes.buffer);
      return [{ name: String(name), tokens: [...ids.subarray(0, Math.floor(read / width))] }];
    });
  });
}
