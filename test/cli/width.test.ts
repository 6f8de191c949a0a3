/** What the commands print fits 80 columns, on real inputs. */
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { formatCurves } from "../../src/fit/index.ts";
import { PRESETS } from "../../src/study/presets.ts";
import { madeUpCurves } from "../report/fixture.ts";
import { makeStudyFolder } from "../train/run-folder.ts";
import { tinyConfig } from "../train/tiny.ts";
import { mobalab } from "./run-cli.ts";

const shared = fileURLToPath(new URL("../../../shared/data", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "mobalab-width-"));
afterAll(() => rmSync(folder, { recursive: true }));

const sizes = Array.from({ length: 9 }, (_, i) => `d${i + 2}`);
const noisy = madeUpCurves({ models: sizes, attentions: ["full", "moba-b2048-k12+full@0.9"], buckets: 2 });
writeFileSync(
  join(folder, "noisy.csv"),
  formatCurves(noisy.map((row, i) => ({ ...row, lm_loss: row.lm_loss * (1 + 0.02 * Math.sin(i * i)) }))),
);

/** Lines of more than 80 columns, but those of one word that is longer. The place of the test counts as a short name. */
async function tooWide(args: readonly string[]): Promise<string[]> {
  const { code, stdout, stderr } = await mobalab(args, folder);
  expect(code, stderr).toBe(0);
  expect(stdout.length).toBeGreaterThan(40);
  const printed = `${stdout}\n${stderr}`.replaceAll(folder, "here");
  return printed.split("\n").filter((line) => line.length > 80 && /\S\s+\S/.test(line));
}

it.concurrent.each([
  ...["power", "floored", "broken", "envelope", "parametric"].map((form) => [
    "fit",
    "noisy.csv",
    "--form",
    form,
  ]),
  ["report", "noisy.csv", "--out", "report"],
  ...PRESETS.map(({ name }) => ["study", name, "--dry-run", "--out", name]),
  ["study", "quick", "--dry-run", "--attention", "full,moba-b2048-k12+full@0.9", "--out", "long"],
  ["doctor"],
  [
    "bench",
    "training",
    "--contexts",
    "64",
    "--depth",
    "2",
    "--attention",
    "full,window-b16-k2",
    "--repeats",
    "1",
  ],
  ["bench", "attention", "--contexts", "64,128", "--heads", "2", "--head-dim", "16", "--out", "speed"],
])("%s %s %s %s %s", { timeout: 120_000 }, async (...args) => {
  expect(await tooWide(args.filter((arg) => arg !== undefined))).toEqual([]);
});

it.concurrent("eval of a run", { timeout: 120_000 }, async () => {
  const config = tinyConfig();
  const study = await makeStudyFolder(config.context);
  try {
    const run = study.run("run", config);
    const { code } = await mobalab(["train", run, "--device", "cpu"]);
    expect(code).toBe(0);
    expect(await tooWide(["eval", run, "--device", "cpu", "--buckets", "4"])).toEqual([]);
    expect(await tooWide(["export", run, join(folder, "events"), "--format", "tensorboard"])).toEqual([]);
  } finally {
    study.remove();
  }
});

describe.skipIf(!existsSync(shared))("published curves and logs (needs ../shared/data)", () => {
  const curves = join(shared, "fits/moba-report-curves.csv");
  const logs = existsSync(shared) ? readdirSync(join(shared, "logs")) : [];
  it.concurrent.each([
    ...["power", "envelope"].map((form) => ["fit", curves, "--form", form]),
    ["report", curves, "--out", "published"],
    // One of the logs has no name that reads as a loss.
    ...logs
      .filter((name) => !name.includes("tfevents"))
      .map((name) => ["import", join(shared, "logs", name), "--out", `${name}.csv`]),
    ["import", join(shared, "logs"), "--out", "logs.csv"],
  ])("%s %s", { timeout: 120_000 }, async (...args) => {
    expect(await tooWide(args.filter((arg) => arg !== undefined))).toEqual([]);
  });
});
