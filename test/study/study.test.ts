/** Preparing a study's folder beside others. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { preset } from "../../src/study/presets.ts";
import { prepareStudy, type StudyOptions } from "../../src/study/study.ts";

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
