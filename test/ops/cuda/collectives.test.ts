/** Sums over processes on the mock driver: order between the two streams, recording, and what is said when one ends. */
import { setTimeout } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { RunError } from "../../../src/errors.ts";
import { type Meeting, ncclVersion } from "../../../src/ops/cuda/collectives.ts";
import { assemble } from "../../../src/ops/cuda/index.ts";
import { createMock, type MockOptions } from "../../../src/ops/cuda/mock.ts";

function open(options: MockOptions & { meeting?: Partial<Meeting> } = {}) {
  const mock = createMock(options);
  const shared: (Uint8Array | null)[] = [];
  const meeting: Meeting = {
    rank: 0,
    count: 2,
    share(bytes) {
      shared.push(bytes);
      return bytes ?? new Uint8Array(128);
    },
    lost: () => null,
    ...options.meeting,
  };
  const image = () => new Uint8Array(1);
  const backend = assemble(mock.driver, () => mock.blas, image, 0, { nccl: mock.nccl, meeting });
  return { mock, backend, peers: backend.peers!, shared };
}

test("process 0 makes the id, and all join with it", () => {
  const first = open();
  expect(first.shared).toEqual([new Uint8Array(128).fill(7)]);
  const second = open({ meeting: { rank: 1 } });
  expect(second.shared).toEqual([null]);
  expect(second.mock.calls).not.toContain("ncclGetUniqueId");
  expect([second.peers.rank, second.peers.count]).toEqual([1, 2]);
  expect(ncclVersion(first.mock.nccl)).toBe("2.30.7");
});

test("a sum sees what was enqueued before it, and what comes after the join sees the sum", () => {
  const { backend, peers } = open();
  const [x, y] = [backend.tensor([4], "float"), backend.tensor([4], "float")];
  backend.write(x, [1, 2, 3, 4]);
  peers.sum(x, 1, 3);
  peers.join();
  backend.copy(y, x);
  expect([...backend.read(y)]).toEqual([1, 4, 6, 4]);
});

test("recorded: the same at each replay, between the operations before and after", () => {
  const { mock, backend, peers } = open();
  const [x, y, z] = [1, 2, 3].map(() => backend.tensor([4], "float"));
  const replay = backend.record(() => {
    backend.copy(y, x);
    peers.sum(y, 0, 2);
    peers.sum(y, 2, 4);
    peers.join();
    backend.copy(z, y);
  });
  const before = backend.memory();
  for (const scale of [1, 10]) {
    backend.write(x, [scale, 2 * scale, 3 * scale, 4 * scale]);
    mock.calls.length = 0;
    replay();
    expect(mock.calls).toEqual(["cuGraphLaunch"]);
    expect([...backend.read(z)]).toEqual([2, 4, 6, 8].map((value) => scale * value));
  }
  expect(backend.memory()).toBe(before);
});

test("sums that nothing waits for cannot be recorded", () => {
  const { backend, peers } = open();
  const x = backend.tensor([4], "float");
  expect(() => backend.record(() => peers.sum(x, 0, 4))).toThrow("the card refused one of them");
});

test("only a part of a float tensor", () => {
  const { backend, peers } = open();
  const x = backend.tensor([4], "float");
  expect(() => peers.sum(x, 2, 5)).toThrow("sum: elements 2 to 5, expected a part of the 4 elements");
  expect(() => peers.sum(x, 2, 2)).toThrow(RangeError);
  expect(() => peers.sum(backend.tensor([4], "weight"), 0, 4)).toThrow("bf16, expected f32");
});

describe("what is said", () => {
  test("when a process has ended: at the next wait, whatever is waited for; its sums are given up", async () => {
    for (const wait of ["read", "synchronize", "readLater"] as const) {
      let lost: string | null = null;
      const { mock, backend, peers } = open({ meeting: { lost: () => lost } });
      const x = backend.tensor([4], "float");
      const replay = backend.record(() => {
        peers.sum(x, 0, 4);
        peers.join();
      });
      replay();
      lost = "rank 1 (process 77) has ended";
      await setTimeout(30);
      const waits = { read: () => backend.read(x), synchronize: () => backend.synchronize() };
      expect(wait === "readLater" ? backend.readLater(x) : waits[wait]).toThrow(
        new RunError("lost a process of this run: rank 1 (process 77) has ended"),
      );
      mock.calls.length = 0;
      backend.close();
      // NCCL waits for the recordings that hold its sums.
      expect(mock.calls.filter((call) => /GraphExecDestroy|nccl/.test(call))).toEqual([
        "cuGraphExecDestroy",
        "ncclCommAbort",
      ]);
    }
  });

  test("when NCCL fails, at once or later", () => {
    const failing = (name: string, code: number) => open({ fail: (call) => (call === name ? code : 0) });
    expect(() => failing("ncclCommInitRank", 5)).toThrow(
      new RunError("connecting 2 cards by NCCL failed: it was used in a way that it forbids"),
    );
    const { backend, peers } = failing("ncclAllReduce", 1);
    const x = backend.tensor([4], "float");
    expect(() => peers.sum(x, 0, 4)).toThrow("summing 4 values over 2 cards failed: a call to CUDA failed");
    const later = failing("NCCL, later", 6);
    later.backend.write(later.backend.tensor([4], "float"), [1, 2, 3, 4]);
    expect(() => later.backend.synchronize()).toThrow(
      "lost a process of this run: another process ended, or the connection to it broke",
    );
  });
});

test("closing leaves nothing", () => {
  const { mock, backend } = open();
  backend.tensor([4], "float");
  backend.close();
  expect(mock.allocatedBytes()).toBe(0);
  expect(mock.calls.slice(-9)).toContain("ncclCommDestroy");
});
