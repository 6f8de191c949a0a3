/** The laws of a study: fitted through the runs that finished, saying which did not. */
import { coversContext } from "../attention/schedule.ts";
import { type CurvePoint, type FitOptions, type FitResult, fit, type RunFacts } from "../fit/index.ts";

/** What the laws of a study must know of a run beside its curve. */
export interface RunEnd {
  readonly name: string;
  readonly finished: boolean;
  /** Passes over the training documents; of a finished run. */
  readonly epochs?: number;
  /** What it trained with, where that could be read. */
  readonly config?: Attended;
  /** Why no law goes through it although it may have finished, to follow its name. */
  readonly problem?: string;
}

/** What of a run's config decides which pairs are attended. */
export interface Attended {
  readonly attention: string;
  readonly context: number;
  readonly shape: { readonly layers: number };
}

/** Says which attentions are full attention under another name, because their top-k blocks are the whole context. */
export function sameAsFull(configs: readonly Attended[]): string[] {
  const said = configs.flatMap(({ attention, context, shape }) => {
    const covering = coversContext(attention, shape.layers, context);
    if (covering === null) return [];
    const { blockSize, topK } = covering;
    return [
      `${attention} attends to everything, as full attention does: its ${topK} blocks (top-k) of ${blockSize} tokens hold the` +
        ` whole context of ${context}; to compare the two, take a context above ${blockSize * topK}, smaller blocks or a smaller top-k`,
    ];
  });
  return [...new Set(said)];
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
  const alike = sameAsFull(finished.flatMap(({ config }) => config ?? []));
  return { ...result, warnings: [...alike, ...problems, ...result.warnings] };
}
