import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it, vi } from "vitest";
import { importCommand } from "../../src/cli/commands/import.ts";
import { readCurves } from "../../src/fit/index.ts";
import * as made from "./made.ts";

const folder = mkdtempSync(join(tmpdir(), "import-command-"));
afterAll(() => rmSync(folder, { recursive: true }));
const log = join(folder, "main.log");
writeFileSync(log, made.LLM_C);

async function run(...args: string[]): Promise<string> {
  let printed = "";
  const write = vi.spyOn(process.stdout, "write").mockImplementation((text) => {
    printed += text;
    return true;
  });
  try {
    await importCommand()
      .exitOverride()
      .configureOutput({ writeErr: () => {} })
      .parseAsync(args, { from: "user" });
  } finally {
    write.mockRestore();
  }
  return printed;
}

it("writes the curves table and says what was read", async () => {
  const out = join(folder, "curves.csv");
  const facts = [
    "--attention",
    "full",
    "--model",
    "m",
    "--seed",
    "1",
    "--parameters",
    "85e6",
    "--tokens-per-step",
    "524288",
  ];
  const printed = await run(log, "--out", out, ...facts, "--flops-per-token", "6e8");
  // Lines are broken where the names need it.
  expect(printed.split(/\s+/).join(" ")).toBe(
    [
      `${log}: llm.c main.log, 1 run, 5 losses`,
      "skipped 1: accuracy, not a loss (first: line 5)",
      "run main: 3 train (last loss 10.856), 2 eval (last loss 10.8), to step 2",
      `written: ${out} (5 rows)`,
      "",
    ].join(" "),
  );
  expect(readCurves(out).at(-1)).toMatchObject({
    attention: "full",
    model: "m",
    seed: 1,
    run: "main",
    split: "train",
    step: 2,
    tokens: 1_048_576,
    pflops_days: (6 * 85e6 * 1_048_576) / 8.64e19,
    pflops_days_attended: (6e8 * 1_048_576) / 8.64e19,
  });
});

it("prints JSON and nothing else with --json", async () => {
  const account = JSON.parse(await run(log, "--out", join(folder, "j.csv"), "--json", "--split", "eval"));
  expect(account).toMatchObject({
    points: 2,
    runs: [{ run: "main", missing: ["tokens-per-step", "parameters"] }],
  });
});

it("writes nothing when it fails", async () => {
  const out = join(folder, "none.csv");
  await expect(run(log, "--out", out, "--run-map", join(folder, "missing.csv"))).rejects.toThrow(
    /cannot read .*missing.csv/,
  );
  await expect(run(log, "--out", out, "--parameters", "0")).rejects.toThrow();
  expect(existsSync(out)).toBe(false);
  expect(readFileSync(log, "utf8")).toBe(made.LLM_C);
});
