/** Spreads tasks over worker threads and hands on their results in order, whatever thread was faster. */
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import { InputError, RunError } from "../errors.ts";
import { Tasks } from "./tasks.ts";

type Name = keyof Tasks;
type Input<N extends Name> = Parameters<Tasks[N]>[0];
type Output<N extends Name> = ReturnType<Tasks[N]>;

/** What a worker is told ... */
export interface Request {
  readonly name: Name;
  readonly input: unknown;
}

/** ... and what it says. Requests are answered in order. */
export type Answer = { readonly output: unknown } | { readonly failure: Failure };

/** An error on its way between threads. */
export interface Failure {
  readonly kind: string;
  readonly message: string;
  readonly stack: string | undefined;
}

export function failureOf(error: unknown): Failure {
  const { message, stack } = error as Error;
  const kind = Object.keys(KINDS).find((name) => error instanceof KINDS[name]) ?? "Error";
  return { kind, message, stack };
}

export function errorOf({ kind, message, stack }: Failure): Error {
  const error = new KINDS[kind](message);
  error.stack = stack;
  return error;
}

const KINDS: Readonly<Record<string, new (message: string) => Error>> = {
  InputError,
  RunError,
  RangeError,
  Error,
};

/** Tasks a thread may have waiting: enough to keep it busy, few enough to keep memory small. */
const AHEAD = 4;
/** Text for which one more thread is worth starting. */
const BYTES_OF_A_THREAD = 16_000_000;

/**
 * Plain JavaScript, so that it starts whatever runs the host code; TypeScript, when the host code is not compiled, comes
 * through the loader given.
 */
const BOOTSTRAP = `
const { workerData } = require("node:worker_threads");
(async () => {
  if (workerData.loader !== null) (await import(workerData.loader)).register();
  await import(workerData.module);
})();`;

/** A thread that runs a module beside this one, which finds `input` in its `workerData`. */
export function startWorker(module: string, input?: unknown): Worker {
  const compiled = import.meta.url.endsWith(".js");
  return new Worker(BOOTSTRAP, {
    eval: true,
    execArgv: [],
    workerData: {
      module: new URL(`./${module}.${compiled ? "js" : "ts"}`, import.meta.url).href,
      loader: compiled ? null : import.meta.resolve("tsx/esm/api"),
      input,
    },
  });
}

/** Threads for some text: all cores, fewer for little. */
export function threadsFor(bytes: number, most = availableParallelism()): number {
  return Math.max(1, Math.min(most, Math.floor(bytes / BYTES_OF_A_THREAD)));
}

interface Thread {
  readonly worker: Worker;
  readonly waiting: { resolve: (output: never) => void; reject: (error: Error) => void }[];
}

/** One thread is the calling one: then nothing is started. */
export class Threads {
  readonly count: number;
  readonly #threads: Thread[] = [];
  readonly #here: Tasks | null;
  #failure: RunError | null = null;

  constructor(count: number) {
    this.count = count;
    this.#here = count === 1 ? new Tasks() : null;
    if (count > 1) for (let i = 0; i < count; i++) this.#threads.push(this.#start());
  }

  /** Does a task with each item; an item's result comes after those of the items before it. */
  async *map<N extends Name, Item>(
    name: N,
    items: AsyncIterable<Item> | Iterable<Item>,
    inputOf: (item: Item) => Input<N>,
  ): AsyncGenerator<{ item: Item; output: Output<N> }> {
    const waiting: { item: Item; output: Promise<Output<N>> }[] = [];
    for await (const item of items) {
      waiting.push({ item, output: this.#do(name, inputOf(item)) });
      if (waiting.length < AHEAD * this.count && this.#here === null) continue;
      const { item: first, output } = waiting.shift() as (typeof waiting)[number];
      yield { item: first, output: await output };
    }
    for (const { item, output } of waiting) yield { item, output: await output };
  }

  /** Does a task once on every thread. */
  onAll<N extends Name>(name: N, input: Input<N>): Promise<Output<N>[]> {
    const threads = this.#here === null ? this.#threads : [null];
    return Promise.all(threads.map((thread) => this.#do(name, input, thread)));
  }

  /** Ends the threads; what they still had to do is lost. */
  close(): void {
    this.#failure ??= new RunError("the worker threads have ended");
    for (const { worker } of this.#threads) void worker.terminate();
  }

  #do<N extends Name>(name: N, input: Input<N>, on: Thread | null = null): Promise<Output<N>> {
    const done = new Promise<Output<N>>((resolve, reject) => {
      if (this.#failure !== null) throw this.#failure;
      if (this.#here !== null) {
        resolve(this.#here[name](input as never) as Output<N>);
        return;
      }
      const thread =
        on ?? this.#threads.reduce((best, one) => (one.waiting.length < best.waiting.length ? one : best));
      thread.waiting.push({ resolve, reject });
      thread.worker.postMessage({ name, input } satisfies Request);
    });
    // one that fails while an earlier one is awaited is reported when its turn comes
    done.catch(() => {});
    return done;
  }

  #start(): Thread {
    const worker = startWorker("worker");
    const thread: Thread = { worker, waiting: [] };
    worker.on("message", (answer: Answer) => {
      const { resolve, reject } = thread.waiting.shift() as Thread["waiting"][number];
      if ("output" in answer) {
        resolve(answer.output as never);
        return;
      }
      reject(errorOf(answer.failure));
    });
    worker.on("error", (cause) =>
      this.#fail(new RunError(`a worker thread failed: ${cause.message}`, { cause })),
    );
    worker.on("exit", () => this.#fail(new RunError("a worker thread has ended")));
    return thread;
  }

  #fail(error: RunError): void {
    this.#failure ??= error;
    for (const { waiting } of this.#threads) {
      for (const { reject } of waiting.splice(0)) reject(this.#failure);
    }
  }
}
