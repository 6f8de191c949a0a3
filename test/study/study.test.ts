/** Preparing a study's folder beside others. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { type Ladder, preset } from "../../src/study/presets.ts";
import { planStudy, prepareStudy, type StudyOptions, shareDone, unfinished } from "../../src/study/study.ts";

const folder = mkdtempSync(join(tmpdir(), "mobalab-study-"));
afterAll(() => rmSync(folder, { recursive: true }));
const text = join(folder, "text");
mkdirSync(text);
for (const name of ["a", "b", "c"]) writeFileSync(join(text, `${name}.txt`), name.repeat(5000));

function options(out: string): StudyOptions {
  return {
    ...{ ladder: preset("quick"), folder: out, text: [text], data: null, only: null },
    ...{ command: "mobalab study quick", device: "cpu", gpus: 1, hardware: "" },
  };
}

it("a failure takes its own folder back, not those that others made beside it meanwhile", async () => {
  const other = join(folder, "studies", "other");
  const interrupted = prepareStudy(options(join(folder, "studies", "mine")), () => {
    mkdirSync(other, { recursive: true });
    throw new Error("interrupted");
  });
  await expect(interrupted).rejects.toThrow("interrupted");
  expect(existsSync(join(folder, "studies", "mine"))).toBe(false);
  expect(existsSync(other)).toBe(true);
});

it("a lock with the number of this process is left from one before it", async () => {
  const out = join(folder, "held");
  mkdirSync(out);
  const lock = join(out, "study.lock");
  writeFileSync(lock, String(process.pid));
  const { plan, unlock } = await prepareStudy(options(out));
  expect(plan.length).toBeGreaterThan(0);
  expect(readFileSync(lock, "utf8")).toBe(String(process.pid));
  unlock();
  expect(existsSync(lock)).toBe(false);
});

it("goes on with a size only as it is, and writes nothing otherwise", async () => {
  const out = join(folder, "sizes");
  const prepare = async (change: Partial<Ladder>, more: Partial<StudyOptions> = {}) => {
    const base = options(out);
    const { unlock } = await prepareStudy({ ...base, ladder: { ...base.ladder, ...change }, ...more });
    unlock();
  };
  const plan = (change: Partial<Ladder>) => {
    const base = options(out);
    return planStudy({ ...base, ladder: { ...base.ladder, ...change } });
  };
  await prepare({ seeds: [1] });
  const contents = () => [
    readdirSync(out, { recursive: true }),
    readFileSync(join(out, "study.json"), "utf8"),
  ];
  const before = contents();
  const { learningRateFactors, evaluations } = preset("quick");
  const changes: [Partial<Ladder>, string, string?][] = [
    [{ ropeTheta: 500_000 }, "shape.ropeTheta 10000 instead of 500000", "give --rope-theta 10000, or "],
    [{ keyConvolution: 3 }, "shape.keyConvolution 0 instead of 3"],
    [{ headDim: 8, ropeTheta: 5 }, "shape.headDim ", "give --head-dim 16 --rope-theta 10000, or "],
    [{ tokensPerParameter: 1, sequencesPerStep: 8 }, "sequencesPerStep "],
    [{ learningRateFactors: [2 * learningRateFactors[0]] }, "optimizer.learningRate "],
    [{ recall: 0.5 }, "recall 0 instead of 0.5", "give --recall 0, or "],
  ];
  for (const [change, words, way = ""] of changes) {
    const refused = prepare({ ...change, seeds: [2] });
    await expect(refused).rejects.toThrow(`was planned with ${words}`);
    expect(() => plan({ ...change, seeds: [2] })).toThrow(`was planned with ${words}`);
    await expect(refused).rejects.toThrow(
      new RegExp(
        `runs/(d\\d)_\\S+ was .*, and runs of one size \\(\\1\\) are averaged as seeds: ${way}choose another --out$`,
      ),
    );
    expect(contents()).toEqual(before);
  }
  const last = "choose another --out, or delete that run's folder";
  for (const [change, way] of [
    [{ ropeTheta: 500_000 }, `shape.ropeTheta 10000 instead of 500000: give --rope-theta 10000, or ${last}`],
    [{ headDim: 8 }, `shape.headDim 16 instead of 8: give --head-dim 16, or ${last}`],
    [{ recall: 0 }, `recall none instead of 0: ${last}`],
    [{ evaluations: evaluations + 1 }, `evaluations ${evaluations} instead of ${evaluations + 1}: ${last}`],
  ] as const) {
    expect(() => plan({ ...change, seeds: [1] })).toThrow(`/runs/d1_full_s1 was planned with ${way}`);
  }
  expect(() => plan({ context: 1024 })).toThrow(`${out} holds a study with context 2048, this one has 1024`);
  expect(plan({ seeds: [2] }).length).toBeGreaterThan(0);
  expect(contents()).toEqual(before);
  // Another seed, attention, device, size or way to measure is none of the recipe, and a further rate has its own names.
  await prepare({ seeds: [2], recall: 0, evaluations: evaluations + 1 }, { device: "cuda:0" });
  await prepare({ seeds: [3], attentions: ["moba-b64-k2"] });
  await prepare({ seeds: [1], sizes: [{ name: "d9", depth: 9 }], keyConvolution: 3 });
  await prepare({ seeds: [4], learningRateFactors: [...learningRateFactors, 7] });
});

it("takes a new size by the recipe of the others only, and says what that is", async () => {
  const out = join(folder, "ladder");
  const plan = (change: Partial<Ladder>) => {
    const base = options(out);
    return planStudy({ ...base, ladder: { ...base.ladder, ...change } });
  };
  (await prepareStudy(options(out))).unlock();
  const sizes = [{ name: "d6", depth: 6 }];
  const refusals: [Partial<Ladder>, string][] = [
    [{ ropeTheta: 500_000 }, "shape.ropeTheta 10000 instead of 500000, .*: give --rope-theta 10000, or"],
    [{ headDim: 8 }, "shape.headDim 16 instead of 8, .*: give --head-dim 16, or"],
    [{ tiedOutput: false }, "shape.tiedOutput true instead of false, .*:"],
    [{ recall: 0.5 }, "recall 0 instead of 0.5, .*: give --recall 0, or"],
    [{ evaluationWindows: 2 }, "evaluationWindows none instead of 2, .*:"],
  ];
  for (const [change, words] of refusals) {
    const whole = `/runs/d1_full_s1 was planned with ${words.replace(".*", "and laws go through sizes of one recipe \\(d1, d6\\)")} choose another --out$`;
    expect(() => plan({ ...change, sizes })).toThrow(new RegExp(whole));
  }
  // What a size is, how long it trains, in what steps and at what rate; and whether recall is measured.
  const free = { tokensPerParameter: 9, sequencesPerStep: 3, learningRateFactors: [0.2], evaluations: 3 };
  expect(plan({ ...free, sizes, keyConvolution: 3, recall: 0 })).toHaveLength(2);
});

it("keeps the rules of all its runs", async () => {
  const out = join(folder, "rules");
  const ruleAfter = async (change: Partial<Ladder>) => {
    const base = options(out);
    (await prepareStudy({ ...base, ladder: { ...base.ladder, ...change } })).unlock();
    return JSON.parse(readFileSync(join(out, "study.json"), "utf8")).rule;
  };
  const size = (depth: number) => [{ name: `d${depth}`, depth }];
  const rule = (rate: string, batch: string) =>
    `learning rate ${rate}0.3118 C^-0.125, batch ${batch} tokens, C = 6ND operations (arXiv 2401.02954)`;
  const own = "0.292 C^0.3271";
  expect(await ruleAfter({})).toBe(rule("0.4 x ", own));
  const rates = "0.4 | 1.6 | 1 x ";
  expect(await ruleAfter({ sizes: size(5), learningRateFactors: [1.6, 1] })).toBe(rule(rates, own));
  const twice = `${own} tokens | 2 x ${own}`;
  expect(await ruleAfter({ sizes: size(6), batchFactor: 2 })).toBe(rule(rates, twice));
  const fixed = `${twice} tokens | 4096`;
  expect(await ruleAfter({ sizes: size(7), sequencesPerStep: 2 })).toBe(rule(rates, fixed));
  expect(await ruleAfter({})).toBe(rule(rates, fixed));
});

it("goes on with a kept study when the dataset is named that it describes", async () => {
  const out = join(folder, "kept");
  (await prepareStudy(options(out))).unlock();
  const whole = join(folder, "whole");
  renameSync(join(out, "data"), whole);
  const own = join(out, "data");
  const keep = (change: object) => {
    mkdirSync(own);
    const described = JSON.parse(readFileSync(join(whole, "dataset.json"), "utf8"));
    writeFileSync(join(own, "dataset.json"), JSON.stringify({ ...described, ...change }));
  };
  keep({ source: { paths: [text], files: 3, context: 2048, heldOutSeed: 5 } });
  const named = { ...options(out), text: null, data: whole };
  expect(() => planStudy(options(out))).toThrow(
    `${own} describes a dataset without its tokens, as a study is kept: name that dataset with --data`,
  );
  expect(() => planStudy(named)).toThrow(
    `as a study is kept, and ${whole} is not the dataset it describes: name that one, or choose another --out`,
  );
  rmSync(own, { recursive: true });
  keep({});
  writeFileSync(join(own, ".DS_Store"), "");
  expect(planStudy(named).length).toBeGreaterThan(0);
  expect(readdirSync(own).sort()).toEqual([".DS_Store", "dataset.json"]);
  (await prepareStudy(named)).unlock();
  expect(realpathSync(own)).toBe(realpathSync(whole));
  rmSync(own);
  writeFileSync(own, "../whole");
  expect(() => planStudy(named)).toThrow(`${own} is a file, expected the folder of a dataset`);
});

it("does not do again the steps that a run's checkpoint has", async () => {
  const out = join(folder, "begun");
  const { plan, unlock } = await prepareStudy(options(out));
  unlock();
  const [run] = plan;
  expect(shareDone(out, run)).toBe(0);
  const checkpoint = join(out, "runs", run.name, "checkpoint");
  mkdirSync(checkpoint);
  const state = { step: 10, config: run.config, operations: {}, pairs: {} };
  writeFileSync(join(checkpoint, "state.json"), JSON.stringify(state));
  expect(shareDone(out, run)).toBe(10 / run.steps);
  writeFileSync(join(checkpoint, "state.json"), "{");
  expect(shareDone(out, run)).toBe(0);
  expect(unfinished(out, plan)).toHaveLength(plan.length);
});
