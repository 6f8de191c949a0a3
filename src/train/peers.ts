/**
 * What the processes of one run do together. Each takes its share of a step's passes; gradients, losses and wishes to
 * stop are summed, so all know the same and do the same. Process 0 alone writes and evaluates.
 */
import { crc32 } from "node:zlib";
import type { Batch } from "../data/types.ts";
import { InputError, RunError } from "../errors.ts";
import type { Model } from "../model/model.ts";
import type { Backend, Peers, Tensor } from "../ops/contract.ts";
import type { RunConfig } from "./types.ts";

/** Gradients of one sum, 32 MB: enough that the link between the cards is used well, few enough to begin early. */
const LEAST_ELEMENTS = 8 << 20;

/** Throws `InputError` when a step's passes cannot be shared evenly among `count` processes. */
export function checkShares({ sequencesPerStep, sequencesPerPass }: RunConfig, count: number): void {
  const passes = sequencesPerStep / sequencesPerPass;
  if (passes % count === 0) return;
  const most = sequencesPerStep / count;
  const right = Number.isInteger(most)
    ? `expected a sequencesPerPass that divides ${most}`
    : `expected a sequencesPerStep that is a multiple of ${count}`;
  throw new InputError(
    `${count} processes cannot share a step's ${passes} passes evenly (sequencesPerStep ${sequencesPerStep}, sequencesPerPass ${sequencesPerPass}): ${right}`,
  );
}

/** The passes of a step that this process does: every `count`-th. */
export function ownPasses(passes: readonly Batch[], peers: Peers | undefined): readonly Batch[] {
  return peers ? passes.filter((_, i) => i % peers.count === peers.rank) : passes;
}

/**
 * A step's last pass. Gradients are summed over the processes beside the backward pass, part by part, from the last
 * parameter to the first as they become final.
 */
export function backwardTogether(peers: Peers, model: Model, scale_1: Tensor): void {
  const { decayed, length } = model.parameters;
  const grads_P = model.grads!;
  let to = decayed;
  model.forwardBackward(scale_1, (from) => {
    if (from > 0 && to - from < LEAST_ELEMENTS) return;
    peers.sum(grads_P, from, to);
    to = from;
  });
  peers.sum(grads_P, decayed, length);
  peers.join();
}

/** Whether any process gives true: enqueued now, known when it is called. */
export function anyOf(backend: Backend, flag_1: Tensor, own: boolean): () => boolean {
  const { peers } = backend;
  if (!peers) return () => own;
  backend.write(flag_1, [own ? 1 : 0]);
  peers.sum(flag_1, 0, 1);
  peers.join();
  const read = backend.readLater(flag_1);
  return () => read()[0] > 0;
}

/** Waits until all processes have come here. */
export function meetAll(backend: Backend): void {
  anyOf(backend, backend.tensor([1], "float"), false)();
}

/** Throws `RunError` naming the processes whose weights are not those of process 0. Waits for all. */
export function checkSameStart(peers: Peers, model: Model): void {
  const { backend } = model;
  let sum = 0;
  for (const parameter of model.parameters.named) {
    const { buffer, byteOffset, byteLength } = model.readParameter(parameter);
    sum = crc32(new Uint8Array(buffer, byteOffset, byteLength), sum);
  }
  // In halves, which a float holds exactly; each process fills in its own, so the sum is the list.
  const values = new Float32Array(2 * peers.count);
  values.set([sum & 0xffff, sum >>> 16], 2 * peers.rank);
  const sums = backend.tensor([values.length], "float");
  backend.write(sums, values);
  peers.sum(sums, 0, values.length);
  peers.join();
  const all = backend.read(sums);
  const others = Array.from({ length: peers.count }, (_, rank) => rank).filter(
    (rank) => all[2 * rank] !== all[0] || all[2 * rank + 1] !== all[1],
  );
  if (others.length > 0) {
    throw new RunError(
      `the processes of the run start from different weights: ${others.join(", ")} from others than 0, expected those of one seed or checkpoint`,
    );
  }
}
