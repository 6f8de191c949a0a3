/** On a disk that is full, a command that fails leaves nothing half made. */
import { spawnSync } from "node:child_process";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { formatCurves } from "../../src/fit/index.ts";
import { madeUpCurves } from "../report/fixture.ts";
import { tinyConfig } from "../train/tiny.ts";
import { mobalab } from "./run-cli.ts";

const folder = mkdtempSync(join(tmpdir(), "mobalab-full-"));
const disk = join(folder, "disk");
const run = join(folder, "study", "runs", "one");
let isMounted = false;

beforeAll(() => {
  mkdirSync(disk);
  mkdirSync(run, { recursive: true });
  writeFileSync(join(folder, "curves.csv"), formatCurves(madeUpCurves()));
  writeFileSync(join(folder, "log.jsonl"), '{"step": 1, "loss": 5.5}\n{"step": 2, "loss": 5.4}\n');
  writeFileSync(join(folder, "study", "study.json"), "{}");
  writeFileSync(join(run, "config.json"), JSON.stringify(tinyConfig()));
  const metrics = { step: 1, tokens: 64, attempt: 1, loss: 5.5, learningRate: 1e-3, gradNorm: 1, time_s: 1 };
  writeFileSync(join(run, "metrics.jsonl"), `${JSON.stringify({ ...metrics, tokensPerSecond: 64 })}\n`);
  isMounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]).status === 0;
  if (!isMounted) return;
  const file = openSync(join(disk, "filler"), "w");
  try {
    while (writeSync(file, Buffer.alloc(4096)) > 0);
  } catch {
    // The disk is full.
  }
  closeSync(file);
});
afterAll(() => {
  if (isMounted) spawnSync("umount", [disk]);
  rmSync(folder, { recursive: true });
});

it.each([
  ["study quick --out TO"],
  ["export study/runs/one TO --format tensorboard"],
  ["export study TO --format study"],
  ["export curves.csv TO --format csv"],
  ["export curves.csv TO --format parquet"],
  ["import log.jsonl --out TO"],
  ["report curves.csv --out TO"],
  ["bench attention --contexts 64 --heads 2 --head-dim 16 --out TO"],
])("%s", { timeout: 60_000 }, async (line) => {
  if (!isMounted) {
    console.log("skipped: needs the right to mount a tmpfs");
    return;
  }
  for (const to of [join(disk, "new"), join(disk, "a", "b")]) {
    const { code, stderr } = await mobalab(
      line.split(" ").map((word) => (word === "TO" ? to : word)),
      folder,
    );
    expect(stderr).toMatch(/^mobalab: (cannot write .*ENOSPC|the disk is full)/m);
    expect(code).toBe(1);
    expect(readdirSync(disk)).toEqual(["filler"]);
  }
});
