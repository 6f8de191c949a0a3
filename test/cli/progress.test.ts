/** What a study says while it trains. */
import { PassThrough } from "node:stream";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { prepareProgress, StudyProgress } from "../../src/cli/progress.ts";
import type { PlannedRun } from "../../src/study/plan.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["performance"] }));
afterEach(() => void vi.useRealTimers());

function written(): { out: PassThrough; lines: () => string[] } {
  const out = new PassThrough();
  return {
    out,
    lines: () =>
      String(out.read() ?? "")
        .split("\n")
        .slice(0, -1),
  };
}

it("a study's time left: running runs by what they say, waiting ones by operations at the rate so far", () => {
  // A quarter of all work is evaluation, a third of the training's.
  const run = (name: string, pflopsDaysAttended: number) =>
    ({ name, pflopsDaysAttended, tokens: 100, evaluationTokens: 100 }) as PlannedRun;
  const open = [run("large", 8), run("small", 2), run("broken", 1)];
  const { out, lines } = written();
  const study = new StudyProgress([run("old", 1), ...open], open, 1, out);
  expect(lines()).toEqual(["1 of 4 runs were finished before"]);
  const progress = (run: string, step: number, secondsLeft: number) =>
    study.on({
      kind: "progress",
      run,
      progress: { step, steps: 10, loss: 2, tokensPerSecond: 1000, secondsLeft, heldOut: 1.5 },
    });
  study.on({ kind: "start", run: "large" });
  progress("large", 1, 50);
  expect(lines()).toEqual([]);
  vi.advanceTimersByTime(40_000);
  // Half of 8 in 40 s: 10 s for each, 30 s for those that wait.
  progress("large", 5, 50);
  expect(lines()).toEqual([
    "large   step 5/10  loss 2.000  1k tok/s  50 s left",
    "1 of 4 runs ended, about 80 s left",
  ]);
  vi.advanceTimersByTime(40_000);
  progress("large", 10, 1);
  study.on({ kind: "end", run: "large" });
  expect(lines()).toEqual([
    "large   step 10/10  loss 2.000  1k tok/s  1 s left",
    "large   done in 80 s  held-out loss 1.500",
    "2 of 4 runs ended, about 30 s left",
  ]);
  study.on({ kind: "start", run: "broken" });
  study.on({ kind: "end", run: "broken", error: "no luck" });
  expect(lines()).toEqual(["broken  FAILED: no luck", "3 of 4 runs ended, about 20 s left"]);
  study.on({ kind: "start", run: "small" });
  study.on({ kind: "end", run: "small" });
  expect(lines()).toEqual(["small   done in 1 s"]);
});

it("an interruption ends a dataset at its next piece of progress", () => {
  const { out, lines } = written();
  const abort = new AbortController();
  const tell = prepareProgress(out, abort.signal);
  const progress = { stage: "tokenizing", documents: 3, bytes: 1200 } as const;
  tell(progress);
  vi.advanceTimersByTime(2000);
  tell(progress);
  expect(lines()).toEqual(["tokenizing: 3 documents, 1.2kB"]);
  abort.abort();
  expect(() => tell(progress)).toThrow("interrupted: nothing is left of the dataset");
});
