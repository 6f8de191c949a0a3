/** The laws of a study: fitted through the runs that finished, saying which did not. */
import { type CurvePoint, type FitOptions, type FitResult, fit, type RunFacts } from "../fit/index.ts";

/** What the laws of a study must know of a run beside its curve. */
export interface RunEnd {
  readonly name: string;
  readonly finished: boolean;
  /** Passes over the training documents; of a finished run. */
  readonly epochs?: number;
  /** Why no law goes through it although it may have finished, to follow its name. */
  readonly problem?: string;
}

/** What keeps a run whose last losses are these out of the laws: they go through the loss at the end and no other. */
export function problemOf(lastLosses: readonly number[]): string | undefined {
  return lastLosses.every(Number.isFinite)
    ? undefined
    : "has a last held-out loss that is not a finite number";
}

/** `points` are those of all runs. Throws `InputError` when nothing can be fitted. */
export function fitStudy(
  points: readonly CurvePoint[],
  runs: readonly RunEnd[],
  options: Omit<FitOptions, "runs"> = {},
): FitResult {
  const finished = runs.filter((run) => run.finished && run.problem === undefined);
  const names = new Set(finished.map((run) => run.name));
  const facts = new Map<string, RunFacts>(
    finished.map(({ name, epochs }) => [name, { epochs, decayed: true }]),
  );
  const result = fit(
    points.filter((point) => names.has(point.run!)),
    { ...options, runs: facts },
  );
  const problems = runs.flatMap(({ name, problem }) =>
    problem === undefined ? [] : [`left out of the laws: ${name} ${problem}`],
  );
  const unfinished = runs.filter((run) => !run.finished && run.problem === undefined).map((run) => run.name);
  if (unfinished.length > 0) problems.push(`not finished, so left out of the laws: ${unfinished.join(", ")}`);
  return { ...result, warnings: [...problems, ...result.warnings] };
}
