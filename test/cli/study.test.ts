/** A study as a machine with little time runs it: a dataset made before, some of the runs, stopped and gone on with. */
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { prepareDataset } from "../../src/data/index.ts";
import { mobalab } from "./run-cli.ts";

const folder = mkdtempSync(join(tmpdir(), "mobalab-study-cli-"));
const state = (study: string, run: string) =>
  JSON.parse(readFileSync(join(folder, study, "runs", run, "status.json"), "utf8"));
const ladder =
  "--data data --context 64 --head-dim 4 --depths 1,2 --tokens-per-parameter 3 --device cpu".split(" ");
const study = (...args: string[]) => mobalab(["study", "h200-16k", ...ladder, ...args], folder);

beforeAll(async () => {
  mkdirSync(join(folder, "text"));
  for (let d = 0; d < 12; d++) {
    const words = Array.from({ length: 300 }, (_, i) => `word${(i * (d + 3)) % 17}`);
    writeFileSync(join(folder, "text", `${d}.txt`), words.join(" "));
  }
  const sources = [join(folder, "text")];
  await prepareDataset({ folder: join(folder, "data"), sources, tokenizer: "byte", context: 64 });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it("plans and trains the runs asked for, on a dataset where it lies", { timeout: 120_000 }, async () => {
  const only = "d1_full_s1,d1_moba-b16-k2_s1";
  const { code, stdout, stderr } = await study(
    ...["--attention", "full,moba-b16-k2", "--out", "one", "--only", only],
  );
  expect(stderr).toBe("");
  // The end in short: the whole of it is a command away.
  expect(stdout).toMatch(
    /\n\nIn short\n {2}Single sizes, so [\s\S]*\n {2}At .* too few sizes[\s\S]*\n\nWarnings\n[\s\S]*\nreport: one\/report\.html\n/,
  );
  expect(stdout).toMatch(/\ndetails: mobalab report one\n$/);
  expect(stdout).not.toContain("Training and cost");
  const whole = await mobalab(["report", "one"], folder);
  expect(whole.stdout).toContain("\n\nTraining and cost\n  2 runs trained for");
  expect(code).toBe(0);
  expect(readdirSync(join(folder, "one", "runs")).sort()).toEqual(only.split(","));
  expect(lstatSync(join(folder, "one", "data")).isSymbolicLink()).toBe(true);
  expect(state("one", "d1_full_s1").state).toBe("finished");
  const recall = JSON.parse(readFileSync(join(folder, "one", "runs", "d1_full_s1", "recall.json"), "utf8"));
  expect(recall.bands.map((band: { distance_start: number }) => band.distance_start)).toEqual([32]);

  // What is there counts in a plan, which writes nothing and is refused as the call itself.
  const files = () => readdirSync(join(folder, "one"), { recursive: true });
  const before = files();
  const both = ["--attention", "full,moba-b16-k2", "--out", "one", "--dry-run"];
  const dry = await study(...both);
  expect(dry.stdout).toMatch(/\nd1_full_s1 .* done\n[\s\S]*\nd2_full_s1 .* s\n/);
  expect(dry.stdout).toMatch(/\n2 of 4 runs finished, 2 to go, \d at once on cpu, .* each:\s+about \d+ s\n$/);
  const json = JSON.parse((await study(...both, "--json")).stdout);
  expect(json.runs.map((run: { finished: boolean }) => run.finished)).toEqual([true, true, false, false]);
  expect(json.runs[0]).toMatchObject({ seconds: expect.any(Number), secondsLeft: 0 });
  expect(json.runs[2].secondsLeft).toBe(json.runs[2].seconds);
  const none = await study(...both, "--only", only);
  expect(none.stdout).toMatch(/\n2 of 2 runs finished, 0 to go\n$/);
  const other = await study(...both, "--rope-theta", "20000");
  expect(other).toMatchObject({ code: 2, stdout: "" });
  expect(other.stderr).toMatch(
    /d1_full_s1 was planned with shape.ropeTheta (\d+) instead of 20000:\s+give --rope-theta \1, or choose/,
  );
  expect(files()).toEqual(before);

  // In the order of their names there, not the longest first.
  const small = ["--tokens-per-parameter", "1", "--jobs", "1", "--out", "ordered"];
  const ordered = await study(...small, "--only", "d1_full_s1,d2_full_s1");
  expect(ordered.stdout).toMatch(/d1_full_s1 +done[\s\S]*d2_full_s1 +done/);
  // A plan's time is of that order too: the long run starts when the first of the short ones has ended.
  const shortFirst = ["--only", "d1_full_s1,d1_full_s2,d2_full_s1", "--seeds", "1,2", "--jobs", "2"];
  const timed = JSON.parse((await study(...shortFirst, "--out", "unborn", "--dry-run", "--json")).stdout);
  const [a, b, c] = timed.runs.map((run: { seconds: number }) => run.seconds);
  expect(timed.seconds).toBeCloseTo(Math.min(a, b) + c, 9);
  const longest = await study(...small.with(-1, "longest"));
  expect(longest.stdout).toMatch(/d2_full_s1 +done[\s\S]*d1_full_s1 +done/);

  const wrong = await study("--out", "one", "--only", "d9_full_s1");
  expect(wrong.code).toBe(2);
  expect(wrong.stderr).toMatch(/--only d9_full_s1: expected runs of d1_full_s1, /);
});

it("stops in time without a failure, and goes on in a copy without the data", {
  timeout: 180_000,
}, async () => {
  const args = ["--attention", "full", "--tokens-per-parameter", "400"];
  const stopped = await study(...args, "--out", "two", "--stop-after", "6s");
  expect(stopped.code).toBe(0);
  expect(stopped.stderr).toMatch(/stopped after 6 s with [01] of 2 runs finished/);
  cpSync(join(folder, "two"), join(folder, "copy"), {
    recursive: true,
    filter: (path) => !path.endsWith("data"),
  });
  const { code } = await study(...args, "--out", "copy", "--stop-after", "2m");
  expect(code).toBe(0);
  expect(state("copy", "d2_full_s1")).toMatchObject({ state: "finished" });
  expect(existsSync(join(folder, "copy", "report.html"))).toBe(true);
});

it("writes nothing into a folder that another process holds", { timeout: 60_000 }, async () => {
  mkdirSync(join(folder, "held"));
  writeFileSync(join(folder, "held", "study.lock"), String(process.pid));
  const { code, stderr } = await study("--out", "held");
  expect(code).toBe(2);
  expect(stderr).toMatch(`process ${process.pid} already trains in held: wait for it to end`);
  expect(readdirSync(join(folder, "held"))).toEqual(["study.lock"]);
});

it("refuses a time that is none", { timeout: 30_000 }, async () => {
  const { code, stderr } = await study("--stop-after", "soon");
  expect(code).toBe(2);
  expect(stderr).toMatch(/--stop-after .*Expected a time such as 90s, 9m or 1.5h/);
});
