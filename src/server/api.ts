/**
 * What the server sends and the frozen report holds: types only, shared with the browser. Field names are those of the
 * study folder's records (docs/run.md, docs/curves.md). Every text is data and may be hostile: show it as text.
 *
 *   GET /api/studies                                                   -> Overview
 *   GET /api/studies/<study>/metrics?points=500                        -> Metrics, every run
 *   GET /api/studies/<study>/metrics?run=<run>&points=4000[&from=<step>&to=<step>] -> Metrics, that run
 *   GET /api/studies/<study>/evaluations                               -> Evaluations
 *   GET /api/studies/<study>/results                                   -> Results | null
 *   GET /api/studies/<study>/configs                                   -> Configs
 *   GET /api/studies/<study>/models                                    -> Models
 *   GET /api/studies/<study>/model?run=<run>                           -> ModelView
 *   GET /api/studies/<study>/weights?run=<run>                         -> its weights, a safetensors file
 *   GET /api/events?cursor=<cursor>                                    -> server-sent events, see `Change`
 *
 * `<study>` and `<run>` are ids as listed in the overview, percent-encoded. Errors are `{ "error": "<sentence>" }` with
 * status 400 (parameter), 401 (token), 403 (foreign origin), 404, 405, 414, 421 (host), 431, 503 (too much at once).
 *
 * Live: read what is wanted, each answer carries the `cursor` it is of; open the events with the smallest of them.
 * Applying a change twice does no harm. A client that loses the connection resumes with Last-Event-ID (EventSource does
 * by itself); when the server no longer has what came since, it sends `reset`: read everything again.
 *
 * Frozen: the page holds `<script type="application/json" id="mobalab-data">` with a `Snapshot`; when that element is
 * there, its answers stand for those of the server and there are no events. The build writes `dist/web/frozen.html`: the
 * whole page with script and style inlined and a policy that names their hashes; put the element in place of its one
 * `<!--mobalab-data-->`, with every `<` of the JSON as `\u003c`. Served: `dist/web/index.html` and `dist/web/assets/`.
 */
import type { Convention } from "../compute/compute.ts";
import type { FitResult } from "../fit/types.ts";
import type { Swept } from "../study/swept.ts";

/** A number in JSON: numbers that JSON lacks are their names (`Number(value)` reads all of them), null is absent. */
export type Value = number | "NaN" | "Infinity" | "-Infinity" | null;

/** Position of a change in the server's life, to be sent back as it is. */
export type Cursor = string;

export interface Overview {
  readonly cursor: Cursor;
  /** mobalab's version. */
  readonly version: string;
  /** ISO 8601: when this was true; null in a frozen page. */
  readonly time: string | null;
  readonly studies: readonly StudyView[];
}

export interface StudyView extends StudyFacts {
  readonly runs: readonly RunView[];
}

export interface StudyFacts {
  /** Stable as long as the folder's name is. */
  readonly id: string;
  readonly name: string;
  /** Null for a curves table, and while study.json cannot be read. */
  readonly config: StudyConfig | null;
  /** In the order of charts and legends. */
  readonly attentions: readonly AttentionView[];
  /** What the records have. */
  readonly conventions: readonly Convention[];
  /** In order of position, without "all positions". */
  readonly buckets: readonly BucketView[];
  /** Index into `buckets` of the one that leads; null: all positions. */
  readonly headline: number | null;
  /** Records are still being read: figures of runs are not complete yet. A `study` change ends it. */
  readonly loading: boolean;
  /** What could not be read, and why: sentences. */
  readonly notes: readonly string[];
}

export interface StudyConfig {
  /** ISO 8601. */
  readonly created: string;
  /** Version and commit of the code that made it. */
  readonly version: string;
  readonly command: string;
  readonly context: number;
  readonly tokenizer: string;
  /** The corpus in words. */
  readonly source: string;
  /** The rule of learning rate and batch. */
  readonly rule: string;
  readonly hardware: string;
  readonly device: string;
}

export interface AttentionView {
  /** As in the records: `moba-b128-k4`. */
  readonly label: string;
  /** To read: `MoBA`. */
  readonly title: string;
  /** `#rrggbb` on white paper, the same in every view and in the report. */
  readonly colour: string;
  /** Rank among the attentions, for marks, dashes and colours of a dark page. */
  readonly index: number;
}

export interface BucketView {
  readonly position_start: number;
  readonly position_end: number;
  /** `10k-12k` */
  readonly label: string;
}

export interface RunView {
  /** Unique in its study; the name of its folder. */
  readonly id: string;
  readonly attention: string;
  readonly model: string;
  readonly seed: number | null;
  /** `planned`: nothing written yet; `unreadable`: see notes. */
  readonly state: "planned" | "running" | "finished" | "failed" | "unreadable";
  /** Why it failed, or what it said last. */
  readonly message: string | null;
  readonly step: number;
  /** Of the whole run; null when not known yet. */
  readonly steps: number | null;
  readonly tokens: number | null;
  readonly attempt: number;
  /** Training loss of the last step. */
  readonly loss: Value;
  /** Of the last evaluation, all positions. */
  readonly heldOutLoss: Value;
  readonly tokensPerSecond: Value;
  /** While running, from the last steps' rate. */
  readonly secondsLeft: number | null;
  /** Non-embedding, and all of them. */
  readonly parameters: number | null;
  readonly allParameters: number | null;
  readonly pflops_days: number | null;
  readonly pflops_days_attended: number | null;
  /** Share of causal pairs not attended. */
  readonly sparsity: number | null;
  readonly epochs: number | null;
  /** Bytes planned. */
  readonly memory: number | null;
  /** What it says of its learning rate once it has finished, for a sweep; null before, and where its end is not known. */
  readonly swept: Swept | null;
  readonly device: string | null;
  /** ISO 8601: when its first file appeared and when one was last written; null in a frozen page. */
  readonly started: string | null;
  readonly updated: string | null;
  readonly notes: readonly string[];
}

/**
 * Steps of one run, ascending, as columns of one length. Each step's highest attempt. `attempt` changes where the run
 * was resumed. Non-finite losses are kept as marks.
 */
export interface MetricColumns {
  readonly run: string;
  /** Steps recorded in the range asked for; more than the columns hold when they were thinned. */
  readonly recorded: number;
  readonly step: readonly number[];
  readonly tokens: readonly Value[];
  readonly attempt: readonly number[];
  readonly loss: readonly Value[];
  /** Mean of the finite losses after the step before this one in the columns; absent when nothing was thinned. */
  readonly meanLoss?: readonly Value[];
  readonly gradNorm: readonly Value[];
  readonly learningRate: readonly Value[];
  readonly tokensPerSecond: readonly Value[];
  readonly time_s: readonly Value[];
  readonly pflops_days: readonly Value[];
  readonly pflops_days_attended: readonly Value[];
}

/**
 * Thinned to at most about `points` steps a run (of all runs together not more than 100,000): per stretch (even in steps and in log steps) the lowest and the highest loss, the first
 * and the last step, the first step of an attempt, and the first that is not finite.
 */
export interface Metrics {
  readonly cursor: Cursor;
  readonly runs: readonly MetricColumns[];
}

/** Held-out losses of one run, in order of training, as columns. */
export interface EvaluationColumns {
  readonly run: string;
  readonly step: readonly Value[];
  readonly tokens: readonly Value[];
  readonly attempt: readonly Value[];
  readonly time_s: readonly Value[];
  readonly pflops_days: readonly Value[];
  readonly pflops_days_attended: readonly Value[];
  /** All positions. */
  readonly lm_loss: readonly Value[];
  /** For each of the study's `buckets` a column. */
  readonly buckets: readonly (readonly Value[])[];
}

export interface Evaluations {
  readonly cursor: Cursor;
  readonly runs: readonly EvaluationColumns[];
}

/**
 * Each run's `config.json` (shape, optimizer, horizon ...), `recall.json` and `truncated.json` (without its documents) as
 * they stand there; null when they cannot be read.
 */
export interface Configs {
  readonly runs: readonly {
    readonly run: string;
    readonly config: unknown;
    readonly recall?: unknown;
    readonly truncated?: unknown;
  }[];
}

/** Runs whose weights are there and small enough for a page to compute with. */
export interface Models {
  readonly models: readonly { readonly run: string; readonly attention: string; readonly bytes: number }[];
}

/** A run's model beside its weights. */
export interface ModelView {
  readonly run: string;
  /** Of the weights. */
  readonly bytes: number;
  /** The checkpoint's config.json. */
  readonly config: unknown;
  /** `file` is a tokenizer.json. Null when it cannot be read; `missing` then says why. */
  readonly tokenizer:
    | { readonly kind: "byte" }
    | { readonly kind: "bpe"; readonly name: string; readonly file: unknown }
    | null;
  readonly missing: string | null;
  /** Beginnings of held-out documents. */
  readonly samples: readonly { readonly name: string; readonly tokens: readonly number[] }[];
}

/** Laws and what they say, of the runs that had finished when they were fitted. */
export interface Results {
  readonly cursor: Cursor;
  /** `laws.json`: laws, comparisons with claims, warnings, reading. */
  readonly fit: FitResult;
  /** ISO 8601: when they were fitted; null in a frozen page. */
  readonly fitted: string | null;
  /** A line with its 95 % band for every law of compute. */
  readonly projections: readonly Projection[];
  /** For each of `fit.comparisons`, its claims as sentences, in their order. */
  readonly claims: readonly (readonly string[])[];
  /** The tables of the report. */
  readonly tables: readonly TableView[];
}

export interface Projection {
  readonly convention: Convention;
  readonly attention: string;
  readonly position_start: number | null;
  readonly position_end: number | null;
  /** Evenly spaced in log compute, PFLOP/s-days; loss in nats. */
  readonly pflops_days: readonly number[];
  readonly loss: readonly Value[];
  readonly low: readonly Value[];
  readonly high: readonly Value[];
}

export interface TableView {
  readonly title: string;
  readonly columns: readonly { readonly title: string; readonly align: "left" | "right" }[];
  readonly rows: readonly (readonly string[])[];
}

/**
 * A server-sent event: `event` is the kind, `id` the cursor after it, `data` the object as JSON.
 * `run`: a run appeared or its figures changed (whole view). `points`: steps were appended; a step that is there already
 * is replaced. `evaluation`: columns of length one or more, by step as before. `gone`: a run or (without `run`) a study is
 * no longer there. `study`: facts changed, or a study appeared. `results`: read them again. `reset`: read everything again.
 */
export type Change =
  | { readonly kind: "run"; readonly study: string; readonly run: RunView }
  | { readonly kind: "points"; readonly study: string; readonly points: MetricColumns }
  | { readonly kind: "evaluation"; readonly study: string; readonly evaluations: EvaluationColumns }
  | { readonly kind: "gone"; readonly study: string; readonly run?: string }
  | { readonly kind: "study"; readonly study: string; readonly facts: StudyFacts }
  | { readonly kind: "results"; readonly study: string }
  | { readonly kind: "reset" };

/**
 * What a frozen page holds. Only one study, or one curves table. It says nothing of when it was made and where the files
 * lie, so that the same files make the same page.
 */
export interface Snapshot {
  readonly format: 1;
  readonly overview: Overview;
  readonly studies: readonly {
    readonly id: string;
    readonly metrics: Metrics;
    readonly evaluations: Evaluations;
    readonly results: Results | null;
    readonly configs: Configs;
    /** One small model with its weights in base64; null when there is none of a size that a page can carry. */
    readonly model: (ModelView & { readonly weights: string }) | null;
  }[];
}
