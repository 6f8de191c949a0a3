/** The laws of a study: fitted through the runs that finished, saying which did not. */
import { coversContext, fullReach } from "../attention/schedule.ts";
import { isUsual } from "../fit/drops.ts";
import {
  type CurvePoint,
  type FitOptions,
  type FitResult,
  fitKnown,
  type RunFacts,
  type SuddenDrop,
  sameBucket,
} from "../fit/index.ts";
import { withSentences } from "../fit/parts.ts";
import {
  allOf,
  byReason,
  fewOf,
  listOf,
  MOST_TOLD,
  nameAttentions,
  orderAttentions,
  sortByAttention,
} from "../fit/words.ts";
import type { ModelConfig } from "../model/config.ts";
import { ladderDifferences, optionsOf, recipeDifferences } from "../train/config.ts";
import { RECALL_FILE } from "../train/recall.ts";
import { TRUNCATED_FILE } from "../train/truncated.ts";
import type { EvaluationRecord, RecallResult, RunConfig, TruncatedResult } from "../train/types.ts";
import { contextInWords, positionInWords } from "./documents.ts";
import { recallInWords } from "./recall.ts";
import { dropState, offTrend } from "./swept.ts";
import { variantsInWords } from "./variants.ts";

/** What the laws of a study must know of a run beside its curve. */
export interface RunEnd {
  readonly name: string;
  readonly finished: boolean;
  /** Its last held-out loss, over all positions. */
  readonly lm_loss?: number;
  /** Passes over the training documents; of a finished run. */
  readonly epochs?: number;
  /** What it trained with, where that could be read. */
  readonly config?: Config;
  /** Why no law goes through it although it may have finished, to follow its name. */
  readonly problem?: string;
  /** What is known of other runs and not of it, and why. */
  readonly lost?: readonly { readonly what: string; readonly reason: string }[];
  /** The sudden drop of its training loss, null when it has none; absent when its training log is not known. */
  readonly drop?: SuddenDrop | null;
  /** Final losses by document. */
  readonly documents?: EvaluationRecord["documents"];
  /** Losses with less context, and what tells sizes apart: the model's name, and its parameters without embeddings. */
  readonly truncated?: {
    readonly model: string;
    readonly parameters: number;
    readonly result: TruncatedResult;
  };
  readonly recall?: { readonly model: string; readonly parameters: number; readonly result: RecallResult };
  /** Seconds of training and of evaluating. */
  readonly time_s?: number;
  readonly evaluation_s?: number;
}

/** What of a run's config decides which pairs are attended. */
export interface Attended {
  readonly attention: string;
  readonly context: number;
  readonly shape: { readonly layers: number } & Partial<ModelConfig>;
}

/** What `RunEnd.lost` calls the two that a run measures at its end. */
export const TRUNCATED = "losses with less context";
export const RECALL = "recall by distance";

/** Unfinished runs that are named, at most. */
const MOST_NAMED = 12;

/** What is kept in `laws.json`. */
export interface StudyFit extends FitResult {
  /** The finished runs that the laws know, with their last held-out losses: those of other runs are other laws. */
  readonly fitted_runs: Readonly<Record<string, number>>;
}

type Config = Attended & Partial<Omit<RunConfig, keyof Attended>>;

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
  const each = [...new Set(said)];
  const more = each.length - MOST_TOLD;
  return [
    ...each.slice(0, MOST_TOLD),
    ...(more > 0
      ? [`${more} more attention${more > 1 ? "s attend" : " attends"} to everything as well`]
      : []),
  ];
}

/** What keeps a run out of the laws, which go through the loss at the end and no other: given its last evaluation. */
export function problemOf(
  last:
    | (Pick<EvaluationRecord, "lm_loss" | "final"> & { readonly buckets: readonly { lm_loss: number }[] })
    | undefined,
  finished: boolean,
): string | undefined {
  if (finished && !last?.final) {
    return "has finished, but its eval.jsonl is missing or ends before the last evaluation";
  }
  return !last || [last, ...last.buckets].every(({ lm_loss }) => Number.isFinite(lm_loss))
    ? undefined
    : "has a last held-out loss that is not a finite number";
}

/** Whether a run is one that laws can go through. */
export function isFitted({ finished, problem }: Pick<RunEnd, "finished" | "problem">): boolean {
  return finished && problem === undefined;
}

/** As `laws.json` has them. */
export function fittedRuns(
  runs: readonly Pick<RunEnd, "name" | "finished" | "problem" | "lm_loss">[],
): StudyFit["fitted_runs"] {
  const losses = runs.filter(isFitted).map(({ name, lm_loss }): [string, number] => [name, lm_loss ?? 0]);
  return Object.fromEntries(losses.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/**
 * `points` are those of all runs; attentions are named in the order of the runs. Throws `InputError` when nothing can be
 * fitted.
 */
export function fitStudy(
  points: readonly CurvePoint[],
  ends: readonly RunEnd[],
  options: Omit<FitOptions, "runs"> = {},
): StudyFit {
  const attentions = orderAttentions(ends.flatMap(({ config }) => config?.attention ?? []));
  const runs = sortByAttention(ends, attentions, ({ config }) => config?.attention);
  const finished = runs.filter(isFitted);
  const names = new Set(finished.map((run) => run.name));
  const outOfTrend = offTrend(finished.map(({ drop }) => dropState(drop)));
  const facts = new Map<string, RunFacts>(
    finished.map(({ name, epochs, documents, config, drop }) => {
      const reach = config && fullReach(config.attention, config.shape.layers);
      return [
        name,
        { epochs, decayed: true, documents, reach, offTrend: outOfTrend(dropState(drop)) !== undefined },
      ];
    }),
  );
  const own = points.filter((point) => names.has(point.run!));
  // The fit names attentions in the order of its rows.
  const { result, known } = fitKnown(
    sortByAttention(own, attentions, ({ attention }) => attention),
    { ...options, runs: facts },
  );
  const problems = leftOutOf(
    "the laws",
    runs.flatMap(({ name, problem }) => (problem === undefined ? [] : { name, reason: problem })),
    (names, reason) => `${fewOf(names)}${names.length > 1 ? ", each of which" : ""} ${reason}`,
  );
  const unfinished = runs.filter((run) => !run.finished && run.problem === undefined).map((run) => run.name);
  if (unfinished.length > 0) {
    problems.push(`not finished, so left out of the laws: ${fewOf(unfinished, MOST_NAMED)}`);
  }
  const losses = runs.flatMap(({ name, lost = [] }) => lost.map((one) => ({ name, ...one })));
  const lost = byReason(losses, ({ what }) => what).flatMap((same) =>
    leftOutOf(same[0].what, same, (names, reason) => `${fewOf(names)}, whose ${reason}`),
  );
  const configs = finished.flatMap(({ config }) => config ?? []);
  const alike = sameAsFull(configs);
  const { past, short } = dropsInWords(runs, finished);
  const { answers, details } = variantsInWords(known, finished);
  const compared = result.comparisons.some((comparison) => sameBucket(comparison, known.headline));
  return {
    ...result,
    fitted_runs: fittedRuns(runs),
    warnings: [
      ...alike,
      ...sizesInWords(configs),
      ...(result.laws.length > 0 ? ratesInWords(configs) : []),
      ...problems,
      ...lost,
      ...missingInWords(finished),
      ...short,
      ...result.warnings,
    ],
    ...withSentences(result, {
      "In short": compared ? [] : answers,
      "Single sizes": [...(compared ? answers : []), ...details],
      "By position": positionInWords(finished),
      Context: [...contextInWords(finished), ...recallInWords(finished)],
      "Training and cost": [...past, ...costInWords(runs)],
    }),
  };
}

/** A warning for each reason, at most `MOST_TOLD`, and one of how many runs have others. */
function leftOutOf(
  what: string,
  runs: readonly { readonly name: string; readonly reason: string }[],
  words: (names: readonly string[], reason: string) => string,
): string[] {
  const groups = byReason(runs, ({ reason }) => reason);
  const told = groups.slice(0, MOST_TOLD).map((group) => {
    const names = group.map(({ name }) => name);
    return `left out of ${what}: ${words(names, group[0].reason)}`;
  });
  const more = groups.slice(MOST_TOLD).flat().length;
  const s = more === 1 ? "" : "s";
  return [...told, ...(more > 0 ? [`left out of ${what}: ${more} more run${s}, for other reasons`] : [])];
}

/** Says which runs go by one size's name and are not of one shape and recipe, and which sizes are of another than others. */
export function sizesInWords(configs: readonly Config[]): string[] {
  const named = configs.filter(({ model }) => model !== undefined);
  const sizes = byReason(named, ({ model }) => model!).flatMap((size) => {
    const differences = recipeDifferences(size);
    if (differences.length === 0) return [];
    const words = differences.map(
      ({ field, values }) => `${field.replace(/^shape\./, "")}: ${listOf(values, ", ", " and ")}`,
    );
    const seeds = byReason(size, ({ attention }) => attention).some(
      (own) => recipeDifferences(own).length > 0,
    );
    const taken = seeds ? "averaged as seeds" : "compared as one size";
    return [`runs of ${size[0].model} differ in ${words.join(", ")}; they are ${taken}`];
  });
  const ladder = ladderDifferences(named).map(({ field, values }) => {
    const words = values.map(({ value, models }) => `${value} (${fewOf(models)})`);
    return `the sizes differ in ${field.replace(/^shape\./, "")}: ${listOf(words, ", ", " and ")}; laws through them are those of no one recipe`;
  });
  return [...sizes, ...ladder];
}

/** Laws go through every model of a sweep: says of which. */
function ratesInWords(configs: readonly Config[]): string[] {
  const sweeps = optionsOf(configs).filter(({ field }) => field === "optimizer.learningRate");
  if (sweeps.length === 0) return [];
  const models = sweeps.map(({ models }) => fewOf(models.map(({ model }) => model)));
  return [
    `models that differ in nothing but their learning rate count as sizes (${models.slice(0, MOST_TOLD).join("; ")}); ` +
      "laws through them are those of no one recipe",
  ];
}

/** Names runs without what others measured at their end; of files that cannot be read `lost` tells. */
function missingInWords(finished: readonly RunEnd[]): string[] {
  const lacking = (what: string, file: string, due: readonly RunEnd[], has: (run: RunEnd) => unknown) => {
    const without = due.filter((run) => !has(run) && !run.lost?.some((one) => one.what === what));
    if (without.length === 0 || !finished.some(has)) return [];
    const names = fewOf(without.map(({ name }) => name));
    return [`left out of ${what}: ${names}, which ${without.length === 1 ? "has" : "have"} no ${file}`];
  };
  const asked = finished.filter(({ config }) => config?.recall !== undefined);
  return [
    ...lacking(TRUNCATED, TRUNCATED_FILE, finished, ({ truncated }) => truncated),
    ...lacking(RECALL, RECALL_FILE, asked, ({ recall }) => recall),
  ];
}

/** Where the training losses drop, if they do, and which runs end before that or in it, so that no law holds for them. */
function dropsInWords(
  runs: readonly RunEnd[],
  finished: readonly RunEnd[],
): { past: string[]; short: string[] } {
  const known = finished.filter(({ drop, config }) => drop !== undefined && config !== undefined);
  const dropped = known.filter(({ drop }) => drop !== null);
  if (dropped.length === 0) return { past: [], short: [] };
  const ends = (runs: readonly RunEnd[]) => fewOf(runs.map((run) => run.name));
  if (!isUsual(dropped.length, known.length)) {
    const few = `a sudden drop of the training loss, which most runs have not, so not on their trend: ${ends(dropped)}`;
    return { past: [], short: [few] };
  }
  const name = nameAttentions(known.map(({ config }) => config!.attention));
  const places = byReason(dropped, ({ config }) => config!.attention).map((group) => {
    const middles = group.map(({ drop }) => drop!.middle);
    const [first, last] = [Math.min(...middles), Math.max(...middles)].map(millions);
    return `${first === last ? first : `${first} to ${last}`} with ${name(group[0].config!.attention)}`;
  });
  const without = known.filter(({ drop }) => drop === null);
  const within = dropped.filter(({ drop }) => drop!.atEnd);
  const others = moreThan(known, runs);
  const all =
    without.length + within.length === 0 && !others
      ? "Every finished run ends past a sudden drop of its"
      : `${dropped.length - within.length} of ${known.length} finished runs${others ? " whose training log and losses are known" : ""} ` +
        "end past a sudden drop of their";
  return {
    past: [
      `${all} training loss, such as when copying from the context is learned; ` +
        `the middle lies at ${allOf(places)} (million tokens).`,
    ],
    short: [
      ...(without.length > 0
        ? [`no sudden drop of the training loss, which others have, so not on their trend: ${ends(without)}`]
        : []),
      ...(within.length > 0
        ? [`ends in or just after a sudden drop of the training loss, so not on the trend: ${ends(within)}`]
        : []),
    ],
  };
}

/** Whether others of the runs have finished, or may have. */
function moreThan(known: readonly RunEnd[], runs: readonly RunEnd[]): boolean {
  return runs.some((run) => !known.includes(run) && (run.finished || run.problem !== undefined));
}

const millions = (tokens: number) => String(Number((tokens / 1e6).toPrecision(3)));

/** What all runs took, unfinished and failed ones too. */
function costInWords(runs: readonly RunEnd[]): string[] {
  const timed = runs.filter(
    ({ time_s, evaluation_s, config }) =>
      (time_s ?? 0) > 0 && evaluation_s !== undefined && config !== undefined,
  );
  if (timed.length === 0) return [];
  const sum = (some: readonly RunEnd[], of: "time_s" | "evaluation_s") =>
    some.reduce((seconds, run) => seconds + (run[of] ?? 0), 0);
  const name = nameAttentions(timed.map(({ config }) => config!.attention));
  const [training, evaluating] = [sum(timed, "time_s"), sum(timed, "evaluation_s")];
  const minutes = (seconds: number) => (seconds / 60).toFixed(1);
  const parts = byReason(timed, ({ config }) => config!.attention).map(
    (group) => `${name(group[0].config!.attention)} ${minutes(sum(group, "time_s"))}`,
  );
  const share = ((100 * evaluating) / (training + evaluating)).toFixed(1);
  return [
    `${timed.length} run${timed.length === 1 ? "" : "s"} ${moreThan(timed, runs) ? "whose times are known " : ""}trained for ${minutes(training)} minutes in all (${fewOf(parts, MOST_TOLD)}) and evaluated for ` +
      `${minutes(evaluating)} (${share} %), without their starts.`,
  ];
}
