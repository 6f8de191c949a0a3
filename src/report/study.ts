/** A study folder's results: curves.csv, laws.json, and the report with its charts. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { readDatasetFile } from "../data/dataset-file.ts";
import { InputError } from "../errors.ts";
import { writeWhole } from "../files.ts";
import {
  type Bucket,
  type FitResult,
  formatCurves,
  type Interval,
  largestRise,
  suddenDrop,
} from "../fit/index.ts";
import type { CurvePoint } from "../fit/types.ts";
import { byReason, fewOf } from "../fit/words.ts";
import { nonEmbeddingParameters } from "../model/config.ts";
import { fewerSteps, runPoints } from "../study/curves.ts";
import {
  paths,
  readRuns,
  readStudyFile,
  reasonIn,
  type StudyFile,
  studyInWords,
  type UnreadableRun,
} from "../study/folder.ts";
import { fitStudy, problemOf, type RunEnd } from "../study/laws.ts";
import { sweptBy, trainingPoints } from "../study/swept.ts";
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
import { formatCount, formatFixed } from "./labels.ts";
import { type WrittenReport, writeReport } from "./report.ts";
import type { RunSummary, StudyDescription } from "./sections.ts";
import { formatReading } from "./tables.ts";
import type { TrainingCurve } from "./training.ts";

export interface StudyReport extends WrittenReport {
  readonly fit: FitResult;
  /** The finding in words, for the terminal. */
  readonly summary: string;
}

interface StudyRun {
  readonly name: string;
  readonly config: RunConfig;
  readonly status: RunStatus | null;
  /** As `RunEnd` has them. */
  readonly problem: string | undefined;
  readonly lost: NonNullable<RunEnd["lost"]>;
  /** The last step; undefined before there is one, and when the log is lost. */
  readonly last: MetricsRecord | undefined;
  /** Where the training loss was not finite, or rose, in words. */
  readonly odd: string | undefined;
  readonly training: TrainingCurve;
  readonly evaluations: readonly EvaluationRecord[];
  readonly recall: RecallResult | null;
  readonly truncated: TruncatedResult | null;
}

export interface StudyReportOptions {
  readonly headline?: Bucket;
  readonly baseline?: string;
  readonly xDomain?: Interval;
  readonly yDomain?: Interval;
}

/**
 * Writes curves.csv (all runs), laws.json and the report of the runs that finished. A run whose files cannot be read is
 * named with the reason and loses the others nothing. `InputError` when the folder is no study or no run of it has
 * finished.
 */
export function studyReport(folder: string, options: StudyReportOptions = {}): StudyReport {
  const study = readStudyFile(folder);
  if (!study) throw new InputError(`${folder} holds no study: there is no study.json in it`);
  const { runs, unreadable } = readRuns(folder, readRun);
  const finished = runs.filter((run) => run.status?.state === "finished");
  if (finished.length === 0) throw new InputError(nothingFinished(folder, runs, unreadable));
  const points = runs.flatMap(({ name, config, evaluations }) => runPoints(name, config, evaluations));
  const ends = [
    ...runs.map((run): RunEnd => {
      const { name, config, status, problem, lost, evaluations, training } = run;
      const last = evaluations.at(-1);
      const finished = status?.state === "finished";
      const { drop } = training;
      const documents = last?.final ? last.documents : undefined;
      const size = { model: config.model, parameters: nonEmbeddingParameters(config.shape) };
      const truncated = run.truncated ? { ...size, result: run.truncated } : undefined;
      const recall = run.recall ? { ...size, result: run.recall } : undefined;
      return {
        ...{
          name,
          config,
          finished,
          epochs: status?.epochs,
          problem,
          lost,
          drop,
          documents,
          truncated,
          recall,
        },
        ...timesOf(run),
      };
    }),
    ...unreadable.map(({ name, reason }): RunEnd => {
      return { name, finished: false, problem: `cannot be read: ${reason}` };
    }),
  ];
  const result = fitStudy(points, ends, { headline: options.headline, baseline: options.baseline });

  writeWhole(join(folder, "curves.csv"), formatCurves(points));
  writeWhole(join(folder, "laws.json"), `${JSON.stringify(result, null, 2)}\n`);
  const written = writeReport(folder, {
    title: study.name,
    points,
    fit: result,
    runs: [
      ...runs.map(summarise),
      ...unreadable.map(({ name, reason }): RunSummary => {
        return { run: name, attention: "unknown", model: "unknown", state: "unreadable", message: reason };
      }),
    ],
    description: describe(folder, study, finished),
    headline: options.headline,
    xDomain: options.xDomain,
    yDomain: options.yDomain,
    metrics: runs.map(({ training }) => training),
    truncated: finished.flatMap(({ truncated: result, config: { attention, model } }) =>
      result ? [{ attention, model, result }] : [],
    ),
    recalls: finished.flatMap(({ recall: result, config: { attention, model } }) =>
      result ? [{ attention, model, result }] : [],
    ),
    swept: finished.flatMap(({ name: run, evaluations, config, training, problem }) => {
      const last = evaluations.at(-1);
      if (!last || problem !== undefined) return [];
      return [{ run, attention: config.attention, loss: last.lm_loss, ...sweptBy(config, training.drop) }];
    }),
  });
  return { ...written, fit: result, summary: formatReading(result, options.headline) };
}

/** Throws when a file of the run that its laws need cannot be read. */
function readRun(run: string, name: string): StudyRun {
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
  const points = trainingPoints(config, steps);
  const training = trainingOf(name, config, steps, points);
  return {
    name,
    config,
    status,
    problem: problemOf(evaluations.at(-1), finished),
    lost,
    last: steps.at(-1),
    odd: oddLosses(steps) ?? riseOf(points),
    training: log ? training : { ...training, drop: undefined },
    evaluations,
    recall: attempt("recall by distance", () => readRecall(run)),
    truncated: attempt("losses with less context", () => readTruncated(run)),
  };
}

/** What there is in place of a finished run, and what would make one. */
function nothingFinished(
  folder: string,
  runs: readonly StudyRun[],
  unreadable: readonly UnreadableRun[],
): string {
  const states = byReason(runs, ({ status }) => status?.state ?? "planned").map((group) => {
    const names = group.map(({ name, status, last }) => {
      const step = last?.step;
      return `${name}${step === undefined ? "" : ` at step ${step}`}${status?.message ? ` (${status.message})` : ""}`;
    });
    return `; ${group[0].status?.state ?? "planned"}: ${fewOf(names)}`;
  });
  const reasons = unreadable.map(({ name, reason }) => `; ${name} cannot be read: ${reason}`);
  return (
    `${folder} has ${runs.length + unreadable.length} runs of which none has finished, so there is nothing to fit` +
    `${[...states, ...reasons].join("")}; the command of the study goes on with them, and \`mobalab serve ${folder}\` shows their curves`
  );
}

function trainingOf(
  name: string,
  config: RunConfig,
  steps: readonly MetricsRecord[],
  points: readonly CurvePoint[],
): TrainingCurve {
  return {
    run: name,
    attention: config.attention,
    model: config.model,
    tokens: Float64Array.from(steps, ({ tokens }) => tokens),
    losses: Float64Array.from(steps, ({ loss }) => loss),
    drop: suddenDrop(points),
  };
}

function summarise(run: StudyRun): RunSummary {
  const { name, config, status, problem, lost, last: step, odd, evaluations } = run;
  const reasons = lost.map(({ reason }) => reason).join("; ");
  const last = evaluations.at(-1);
  return {
    run: name,
    attention: config.attention,
    model: config.model,
    seed: config.seed,
    state: status?.state ?? "planned",
    parameters: nonEmbeddingParameters(config.shape),
    tokens: step?.tokens,
    learningRate: config.optimizer.learningRate,
    pflops_days: step?.pflops_days,
    pflops_days_attended: step?.pflops_days_attended,
    lm_loss: last?.final ? last.lm_loss : undefined,
    tokens_per_second: step && step.time_s > 0 ? step.tokens / step.time_s : undefined,
    ...timesOf(run),
    message: status?.message ?? problem ?? (reasons || odd),
  };
}

/** Of a run without its last evaluation, what evaluating took is not known. */
function timesOf({ last, evaluations, status }: StudyRun): { time_s?: number; evaluation_s?: number } {
  const whole = status?.state !== "finished" || evaluations.at(-1)?.final;
  const evaluation_s = evaluations.reduce((sum, { evaluation_s = 0 }) => sum + evaluation_s, 0);
  return { time_s: last?.time_s, evaluation_s: whole ? evaluation_s : undefined };
}

/** Says where the training loss had risen most. */
function riseOf(points: readonly CurvePoint[]): string | undefined {
  const rise = largestRise(points);
  if (rise === null) return undefined;
  return `unstable: training loss ${formatFixed(100 * (rise.factor - 1), 0)} % above its lowest at ${formatCount(rise.at)} tokens`;
}

/** Says at which steps the training loss was not finite; undefined when at none. */
function oddLosses(steps: readonly MetricsRecord[]): string | undefined {
  const odd = steps.filter(({ loss }) => !Number.isFinite(loss));
  if (odd.length === 0) return undefined;
  const more = odd.length > 1 ? ` and at ${odd.length - 1} more` : "";
  return `training loss ${odd[0].loss} at step ${odd[0].step}${more}`;
}

function describe(folder: string, study: StudyFile, finished: readonly StudyRun[]): StudyDescription {
  // Runs of one attention differ a little in the documents they saw; the mean stands for them.
  const shares = new Map<string, number[]>();
  for (const { config, status } of finished) {
    shares.set(config.attention, [...(shares.get(config.attention) ?? []), status!.sparsity]);
  }
  const sparsity: Record<string, number> = {};
  for (const [label, values] of shares)
    sparsity[label] = values.reduce((sum, value) => sum + value, 0) / values.length;
  const { hardware, version } = studyInWords(study);
  return {
    corpus: corpusInWords(folder, study),
    tokenizer: study.tokenizer,
    context: study.context,
    sparsity,
    rule: study.rule,
    hardware,
    version,
    created: study.created,
    commands: [study.command, "# in the study's folder:", "mobalab report .", "mobalab fit curves.csv"],
  };
}

function corpusInWords(folder: string, study: StudyFile): string {
  const { source } = studyInWords(study);
  // A study merged from copies may come without its data.
  if (!existsSync(paths.data(folder))) return source;
  const { train, heldOut } = readDatasetFile(paths.data(folder));
  const tokens = (documents: readonly { readonly tokens: number }[]) =>
    formatCount(documents.reduce((sum, document) => sum + document.tokens, 0));
  return `${source}: ${train.length} training documents (${tokens(train)} tokens), ${heldOut.length} held out (${tokens(heldOut)} tokens)`;
}
