/** A thread that fits the laws of one study and ends: fitting takes seconds, and readers are answered meanwhile. */
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { readEach, type UnreadableRun } from "../study/folder.ts";
import { fitRuns, readStudyRun } from "../study/runs.ts";
import { type Laws, resultsOf } from "./results.ts";

export interface FitInput {
  readonly folder: string;
  /** Runs whose files lie in the folder, and the others, with the reason. */
  readonly names: readonly string[];
  readonly unreadable: readonly UnreadableRun[];
}

export type FitAnswer = { readonly laws: Laws } | { readonly failure: string };

const { folder, names, unreadable } = workerData.input as FitInput;
let answer: FitAnswer;
try {
  const read = readEach(folder, names, readStudyRun);
  const { fit } = fitRuns(read.runs, [...read.unreadable, ...unreadable]);
  answer = { laws: resultsOf(fit, new Date()) };
} catch (error) {
  answer = { failure: (error as Error).message };
}
(parentPort as MessagePort).postMessage(answer);
