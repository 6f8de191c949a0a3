/** Study folders as they are found in life: growing, half written, damaged, merged, leading elsewhere. */
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { InputError } from "../../src/errors.ts";
import { fit as fitCurves } from "../../src/fit/index.ts";
import type { PowerLaw } from "../../src/fit/types.ts";
import { ladderModel } from "../../src/model/config.ts";
import { studyReport } from "../../src/report/index.ts";
import type { Metrics, Overview, Results } from "../../src/server/api.ts";
import { Library } from "../../src/server/library.ts";
import { fitOf } from "../../src/server/results.ts";
import { type Serving, serve } from "../../src/server/serve.ts";
import type { StudyFit } from "../../src/study/laws.ts";
import { madeUpCurves } from "../report/fixture.ts";
import { append, CONFIG, evaluationLine, events, makeRun, makeStudy, setStatus, stepLine } from "./made.ts";

let folder = "";
let study = "";
let serving: Serving | null = null;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "mobalab-serve-"));
  study = join(folder, "one");
});
afterEach(async () => {
  await serving?.close();
  serving = null;
  rmSync(folder, { recursive: true, force: true });
});

/** Everything read once. */
async function read(...folders: string[]): Promise<Library> {
  const library = new Library(folders.length > 0 ? folders : [study]);
  await library.load();
  library.close();
  return library;
}

const runOf = (library: Library, id: string) =>
  library.overview().studies[0].runs.find((run) => run.id === id)!;

/** The overview once it is as wanted. */
async function until(wanted: (overview: Overview) => boolean): Promise<Overview> {
  for (;;) {
    const overview = (await (await fetch(`${serving!.url}api/studies`)).json()) as Overview;
    if (wanted(overview)) return overview;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

describe("a study folder", () => {
  it("is shown with what its files say", async () => {
    makeStudy(study);
    const run = makeRun(study, "d2_full_s1", 40);
    append(run, "eval.jsonl", evaluationLine(10, [3, 2]) + evaluationLine(40, [2, 1]));
    makeRun(study, "d3_full_s1", 0);
    const failed = makeRun(study, "d4_full_s1", 5);
    setStatus(failed, { state: "failed", step: 5, message: "the loss is not finite at step 6" });
    const library = await read();
    const [view] = library.overview().studies;
    expect(view).toMatchObject({ id: "one", name: "by-hand", loading: false, notes: [], headline: 1 });
    expect(view.buckets.map((bucket) => bucket.label)).toEqual(["0-32", "32-64"]);
    expect(runOf(library, "d2_full_s1")).toMatchObject({
      ...{ state: "running", step: 40, steps: 100, loss: 5 / 40, heldOutLoss: 1.5, tokensPerSecond: 640 },
      // 60 steps of a tenth of a second.
      ...{ secondsLeft: 6, attempt: 1, tokens: 2560, model: "d2", attention: "full", seed: 1, device: "cpu" },
    });
    expect(runOf(library, "d3_full_s1")).toMatchObject({ state: "planned", step: 0, loss: null });
    expect(runOf(library, "d4_full_s1")).toMatchObject({
      state: "failed",
      message: "the loss is not finite at step 6",
    });
    const evaluations = library.study("one")!.evaluations().runs[0];
    expect(evaluations).toMatchObject({
      step: [10, 40],
      lm_loss: [2.5, 1.5],
      buckets: [
        [3, 2],
        [2, 1],
      ],
    });
  });

  it("keeps each step's highest attempt, and takes the torn end of an attempt for what it is", async () => {
    makeStudy(study);
    const run = makeRun(study, "r", 30);
    append(run, "metrics.jsonl", '{"step":31,"tok');
    append(run, "metrics.jsonl", `\n${stepLine(21, { attempt: 2, loss: 7 })}`);
    const library = await read();
    expect(runOf(library, "r").notes).toEqual([]);
    const [{ step, attempt, loss }] = library.study("one")!.metrics(100, null)!.runs;
    expect(step).toEqual(Array.from({ length: 30 }, (_, i) => i + 1));
    expect(attempt.indexOf(2)).toBe(20);
    expect(loss[20]).toBe(7);
  });

  it("takes laws from before the reading had parts, and none whose parts are not its sentences", () => {
    const laws = { laws: [], comparisons: [], warnings: [], reading: ["one", "two"] };
    expect(fitOf(laws).reading_parts).toEqual([{ title: "In words", sentences: 2 }]);
    const part = (sentences: number, title: unknown = "In short") => ({ title, sentences });
    const odd = [[part(4), part(-2)], [part(0.5), part(1.5)], [part(2, {})], [part(2), part(0)]];
    for (const parts of [3, [], [null], [part(1)], ...odd]) {
      expect(() => fitOf({ ...laws, reading_parts: parts })).toThrow(/parts of the reading/);
    }
    expect(() => fitOf({ ...laws, reading: ["one", {}] })).toThrow(/parts of the reading/);
  });

  it("says what cannot be read and shows the rest", async () => {
    makeStudy(study);
    const bad = makeRun(study, "bad", 3);
    writeFileSync(join(bad, "config.json"), '{"model": "d2"');
    writeFileSync(join(bad, "status.json"), "");
    append(bad, "metrics.jsonl", `not a record\n[1]\n{"step":"4"}\n${stepLine(4)}`);
    const odd = makeRun(study, "odd", 3, { ...CONFIG, context: "long" });
    writeFileSync(join(odd, "eval.jsonl"), "\0\0\0\n");
    writeFileSync(join(study, "laws.json"), '{"laws": 3}');
    mkdirSync(join(study, "runs", "empty"));
    makeRun(study, "good", 3);
    const library = await read();
    const [view] = library.overview().studies;
    expect(view.runs.map((run) => run.id)).toEqual(["bad", "good", "odd"]);
    expect(view.notes).toEqual(["laws.json has no list of laws"]);
    expect(library.study("one")!.results()).toBeNull();
    expect(runOf(library, "bad")).toMatchObject({
      state: "unreadable",
      step: 4,
      notes: ["config.json is not JSON", "status.json is empty", "metrics.jsonl: 3 lines are no records"],
    });
    expect(runOf(library, "odd").notes).toEqual([
      'config.json context is "long", expected a whole number of at least 2',
      "eval.jsonl: 1 line is no record",
    ]);
    expect(runOf(library, "odd")).toMatchObject({ attention: "full", model: "d2", parameters: null });
    expect(runOf(library, "good").notes).toEqual([]);
  });

  it("says of a finished run its size and learning rate, and whether it ends in its sudden drop", async () => {
    makeStudy(study);
    const run = makeRun(study, "r", 1, { ...CONFIG, model: "d2-lr1e+21", horizon: { steps: 2000 } });
    // By a third lower after a sudden drop from step `drop` on.
    const log = (drop: number, steps = 2000) => {
      const lines = Array.from({ length: steps }, (_, i) => {
        const through = Math.min(1, Math.max(0, Math.log((i + 1) / drop) / 0.2));
        return stepLine(i + 1, { loss: 3 * ((i + 1) / 2000) ** -0.09 * (1 - through / 3) });
      });
      writeFileSync(join(run, "metrics.jsonl"), lines.join(""));
    };
    append(run, "eval.jsonl", evaluationLine(2000, [2, 1], { final: true }));
    const library = await read();
    const swept = async () => {
      await library.study("one")!.refresh(null);
      return runOf(library, "r").swept;
    };
    expect(await swept()).toBeNull();
    setStatus(run, { state: "finished", step: 2000, steps: 2000 });
    // The log ends before the run did.
    log(600, 1500);
    expect(await swept()).toMatchObject({ size: "d2", learningRate: 1e-3, drop: undefined });
    log(600);
    expect(await swept()).toMatchObject({ drop: "past" });
    log(1700);
    expect(await swept()).toMatchObject({ drop: "at end" });
    append(run, "eval.jsonl", evaluationLine(2000, [Number.NaN, 1], { final: true }));
    expect(await swept()).toBeNull();
  });

  it("names runs that study.json lists alone, and what a finished run has not", async () => {
    makeStudy(study);
    const file = join(study, "study.json");
    const listed = { ...JSON.parse(readFileSync(file, "utf8")), runs: ["r", "gone", "bare"] };
    writeFileSync(file, JSON.stringify(listed));
    mkdirSync(join(study, "runs", "bare"));
    const run = makeRun(study, "r", 3);
    setStatus(run, { state: "finished", step: 3 });
    writeFileSync(join(run, "metrics.jsonl"), "");
    const library = await read();
    expect(library.overview().studies[0].notes).toEqual([
      "study.json lists runs whose config.json is missing: gone, bare",
    ]);
    expect(runOf(library, "r").notes).toEqual([
      "metrics.jsonl is missing or empty, though the run has finished",
      "eval.jsonl is missing or empty, though the run has finished",
    ]);
  });

  it("without study.json, or with a broken one, still has its runs", async () => {
    makeStudy(study);
    makeRun(study, "r", 3);
    rmSync(join(study, "study.json"));
    expect((await read()).overview().studies[0]).toMatchObject({
      config: null,
      notes: ["study.json is not there"],
      runs: [{ id: "r" }],
    });
    writeFileSync(join(study, "study.json"), '{"format": 1, "runs": [], "name": 7}');
    expect((await read()).overview().studies[0]).toMatchObject({
      config: null,
      notes: ["study.json: name is 7, expected string"],
    });
  });

  it("reads losses that are not finite, as this and other writers spell them", async () => {
    makeStudy(study);
    const run = makeRun(study, "r", 0);
    append(run, "metrics.jsonl", stepLine(1, { loss: null }));
    append(run, "metrics.jsonl", '{"step": 2, "attempt": 1, "loss": NaN}\n');
    append(run, "metrics.jsonl", '{"step": 3, "attempt": 1, "loss": -Infinity}\n');
    const library = await read();
    expect(library.study("one")!.metrics(10, null)!.runs[0].loss).toEqual(["NaN", "NaN", "-Infinity"]);
    expect(runOf(library, "r").loss).toBe("-Infinity");
  });

  it("is not left through links, whatever they are named", async () => {
    const outside = join(folder, "outside");
    mkdirSync(outside);
    for (const name of ["config.json", "status.json", "metrics.jsonl", "eval.jsonl", "laws.json"]) {
      writeFileSync(join(outside, name), '{"step": 1, "attempt": 1, "secret": "SECRET", "laws": "SECRET"}\n');
    }
    makeStudy(study);
    const run = makeRun(study, "r", 0);
    for (const name of ["status.json", "metrics.jsonl", "eval.jsonl"]) {
      symlinkSync(join(outside, name), join(run, name));
    }
    symlinkSync(join(outside, "laws.json"), join(study, "laws.json"));
    symlinkSync(outside, join(study, "runs", "whole"));
    let library = await read();
    expect(library.overview().studies[0].runs.map(({ id }) => id)).toEqual(["r"]);
    expect(runOf(library, "r").notes).toEqual([
      "metrics.jsonl is a link and is not read",
      "eval.jsonl is a link and is not read",
      "status.json is a link and is not read",
    ]);
    expect(library.overview().studies[0].notes).toEqual(["laws.json is a link and is not read"]);

    const all = join(folder, "all");
    mkdirSync(all);
    makeRun(all, "other", 3);
    rmSync(join(study, "runs"), { recursive: true });
    symlinkSync(join(all, "runs"), join(study, "runs"));
    library = await read();
    expect(library.overview().studies[0].runs).toEqual([]);
    expect(library.overview().studies[0].notes).toContain(
      "runs leads out of the study folder and is not read",
    );
    const everything = JSON.stringify([library.overview(), library.study("one")!.configs()]);
    expect(everything).not.toContain("SECRET");
  });

  it("with any bytes in its files is read without a fault", async () => {
    makeStudy(study);
    const run = makeRun(study, "r", 5);
    append(run, "eval.jsonl", evaluationLine(3, [3, 2]));
    writeFileSync(join(study, "laws.json"), JSON.stringify(fitCurves(madeUpCurves({ buckets: 1 }))));
    const files = [
      ...["config.json", "status.json", "metrics.jsonl", "eval.jsonl"].map((name) => join(run, name)),
      ...["study.json", "laws.json"].map((name) => join(study, name)),
    ].map((path) => ({ path, content: readFileSync(path) }));
    let state = 5;
    const draw = (below: number) => {
      state = (state * 1103515245 + 12345) % 2 ** 31;
      return Math.floor((state / 2 ** 31) * below);
    };
    const pieces = [
      "null",
      "[]",
      "{}",
      '"',
      "\n",
      "-1e999",
      "1e308",
      "\0",
      "\ud800",
      "true",
      "__proto__",
      "}",
    ];
    for (let round = 0; round < 300; round++) {
      const { path, content } = files[draw(files.length)];
      const at = draw(content.length);
      // A piece in place of some bytes, or of a whole value.
      const text = content.toString("latin1");
      const changed =
        draw(2) === 0
          ? `${text.slice(0, at)}${pieces[draw(pieces.length)]}${text.slice(at + draw(20))}`
          : text.slice(0, at) +
            text.slice(at).replace(/:\s*("[^"]*"|[\d.e+-]+)/, `:${pieces[draw(pieces.length)]}`);
      writeFileSync(path, Buffer.from(changed, "latin1"));
      const library = await read();
      const { notes } = library.overview().studies[0];
      expect(notes.join()).not.toContain("fault");
      const shown = library.study("one")!;
      JSON.stringify([library.overview(), shown.metrics(9, null), shown.evaluations(), shown.results()]);
      writeFileSync(path, content);
    }
  });

  it("that is missing, empty or a file is refused with advice", () => {
    expect(() => new Library([study])).toThrow(InputError);
    expect(() => new Library([study])).toThrow(/there is no such folder; mobalab study quick --out/);
    mkdirSync(study);
    expect(() => new Library([study])).toThrow(/holds no study/);
    writeFileSync(join(folder, "file"), "");
    expect(() => new Library([join(folder, "file")])).toThrow(/is no folder/);
  });

  it("among others is told apart from one of the same name", async () => {
    makeStudy(study);
    makeStudy(join(folder, "two", "one"));
    const library = await read(folder, study, join(folder, "two"));
    expect(library.overview().studies.map(({ id }) => id)).toEqual(["one", "one-2"]);
  });
});

describe("a study that trains while it is served", () => {
  const start = async () => {
    serving = await serve({ folders: [folder], port: 0 });
    const { cursor } = await until((overview) => overview.studies.every((s) => !s.loading));
    return events(serving.url, cursor);
  };

  it("tells of steps, evaluations, states and runs as they come", async () => {
    makeStudy(study);
    const run = makeRun(study, "r", 3);
    const client = await start();
    append(run, "metrics.jsonl", stepLine(4) + stepLine(5).slice(0, 20));
    expect((await client.next("points")).change.points).toMatchObject({ run: "r", step: [4], loss: [1.25] });
    expect((await client.next("run")).change.run).toMatchObject({ id: "r", step: 4 });
    append(run, "metrics.jsonl", stepLine(5).slice(20));
    expect((await client.next("points")).change.points.step).toEqual([5]);
    append(run, "eval.jsonl", evaluationLine(5, [4, 2]));
    expect((await client.next("study")).change.facts.buckets).toHaveLength(2);
    expect((await client.next("evaluation")).change.evaluations).toMatchObject({
      step: [5],
      buckets: [[4], [2]],
    });
    append(run, "metrics.jsonl", stepLine(4, { attempt: 2, loss: 9 }));
    expect((await client.next("points")).change.points).toMatchObject({ step: [4], attempt: [2], loss: [9] });
    makeRun(study, "next", 2);
    expect((await client.next("points")).change.points).toMatchObject({ run: "next", step: [1, 2] });
    setStatus(run, { state: "finished", step: 5 });
    let change = (await client.next("run")).change;
    while (change.run.state !== "finished") change = (await client.next("run")).change;
    expect(change.run.id).toBe("r");
    rmSync(run, { recursive: true });
    expect((await client.next("gone")).change).toEqual({ kind: "gone", study: "one", run: "r" });
    client.close();
  });

  it("has laws as soon as three sizes have finished, and those of laws.json when they are of these runs", async () => {
    makeStudy(study);
    const points = madeUpCurves({
      attentions: ["full"],
      models: ["d2", "d3", "d4"],
      buckets: 2,
      context: 64,
    });
    const finish = (depth: number) => {
      const name = `d${depth}`;
      const shape = ladderModel(depth, { headDim: 8, vocabulary: 256 });
      const run = makeRun(study, name, 3, { ...CONFIG, model: name, shape });
      for (let step = 1; step <= 24; step++) {
        const rows = points.filter((point) => point.model === name && point.step === step);
        const { pflops_days, pflops_days_attended, tokens } = rows[0];
        const change = { pflops_days, pflops_days_attended, tokens, final: step === 24 };
        append(
          run,
          "eval.jsonl",
          evaluationLine(
            step,
            rows.map((row) => row.lm_loss),
            change,
          ),
        );
      }
      setStatus(run, { state: "finished", step: 24 });
    };
    finish(2);
    finish(3);
    const client = await start();
    expect(await (await fetch(`${serving!.url}api/studies/one/results`)).json()).toBeNull();
    finish(4);
    await client.next("results");
    const results = (await (await fetch(`${serving!.url}api/studies/one/results`)).json()) as Results;
    // The fixture's final losses follow C^-0.05 exactly.
    const law = results.fit.laws.find((l) => l.convention === "6ND" && l.position_end === 64) as PowerLaw;
    expect(law.exponent).toBeCloseTo(-0.05, 3);
    expect(law.points.map((point) => point.model)).toEqual(["d2", "d3", "d4"]);
    const { fitted_runs } = results.fit as unknown as StudyFit;
    expect(Object.keys(fitted_runs)).toEqual(["d2", "d3", "d4"]);
    const byHand = { laws: [], comparisons: [], warnings: ["by hand"], reading: [] };
    writeFileSync(join(study, "laws.json"), JSON.stringify({ ...byHand, fitted_runs }));
    await client.next("results");
    const read = (await (await fetch(`${serving!.url}api/studies/one/results`)).json()) as Results;
    expect(read.fit).toMatchObject({ warnings: ["by hand"], reading_parts: [] });
    // Laws of other losses are others, however new their file.
    const other = { ...fitted_runs, d3: fitted_runs.d3 + 1e-9 };
    writeFileSync(join(study, "laws.json"), JSON.stringify({ ...byHand, fitted_runs: other }));
    await client.next("results");
    await client.next("results");
    const anew = (await (await fetch(`${serving!.url}api/studies/one/results`)).json()) as Results;
    expect(anew.fit.laws).toEqual(results.fit.laws);
    client.close();
  });

  it("kept somewhere else shows what is kept, whatever the times of its files, and another when a run joins", {
    timeout: 60_000,
  }, async () => {
    const name = "2026-11-30-h200-16k-rope500k";
    cpSync(new URL(`../../docs/results/${name}/`, import.meta.url).pathname, study, { recursive: true });
    const addRun = (to: string) => {
      const aside = join(folder, "aside");
      cpSync(join(to, "runs", "d8_full_s1"), aside, { recursive: true });
      const config = JSON.parse(readFileSync(join(aside, "config.json"), "utf8"));
      writeFileSync(join(aside, "config.json"), JSON.stringify({ ...config, seed: 2 }));
      renameSync(aside, join(to, "runs", "d8_full_s2"));
    };
    const report = join(folder, "report");
    cpSync(study, report, { recursive: true });
    addRun(report);
    const { fit } = studyReport(report);
    rmSync(report, { recursive: true });
    readdirSync(study, { recursive: true, encoding: "utf8" }).forEach((file, i) => {
      const time = 1e9 + ((i * 7919) % 1000);
      utimesSync(join(study, file), time, time);
    });
    utimesSync(join(study, "laws.json"), 1e8, 1e8);
    const { reading } = JSON.parse(readFileSync(join(study, "laws.json"), "utf8"));
    expect(fit.reading).not.toEqual(reading);
    const client = await start();
    const shown = async () =>
      ((await (await fetch(`${serving!.url}api/studies/one/results`)).json()) as Results).fit;
    expect((await shown()).reading).toEqual(reading);
    addRun(study);
    await client.next("results");
    // All that the report says.
    expect(await shown()).toMatchObject({ reading: fit.reading, warnings: fit.warnings });
    client.close();
  });

  it("that appears is told with its runs", async () => {
    makeStudy(study);
    const client = await start();
    const later = join(folder, "later.new");
    makeStudy(later);
    makeRun(later, "r", 4);
    renameSync(later, join(folder, "later"));
    let { facts } = (await client.next("study")).change;
    while (facts.id !== "later" || facts.loading) ({ facts } = (await client.next("study")).change);
    expect((await client.next("run")).change).toMatchObject({ study: "later", run: { id: "r", step: 4 } });
    client.close();
  });

  it("resumes where a client left off, and starts over when that is unknown", async () => {
    makeStudy(study);
    const run = makeRun(study, "r", 3);
    const client = await start();
    append(run, "metrics.jsonl", stepLine(4));
    const { id } = await client.next("points");
    await client.next("run");
    client.close();
    append(run, "metrics.jsonl", stepLine(5));
    await until((overview) => overview.studies[0].runs[0].step === 5);
    const again = await events(serving!.url, "ignored", id);
    expect((await again.next("points")).change.points.step).toEqual([5]);
    again.close();
    for (const cursor of ["0-0", "nonsense", `${id}9`, `${id.split("-")[0]}-999999`]) {
      const lost = await events(serving!.url, encodeURIComponent(cursor));
      expect((await lost.next("reset")).change).toEqual({ kind: "reset" });
      lost.close();
    }
  });

  it("survives files that are cut, replaced, emptied and deleted under it", async () => {
    makeStudy(study);
    const run = makeRun(study, "r", 50);
    const client = await start();
    const file = join(run, "metrics.jsonl");
    truncateSync(file, stepLine(1).length);
    await client.next("reset");
    expect((await until((o) => o.studies[0].runs[0].loss === 5)).studies[0].runs[0].loss).toBe(5);
    writeFileSync(`${file}.new`, stepLine(1, { loss: 8 }));
    renameSync(`${file}.new`, file);
    await until((overview) => overview.studies[0].runs[0].loss === 8);
    // Over itself, and longer than before.
    writeFileSync(file, stepLine(1, { loss: 6 }) + stepLine(2, { loss: 4 }));
    await until((overview) => overview.studies[0].runs[0].loss === 4);
    const read = (await (await fetch(`${serving!.url}api/studies/one/metrics`)).json()) as Metrics;
    expect(read.runs[0].loss).toEqual([6, 4]);
    rmSync(file);
    await until((overview) => overview.studies[0].runs[0].loss === null);
    writeFileSync(join(run, "config.json"), "");
    await until((overview) => overview.studies[0].runs[0].notes[0] === "config.json is empty");
    rmSync(join(study, "study.json"));
    await until((overview) => overview.studies[0].notes[0] === "study.json is not there");
    makeStudy(join(folder, "later"));
    await until((overview) => overview.studies.some((s) => s.id === "later"));
    rmSync(study, { recursive: true });
    const left = await until((overview) => overview.studies.length === 1);
    expect(left.studies[0].id).toBe("later");
    client.close();
  });

  it("is read whole while it is written piece by piece", async () => {
    makeStudy(study);
    const run = makeRun(study, "r", 0);
    writeFileSync(join(run, "metrics.jsonl"), "");
    const client = await start();
    const text = Array.from({ length: 400 }, (_, i) => stepLine(i + 1)).join("");
    const seen = new Set<number>();
    const reading = (async () => {
      while (seen.size < 400) for (const s of (await client.next("points")).change.points.step) seen.add(s);
    })();
    for (let at = 0; at < text.length; at += 3331) {
      append(run, "metrics.jsonl", text.slice(at, at + 3331));
      await new Promise((resolve) => setTimeout(resolve, 3));
    }
    await reading;
    expect([...seen]).toEqual(Array.from({ length: 400 }, (_, i) => i + 1));
    expect(existsSync(run)).toBe(true);
    client.close();
  });
});
