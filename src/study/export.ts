/**
 * Results in other tools' formats: a checkpoint as a Hugging Face folder, metrics as TensorBoard events, curves as CSV or
 * Parquet; and a study without its checkpoints, to keep.
 */
import { copyFileSync, existsSync, renameSync, rmSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { parquetWriteBuffer } from "hyparquet-writer";
import { InputError } from "../errors.ts";
import { inFolder, makeFolder, withParents, writeWhole, writing } from "../files.ts";
import { formatCurves, readCurves } from "../fit/index.ts";
import type { CurvePoint } from "../fit/types.ts";
import { readModelFolder } from "../model/checkpoint.ts";
import { parameterLayout } from "../model/parameters.ts";
import { openSafetensors } from "../model/safetensors.ts";
import { findCheckpoint } from "../train/checkpoint.ts";
import { readRunConfig } from "../train/config.ts";
import { RECALL_FILE } from "../train/recall.ts";
import {
  EVALUATIONS_FILE,
  METRICS_FILE,
  readEvaluations,
  readMetrics,
  readStatus,
  STATUS_FILE,
} from "../train/records.ts";
import { TRUNCATED_FILE } from "../train/truncated.ts";
import type { MetricsRecord } from "../train/types.ts";
import { fewerSteps, runPoints, studyCurves } from "./curves.ts";
import { paths, readRuns, reasonIn, type UnreadableRun } from "./folder.ts";
import { eventFile, type Scalar } from "./tensorboard.ts";

/**
 * Copies the run's checkpoint into `folder`, as transformers' LlamaForCausalLM loads it (full attention; the routing
 * options stay under the key `mobalab` of config.json). A model with key convolution is not a Llama: refused.
 */
export function exportHuggingFace(runFolder: string, folder: string): void {
  const config = readRunConfig(runFolder);
  if (config.shape.keyConvolution > 0) {
    throw new InputError(
      `${runFolder} has a key convolution of width ${config.shape.keyConvolution}, which LlamaForCausalLM does not: expected 0`,
    );
  }
  const checkpoint = findCheckpoint(runFolder);
  if (!checkpoint) throw new InputError(`${runFolder} has no checkpoint yet: train it first`);
  checkCheckpoint(checkpoint);
  refuseExisting(folder);
  fillAside(folder, (aside) => {
    for (const file of ["config.json", "model.safetensors"])
      copyFileSync(join(checkpoint, file), join(aside, file));
    const tokenizer = join(resolve(runFolder, config.dataset), "tokenizer.json");
    if (existsSync(tokenizer)) copyFileSync(tokenizer, join(aside, "tokenizer.json"));
  });
}

/** Makes a folder aside, fills it, then renames it into place; a failure leaves nothing of it. */
function fillAside(folder: string, fill: (aside: string) => void): void {
  const aside = `${resolve(folder)}.${process.pid}.tmp`;
  const make = () => {
    fill(aside);
    renameSync(aside, folder);
  };
  withParents(aside, () => {
    // A process of the same number may have been ended in the middle of it: numbers start anew in each container.
    rmSync(aside, { recursive: true, force: true });
    inFolder(aside, () => writing(folder, make));
  });
}

/** A damaged checkpoint is refused here, not by the program that loads the copy. */
function checkCheckpoint(checkpoint: string): void {
  const { config } = readModelFolder(checkpoint);
  const file = openSafetensors(join(checkpoint, "model.safetensors"));
  for (const { name, shape } of parameterLayout(config).named) {
    const stored = file.tensors.get(name);
    if (stored?.shape.join() !== shape.join()) {
      throw new InputError(
        `${file.path}: tensor "${name}" ${stored ? `has shape [${stored.shape}]` : "is missing"}, expected shape [${shape}]`,
      );
    }
  }
}

/** Writes the run's training and held-out losses as one TensorBoard event file into `folder`. */
export function exportTensorBoard(runFolder: string, folder: string): string {
  const config = join(runFolder, "config.json");
  readRunConfig(runFolder);
  const start = statSync(config).mtimeMs / 1000;
  const scalars: Scalar[] = [];
  for (const m of readMetrics(join(runFolder, METRICS_FILE))) {
    const at = { step: m.step, wallTime: start + m.time_s };
    scalars.push({ ...at, tag: "train/loss", value: m.loss });
    scalars.push({ ...at, tag: "train/grad_norm", value: m.gradNorm });
    scalars.push({ ...at, tag: "train/learning_rate", value: m.learningRate });
    scalars.push({ ...at, tag: "train/tokens_per_second", value: m.tokensPerSecond });
  }
  for (const e of readEvaluations(join(runFolder, EVALUATIONS_FILE))) {
    const at = { step: e.step, wallTime: start + e.time_s };
    scalars.push({ ...at, tag: "held_out/loss", value: e.lm_loss });
    for (const b of e.buckets) {
      scalars.push({ ...at, tag: `held_out/loss_${b.position_start}-${b.position_end}`, value: b.lm_loss });
    }
  }
  if (scalars.length === 0) throw new InputError(`${runFolder} has no records yet: train it first`);
  const path = join(folder, `events.out.tfevents.${Math.floor(start)}.mobalab`);
  inFolder(folder, () => writeWhole(path, eventFile(scalars)));
  return path;
}

/** The curves of a study folder (with the runs of it that cannot be read), or of a curves table. */
function curvesOf(source: string): { points: CurvePoint[]; unreadable: UnreadableRun[] } {
  return existsSync(paths.study(source))
    ? someOf(studyCurves(source))
    : { points: readCurves(source), unreadable: [] };
}

/** Refuses a study of which no run can be read. */
function someOf<
  Read extends { readonly points: readonly unknown[]; readonly unreadable: readonly UnreadableRun[] },
>(read: Read): Read {
  if (read.points.length === 0 && read.unreadable.length > 0) {
    const reasons = read.unreadable.map(({ name, reason }) => `${name} (${reason})`);
    throw new InputError(`no run can be read: ${reasons.join("; ")}`);
  }
  return read;
}

/** Returns the runs left out because they cannot be read. */
export function exportCsv(source: string, path: string): UnreadableRun[] {
  refuseExisting(path);
  const { points, unreadable } = curvesOf(source);
  withParents(path, () => writeWhole(path, formatCurves(points)));
  return unreadable;
}

const TEXT_COLUMNS = ["attention", "model", "run", "split"] as const;
const NUMBER_COLUMNS = [
  "position_start",
  "position_end",
  "pflops_days",
  "lm_loss",
  "seed",
  "step",
  "tokens",
  "parameters",
  "pflops_days_attended",
  "time_s",
  "tokens_per_second",
  "predicted_tokens",
  "bits_per_byte",
] as const;

/** As `exportCsv`. Columns that no row fills are left out. */
export function exportParquet(source: string, path: string): UnreadableRun[] {
  refuseExisting(path);
  const { points, unreadable } = curvesOf(source);
  const columnData = [
    ...TEXT_COLUMNS.map((name) => ({
      name,
      type: "STRING" as const,
      data: points.map((p) => p[name] ?? null),
    })),
    ...NUMBER_COLUMNS.map((name) => ({
      name,
      type: "DOUBLE" as const,
      data: points.map((p) => p[name] ?? null),
    })),
  ].filter((column) => column.data.some((value) => value !== null));
  withParents(path, () => writeWhole(path, new Uint8Array(parquetWriteBuffer({ columnData }))));
  return unreadable;
}

/**
 * Copies what the report, fits and charts of a study are made from, small enough to be kept: no checkpoints, no tokens,
 * of the training losses means over a few steps, and losses by document of final evaluations only. `mobalab report` draws it again.
 * A file without which a run has its laws all the same is kept as it is where it cannot be read.
 * Returns the runs left out because they cannot be read.
 */
export function exportStudy(source: string, folder: string): UnreadableRun[] {
  if (!existsSync(paths.study(source))) {
    throw new InputError(`${source} holds no study: there is no study.json in it`);
  }
  refuseExisting(folder);
  const copy = (from: string, to: string, names: readonly string[]) => {
    makeFolder(to);
    for (const name of names.filter((name) => existsSync(join(from, name)))) {
      copyFileSync(join(from, name), join(to, name));
    }
  };
  const lines = (records: readonly object[]) => records.map((r) => `${JSON.stringify(r)}\n`).join("");
  const { runs, unreadable } = readRuns(source, (from, name) => {
    const config = readRunConfig(from);
    readStatus(from);
    const kept = keptSteps(from);
    const evaluations = readEvaluations(join(from, EVALUATIONS_FILE));
    const brief = evaluations.map((e) => (e.final ? e : { ...e, documents: [] }));
    return { name, kept, brief, points: runPoints(name, config, evaluations) };
  });
  const { points } = someOf({ points: runs.flatMap((run) => run.points), unreadable });
  fillAside(folder, (aside) => {
    copy(source, aside, ["study.json"]);
    if (existsSync(paths.data(source))) copy(paths.data(source), paths.data(aside), ["dataset.json"]);
    for (const { name, kept, brief } of runs) {
      const to = paths.run(aside, name);
      copy(paths.run(source, name), to, ["config.json", STATUS_FILE, RECALL_FILE, TRUNCATED_FILE]);
      if (kept.length > 0) writeWhole(join(to, METRICS_FILE), lines(kept));
      else copy(paths.run(source, name), to, [METRICS_FILE]);
      if (brief.length > 0) writeWhole(join(to, EVALUATIONS_FILE), lines(brief));
    }
    writeWhole(join(aside, "curves.csv"), formatCurves(points));
  });
  return unreadable;
}

/** None where the log cannot be read. */
function keptSteps(run: string): readonly MetricsRecord[] {
  try {
    return fewerSteps(readMetrics(join(run, METRICS_FILE)));
  } catch (error) {
    reasonIn(run, error);
    return [];
  }
}

function refuseExisting(path: string): void {
  if (existsSync(path)) throw new InputError(`${path} exists already: name another place`);
}
