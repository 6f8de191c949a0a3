/** A study from start to end of training: dataset, plan, runs. Finished runs are kept and skipped. */
import { existsSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { checkLearnedVocabulary } from "../data/bpe-learn.ts";
import { FILES, readDatasetFile } from "../data/dataset-file.ts";
import { readTokenizerFile } from "../data/hugging-face.ts";
import {
  byteTokenizer,
  countEvaluationWindows,
  demoCorpusPaths,
  demoHeldOut,
  openDataset,
  type PrepareProgress,
  prepareDataset,
} from "../data/index.ts";
import { InputError } from "../errors.ts";
import { makeFolder, unmakeFolder, writeWhole, writing } from "../files.ts";
import { findCheckpoint, readState } from "../train/checkpoint.ts";
import {
  type Difference,
  differenceInWords,
  differencesOf,
  ladderDifferences,
  parseRunConfig,
  readRunConfig,
  recipeDifferences,
} from "../train/config.ts";
import { checkShares } from "../train/peers.ts";
import { readStatus } from "../train/records.ts";
import { codeVersion, hostFacts, paths, readRuns, readStudyFile, type StudyFile } from "./folder.ts";
import { type FailedRun, type LocalOptions, runLocally } from "./local.ts";
import { type PlannedRun, planRuns } from "./plan.ts";
import type { Ladder } from "./presets.ts";
import { ruleInWords, rulesTogether } from "./rule.ts";

export interface StudyOptions {
  readonly ladder: Ladder;
  readonly folder: string;
  /** Paths of the user's own text; null: the demo corpus. */
  readonly text: readonly string[] | null;
  /** A dataset made before, used where it lies; null: made from the text. */
  readonly data: string | null;
  /** Names of runs, to plan and train no others; null: all. */
  readonly only: readonly string[] | null;
  readonly command: string;
  readonly device: string;
  /** Cards that train a run together. */
  readonly gpus: number;
  /** The devices in words, for the record. */
  readonly hardware: string;
}

/** The plan without writing anything. Refuses what `prepareStudy` does. */
export function planStudy(options: StudyOptions): PlannedRun[] {
  lookAt(options);
  return planned(options);
}

/** The plan beside the runs there: the vocabulary from the tokenizer's name, or from the dataset when it is there. */
function planned(options: StudyOptions): PlannedRun[] {
  const plan = chosen(expanded(options), options);
  checkRunsThere(options.folder, plan);
  return plan;
}

function expanded({ ladder, folder, text, data, device, gpus }: StudyOptions): PlannedRun[] {
  const made = dataAt(folder, data);
  if (made !== null) {
    const dataset = openDataset(made);
    const { maxDocuments } = dataset.trainingStream(ladder.context, ladder.seeds[0]);
    const heldOutWindows = countEvaluationWindows(dataset, ladder.context);
    const { vocabulary } = dataset;
    return planRuns(ladder, { vocabulary, maxDocuments, heldOutWindows, device, gpus });
  }
  for (const path of text ?? []) {
    if (!existsSync(path)) throw new InputError(`--text ${path}: there is no such file or folder`);
  }
  const vocabulary = vocabularyOf(ladder.tokenizer);
  return planRuns(ladder, { vocabulary, maxDocuments: 1, device, gpus });
}

/**
 * The dataset that the runs train on: the folder's own when there is one, else the one named; null when there is neither.
 * A folder that was kept without its tokens takes those of a dataset that describes itself in the same words.
 */
function dataAt(folder: string, data: string | null): string | null {
  const own = paths.data(folder);
  if (statSync(own, { throwIfNoEntry: false })?.isFile()) {
    throw new InputError(
      `${own} is a file, expected the folder of a dataset (a checkout without symbolic links leaves such a file): delete it, and name the dataset with --data`,
    );
  }
  if (!isWithoutTokens(own)) return existsSync(own) ? own : data;
  const kept = `${own} describes a dataset without its tokens, as a study is kept`;
  if (data === null) throw new InputError(`${kept}: name that dataset with --data`);
  if (isDeepStrictEqual(readDatasetFile(data), readDatasetFile(own))) return data;
  throw new InputError(
    `${kept}, and ${data} is not the dataset it describes: name that one, or choose another --out`,
  );
}

function isWithoutTokens(data: string): boolean {
  return existsSync(join(data, FILES.description)) && !existsSync(join(data, FILES.train));
}

/** The runs that are asked for, in that order, when every run of the plan can be trained and is named apart from the others. */
function chosen(plan: PlannedRun[], { only, gpus }: StudyOptions): PlannedRun[] {
  checked(plan, gpus);
  if (only === null) return plan;
  return [...new Set(only)].map((name) => {
    const run = plan.find((run) => run.name === name);
    if (run) return run;
    throw new InputError(`--only ${name}: expected runs of ${plan.map((run) => run.name).join(", ")}`);
  });
}

/**
 * Prepares the folder: the dataset (kept when it is there and fits), `study.json` and each run's `config.json`.
 * Nothing is written when an option is wrong. A folder that holds another study is refused, naming what differs;
 * more sizes, attentions or seeds on the same data and context extend it, each size with the shape and recipe it has.
 * Returns the plan, and holds the folder's lock until `unlock`.
 */
export async function prepareStudy(
  options: StudyOptions,
  onProgress?: (progress: PrepareProgress) => void,
): Promise<PreparedStudy> {
  const known = lookAt(options);
  // Wrong options show here, before anything is written.
  planned(options);
  const { folder } = options;
  const firstMade = makeFolder(folder);
  let unlock: (() => void) | undefined;
  try {
    unlock = lock(folder);
    const plan = await writeStudy(options, known, onProgress);
    return { plan, inOrder: options.only !== null, unlock };
  } catch (error) {
    unlock?.();
    // A failure leaves no folder behind that was not there before, unless another process works in it by now.
    if (!existsSync(join(folder, LOCK))) unmakeFolder(folder, firstMade);
    throw error;
  }
}

export interface PreparedStudy {
  readonly plan: readonly PlannedRun[];
  /** Whether runs start in the order of the plan; else the longest first, so that none is left for the end. */
  readonly inOrder: boolean;
  readonly unlock: () => void;
}

/** What the folder holds, and what the data say of themselves. */
interface Known {
  readonly existing: StudyFile | null;
  readonly source: string;
  readonly tokenizer: string;
}

/** Throws when the folder holds another study. */
function lookAt({ ladder, folder, text, data }: StudyOptions): Known {
  const { source, tokenizer } = data
    ? sourceOf(data)
    : {
        source: text ? text.map((path) => resolve(path)).join(", ") : "demo",
        tokenizer: ladder.tokenizer,
      };
  const existing = readStudyFile(folder);
  if (existing) {
    const wanted = { context: ladder.context, buckets: ladder.buckets, tokenizer, source };
    for (const [field, value] of Object.entries(wanted)) {
      const there = existing[field as keyof typeof wanted];
      if (there !== value) {
        throw new InputError(
          `${folder} holds a study with ${field} ${there}, this one has ${value}: choose another --out`,
        );
      }
    }
  } else if (existsSync(paths.data(folder)) || existsSync(paths.runs(folder))) {
    throw new InputError(`${folder} holds data or runs but no study.json: choose another --out`);
  }
  return { existing, source, tokenizer };
}

/** Everything that `prepareStudy` writes, under its lock. */
async function writeStudy(
  options: StudyOptions,
  { existing, source, tokenizer }: Known,
  onProgress?: (progress: PrepareProgress) => void,
): Promise<PlannedRun[]> {
  const { ladder, folder, data, text } = options;
  if (!existsSync(paths.data(folder)) || isWithoutTokens(paths.data(folder))) {
    if (data) {
      // What the folder once pointed to may lie elsewhere now; a description alone is that of the dataset named.
      rmSync(paths.data(folder), { force: true, recursive: true });
      symlinkSync(resolve(data), paths.data(folder), "junction");
    } else {
      await prepareDataset(
        {
          folder: paths.data(folder),
          sources: text ?? demoCorpusPaths(),
          ...(text ? {} : { heldOut: demoHeldOut.slice(0, ladder.demoHeldOut) }),
          tokenizer: ladder.tokenizer,
          context: ladder.context,
        },
        onProgress,
      );
    }
  }
  const plan = planned(options);
  for (const { name, config } of plan) {
    const run = paths.run(folder, name);
    makeFolder(run);
    const path = join(run, "config.json");
    if (!existsSync(path)) writeWhole(path, `${JSON.stringify(config, null, 2)}\n`);
  }
  const study: StudyFile = {
    format: 1,
    name: existing?.name ?? basename(resolve(folder)),
    created: existing?.created ?? new Date().toISOString(),
    ...codeVersion(),
    host: hostFacts(options.hardware),
    preset: ladder.name,
    command: options.command,
    context: ladder.context,
    buckets: ladder.buckets,
    tokenizer,
    source,
    rule: rulesTogether(existing?.rule ?? "", ruleInWords(ladder)),
    runs: [...new Set([...(existing?.runs ?? []), ...plan.map((run) => run.name)])],
  };
  writeWhole(paths.study(folder), `${JSON.stringify(study, null, 2)}\n`);
  return plan;
}

/** Options that make a field what it is in the folder's runs. */
const OPTIONS: Readonly<Record<string, string>> = {
  "shape.ropeTheta": "--rope-theta",
  "shape.headDim": "--head-dim",
  recall: "--recall",
};
const OTHER = "choose another --out";

/**
 * Refuses a plan when runs of the folder are other than it says, by name, or by size: those are averaged as seeds, and
 * laws go through the sizes. With and without a key convolution sizes may stand side by side.
 */
function checkRunsThere(folder: string, plan: readonly PlannedRun[]): void {
  for (const { name, config } of plan) {
    const run = paths.run(folder, name);
    if (!existsSync(join(run, "config.json"))) continue;
    refuse(run, differencesOf([readRunConfig(run), config]), "", `${OTHER}, or delete that run's folder`);
  }
  for (const there of readRuns(folder, (run) => ({ run, config: readRunConfig(run) })).runs) {
    const { model } = there.config;
    const planned = plan.find(({ config }) => config.model === model);
    if (planned) {
      const differences = recipeDifferences([there.config, planned.config]);
      refuse(there.run, differences, `, and runs of one size (${model}) are averaged as seeds`, OTHER);
      continue;
    }
    const differences = ladderDifferences([there.config, plan[0].config])
      .filter(({ field }) => field !== "shape.keyConvolution")
      .map(({ field, values }) => ({ field, values: values.map(({ value }) => value) }));
    const sizes = `${model}, ${plan[0].config.model}`;
    refuse(there.run, differences, `, and laws go through sizes of one recipe (${sizes})`, OTHER);
  }
}

/** Throws when there are differences between a run and its plan: names the first, and the options that would undo any. */
function refuse(run: string, differences: readonly Difference[], why: string, otherwise: string): void {
  if (differences.length === 0) return;
  const options = differences.flatMap(({ field, values: [own] }) =>
    field in OPTIONS && own !== "none" ? `${OPTIONS[field]} ${own}` : [],
  );
  const give = options.length > 0 ? `give ${options.join(" ")}, or ` : "";
  throw new InputError(
    `${run} was planned with ${differenceInWords(differences[0])}${why}: ${give}${otherwise}`,
  );
}

/** What a dataset made before says of itself, in the words of a study. */
function sourceOf(data: string): { source: string; tokenizer: string } {
  const { source, tokenizer } = readDatasetFile(data);
  return { source: source.paths.join(", "), tokenizer: tokenizer.name };
}

/** The plan, when every run of it can be trained and is named apart from the others. */
function checked(plan: PlannedRun[], gpus: number): PlannedRun[] {
  const names = new Set<string>();
  for (const { name, config } of plan) {
    parseRunConfig(config, `run ${name}`);
    checkShares(config, gpus);
    if (names.has(name)) throw new InputError(`two runs would be called ${name}: name each attention once`);
    names.add(name);
  }
  return plan;
}

/** The vocabulary a tokenizer's spelling promises, for a plan before the data is read. */
function vocabularyOf(tokenizer: string): number {
  const learned = /^bpe-(\d+)$/.exec(tokenizer);
  if (learned) {
    checkLearnedVocabulary(Number(learned[1]));
    return Number(learned[1]);
  }
  return tokenizer === "byte" ? byteTokenizer.vocabulary : readTokenizerFile(tokenizer, tokenizer).vocabulary;
}

/** The runs of the plan that are not finished. */
export function unfinished(folder: string, plan: readonly PlannedRun[]): PlannedRun[] {
  return plan.filter((run) => readStatus(paths.run(folder, run.name))?.state !== "finished");
}

/** The share of a run's steps that its checkpoint has; none of one that cannot be read: the run itself says so. */
export function shareDone(folder: string, { name, steps }: PlannedRun): number {
  const checkpoint = findCheckpoint(paths.run(folder, name));
  if (checkpoint === null) return 0;
  try {
    return readState(checkpoint).step / steps;
  } catch (error) {
    if (error instanceof InputError) return 0;
    throw error;
  }
}

/** Trains what is not finished, longest first or in the order asked for. Returns the failures with their reasons. */
export async function trainStudy(
  folder: string,
  { plan, inOrder, unlock }: PreparedStudy,
  options: LocalOptions,
): Promise<FailedRun[]> {
  try {
    const open = unfinished(folder, plan);
    if (!inOrder) open.sort((a, b) => b.pflopsDaysAttended - a.pflopsDaysAttended);
    return await runLocally(
      open.map(({ name }) => ({ name, folder: paths.run(folder, name) })),
      options,
    );
  } finally {
    unlock();
  }
}

const LOCK = "study.lock";

/** One process at a time trains in a study folder; a lock left by a process that is gone is taken over. */
function lock(folder: string): () => void {
  const path = join(folder, LOCK);
  for (let attempt = 0; ; attempt++) {
    try {
      writeFileSync(path, String(process.pid), { flag: "wx" });
      return () => rmSync(path, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST")
        return writing(path, () => {
          // Made, but not filled: the disk is full.
          if ((error as NodeJS.ErrnoException).syscall === "write") rmSync(path, { force: true });
          throw error;
        });
      const owner = Number(readFileSync(path, "utf8"));
      // Numbers start anew in each container: a lock with ours is of a process before us.
      if ((owner !== process.pid && isAlive(owner)) || attempt > 0) {
        throw new InputError(`process ${owner} already trains in ${folder}: wait for it to end`);
      }
      rmSync(path, { force: true });
    }
  }
}

function isAlive(process_: number): boolean {
  try {
    return process_ > 0 && process.kill(process_, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
