/** The laws of a study: fitted through the runs that finished, saying which did not. */
import { type CurvePoint, type FitOptions, type FitResult, fit, type RunFacts } from "../fit/index.ts";

/** What the laws of a study must know of a run beside its curve. */
export interface RunEnd {
  readonly name: string;
  readonly finished: boolean;
  /** Passes over the training documents; of a finished run. */
  readonly epochs?: number;
}

/** `points` are those of all runs. Throws `InputError` when nothing can be fitted. */
export function fitStudy(
  points: readonly CurvePoint[],
  runs: readonly RunEnd[],
  options: Omit<FitOptions, "runs"> = {},
): FitResult {
  const finished = runs.filter((run) => run.finished);
  const names = new Set(finished.map((run) => run.name));
  const facts = new Map<string, RunFacts>(
    finished.map(({ name, epochs }) => [name, { epochs, decayed: true }]),
  );
  const result = fit(
    points.filter((point) => names.has(point.run!)),
    { ...options, runs: facts },
  );
  const leftOut = runs.filter((run) => !run.finished).map((run) => run.name);
  if (leftOut.length === 0) return result;
  return {
    ...result,
    warnings: [`not finished, so left out of the laws: ${leftOut.join(", ")}`, ...result.warnings],
  };
}
