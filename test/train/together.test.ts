/** A run as several processes: the losses of one process, and what becomes of it when one of them ends. */
import { mkdirSync, mkdtempSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { InputError, RunError } from "../../src/errors.ts";
import { Model } from "../../src/model/model.ts";
import type { Peers } from "../../src/ops/contract.ts";
import { meetingFromEnvironment } from "../../src/train/meeting.ts";
import { checkSameStart } from "../../src/train/peers.ts";
import { readMetrics, readStatus } from "../../src/train/records.ts";
import { train } from "../../src/train/run.ts";
import { trainTogether } from "../../src/train/together.ts";
import type { RunProgress } from "../../src/train/types.ts";
import { processOfRank } from "./ranks.ts";
import { makeStudyFolder, openBackend, outcomeOf } from "./run-folder.ts";
import { tinyConfig } from "./tiny.ts";

const config = tinyConfig({ attention: "moba-b8-k2+full@0.6", sequencesPerStep: 4, horizon: { steps: 24 } });
const entry = fileURLToPath(new URL("peer-child.ts", import.meta.url));

let study: Awaited<ReturnType<typeof makeStudyFolder>>;
const nodeOptions = process.env.NODE_OPTIONS;
beforeAll(async () => {
  study = await makeStudyFolder(config.context);
  process.env.NODE_OPTIONS = `--import ${import.meta.resolve("tsx")}`;
});
afterAll(() => {
  study.remove();
  process.env.NODE_OPTIONS = nodeOptions ?? "";
});

interface Options {
  readonly onProgress?: (progress: RunProgress) => void;
  readonly signal?: AbortSignal;
  readonly fails?: readonly [rank: number, step: number];
}

/** Resolves to the error, null when it went well, and the seconds from the last progress to the end. */
async function together(folder: string, options: Options = {}): Promise<[Error | null, number]> {
  const sums = mkdtempSync(join(study.folder, "sums-"));
  let last = performance.now();
  const error = await trainTogether(folder, {
    entry,
    arguments: [folder, sums, ...(options.fails ?? []).map(String)],
    count: 2,
    resume: true,
    signal: options.signal,
    onProgress(progress) {
      last = performance.now();
      options.onProgress?.(progress);
    },
  }).then(
    () => null,
    (error) => error,
  );
  return [error, (performance.now() - last) / 1000];
}

test("two processes give the losses of one with all passes; interrupted, killed, failed: resumed to the same bits", async () => {
  const alone = study.run("alone", config);
  const backend = openBackend();
  await train(alone, { backend });
  backend.close();
  const whole = study.run("whole", config);
  expect((await together(whole))[0]).toBe(null);
  const [one, two] = [outcomeOf(alone), outcomeOf(whole)];
  expect(two.metrics.length).toBe(24);
  for (const kind of ["metrics", "evaluations"] as const) {
    one[kind].forEach((record, i) => {
      const { loss, gradNorm, lm_loss, buckets, documents, bits_per_byte, evaluation_s, ...exact } =
        record as Record<string, unknown>;
      expect(two[kind][i]).toMatchObject(exact);
      for (const [name, value] of Object.entries({ loss, gradNorm, lm_loss })) {
        if (value === undefined) continue;
        const other = (two[kind][i] as Record<string, number>)[name];
        expect(Math.abs(other / (value as number) - 1), `${kind} ${i} ${name}`).toBeLessThan(1e-4);
      }
    });
  }

  // Each way to end too early, then resumed: as if nothing had happened.
  const killed = (rank: number) => {
    const message = new RegExp(
      `^lost a process of this run: rank ${rank} was ended by SIGKILL; the last good checkpoint is .*, step \\d+$`,
    );
    return {
      name: `killed-${rank}`,
      message,
      state: "failed",
      options: (): Options => ({
        onProgress: ({ step }) => step === 7 && process.kill(processOfRank(process.pid, rank), "SIGKILL"),
      }),
    };
  };
  const aborted = () => {
    const abort = new AbortController();
    return { signal: abort.signal, onProgress: ({ step }: RunProgress) => step === 7 && abort.abort() };
  };
  const ends = [
    killed(0),
    killed(1),
    { name: "aborted", message: /^interrupted at step \d+$/, state: "running", options: aborted },
    {
      name: "failed",
      message: /^rank 1: something went wrong; the last good checkpoint is .*, step \d+$/,
      state: "failed",
      options: (): Options => ({ fails: [1, 7] }),
    },
  ];
  for (const { name, message, state, options } of ends) {
    const folder = study.run(name, config);
    const [error, seconds] = await together(folder, options());
    expect(error, name).toBeInstanceOf(RunError);
    expect(error!.message).toMatch(message);
    expect(seconds, name).toBeLessThan(5);
    expect(readStatus(folder), name).toMatchObject({ state });
    expect(readMetrics(join(folder, "metrics.jsonl")).length, name).toBeLessThan(24);
    expect((await together(folder))[0], name).toBe(null);
    const { evaluations, ...same } = outcomeOf(folder);
    expect(same, name).toEqual({ metrics: two.metrics, tensors: two.tensors });
  }
}, 120_000);

test("passes that cannot be shared evenly are refused before anything starts", async () => {
  const folder = study.run("odd", tinyConfig({ sequencesPerStep: 4, sequencesPerPass: 4 }));
  const [error] = await together(folder);
  expect(error).toBeInstanceOf(InputError);
  expect(error!.message).toBe(
    "2 processes cannot share a step's 1 passes evenly (sequencesPerStep 4, sequencesPerPass 4): expected a sequencesPerPass that divides 2",
  );
});

test("different weights at the start are noticed by all, and the processes named", () => {
  const backend = openBackend();
  const attention = new Array(2).fill({ kind: "full" });
  const options = { tokens: 32, maxDocuments: 1, training: true, attention };
  const model = new Model(backend, config.shape, options);
  model.initialize(1);
  const crcs = (rank: number, other: number): Peers => ({
    ...{ rank, count: 3 },
    join() {},
    sum(tensor) {
      const own = backend.read(tensor);
      const all = Float32Array.from({ length: 6 }, (_, i) => own[2 * rank + (i % 2)]);
      all[5] += other;
      backend.write(tensor, all);
    },
  });
  checkSameStart(crcs(1, 0), model);
  for (const rank of [0, 1, 2]) {
    expect(() => checkSameStart(crcs(rank, 1), model)).toThrow(
      new RunError(
        "the processes of the run start from different weights: 2 from others than 0, expected those of one seed or checkpoint",
      ),
    );
  }
  backend.close();
});

test("the environment says who a process is", () => {
  const folder = join(study.folder, "meeting");
  mkdirSync(folder);
  const env = { RANK: "0", WORLD_SIZE: "2", LOCAL_RANK: "0", MOBALAB_MEETING: folder };
  expect(meetingFromEnvironment({})).toBe(null);
  expect(meetingFromEnvironment({ WORLD_SIZE: "1" })).toBe(null);
  expect(meetingFromEnvironment(env)).toMatchObject({ rank: 0, count: 2, localRank: 0 });
  const refused: [change: Record<string, string | undefined>, says: string][] = [
    [{ RANK: "2" }, "RANK=2, expected a whole number from 0 to 1"],
    [{ LOCAL_RANK: undefined }, "LOCAL_RANK=, expected a whole number from 0 to 1"],
    [{ WORLD_SIZE: "two" }, "WORLD_SIZE=two, expected a whole number"],
    [{ MOBALAB_MEETING: undefined }, "MOBALAB_MEETING=, expected a folder that is new for this start"],
  ];
  for (const [change, says] of refused) {
    expect(() => meetingFromEnvironment({ ...env, ...change })).toThrow(says);
  }
});
