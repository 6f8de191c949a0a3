/** One run's folder as it stands: what its files say, read again only where they changed. */
import { join } from "node:path";
import { type SuddenDrop, suddenDrop } from "../fit/drops.ts";
import { nonEmbeddingParameters } from "../model/config.ts";
import { fewerSteps } from "../study/curves.ts";
import { isFitted, problemOf, type RunEnd } from "../study/laws.ts";
import { type Swept, sweptBy, trainingPoints } from "../study/swept.ts";
import { parseRunConfig } from "../train/config.ts";
import { RECALL_FILE } from "../train/recall.ts";
import { EVALUATIONS_FILE, METRICS_FILE, STATUS_FILE } from "../train/records.ts";
import { horizonSteps } from "../train/schedule.ts";
import { TRUNCATED_FILE } from "../train/truncated.ts";
import type { RunConfig, RunStatus } from "../train/types.ts";
import type { EvaluationColumns, RunView, Value } from "./api.ts";
import { type FileState, readJsonInside, stateOf, Tail, Unreadable, withFileInside } from "./inside.ts";
import { known, numberOf, StepColumns, type StepRecord, value } from "./steps.ts";

/** What a refresh found: the steps and evaluations that are new or other than before. */
export interface Found {
  readonly steps: number[];
  readonly evaluations: number[];
  /** The records are not a continuation of those read before. */
  readonly rewritten: boolean;
}

export interface BucketBounds {
  readonly position_start: number;
  readonly position_end: number;
}

interface Evaluation {
  readonly step: number;
  readonly attempt: number;
  readonly tokens: number;
  readonly time_s: number;
  readonly pflops_days: number;
  readonly pflops_days_attended: number;
  readonly lm_loss: number;
  readonly final: boolean;
  readonly buckets: ReadonlyMap<string, BucketBounds & { readonly loss: number }>;
}

const MOST_JSON = 2 ** 20;
const LONGEST_STEP = 2 ** 16;
/** Losses by document are among them. */
const LONGEST_EVALUATION = 2 ** 26;
/** About, in metrics.jsonl; and the most steps that room is made for before they are read. */
const BYTES_OF_A_STEP = 256;
const MOST_RESERVED = 2 ** 20;
const MOST_BUCKETS = 4096;
/** Steps over which the rate is taken. */
const RATE_STEPS = 32;
/** Milliseconds of reading after which others get their turn. */
const TURN = 10;
/** Of a message and of names in notes. */
const LONGEST_TEXT = 2000;

/** All that is read of a run for its laws. */
const FILES = ["config.json", STATUS_FILE, METRICS_FILE, EVALUATIONS_FILE, TRUNCATED_FILE, RECALL_FILE];

const STATES = new Set(["running", "finished", "failed"]);

/** A file of JSON that is written aside and renamed: its last content that could be read. */
class JsonFile {
  content: unknown = null;
  problem: string | null = null;
  #seen = "";

  /** True when it changed. */
  refresh(root: string, path: string, state: FileState | null): boolean {
    const seen = state === null ? "" : `${state.id} ${state.size} ${state.modified}`;
    if (seen === this.#seen) return false;
    this.#seen = seen;
    this.problem = null;
    if (state === null) {
      this.content = null;
      return true;
    }
    try {
      this.content = readJsonInside(root, path, MOST_JSON);
    } catch (error) {
      this.problem = reasonOf(error);
    }
    return true;
  }
}

export class RunFolder {
  readonly id: string;
  readonly steps = new StepColumns();
  readonly #root: string;
  readonly #folder: string;
  readonly #config = new JsonFile();
  readonly #status = new JsonFile();
  readonly #metrics: Tail;
  readonly #evaluationsFile: Tail;
  readonly #evaluations = new Map<number, Evaluation>();
  readonly #problems = new Map<string, string>();
  /** Lines that are no records, by file; the torn one at the end of an attempt that was cut short is none of them. */
  readonly #badLines = new Map<string, { count: number; torn: boolean; attempt: number }>();
  #parsed: { config: RunConfig; steps: number | null } | null = null;
  /** Records that a run must have and that are not there, or empty. */
  #without: string[] = [];
  /** The sudden drop of the training loss, once it was looked for in the steps that are there. */
  #drop: { readonly found: SuddenDrop | null } | null = null;
  #started: number | null = null;
  #updated: number | null = null;

  /** `root` is the study's folder as a real path. */
  constructor(root: string, folder: string, id: string) {
    this.id = id;
    this.#root = root;
    this.#folder = folder;
    this.#metrics = new Tail(root, join(folder, METRICS_FILE), LONGEST_STEP);
    this.#evaluationsFile = new Tail(root, join(folder, EVALUATIONS_FILE), LONGEST_EVALUATION);
  }

  /** `config.json` as it stands there. */
  get config(): unknown {
    return this.#config.content;
  }

  /** `recall.json` as it stands there, read when it is asked for; null when it is not there or cannot be read. */
  get recall(): unknown {
    return this.#measured(RECALL_FILE);
  }

  /** `truncated.json` likewise, without its documents. */
  get truncated(): unknown {
    const content = this.#measured(TRUNCATED_FILE);
    if (content === null || typeof content !== "object") return null;
    return { ...content, documents: undefined };
  }

  #measured(name: string): unknown {
    try {
      const file = join(this.#folder, name);
      return stateOf(file) === null ? null : readJsonInside(this.#root, file, MOST_JSON);
    } catch {
      return null;
    }
  }

  /** The small files: what the run is and how it stands. */
  refreshFacts(): void {
    const states = ["config.json", STATUS_FILE, METRICS_FILE, EVALUATIONS_FILE].map((name) =>
      stateOf(join(this.#folder, name)),
    );
    if (this.#config.refresh(this.#root, join(this.#folder, "config.json"), states[0])) this.#parse();
    this.#status.refresh(this.#root, join(this.#folder, STATUS_FILE), states[1]);
    this.#without = [METRICS_FILE, EVALUATIONS_FILE].filter((_, i) => !((states[2 + i]?.size ?? 0) > 0));
    const there = states.filter((state) => state !== null);
    const written = there.filter((state) => state !== states[0]).map((state) => state.modified);
    this.#updated = written.length > 0 ? Math.max(...written) : null;
    const born = states[2]?.created ?? 0;
    if (this.#started === null && born > 0) this.#started = born;
  }

  /** Reads everything that changed, giving others their turn between pieces. */
  async refresh(): Promise<Found> {
    this.refreshFacts();
    const steps: number[] = [];
    const evaluations: number[] = [];
    const size = stateOf(join(this.#folder, METRICS_FILE))?.size ?? 0;
    // A sparse file may claim any size.
    if (this.steps.length === 0) this.steps.reserve(Math.min(size / BYTES_OF_A_STEP, MOST_RESERVED) | 0);
    const cut = await this.#records(
      METRICS_FILE,
      this.#metrics,
      () => this.steps.clear(),
      (record) => {
        if (this.steps.put(record)) steps.push(record.step);
      },
    );
    const cutToo = await this.#records(
      EVALUATIONS_FILE,
      this.#evaluationsFile,
      () => this.#evaluations.clear(),
      (record) => {
        const before = this.#evaluations.get(record.step);
        if (before !== undefined && before.attempt > record.attempt) return;
        this.#evaluations.set(record.step, evaluationOf(record));
        evaluations.push(record.step);
      },
    );
    if (steps.length > 0 || cut) this.#drop = null;
    return { steps, evaluations, rewritten: cut || cutToo };
  }

  async #records(
    name: string,
    tail: Tail,
    clear: () => void,
    take: (record: StepRecord) => void,
  ): Promise<boolean> {
    const path = join(this.#folder, name);
    let state = stateOf(path);
    const rewritten = tail.rewritten(state);
    if (rewritten) {
      tail.restart();
      clear();
      this.#badLines.delete(name);
    }
    if (!tail.grown(state)) {
      if (state === null) this.#problems.delete(name);
      return rewritten;
    }
    const bad = this.#badLines.get(name) ?? { count: 0, torn: false, attempt: 0 };
    this.#badLines.set(name, bad);
    try {
      let since = performance.now();
      for (const lines of tail.read(state as FileState)) {
        for (const line of lines) {
          if (line === "") continue;
          const record = line === null ? null : recordOf(line);
          if (record === null) {
            bad.count++;
            bad.torn = true;
            continue;
          }
          if (bad.torn && record.attempt > bad.attempt) bad.count--;
          bad.torn = false;
          bad.attempt = record.attempt;
          take(record);
        }
        if (performance.now() - since > TURN) {
          await new Promise(setImmediate);
          since = performance.now();
          // Cut or replaced meanwhile: the next refresh begins anew.
          state = stateOf(path);
          if (tail.rewritten(state)) break;
        }
      }
      this.#problems.delete(name);
    } catch (error) {
      this.#problems.set(name, reasonOf(error));
    }
    return rewritten;
  }

  #parse(): void {
    this.#parsed = null;
    this.#problems.delete("config.json");
    if (this.#config.problem !== null || this.#config.content === null) return;
    try {
      const config = parseRunConfig(this.#config.content, "config.json");
      let steps: number | null = null;
      try {
        steps = horizonSteps(config);
      } catch {
        // The run itself says so when it starts.
      }
      this.#parsed = { config, steps };
    } catch (error) {
      this.#problems.set("config.json", (error as Error).message.replace(/^config\.json:? ?/, ""));
    }
  }

  /** Buckets of its evaluations, in order. */
  get buckets(): Iterable<BucketBounds> {
    return this.#buckets();
  }

  *#buckets(): Generator<BucketBounds> {
    for (const { buckets } of this.#evaluations.values()) yield* buckets.values();
  }

  get hasAttended(): boolean {
    return Number.isFinite(this.steps.last("pflops_days_attended"));
  }

  get evaluationSteps(): number[] {
    return [...this.#evaluations.keys()].sort((a, b) => a - b);
  }

  evaluations(
    buckets: readonly BucketBounds[],
    steps: readonly number[] = this.evaluationSteps,
  ): EvaluationColumns {
    const rows = steps.map((step) => this.#evaluations.get(step)!);
    const column = (of: (row: Evaluation) => number): Value[] => rows.map((row) => known(of(row)));
    return {
      run: this.id,
      step: rows.map((row) => row.step),
      tokens: column((row) => row.tokens),
      attempt: rows.map((row) => row.attempt),
      time_s: column((row) => row.time_s),
      pflops_days: column((row) => row.pflops_days),
      pflops_days_attended: column((row) => row.pflops_days_attended),
      lm_loss: rows.map((row) => value(row.lm_loss)),
      buckets: buckets.map((bucket) => {
        const key = keyOf(bucket);
        return rows.map((row) => {
          const found = row.buckets.get(key);
          return found === undefined ? null : value(found.loss);
        });
      }),
    };
  }

  /** What says whether laws go through it, and through which loss. */
  get end(): Pick<RunEnd, "name" | "finished" | "problem" | "lm_loss"> {
    const last = this.#evaluations.get(this.evaluationSteps.at(-1) ?? -1);
    const finished = statusOf(this.#status.content)?.state === "finished" && this.#parsed !== null;
    const buckets = [...(last?.buckets.values() ?? [])].map(({ loss }) => ({ lm_loss: loss }));
    const problem = problemOf(last && { ...last, buckets }, finished);
    return { name: this.id, finished, problem, lm_loss: last?.lm_loss };
  }

  /** Why its files are not to be read, to follow its name: one of them is not in the study's folder, or is no file. */
  get foreign(): string | null {
    for (const name of FILES) {
      try {
        withFileInside(this.#root, join(this.#folder, name), () => {});
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") return `${name} ${reasonOf(error)}`;
      }
    }
    return null;
  }

  /** The labels that other runs are grouped with. */
  get attention(): string {
    return this.#parsed?.config.attention ?? textOf(this.#config.content, "attention") ?? "unknown";
  }

  view(device: string | null): RunView {
    const { steps } = this;
    const config = this.#parsed?.config;
    const status = statusOf(this.#status.content);
    const recorded = steps.length > 0;
    const state =
      this.#config.problem !== null && status === null
        ? "unreadable"
        : (status?.state ?? (recorded ? "running" : "planned"));
    const step = Math.max(finite(status?.step) ?? 0, recorded ? steps.last("step") : 0);
    const ofSteps = finite(status?.steps) ?? this.#parsed?.steps ?? null;
    const lastEvaluation = this.#evaluations.get(this.evaluationSteps.at(-1) ?? -1);
    // File systems know times that a date does not.
    const iso = (time: number | null) =>
      time === null || Math.abs(time) > 8.64e15 ? null : new Date(time).toISOString();
    return {
      id: this.id,
      attention: this.attention,
      model: config?.model ?? textOf(this.#config.content, "model") ?? "unknown",
      seed: config?.seed ?? null,
      state,
      message: status?.message ?? null,
      step,
      steps: ofSteps,
      tokens: recorded ? finite(steps.last("tokens")) : null,
      attempt: Math.max(finite(status?.attempt) ?? 0, recorded ? steps.last("attempt") : 0),
      loss: recorded ? value(steps.last("loss")) : null,
      heldOutLoss: lastEvaluation === undefined ? null : value(lastEvaluation.lm_loss),
      tokensPerSecond: recorded ? known(Number(steps.last("tokensPerSecond").toPrecision(7))) : null,
      secondsLeft: state === "running" && ofSteps !== null ? this.#secondsLeft(ofSteps) : null,
      parameters: config ? nonEmbeddingParameters(config.shape) : null,
      allParameters: finite(status?.parameters),
      pflops_days: recorded ? finite(steps.last("pflops_days")) : null,
      pflops_days_attended: recorded ? finite(steps.last("pflops_days_attended")) : null,
      sparsity: finite(status?.sparsity),
      epochs: finite(status?.epochs),
      memory: finite(status?.memory),
      swept: this.#swept(),
      device,
      started: iso(this.#started),
      updated: iso(this.#updated),
      notes: this.#notes(),
    };
  }

  #swept(): Swept | null {
    if (!isFitted(this.end) || !this.#parsed?.steps) return null;
    const { config } = this.#parsed;
    // A log that ends before the run did says nothing of drops.
    const whole = this.steps.last("step") >= (finite(statusOf(this.#status.content)?.step) ?? 0);
    if (!whole) return sweptBy(config, undefined);
    this.#drop ??= { found: suddenDrop(trainingPoints(config, fewerSteps(this.steps.losses()))) };
    return sweptBy(config, this.#drop.found);
  }

  #secondsLeft(ofSteps: number): number | null {
    const { steps } = this;
    const attempt = steps.last("attempt");
    let back = Math.min(RATE_STEPS, steps.length - 1);
    while (back > 0 && steps.last("attempt", back) !== attempt) back--;
    const seconds =
      (steps.last("time_s") - steps.last("time_s", back)) / (steps.last("step") - steps.last("step", back));
    const left = (ofSteps - steps.last("step")) * seconds;
    return Number.isFinite(left) && left >= 0 ? Number(left.toPrecision(4)) : null;
  }

  #notes(): string[] {
    const notes: string[] = [];
    const problems = new Map(this.#problems);
    if (this.#config.problem !== null) problems.set("config.json", this.#config.problem);
    else if (this.#config.content === null) problems.set("config.json", "is not there");
    if (this.#status.problem !== null) problems.set(STATUS_FILE, this.#status.problem);
    for (const [file, problem] of problems) notes.push(`${file} ${problem}`.slice(0, LONGEST_TEXT));
    if (statusOf(this.#status.content)?.state === "finished") {
      for (const file of this.#without)
        notes.push(`${file} is missing or empty, though the run has finished`);
    }
    for (const [file, { count }] of this.#badLines) {
      if (count > 0)
        notes.push(`${file}: ${count} ${count === 1 ? "line is no record" : "lines are no records"}`);
    }
    return notes;
  }
}

export function keyOf({ position_start, position_end }: BucketBounds): string {
  return `${position_start}-${position_end}`;
}

/** Why a file cannot be read, to follow its name. */
export function reasonOf(error: unknown): string {
  if (error instanceof Unreadable) return error.message;
  return `cannot be read (${(error as NodeJS.ErrnoException).code ?? (error as Error).message})`;
}

/** A line as a record; other languages' JSON writers spell what is not finite bare. */
function recordOf(line: string): StepRecord | null {
  let record: StepRecord;
  try {
    record = JSON.parse(line);
  } catch {
    if (!/\b(?:NaN|Infinity)\b/.test(line)) return null;
    try {
      record = JSON.parse(line.replace(/([:,[]\s*)(-?(?:NaN|Infinity))\b/g, '$1"$2"'));
    } catch {
      return null;
    }
  }
  const whole = (x: unknown) => Number.isSafeInteger(x) && (x as number) >= 0;
  return whole(record?.step) && whole(record.attempt) && record.attempt < 2 ** 32 ? record : null;
}

function evaluationOf(
  record: StepRecord & { readonly lm_loss?: unknown; readonly final?: unknown; readonly buckets?: unknown },
): Evaluation {
  const buckets = new Map<string, BucketBounds & { loss: number }>();
  for (const raw of Array.isArray(record.buckets) ? record.buckets.slice(0, MOST_BUCKETS) : []) {
    const bounds = {
      position_start: numberOf(raw?.position_start),
      position_end: numberOf(raw?.position_end),
    };
    if (!(bounds.position_start < bounds.position_end)) continue;
    buckets.set(keyOf(bounds), { ...bounds, loss: numberOf(raw.lm_loss) });
  }
  return {
    step: record.step,
    attempt: record.attempt,
    tokens: numberOf(record.tokens),
    time_s: numberOf(record.time_s),
    pflops_days: numberOf(record.pflops_days),
    pflops_days_attended: numberOf(record.pflops_days_attended),
    lm_loss: numberOf(record.lm_loss),
    final: record.final === true,
    buckets,
  };
}

/** A status whose state is known; its other fields are checked where they are used. */
function statusOf(
  content: unknown,
): (Partial<RunStatus> & { state: RunStatus["state"]; message?: string }) | null {
  const state = textOf(content, "state");
  if (state === null || !STATES.has(state)) return null;
  return {
    ...(content as RunStatus),
    state: state as RunStatus["state"],
    message: textOf(content, "message") ?? undefined,
  };
}

function textOf(content: unknown, field: string): string | null {
  const text = (content as Record<string, unknown> | null)?.[field];
  return typeof text === "string" ? text.slice(0, LONGEST_TEXT) : null;
}

function finite(x: unknown): number | null {
  return typeof x === "number" && Number.isFinite(x) ? x : null;
}
