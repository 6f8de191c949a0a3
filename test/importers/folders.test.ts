import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { formatCurves, parseCurves } from "../../src/fit/index.ts";
import { formatImport, type ImportOptions, importPaths } from "../../src/importers/index.ts";
import { eventFile } from "../../src/study/tensorboard.ts";
import * as made from "./made.ts";

const top = mkdtempSync(join(tmpdir(), "import-"));
afterAll(() => rmSync(top, { recursive: true }));

function put(files: Readonly<Record<string, string | Uint8Array>>, folder = `f${Math.random()}`): string {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(top, folder, path)), { recursive: true });
    writeFileSync(join(top, folder, path), content);
  }
  return join(top, folder);
}

const names = (paths: string[], options: ImportOptions = {}) =>
  importPaths(paths, options).runs.map(({ run }) => run);

describe("MLflow's file store", () => {
  const store = {
    "0/meta.yaml": "name: Default\n",
    "0/abc/meta.yaml": "artifact_uri: x\nrun_name: brave-owl-1\n",
    "0/abc/metrics/train/loss": "1700000000000 5.5 0\n1700000010000 4.5 100\n1700000020000 4.0 200\n",
    "0/abc/metrics/val_loss": "1700000020000 4.2 200\n",
    "0/abc/metrics/lr": "1700000000000 0.1 0\n",
    "0/def/meta.yaml": "artifact_uri: x\n",
    "0/def/tags/mlflow.runName": "calm-fox-2",
    "0/def/metrics/loss": "1700000000000 5.5 0\n1700000000000 5.4 0\n1700000010000 5.3 0",
    "0/def/metrics/val_loss": "1700000000000 nan 0\n1700000000000 5.4 1\n1700000",
  };

  it("runs by name, metrics in folders, time; steps that were never set are no steps", () => {
    const result = importPaths([put(store)]);
    expect(result.runs.map(({ run, points }) => [run, points])).toEqual([
      ["brave-owl-1", { train: 3, eval: 1 }],
      ["calm-fox-2", { eval: 1 }],
    ]);
    expect(result.points.slice(0, 3).map((p) => [p.step, p.lm_loss, p.time_s])).toEqual([
      [0, 5.5, 0],
      [100, 4.5, 10],
      [200, 4, 20],
    ]);
    const skipped = result.sources[1].skipped.map(({ reason, count }) => [reason, count]);
    expect(skipped).toContainEqual(["step was never set (it is 0 throughout)", 3]);
    expect(skipped).toContainEqual(["last line is cut off", 1]);
    expect(skipped).toContainEqual(["loss is not a number", 1]);
  });

  it("names file and line of what is no metric", () => {
    const folder = put({ "r/meta.yaml": "", "r/metrics/loss": "1700000000000 5.5 0\nhello\n1 2 3\n" });
    expect(() => importPaths([folder])).toThrow(
      /metrics\/loss, line 2: "hello" where "timestamp value step"/,
    );
  });
});

describe("folders and several files", () => {
  const log = (losses: readonly number[], start = 0) =>
    eventFile(losses.map((value, i) => ({ tag: "train/loss", step: start + i, value, wallTime: 1 })));

  it("event files of one folder are one run, later files after earlier ones", () => {
    const folder = put({
      "a/events.out.tfevents.1.host": log([5, 4, 3]),
      "a/events.out.tfevents.2.host": log([3.5, 2.5], 1),
      "b/events.out.tfevents.1.host": log([6]),
      "b/notes.txt": "nothing\n",
    });
    const result = importPaths([folder]);
    expect(result.runs.map(({ run, replaced, rollbacks }) => [run, replaced, rollbacks])).toEqual([
      ["a", 2, 1],
      ["b", 0, 0],
    ]);
    expect(result.points.slice(0, 3).map((p) => p.lm_loss)).toEqual([5, 3.5, 2.5]);
    expect(result.passed).toHaveLength(1);
    expect(formatImport(result)).toContain("notes.txt: is of no format that import knows");
  });

  it("files of one name get the folders that tell them apart; links are not followed", () => {
    const folder = put({ "s/main.log": made.LLM_C, "l/main.log": made.LLM_C });
    expect(names([join(folder, "s/main.log"), join(folder, "l/main.log")])).toEqual(["s/main", "l/main"]);
    symlinkSync(join(folder, "s"), join(folder, "latest"));
    expect(names([folder])).toEqual(["l/main", "s/main"]);
    expect(() => importPaths([join(folder, "s/main.log"), join(folder, "latest/main.log")])).toThrow(
      /given twice/,
    );
  });

  it("--run joins a run's logs in order; a source of several runs is refused", () => {
    const folder = put({
      "1.log": "s:0 trl:5\ns:1 trl:4\ns:2 trl:3\n",
      "2.log": "s:1 trl:4.5\ns:2 trl:3.5\n",
      "w.csv": made.WANDB_CSV,
    });
    const result = importPaths([join(folder, "1.log"), join(folder, "2.log")], { run: "mine" });
    expect(result.runs[0]).toMatchObject({ run: "mine", replaced: 2, rollbacks: 1, points: { train: 3 } });
    expect(result.points.map((p) => p.lm_loss)).toEqual([5, 4.5, 3.5]);
    expect(() => importPaths([join(folder, "w.csv")], { run: "mine" })).toThrow(
      /holds 2: a - b, c; use --run-map/,
    );
  });

  it("missing, empty and unreadable paths", () => {
    expect(() => importPaths([join(top, "none")])).toThrow(/there is no such file or folder/);
    expect(() => importPaths([""])).toThrow(/cannot read "": there is no such file or folder/);
    expect(() => importPaths([put({ "x.txt": "hello\n" })])).toThrow(
      /holds no log that import can read \(1 files/,
    );
    expect(() => importPaths([join(put({ "x.log": "" }), "x.log")])).toThrow(/is empty/);
  });
});

describe("the table of runs", () => {
  const csv = join(put({ "w.csv": made.WANDB_CSV }), "w.csv");
  const withMap = (text: string, facts = {}) => {
    const runMap = join(put({ "runs.csv": text }), "runs.csv");
    return importPaths([csv], { runMap, facts });
  };

  it("gives each run its labels and facts, before those of all runs", () => {
    const result = withMap(
      "run,attention,model,parameters,tokens_per_step,seed\na - b,full,s,1e6,1000,1\nc,moba,,2000000,,\n",
      { tokens_per_step: 500, model: "all" },
    );
    const ends = result.points.filter((p) => [10, 30].includes(p.step!));
    expect(ends.map((p) => [p.attention, p.model, p.seed, p.parameters, p.tokens])).toEqual([
      ["full", "s", 1, 1e6, 10_000],
      ["moba", "all", undefined, 2e6, 15_000],
    ]);
    expect(result.notes.some((note) => note.includes("compute"))).toBe(false);
    // What is written is a curves table that reads back.
    expect(parseCurves(formatCurves(result.points), "x").points).toHaveLength(result.points.length);
  });

  it("imports the runs it names only, and names those it does not", () => {
    const result = withMap("run,attention\nc,full\n");
    expect(result.runs.map(({ run }) => run)).toEqual(["c"]);
    expect(result.notes.join()).toMatch(/runs that .* does not name were left out \(1\): a - b/);
  });

  it.each([
    ["run,attention\nd,full\n", /names run d, which the logs do not hold; they hold a - b, c/],
    ["name,attention\nc,full\n", /line 1: columns name, attention where run and any of attention, model/],
    ["run,parameters\nc,many\n", /line 2, column parameters: "many" where a number above 0/],
    ["run,seed\nc,1.5\n", /line 2, column seed: "1.5" where a whole number/],
    ["run,seed\nc,1\nc,2\n", /line 3: run "c" is named twice/],
    ["run,seed\nc\n", /line 2: 1 fields where the header has 2/],
    ["run,seed\n", /has no rows/],
    ["", /columns \(none\)/],
  ])("refuses %j", (text, message) => {
    expect(() => withMap(text)).toThrow(message);
  });
});
