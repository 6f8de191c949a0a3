/** The studies kept under docs/results: what is published of them comes again from what is kept. */
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { studyReport } from "../../src/report/study.ts";

const RESULTS = new URL("../../docs/results/", import.meta.url).pathname;
const kept = readdirSync(RESULTS).filter((name) => existsSync(join(RESULTS, name, "study.json")));
const scratch = mkdtempSync(join(tmpdir(), "mobalab-kept-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

/** Numbers to 1e-9, as another processor's logarithm may round otherwise. */
function rounded(json: string): unknown {
  return JSON.parse(json, (_, value) => (typeof value === "number" ? Number(value.toPrecision(9)) : value));
}

describe.each(kept)("%s", (name) => {
  it("comes again from what is kept: curves, laws, reading and pictures", { timeout: 120_000 }, () => {
    const [there, here] = [join(RESULTS, name), join(scratch, name)];
    cpSync(there, here, { recursive: true });
    studyReport(here);
    const read = (folder: string, file: string) => readFileSync(join(folder, file), "utf8");
    expect(read(here, "curves.csv")).toBe(read(there, "curves.csv"));
    expect(rounded(read(here, "laws.json"))).toEqual(rounded(read(there, "laws.json")));
    const pictures = readdirSync(there).filter((file) => file.endsWith(".svg"));
    expect(pictures.length).toBeGreaterThan(5);
    for (const picture of pictures) expect(read(here, picture) === read(there, picture), picture).toBe(true);
  });
});
