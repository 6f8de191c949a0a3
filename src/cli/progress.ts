/** The progress of a study: a line when a run starts, ends and now and then between, plain in a pipe and on a screen. */
import type { PrepareProgress } from "../data/index.ts";
import type { RunEvent } from "../study/local.ts";
import { duration, short } from "./format.ts";

/** Seconds between two lines of one run. */
const EVERY = 10;

export class StudyProgress {
  readonly #out: NodeJS.WritableStream;
  readonly #width: number;
  readonly #lastLine = new Map<string, number>();
  readonly #last = new Map<string, Extract<RunEvent, { kind: "progress" }>["progress"]>();
  readonly #started = new Map<string, number>();
  readonly #names: readonly string[];
  #ended = 0;

  constructor(names: readonly string[], out: NodeJS.WritableStream) {
    this.#names = names;
    this.#out = out;
    this.#width = Math.max(...names.map((name) => name.length));
  }

  on(event: RunEvent): void {
    const now = performance.now() / 1000;
    if (event.kind === "start") {
      this.#started.set(event.run, now);
      this.#lastLine.set(event.run, now);
    } else if (event.kind === "progress") {
      this.#last.set(event.run, event.progress);
      if (now - (this.#lastLine.get(event.run) ?? 0) < EVERY) return;
      this.#lastLine.set(event.run, now);
      const { step, steps, loss, tokensPerSecond, secondsLeft } = event.progress;
      this.#line(
        event.run,
        `step ${step}/${steps}  loss ${loss.toFixed(3)}  ${short(tokensPerSecond)} tok/s  ${duration(secondsLeft)} left`,
      );
    } else if (event.interrupted) {
      this.#line(event.run, "interrupted");
    } else if (event.error !== undefined) {
      this.#ended++;
      this.#line(event.run, `FAILED: ${event.error}`);
    } else {
      this.#ended++;
      const last = this.#last.get(event.run);
      const took = duration(now - (this.#started.get(event.run) ?? now));
      const heldOut = last?.heldOut === undefined ? "" : `  held-out loss ${last.heldOut.toFixed(3)}`;
      this.#line(
        event.run,
        `done in ${took}${heldOut}${last ? `  ${short(last.tokensPerSecond)} tok/s` : ""}  (${this.#ended} of ${this.#names.length})`,
      );
    }
  }

  end(): void {
    const skipped = this.#names.length - this.#started.size;
    if (skipped > 0) this.#out.write(`${skipped} of ${this.#names.length} runs were finished before\n`);
  }

  #line(run: string, text: string): void {
    this.#out.write(`${run.padEnd(this.#width)}  ${text}\n`);
  }
}

/** Lines on `out` while a dataset is made, at most one in two seconds. */
export function prepareProgress(out: NodeJS.WritableStream): (progress: PrepareProgress) => void {
  let last = performance.now();
  return ({ stage, documents, bytes }) => {
    const now = performance.now();
    if (now - last < 2000) return;
    last = now;
    out.write(`${stage}: ${short(documents)} documents, ${short(bytes)}B\n`);
  };
}
