/** What the files of a study's runs say, and the laws through those that finished. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { InputError } from "../errors.ts";
import { type FitOptions, type SuddenDrop, suddenDrop } from "../fit/index.ts";
import type { CurvePoint } from "../fit/types.ts";
import { nonEmbeddingParameters } from "../model/config.ts";
import { readRunConfig } from "../train/config.ts";
import { readRecall } from "../train/recall.ts";
import {
  EVALUATIONS_FILE,
  METRICS_FILE,
  readEvaluations,
  readMetrics,
  readStatus,
} from "../train/records.ts";
import { readTruncated } from "../train/truncated.ts";
import type {
  EvaluationRecord,
  MetricsRecord,
  RecallResult,
  RunConfig,
  RunStatus,
  TruncatedResult,
} from "../train/types.ts";
import { fewerSteps, runPoints } from "./curves.ts";
import { reasonIn, type UnreadableRun } from "./folder.ts";
import { fitStudy, problemOf, RECALL, type RunEnd, type StudyFit, TRUNCATED } from "./laws.ts";
import { trainingPoints } from "./swept.ts";

export interface StudyRun {
  readonly name: string;
  readonly config: RunConfig;
  readonly status: RunStatus | null;
  readonly finished: boolean;
  /** As `RunEnd` has them. */
  readonly problem: string | undefined;
  readonly lost: NonNullable<RunEnd["lost"]>;
  readonly drop: SuddenDrop | null | undefined;
  /** Of `fewerSteps`; none when the log is lost. */
  readonly steps: readonly MetricsRecord[];
  /** As `trainingPoints` makes them of the steps. */
  readonly training: readonly CurvePoint[];
  readonly evaluations: readonly EvaluationRecord[];
  readonly recall: RecallResult | null;
  readonly truncated: TruncatedResult | null;
}

/** Throws when a file of the run that its laws need cannot be read. */
export function readStudyRun(run: string, name: string): StudyRun {
  const config = readRunConfig(run);
  const status = readStatus(run);
  const evaluations = readEvaluations(join(run, EVALUATIONS_FILE));
  const finished = status?.state === "finished";
  const lost: { what: string; reason: string }[] = [];
  const attempt = <Read>(what: string, read: () => Read): Read | null => {
    try {
      return read();
    } catch (error) {
      lost.push({ what, reason: reasonIn(run, error) });
      return null;
    }
  };
  const log = attempt("statements on training losses and times", () => {
    const file = join(run, METRICS_FILE);
    const steps = fewerSteps(readMetrics(file));
    const step = steps.at(-1)?.step ?? 0;
    if (!finished || step >= status.step) return steps;
    const short = step === 0 ? "has no record of a step" : `ends at step ${step} of ${status.step}`;
    throw new InputError(`${METRICS_FILE} ${existsSync(file) ? short : "is missing"}`);
  });
  const steps = log ?? [];
  const training = trainingPoints(config, steps);
  return {
    name,
    config,
    status,
    finished,
    problem: problemOf(evaluations.at(-1), finished),
    lost,
    drop: log ? suddenDrop(training) : undefined,
    steps,
    training,
    evaluations,
    recall: attempt(RECALL, () => readRecall(run)),
    truncated: attempt(TRUNCATED, () => readTruncated(run)),
  };
}

/** Of a run without its last evaluation, what evaluating took is not known. */
export function timesOf({ steps, evaluations, finished }: StudyRun): {
  time_s?: number;
  evaluation_s?: number;
} {
  const whole = !finished || evaluations.at(-1)?.final;
  const evaluation_s = evaluations.reduce((sum, { evaluation_s = 0 }) => sum + evaluation_s, 0);
  return { time_s: steps.at(-1)?.time_s, evaluation_s: whole ? evaluation_s : undefined };
}

/** The curves table of all runs, and the laws through those that finished. */
export function fitRuns(
  runs: readonly StudyRun[],
  unreadable: readonly UnreadableRun[],
  options: Omit<FitOptions, "runs"> = {},
): { points: CurvePoint[]; fit: StudyFit } {
  const points = runs.flatMap(({ name, config, evaluations }) => runPoints(name, config, evaluations));
  const ends = [
    ...runs.map(endOf),
    ...unreadable.map(({ name, reason }): RunEnd => {
      return { name, finished: false, problem: `cannot be read: ${reason}` };
    }),
  ];
  return { points, fit: fitStudy(points, ends, options) };
}

function endOf(run: StudyRun): RunEnd {
  const { name, config, finished, problem, lost, drop, recall, truncated } = run;
  const last = run.evaluations.at(-1);
  const size = { model: config.model, parameters: nonEmbeddingParameters(config.shape) };
  return {
    ...{ name, config, finished, problem, lost, drop },
    lm_loss: last?.lm_loss,
    epochs: run.status?.epochs,
    documents: last?.final ? last.documents : undefined,
    truncated: truncated ? { ...size, result: truncated } : undefined,
    recall: recall ? { ...size, result: recall } : undefined,
    ...timesOf(run),
  };
}
