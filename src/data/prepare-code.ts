/** Makes a dataset folder from a source tree. */
import { availableParallelism } from "node:os";
import { basename, resolve } from "node:path";
import { type CodeSummary, codeSourceDocuments, readCodeCorpus } from "./code-corpus.ts";
import { type DatasetOptions, makeDataset, type PrepareProgress, requirePlace } from "./prepare.ts";
import { Threads } from "./threads.ts";
import type { Dataset } from "./types.ts";

export interface PrepareCodeOptions extends DatasetOptions {
  /** An unpacked source tree, see `readCodeCorpus`. */
  readonly tree: string;
  /** Directories to hold out, relative to the tree. */
  readonly heldOut?: readonly string[];
}

/**
 * The same tree gives the same bytes, wherever it lies. InputError for bad input, RunError when the disk fails. Leaves
 * either the whole folder or nothing. The kept text and its tokens of one document are in memory at once (a Linux
 * kernel: 740 MB).
 */
export async function prepareCode(
  options: PrepareCodeOptions,
  onProgress: (progress: PrepareProgress) => void = () => {},
): Promise<{ dataset: Dataset; summary: CodeSummary }> {
  requirePlace(options);
  const threads = new Threads(options.jobs ?? availableParallelism());
  try {
    const corpus = await readCodeCorpus(options.tree, options.heldOut, threads, (files, bytes) =>
      onProgress({ stage: "reading", documents: files, bytes }),
    );
    const { documents, heldOut, summary } = corpus;
    const source = {
      files: summary.kept.files - summary.dropped.files,
      bytes: documents.reduce((sum, document) => sum + document.bytes, 0),
      holdsIds: false,
      documents: () => codeSourceDocuments(corpus),
    };
    const paths = [basename(resolve(options.tree))];
    const dataset = await makeDataset({ options, source, paths, heldOut, seed: 0, threads, onProgress });
    return { dataset, summary };
  } finally {
    threads.close();
  }
}
