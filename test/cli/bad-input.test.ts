/** Bad input: one clear sentence, exit code 2, and nothing left behind. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { mobalab } from "./run-cli.ts";

/** What the cases are given, in a folder of their own: they run side by side, and none may see another's files. */
function given(): string {
  const folder = mkdtempSync(join(all, "case-"));
  mkdirSync(join(folder, "short"));
  for (const name of ["a", "b", "c"]) writeFileSync(join(folder, "short", `${name}.txt`), "too short");
  mkdirSync(join(folder, "empty"));
  writeFileSync(join(folder, "empty.txt"), "");
  writeFileSync(
    join(folder, "no-loss.csv"),
    "attention,model,position_start,position_end,pflops_days\nfull,d2,0,8,1\n",
  );
  writeFileSync(
    join(folder, "text.csv"),
    "attention,model,position_start,position_end,pflops_days,lm_loss\nfull,d2,0,8,1,2.5\nfull,d2,0,8,much,2.4\n",
  );
  writeFileSync(
    join(folder, "loss-at-all.csv"),
    "attention,model,position_start,position_end,pflops_days,lm_loss\nfull,d2,,,1,2.5\nfull,d3,,,2,2.4\nfull,d4,,,4,2.3\n",
  );
  writeFileSync(join(folder, "loss.csv"), "step,tokens,loss\n1,1000,3.5\n2,2000,3.4\n3,3000,3.3\n");
  mkdirSync(join(folder, "corrupt"));
  writeFileSync(join(folder, "corrupt", "config.json"), "{ not json");
  return folder;
}

/** Every file and folder below, with what it holds. */
function contents(folder: string): Record<string, string> {
  const paths = readdirSync(folder, { recursive: true, withFileTypes: true });
  return Object.fromEntries(
    paths.map((entry) => {
      const path = join(entry.parentPath, entry.name);
      return [relative(folder, path), entry.isDirectory() ? "a folder" : readFileSync(path, "utf8")];
    }),
  );
}

let all: string;
beforeAll(() => {
  all = mkdtempSync(join(tmpdir(), "mobalab-cli-"));
});
afterAll(() => rmSync(all, { recursive: true }));

const cases: [what: string, args: string[], says: RegExp][] = [
  ["an unknown command", ["stduy", "quick"], /unknown command 'stduy'/],
  [
    "an unknown preset",
    ["study", "quik"],
    /unknown preset "quik": expected one of quick, h200-16k, h200-16k-fine, report-8k, report-32k/,
  ],
  [
    "a dataset and text to make one of",
    ["study", "quick", "--data", "data", "--text", "text"],
    /--data is a dataset made before and --text makes one: expected one of them/,
  ],
  [
    "a dataset and a tokenizer to make one with",
    ["study", "quick", "--data", "data", "--tokenizer", "bpe-300"],
    /--data is a dataset made before, with its tokenizer/,
  ],
  [
    "threads beyond any, of data",
    ["data", "code", ".", "--out", "d", "--jobs", "100000"],
    /'100000'.*from 1 to/,
  ],
  ["an unknown option", ["study", "quick", "--dept", "3"], /unknown option '--dept'/],
  [
    "an unknown attention",
    ["study", "quick", "--attention", "full,mobba-b1-k2", "--out", "out"],
    /unknown attention "mobba-b1-k2"/,
  ],
  [
    "a block of 0",
    ["study", "quick", "--attention", "moba-b0-k2", "--out", "out"],
    /blockSize is 0, expected a whole number of at least 1/,
  ],
  ["a size that is no number", ["study", "quick", "--depths", "2,x"], /'2,x' is invalid.*whole number/],
  [
    "a size beyond any",
    ["study", "quick", "--depths", "9007199254740991"],
    /'9007199254740991'.*from 1 to 256/,
  ],
  [
    "a context beyond any",
    ["study", "quick", "--dry-run", "--context", "9007199254740991"],
    /'9007199254740991'.*from 2 to/,
  ],
  ["a head beyond any", ["study", "quick", "--dry-run", "--head-dim", "1000000"], /'1000000'.*from 2 to/],
  ["threads beyond any", ["study", "quick", "--dry-run", "--threads", "100000"], /'100000'.*from 1 to/],
  ["a seed beyond 32 bits", ["study", "quick", "--dry-run", "--seeds", "4294967296"], /'4294967296'.*from 0/],
  ["one seed in two spellings", ["study", "quick", "--dry-run", "--seeds", "1,01"], /without repeats/],
  [
    "a plan with buckets that no run could have",
    ["study", "quick", "--dry-run", "--buckets", "100000"],
    /buckets.*100000.*2048/,
  ],
  [
    "a batch beyond any",
    ["study", "quick", "--dry-run", "--batch-factor", "1e30"],
    /sequencesPerStep is .*e\+\d+|sequencesPerStep is \d+, expected/,
  ],
  [
    "a BPE smaller than the bytes",
    ["study", "quick", "--dry-run", "--tokenizer", "bpe-10"],
    /bpe-10: .*257.*tokens/,
  ],
  ["a top-p of 0", ["generate", "empty", "--top-p", "0"], /'0'.*above 0/],
  ...["1e300", "1e-300", "0.5"].map((base): [string, string[], RegExp] => [
    `a rotary base of ${base}`,
    ["study", "quick", "--rope-theta", base, "--out", "out"],
    new RegExp(`'${base}' is invalid.*number from 1 to 1000000000000`),
  ]),
  ["sizes twice", ["study", "quick", "--depths", "2,2"], /without repeats/],
  [
    "buckets that do not divide the context",
    ["study", "quick", "--buckets", "7", "--out", "out"],
    /buckets.*7.*2048/,
  ],
  ["an odd head dimension", ["study", "quick", "--head-dim", "15", "--out", "out"], /headDim.*15.*even/],
  ["text that is not there", ["study", "quick", "--text", "nowhere", "--out", "out"], /nowhere/],
  ["an empty text", ["study", "quick", "--text", "empty.txt", "--out", "out"], /empty\.txt/],
  ["a folder without text", ["study", "quick", "--text", "empty", "--out", "out"], /empty/],
  [
    "documents too short for the context",
    ["study", "quick", "--text", "short", "--out", "out"],
    /9 tokens.*2048|2048.*9 tokens/,
  ],
  [
    "the same, of a dataset in new folders",
    ["data", "prepare", "new/folder/data", "--text", "short", "--context", "2048"],
    /9 tokens.*2049/,
  ],
  [
    "a tokenizer that is none",
    ["study", "quick", "--tokenizer", "bpe-x", "--out", "out"],
    /tokenizer.*"?bpe-x/,
  ],
  ["a curves table that is not there", ["fit", "none.csv"], /none\.csv/],
  ["a curves table without a column", ["fit", "no-loss.csv"], /no-loss\.csv.*lm_loss/],
  ["text where a number should be", ["fit", "text.csv"], /text\.csv.*3.*pflops_days.*much/],
  ["a form that is none", ["fit", "text.csv", "--form", "cubic"], /cubic/],
  ["a margin beyond any", ["fit", "text.csv", "--margin", "100"], /'100'.*above 0, at most 50/],
  ["resamples beyond any", ["fit", "text.csv", "--bootstrap", "1000000000"], /from 0 to 1000000/],
  [
    "a window without an envelope",
    ["fit", "text.csv", "--window", "1-2"],
    /--window is for --form envelope, and the form is power/,
  ],
  ["positions that no bucket has", ["report", "loss-at-all.csv", "--positions", "1-2"], /1-2 are no bucket/],
  [
    "a run map that is a folder",
    ["import", "loss.csv", "--attention", "full", "--run-map", "empty"],
    /cannot read empty: it is a folder, expected a file/,
  ],
  [
    "an import onto a folder",
    ["import", "loss.csv", "--attention", "full", "--out", "empty"],
    /cannot write empty: it is a folder, expected a file/,
  ],
  ["a report of nothing", ["report", "empty"], /empty/],
  ["a run that is none", ["train", "empty"], /empty/],
  ["a corrupt run", ["train", "corrupt"], /corrupt.config\.json/],
  ["a model that is none", ["generate", "empty"], /empty/],
  ["an export of nothing", ["export", "empty", "x", "--format", "hf"], /empty/],
  ["a dataset that is none", ["data", "info", "empty"], /empty/],
  [
    "a context that is no number",
    ["bench", "attention", "--contexts", "8k"],
    /--contexts <list>' argument '8k' is invalid\. Expected a whole number/,
  ],
  ["an attention that is none", ["bench", "attention", "--attention", "moba"], /unknown attention "moba"/],
];

describe("bad input", () => {
  it.concurrent.each(cases)("%s", async (_, args, says) => {
    const folder = given();
    const before = contents(folder);
    const { code, stdout, stderr } = await mobalab(args, folder);
    expect(stderr).toMatch(says);
    expect(code).toBe(2);
    expect(stdout).toBe("");
    expect(stderr).not.toMatch(/\n\s+at /);
    expect(contents(folder)).toEqual(before);
  });

  it.concurrent.each([
    ...["study", "train", "eval", "generate", "fit", "import", "report", "serve", "export", "doctor"],
    ...["data prepare", "data code", "bench", "bench training", "bench attention"],
  ])("help of %s has an example and exits 0", async (command) => {
    const { code, stdout } = await mobalab([...command.split(" "), "--help"]);
    expect(stdout).toMatch(/Example:\n( {2}.*\n)* {2}mobalab /);
    expect(stdout.split("\n").filter((line) => line.length > 80)).toEqual([]);
    expect(code).toBe(0);
  });
});
