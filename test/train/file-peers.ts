/** Peers of any backend, over files: slow, but with processes that live and die as those of a run on cards do. */
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { RunError } from "../../src/errors.ts";
import type { Backend, Peers, Tensor } from "../../src/ops/contract.ts";
import type { Meeting } from "../../src/ops/cuda/index.ts";

const NEVER = new Int32Array(new SharedArrayBuffer(4));

/** `folder` is empty at first and the same for all. */
export function withPeers(backend: Backend, meeting: Meeting, folder: string): Backend {
  meeting.share(meeting.rank === 0 ? new Uint8Array(1) : null);
  let sums = 0;
  const file = (sum: number, rank: number) => join(folder, `${sum}-${rank}`);
  const valuesOf = (rank: number): Float64Array => {
    while (!existsSync(file(sums, rank))) {
      const lost = meeting.lost();
      if (lost !== null) throw new RunError(`lost a process of this run: ${lost}`);
      Atomics.wait(NEVER, 0, 0, 0.2);
    }
    return new Float64Array(Uint8Array.from(readFileSync(file(sums, rank))).buffer);
  };
  const peers: Peers = {
    rank: meeting.rank,
    count: meeting.count,
    sum(tensor: Tensor, from: number, to: number) {
      const part = backend.view(tensor, from, [to - from]);
      const own = Float64Array.from(backend.read(part));
      writeFileSync(`${file(sums, meeting.rank)}.tmp`, own);
      renameSync(`${file(sums, meeting.rank)}.tmp`, file(sums, meeting.rank));
      const all = new Float64Array(own.length);
      for (let rank = 0; rank < meeting.count; rank++) {
        const values = valuesOf(rank);
        for (let i = 0; i < all.length; i++) all[i] += values[i];
      }
      backend.write(part, all);
      // All have written this one, so all have read the one before.
      rmSync(file(sums - 1, meeting.rank), { force: true });
      sums++;
    },
    join() {},
  };
  return Object.assign(Object.create(backend), { peers });
}
