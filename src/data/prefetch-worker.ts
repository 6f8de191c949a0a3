/** The thread of `Prefetch`: fills places of the ring in turn, and waits where none is free. */
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { MADE, type Order, RELEASED, type Ring, type StreamParts } from "./prefetch.ts";
import { failureOf } from "./threads.ts";
import { trainingStream } from "./windows.ts";

const port = parentPort as MessagePort;
try {
  make(workerData.input);
} catch (error) {
  port.postMessage(failureOf(error));
}

function make({ stream, order, ring }: { stream: StreamParts; order: Order; ring: Ring }): void {
  const { tokens, lengths, context, seed } = stream;
  const { first, end, count } = order;
  const { progress, places } = ring;
  const documents = Array.from(lengths, (length) => ({ tokens: length }));
  const source = trainingStream(tokens, documents, context, seed);
  for (let made = 0; first + made * count < end; made++) {
    const place = places[made % places.length];
    for (;;) {
      const released = Atomics.load(progress, RELEASED);
      if (made - released < places.length) break;
      Atomics.wait(progress, RELEASED, released);
    }
    const { offsets, counted } = source.fill(first + made * count, place.tokens, place.targets);
    place.offsets.set(offsets);
    place.counts.set([offsets.length - 1, counted!.predicted, counted!.largest]);
    Atomics.store(progress, MADE, made + 1);
    port.postMessage(null);
  }
}
