/** What is said of runs whose process fails. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeEach, expect, it } from "vitest";
import { runLocally } from "../../src/study/local.ts";
import { writeStatus } from "../../src/train/records.ts";
import type { RunStatus } from "../../src/train/types.ts";

const folder = mkdtempSync(join(tmpdir(), "mobalab-local-"));
afterAll(() => rmSync(folder, { recursive: true }));

const failed: RunStatus = {
  ...{ state: "failed", step: 7, steps: 10, attempt: 1, message: "the loss is NaN at step 7" },
  ...{ parameters: 1, windowsLeftOut: 0, epochs: 1, memory: 1, sparsity: 0 },
};
beforeEach(() => writeStatus(folder, failed));

/** The reason that is told of a process which runs `script`. */
async function reasonOf(script: string): Promise<string> {
  const entry = join(folder, "entry.mjs");
  writeFileSync(entry, script);
  const places = { jobs: 1, threads: 1, devices: ["cpu"], gpus: 1 };
  const [{ error }] = await runLocally([{ name: "run", folder }], { ...places, entry, onEvent: () => {} });
  return error;
}

const saying = (text: string) =>
  `process.stderr.write(${JSON.stringify(`${text}\n`)}); process.exitCode = 2;`;

it("is what the process said, not what an earlier attempt recorded", async () => {
  expect(await reasonOf(saying("mobalab: CUDA is missing"))).toBe("CUDA is missing");
  expect(await reasonOf(saying('a warning\nmobalab: "x\ny" is not JSON'))).toBe('"x y" is not JSON');
  expect(await reasonOf(saying("one\ntwo"))).toBe("two");
  expect(await reasonOf("process.exitCode = 3;")).toBe("its process ended with code 3");
});

it("is what the run recorded in this attempt", async () => {
  const status = JSON.stringify({ ...failed, attempt: 2 });
  const write = `import { writeFileSync } from "node:fs"; writeFileSync(process.argv[3] + "/status.json", '${status}');`;
  expect(await reasonOf(`${write} ${saying("mobalab: CUDA is missing")}`)).toBe("the loss is NaN at step 7");
});
