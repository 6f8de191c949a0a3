/** A thread that fits the laws of one study and ends: fitting takes seconds, and readers are answered meanwhile. */
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import type { CurvePoint } from "../fit/types.ts";
import { fitStudy, type RunEnd } from "../study/laws.ts";
import { type Laws, resultsOf } from "./results.ts";

export interface FitInput {
  readonly points: readonly CurvePoint[];
  readonly runs: readonly RunEnd[];
}

export type FitAnswer = { readonly laws: Laws } | { readonly failure: string };

const { points, runs } = workerData.input as FitInput;
let answer: FitAnswer;
try {
  answer = { laws: resultsOf(fitStudy(points, runs), new Date()) };
} catch (error) {
  answer = { failure: (error as Error).message };
}
(parentPort as MessagePort).postMessage(answer);
