/** A study folder's results: curves.csv, laws.json, and the report with its charts. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { readDatasetFile } from "../data/dataset-file.ts";
import { InputError } from "../errors.ts";
import { writeWhole } from "../files.ts";
import { type Bucket, type FitResult, formatCurves, type Interval, largestRise } from "../fit/index.ts";
import type { CurvePoint } from "../fit/types.ts";
import { byReason, fewOf, MOST_TOLD } from "../fit/words.ts";
import { nonEmbeddingParameters } from "../model/config.ts";
import {
  paths,
  readRuns,
  readStudyFile,
  type StudyFile,
  studyInWords,
  type UnreadableRun,
} from "../study/folder.ts";
import { recipeInWords } from "../study/recipe.ts";
import { fitRuns, readStudyRun, type StudyRun, timesOf } from "../study/runs.ts";
import { sweptBy } from "../study/swept.ts";
import type { MetricsRecord } from "../train/types.ts";
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
  const { runs, unreadable } = readRuns(folder, readStudyRun);
  const finished = runs.filter((run) => run.finished);
  if (finished.length === 0) throw new InputError(nothingFinished(folder, runs, unreadable));
  const { points, fit } = fitRuns(runs, unreadable, {
    headline: options.headline,
    baseline: options.baseline,
  });

  writeWhole(join(folder, "curves.csv"), formatCurves(points));
  writeWhole(join(folder, "laws.json"), `${JSON.stringify(fit, null, 2)}\n`);
  const written = writeReport(folder, {
    title: study.name,
    points,
    fit,
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
    metrics: runs.map(trainingOf),
    truncated: finished.flatMap(({ truncated: result, config: { attention, model } }) =>
      result ? [{ attention, model, result }] : [],
    ),
    recalls: finished.flatMap(({ recall: result, config }) => {
      const { attention, model, shape } = config;
      return result ? [{ attention, model, parameters: nonEmbeddingParameters(shape), config, result }] : [];
    }),
    swept: finished.flatMap(({ name: run, evaluations, config, drop, problem }) => {
      const last = evaluations.at(-1);
      if (!last || problem !== undefined) return [];
      return [{ run, attention: config.attention, loss: last.lm_loss, ...sweptBy(config, drop) }];
    }),
  });
  return { ...written, fit, summary: formatReading(fit, options.headline) };
}

/** What there is in place of a finished run, and what would make one. */
function nothingFinished(
  folder: string,
  runs: readonly StudyRun[],
  unreadable: readonly UnreadableRun[],
): string {
  const states = byReason(runs, ({ status }) => status?.state ?? "planned").map((group) => {
    const names = group.map(({ name, status, steps }) => {
      const step = steps.at(-1)?.step;
      return `${name}${step === undefined ? "" : ` at step ${step}`}${status?.message ? ` (${status.message})` : ""}`;
    });
    return `; ${group[0].status?.state ?? "planned"}: ${fewOf(names)}`;
  });
  const unread = byReason(unreadable, ({ reason }) => reason).map((group) => {
    return `${fewOf(group.map(({ name }) => name))} cannot be read: ${group[0].reason}`;
  });
  const reasons =
    unread.length > MOST_TOLD ? [...unread.slice(0, MOST_TOLD), "others for other reasons"] : unread;
  return (
    `${folder} has ${runs.length + unreadable.length} runs of which none has finished, so there is nothing to fit` +
    `${[...states, ...reasons.map((words) => `; ${words}`)].join("")}; the command of the study goes on with them, and \`mobalab serve ${folder}\` shows their curves`
  );
}

function trainingOf({ name, config, steps, drop }: StudyRun): TrainingCurve {
  return {
    run: name,
    attention: config.attention,
    model: config.model,
    tokens: Float64Array.from(steps, ({ tokens }) => tokens),
    losses: Float64Array.from(steps, ({ loss }) => loss),
    drop,
  };
}

function summarise(run: StudyRun): RunSummary {
  const { name, config, status, problem, lost, steps, training, evaluations } = run;
  const step = steps.at(-1);
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
    sparsity: status?.sparsity,
    message: status?.message ?? problem ?? (reasons || (oddLosses(steps) ?? riseOf(training))),
  };
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
    recipe: recipeInWords(finished.map(({ config }) => config)),
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
