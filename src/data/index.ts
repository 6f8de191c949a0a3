/** The data room: text in, tokens and windows out. */

export type { CodeSummary } from "./code-corpus.ts";
export { countEvaluationWindows, openDataset, openTokenizer } from "./dataset.ts";
export { demoCorpusPaths, demoHeldOut } from "./demo.ts";
export { readTokenizerFile } from "./hugging-face.ts";
export { type PrepareOptions, type PrepareProgress, prepareDataset } from "./prepare.ts";
export { type PrepareCodeOptions, prepareCode } from "./prepare-code.ts";
export { permutation, Random } from "./random.ts";
export { byteTokenizer, IncrementalDecoder, type Tokenizer } from "./tokenizer.ts";
export type * from "./types.ts";
