/**
 * Batches made ahead by a thread of their own (prefetch-worker.ts), in a ring of memory that both threads see: the
 * thread that trains only takes them. What batches hold does not depend on it.
 */
import type { Worker } from "node:worker_threads";
import { RunError } from "../errors.ts";
import type { Tokens } from "./shards.ts";
import { errorOf, type Failure, startWorker } from "./threads.ts";
import type { Batch, BatchQueue } from "./types.ts";

/** What `trainingStream` is made of. */
export interface StreamParts {
  /** Copied for the thread unless its memory is shared, as that of shards is. */
  readonly tokens: Tokens;
  /** Of the documents, in tokens. */
  readonly lengths: Float64Array;
  readonly context: number;
  readonly seed: number;
}

/** Batches of `count` sequences from sequence `first` up to `end`, of which the ring holds `places`. */
export interface Order {
  readonly first: number;
  readonly end: number;
  readonly count: number;
  readonly places: number;
  /** Of a sequence. */
  readonly maxDocuments: number;
}

/** How many batches have been made, and released: words of `Ring.progress`. */
export const MADE = 0;
export const RELEASED = 1;

export interface Ring {
  readonly progress: Int32Array;
  readonly places: readonly Place[];
}

interface Place {
  readonly tokens: Int32Array;
  readonly targets: Int32Array;
  readonly offsets: Int32Array;
  /** Documents, predicted tokens, largest id. */
  readonly counts: Int32Array;
}

export class Prefetch implements BatchQueue {
  readonly #ring: Ring;
  readonly #worker: Worker;
  #taken = 0;
  #failure: Error | null = null;
  /** Called when the thread has said something. */
  #heard: () => void = () => {};

  /** Throws `RunError` when the ring does not fit into memory. */
  constructor(stream: StreamParts, order: Order) {
    this.#ring = makeRing(stream.context, order);
    this.#worker = startWorker("prefetch-worker", { stream, order, ring: this.#ring });
    this.#worker.on("message", (failure: Failure | null) => {
      if (failure) this.#fail(errorOf(failure));
      else this.#heard();
    });
    this.#worker.on("error", (cause) =>
      this.#fail(new RunError(`the thread that makes batches failed: ${cause.message}`, { cause })),
    );
    this.#worker.on("exit", () => this.#fail(new RunError("the thread that makes batches has ended")));
  }

  async next(): Promise<Batch> {
    const { progress, places } = this.#ring;
    while (Atomics.load(progress, MADE) <= this.#taken) {
      if (this.#failure) throw this.#failure;
      await new Promise<void>((resolve) => {
        this.#heard = resolve;
      });
    }
    const { tokens, targets, offsets, counts } = places[this.#taken++ % places.length];
    const [documents, predicted, largest] = counts;
    const counted = { predicted, largest };
    return { tokens, targets, offsets: [...offsets.subarray(0, documents + 1)], counted };
  }

  release(count: number): void {
    Atomics.add(this.#ring.progress, RELEASED, count);
    Atomics.notify(this.#ring.progress, RELEASED);
  }

  /** Ends the thread; batches not released must not be used any more. */
  close(): void {
    this.#fail(new RunError("the thread that makes batches has ended"));
    void this.#worker.terminate();
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.#heard();
  }
}

function makeRing(context: number, { count, places, maxDocuments }: Order): Ring {
  const words = (length: number) => {
    try {
      return new Int32Array(new SharedArrayBuffer(4 * length));
    } catch (cause) {
      throw new RunError(
        `out of memory on the host: room for ${places} batches of ${count * context} tokens was asked for (${((8 * places * count * context) / 1e9).toFixed(1)} GB)`,
        { cause },
      );
    }
  };
  return {
    progress: words(2),
    places: Array.from({ length: places }, () => ({
      tokens: words(count * context),
      targets: words(count * context),
      offsets: words(count * maxDocuments + 1),
      counts: words(3),
    })),
  };
}
