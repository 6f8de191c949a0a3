/** A thread that fits the laws of one study and ends: fitting takes seconds, and readers are answered meanwhile. */
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import type { CurvePoint, FitResult } from "../fit/types.ts";
import { fitStudy, type RunEnd } from "../study/laws.ts";

export interface FitInput {
  readonly points: readonly CurvePoint[];
  readonly runs: readonly RunEnd[];
}

export type FitAnswer = { readonly fit: FitResult } | { readonly failure: string };

const { points, runs } = workerData.input as FitInput;
let answer: FitAnswer;
try {
  answer = { fit: fitStudy(points, runs) };
} catch (error) {
  answer = { failure: (error as Error).message };
}
(parentPort as MessagePort).postMessage(answer);
