/** The progress of a study: a line when a run starts, ends and now and then between, plain in a pipe and on a screen. */
import type { PrepareProgress } from "../data/index.ts";
import { RunError } from "../errors.ts";
import { makespan } from "../study/calibrate.ts";
import type { RunEvent } from "../study/local.ts";
import type { PlannedRun } from "../study/plan.ts";
import type { RunProgress } from "../train/types.ts";
import { duration, short } from "./format.ts";

/** Seconds between two lines of one run, and between two of the whole study. */
const EVERY = 10;
const EVERY_OF_ALL = 60;

/** A run of the study and what is known of it. */
interface Watched {
  readonly run: PlannedRun;
  started: number;
  lastLine: number;
  /** Share of the run that an earlier attempt had done. */
  before: number;
  last?: RunProgress & { readonly at: number };
  ended: boolean;
}

export class StudyProgress {
  readonly #out: NodeJS.WritableStream;
  readonly #width: number;
  readonly #runs: ReadonlyMap<string, Watched>;
  readonly #jobs: number;
  readonly #all: number;
  #lastOfAll = Number.NEGATIVE_INFINITY;

  /** For a plan of which `open` is still to be trained, `jobs` runs at once. */
  constructor(
    plan: readonly PlannedRun[],
    open: readonly PlannedRun[],
    jobs: number,
    out: NodeJS.WritableStream,
  ) {
    this.#out = out;
    this.#width = Math.max(...plan.map(({ name }) => name.length));
    this.#runs = new Map(
      open.map((run) => [run.name, { run, started: 0, lastLine: 0, before: 0, ended: false }]),
    );
    this.#jobs = jobs;
    this.#all = plan.length;
    const finished = plan.length - open.length;
    if (finished > 0) out.write(`${finished} of ${plan.length} runs were finished before\n`);
  }

  on(event: RunEvent): void {
    const now = performance.now() / 1000;
    const watched = this.#runs.get(event.run)!;
    if (event.kind === "start") {
      watched.started = watched.lastLine = now;
    } else if (event.kind === "progress") {
      const { step, steps, loss, tokensPerSecond, secondsLeft } = event.progress;
      if (!watched.last) watched.before = (step - 1) / steps;
      watched.last = { ...event.progress, at: now };
      if (now - watched.lastLine < EVERY) return;
      watched.lastLine = now;
      this.#line(
        event.run,
        `step ${step}/${steps}  loss ${loss.toFixed(3)}  ${short(tokensPerSecond)} tok/s  ${duration(secondsLeft)} left`,
      );
      // The first runs of all places are needed to tell.
      const seen = [...this.#runs.values()].filter(({ last }) => last).length;
      const due = now - this.#lastOfAll >= EVERY_OF_ALL && seen >= Math.min(this.#jobs, this.#runs.size);
      if (due) this.#lineOfAll(now);
    } else {
      watched.ended = true;
      if (event.interrupted) this.#line(event.run, "interrupted");
      else if (event.error !== undefined) this.#line(event.run, `FAILED: ${event.error}`);
      else {
        const { last, started } = watched;
        const heldOut = last?.heldOut === undefined ? "" : `  held-out loss ${last.heldOut.toFixed(3)}`;
        this.#line(event.run, `done in ${duration(now - started)}${heldOut}`);
      }
      if (!event.interrupted) this.#lineOfAll(now);
    }
  }

  /** How long the study still takes: running runs by what they say, waiting ones by operations at the rate so far. */
  #lineOfAll(now: number): void {
    const runs = [...this.#runs.values()];
    const seen = runs.filter((watched) => watched.last);
    const running = seen.filter(({ ended }) => !ended);
    const waiting = runs.filter(({ last, ended }) => !last && !ended);
    const open = running.length + waiting.length;
    if (open === 0) return;
    this.#lastOfAll = now;
    const seconds = sum(seen, ({ last, started }) => last!.at - started);
    const done = sum(seen, ({ run, last, before }) => (last!.step / last!.steps - before) * workOf(run));
    const left = makespan(
      [
        ...running.map(({ last }) => Math.max(0, last!.secondsLeft - (now - last!.at))),
        ...waiting.map(({ run }) => (workOf(run) * seconds) / done),
      ],
      this.#jobs,
    );
    this.#out.write(
      `${this.#all - open} of ${this.#all} runs ended${seen.length > 0 ? `, about ${duration(left)} left` : ""}\n`,
    );
  }

  #line(run: string, text: string): void {
    this.#out.write(`${run.padEnd(this.#width)}  ${text}\n`);
  }
}

/** Operations, in PFLOP/s-days, with those of the evaluations: a forward pass is a third of a training pass. */
function workOf({ pflopsDaysAttended, tokens, evaluationTokens }: PlannedRun): number {
  return pflopsDaysAttended * (1 + evaluationTokens / (3 * tokens));
}

function sum<Item>(items: readonly Item[], value: (item: Item) => number): number {
  return items.reduce((total, item) => total + value(item), 0);
}

/** Aborted by Ctrl-C or SIGTERM; a second one ends the process at once. */
export function interruption(): AbortController {
  const abort = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => abort.abort());
  return abort;
}

/** Lines on `out` while a dataset is made, at most one in two seconds. An interruption ends it: nothing stays of it. */
export function prepareProgress(
  out: NodeJS.WritableStream,
  interrupted: AbortSignal,
): (progress: PrepareProgress) => void {
  let last = performance.now();
  return ({ stage, documents, bytes }) => {
    if (interrupted.aborted) throw new RunError("interrupted: nothing is left of the dataset");
    const now = performance.now();
    if (now - last < 2000) return;
    last = now;
    out.write(`${stage}: ${short(documents)} document${documents === 1 ? "" : "s"}, ${short(bytes)}B\n`);
  };
}
