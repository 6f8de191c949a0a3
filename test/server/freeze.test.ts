/** Frozen pages: what is in them is what was measured, and no text of the data leaves the place of data. */
import { createHash } from "node:crypto";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseHTML } from "linkedom";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { fit as fitCurves } from "../../src/fit/index.ts";
import type { CurvePoint } from "../../src/fit/types.ts";
import { renderReport } from "../../src/report/index.ts";
import { chartSvg } from "../../src/report/render.ts";
import { studyReport } from "../../src/report/study.ts";
import { sweepCaption, sweepChart, sweepsOf, sweepTable, sweepWords } from "../../src/report/sweep.ts";
import type { Snapshot } from "../../src/server/api.ts";
import { frozenPage, frozenStudyReport, studySnapshot, tableSnapshot } from "../../src/server/freeze.ts";
import { madeUpCurves } from "../report/fixture.ts";
import { append, CONFIG, evaluationLine, makeRun, makeStudy } from "./made.ts";

/** As the dashboard's build makes it. */
const PAGE = `<!doctype html>
<html><head>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-x'; style-src 'sha256-y'">
<title>mobalab</title>
<style>p{}</style>
</head><body><div id="app"></div>
<noscript>Please allow scripts.</noscript>
<!--mobalab-data-->
<script type="module">run()</script>
</body></html>`;

const HOSTILE = "</script><script>alert(1)</script><!--<script>";
let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "mobalab-freeze-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function dataOf(html: string): Snapshot {
  const { document } = parseHTML(html);
  return JSON.parse(document.getElementById("mobalab-data")!.textContent!);
}

describe("a frozen study", () => {
  it("holds its runs, steps, losses and configurations", async () => {
    makeStudy(folder, HOSTILE);
    const run = makeRun(folder, "r", 50, { ...CONFIG, model: HOSTILE });
    append(run, "eval.jsonl", evaluationLine(50, [3, 1]));
    const documents = [{ document: HOSTILE, lm_loss: [2, 1], predicted_tokens: 4 }];
    const truncated = { windows: 1, contexts: [32, 64], lm_loss: [2, 1], predicted_tokens: 4 };
    append(run, "truncated.json", JSON.stringify({ ...truncated, documents }));
    const torn = makeRun(folder, "s", 2);
    append(torn, "truncated.json", '{"contexts":[32,');
    const snapshot = await studySnapshot(folder);
    const html = frozenPage(PAGE, snapshot, "<p>$& the sections $1</p>");
    expect(dataOf(html)).toEqual(JSON.parse(JSON.stringify(snapshot)));
    const [study] = dataOf(html).studies;
    expect(study.metrics.runs[0].step).toHaveLength(50);
    expect(study.evaluations.runs[0]).toMatchObject({ lm_loss: [2], buckets: [[3], [1]] });
    expect(study.configs.runs[0].config).toEqual({ ...CONFIG, model: HOSTILE });
    // A page draws no documents.
    expect(study.configs.runs[0].truncated).toEqual(truncated);
    expect(study.configs.runs[1].truncated).toBeNull();
    expect(study.results).toBeNull();
  });

  it("has one script, its own, whatever its names are", async () => {
    makeStudy(folder, HOSTILE);
    makeRun(folder, "<!--<script>", 2, { ...CONFIG, model: HOSTILE, attention: "full" });
    const html = frozenPage(PAGE, await studySnapshot(folder), "<p>sections</p>");
    const scripts = html.match(/<script\b[^>]*>/g);
    expect(scripts).toEqual(['<script type="application/json" id="mobalab-data">', '<script type="module">']);
    expect(html.match(/<\/script>/g)).toHaveLength(2);
    expect(html.match(/<!--/g)).toBeNull();
    const { document } = parseHTML(html);
    expect(document.querySelector("title")!.textContent).toBe(HOSTILE);
  });

  it("shows the report's sections where scripts do not run, in a style that its policy allows", async () => {
    makeStudy(folder);
    makeRun(folder, "r", 2);
    const html = frozenPage(PAGE, await studySnapshot(folder), "<p>$& sections $1</p>");
    const style = /<noscript><style>([\s\S]*?)<\/style><\/noscript>/.exec(html)![1];
    const hash = createHash("sha256").update(style).digest("base64");
    expect(html).toContain(`style-src 'sha256-${hash}' 'sha256-y'`);
    expect(html).toContain("<noscript><main>\n<p>$& sections $1</p>\n</main></noscript>");
    expect(html).not.toContain("Please allow scripts");
  });
});

describe("a frozen page", () => {
  it("is the same, byte by byte, when it is made again, and from a copy made later elsewhere", async () => {
    const kept = new URL("../../docs/results/2026-11-30-h200-16k-rope500k-lr/", import.meta.url).pathname;
    const [one, other] = ["one", "other"].map((name) => join(folder, name));
    const made = async (study: string) => {
      const { report, body } = await frozenStudyReport(study);
      return [readFileSync(report, "utf8"), frozenPage(PAGE, await studySnapshot(study), body)];
    };
    cpSync(kept, one, { recursive: true, preserveTimestamps: true });
    const first = await made(one);
    const again = await made(one);
    cpSync(one, other, { recursive: true });
    const elsewhere = await made(other);
    // Such texts are too long to be shown.
    for (const pages of [again, elsewhere])
      expect(pages.map((page, i) => page === first[i])).toEqual([true, true]);
    for (const page of first) expect(page).not.toContain(folder);
  });

  it("of a curves table is the same when it is made again", async () => {
    const points = madeUpCurves();
    const page = () => JSON.stringify(tableSnapshot(points, fitCurves(points), "table"));
    const first = page();
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(page() === first).toBe(true);
  });
});

describe("a sweep of the learning rate with runs that end in their drop", () => {
  it("is on the page as in the report: without their rings, not bracketed, the best without them", async () => {
    const kept = new URL("../../docs/results/2026-11-30-h200-16k-rope500k-lr/", import.meta.url).pathname;
    cpSync(kept, folder, { recursive: true });
    rmSync(join(folder, "sweep.svg"));
    const { body } = studyReport(folder);
    const { runs, attentions } = (await studySnapshot(folder)).overview.studies[0];
    const sweeps = sweepsOf(
      runs.map(({ id: run, attention, heldOutLoss, swept }) => {
        return { run, attention, loss: Number(heldOutLoss), ...swept! };
      }),
    );
    const rings = (svg: string) => svg.match(/<circle r="4"/g)!.length;
    const svg = chartSvg(sweepChart(sweeps)!);
    expect(svg).toBe(readFileSync(join(folder, "sweep.svg"), "utf8"));
    expect(rings(svg)).toBe(runs.filter(({ swept }) => swept!.drop === "past").length);
    const every = attentions.map(({ label }) => label);
    const words = sweepWords(sweeps, every);
    for (const sentence of [...words, sweepCaption(sweeps)]) expect(body).toContain(sentence);
    expect(words).toEqual([
      "The best learning rate of Full attention at d3 is not bracketed: it takes 3 learning rates, not 2; " +
        "d3-lr0.5_full_s1 ends in or just after a sudden drop of the training loss and is left out.",
      "The best learning rate of MoBA at d3 is not bracketed: the lowest loss is at an end of the learning rates; " +
        "d3-lr0.7_moba-b512-k3_s1 ends in or just after a sudden drop of the training loss and is left out; " +
        "d3-lr1_moba-b512-k3_s1 has no sudden drop of the training loss, which others of the size have, and is left out.",
    ]);
    const [full, moba] = sweepTable(sweeps, every).rows;
    expect(full.slice(1)).toEqual(["2.0564", "1.8798", "1.9823 in a drop", "", "", "", "not bracketed"]);
    expect(moba.slice(4)).toEqual(["2.1081 in a drop", "3.1793 before the drop", "", "not bracketed"]);
  });
});

describe("a frozen curves table", () => {
  const table = (points: readonly CurvePoint[]) => {
    const snapshot = tableSnapshot(points, fitCurves(points), "table");
    return dataOf(
      frozenPage(PAGE, snapshot, renderReport({ title: "table", points, fit: fitCurves(points) }).body),
    );
  };

  it("holds every loss of every run and bucket, and the laws with their projections", () => {
    // A ripple, so that bands have a width.
    const points = madeUpCurves().map((point, i) => ({
      ...point,
      lm_loss: point.lm_loss * (1 + 0.003 * Math.sin(7 * i)),
    }));
    const { overview, studies } = table(points);
    const [study] = overview.studies;
    expect(study.runs).toHaveLength(8);
    expect(study.conventions).toEqual(["6ND", "attended"]);
    expect(study.headline).toBe(3);
    for (const point of points) {
      const run = studies[0].evaluations.runs.find((r) => r.run === point.run)!;
      const bucket = study.buckets.findIndex((b) => b.position_start === point.position_start);
      const row = run.step.indexOf(point.step!);
      expect(run.buckets[bucket][row]).toBe(point.lm_loss);
      expect(run.pflops_days[row]).toBe(point.pflops_days);
      expect(run.lm_loss[row]).toBeNull();
    }
    const { projections, fit: laws, claims, tables } = studies[0].results!;
    expect(projections).toHaveLength(laws.laws.length);
    for (const [i, law] of laws.laws.entries()) {
      if (law.form !== "power") throw new Error("expected power laws");
      const { pflops_days, loss, low, high } = projections[i];
      for (const [j, budget] of pflops_days.entries()) {
        const expected = law.coefficient * budget ** law.exponent;
        expect(Number(loss[j]) / expected).toBeCloseTo(1, 4);
        expect(Number(low[j])).toBeLessThan(Number(loss[j]));
        expect(Number(high[j])).toBeGreaterThan(Number(loss[j]));
      }
    }
    expect(claims.map((list) => list.length)).toEqual(laws.comparisons.map((c) => c.claims.length));
    expect(tables.map(({ title }) => title)).toContain("Scaling laws, compute by 6ND");
  });

  it("takes runs of one name with two attentions for two, and rows without step by their compute", () => {
    const points = madeUpCurves({ buckets: 1 }).map(({ step: _, run: __, tokens: ___, ...point }) => ({
      ...point,
      run: point.model,
    }));
    const { overview, studies } = table(points);
    expect(new Set(overview.studies[0].runs.map((run) => run.id)).size).toBe(8);
    for (const run of studies[0].evaluations.runs) {
      expect(run.step.every((step) => step === null)).toBe(true);
      expect(run.buckets[0].every((loss) => typeof loss === "number")).toBe(true);
    }
  });
});
