/** The HTML report: what it holds, that it cannot load or run anything, and that hostile text stays text. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseHTML } from "linkedom";
import { afterAll, describe, expect, it } from "vitest";
import { fit as fitLaws } from "../../src/fit/index.ts";
import type { CurvePoint } from "../../src/fit/types.ts";
import { type ReportInput, renderReport, writeReport } from "../../src/report/index.ts";
import { madeUpCurves } from "./fixture.ts";

const folder = mkdtempSync(join(tmpdir(), "mobalab-report-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const points = madeUpCurves({ buckets: 4 });
const input: ReportInput = {
  title: "quick",
  points,
  fit: fitLaws(points),
  runs: [
    {
      run: "d2_full_s1",
      attention: "full",
      model: "d2",
      seed: 1,
      state: "finished",
      parameters: 98_304,
      tokens: 2_000_000,
      pflops_days: 1.2e-9,
      pflops_days_attended: 2.5e-9,
      lm_loss: 2.3456,
      tokens_per_second: 31_000,
    },
    {
      run: "d3_full_s1",
      attention: "full",
      model: "d3",
      state: "failed",
      message: "the loss became NaN at step 7",
    },
  ],
  description: {
    corpus: "speeches",
    context: 2048,
    sparsity: { "moba-b128-k4": 0.6543 },
    hardware: "2 cores",
    commands: ["mobalab study quick"],
  },
  metrics: [
    {
      run: "d2_full_s1",
      attention: "full",
      model: "d2",
      tokens: Float64Array.from({ length: 5000 }, (_, i) => 512 * (i + 1)),
      losses: Float64Array.from({ length: 5000 }, (_, i) => 5.5 * (i + 1) ** -0.1),
    },
  ],
};

function text(html: string): string {
  return parseHTML(html).document.body.textContent.replace(/\s+/g, " ");
}

describe("report", () => {
  const { html, charts } = renderReport(input);

  it("has every section, both conventions and the charts inline", () => {
    const { document } = parseHTML(html);
    const sections = [...document.querySelectorAll("section")].map((section) => section.id);
    expect(sections).toEqual([
      "chart",
      "claims",
      "warnings",
      "laws",
      "comparison",
      "buckets",
      "position",
      "ratio",
      "training",
      "runs",
      "definitions",
      "commands",
    ]);
    expect(charts.map(({ name }) => name)).toEqual([
      "chart",
      "chart-attended",
      "buckets",
      "buckets-attended",
      "position",
      "ratio",
      "multiplier",
      "ratio-attended",
      "multiplier-attended",
      "training",
    ]);
    expect(document.querySelectorAll("svg")).toHaveLength(charts.length);
    const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const used of html.matchAll(/url\(#([^)]+)\)/g)) expect(ids).toContain(used[1]);
  });

  it("says what was computed: reading, claims, laws, runs and the study", () => {
    const words = text(html);
    for (const sentence of input.fit.reading) expect(words).toContain(sentence);
    const folded = [...parseHTML(html).document.querySelectorAll("#chart summary")];
    const [first, ...others] = input.fit.reading_parts.map(({ title }) => title);
    expect(folded.map((summary) => summary.textContent)).toEqual(others);
    const list = parseHTML(html).document.querySelector("#chart ul.sentences")!;
    expect(list.previousElementSibling!.textContent).toBe(first);
    expect(list.closest("details")).toBeNull();
    expect(list.children).toHaveLength(input.fit.reading_parts[0].sentences);
    for (const warning of input.fit.warnings) expect(words).toContain(warning);
    const leading = input.fit.comparisons.find((c) => c.convention === "6ND" && c.position_end === 2048)!;
    for (const { because, judgement } of leading.claims) expect(words).toContain(`${judgement}${because}`);
    for (const claim of [
      "The lines never cross inside the range",
      "MoBA is lower throughout",
      "MoBA and full attention are the same",
    ])
      expect(words).toContain(claim);
    for (const fact of ["speeches", "2048 tokens", "MoBA 65.4 %", "2 cores", "mobalab study quick"])
      expect(words).toContain(fact);
    for (const run of ["98.3k", "2.3456", "31k", "1.20e-9", "the loss became NaN at step 7"])
      expect(words).toContain(run);
    expect(words).toContain("2, of which 1 failed");
    const rows = parseHTML(html).document.querySelectorAll("#laws tbody tr");
    expect(rows).toHaveLength(2 * 2 * 4);
    // Four claims at length, then one row for each bucket and convention.
    expect(parseHTML(html).document.querySelectorAll("#claims tbody tr")).toHaveLength(4 + 2 * 4);
  });

  it("is the same text each time", () => {
    expect(renderReport(input).html).toBe(html);
  });

  it("loads nothing and runs nothing", () => {
    expect(html).toMatch(
      /<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-[\w+/=]+'; base-uri 'none'; form-action 'none'">/,
    );
    expect(html).not.toMatch(/<script|<link|<img|<iframe|<object|@import|\sstyle=|\son\w+=|javascript:/i);
    expect(html.replaceAll("http://www.w3.org/2000/svg", "")).not.toMatch(/https?:\/\//);
  });

  it("keeps hostile names text, in the page and in the charts", () => {
    const evil = `</title></svg><script>alert(1)</script>"'onload=alert(2) &amp;\u0000\u001b[31m\ud800`;
    const rename = (point: CurvePoint): CurvePoint => ({
      ...point,
      model: `${evil}${point.model}`,
      run: `${evil}${point.run}`,
      attention: point.attention === "full" ? "full" : `moba${evil}`,
    });
    const hostile = points.map(rename);
    const page = renderReport({
      title: evil,
      points: hostile,
      fit: fitLaws(hostile),
      runs: [{ run: evil, attention: evil, model: evil, state: "failed", message: evil }],
      description: { corpus: evil, rule: evil, hardware: evil, commands: [evil], sparsity: { [evil]: 0.5 } },
      metrics: [
        { run: evil, attention: evil, model: evil, tokens: Float64Array.of(5), losses: Float64Array.of(3) },
      ],
    });
    const { document } = parseHTML(page.html);
    expect(document.querySelectorAll("script")).toHaveLength(0);
    expect(page.html).not.toMatch(/<script|<\/title><\/svg>/i);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: none of these may be left
    expect(page.html).not.toMatch(/[\u0000\u001b\ud800]/);
    for (const { svg } of page.charts) expect(svg).not.toContain("<script");
    // Parsed strictly as XML by the renderer.
    expect(() =>
      writeReport(join(folder, "hostile"), { title: evil, points: hostile, fit: fitLaws(hostile) }),
    ).not.toThrow();
  });
});

describe("another headline bucket", () => {
  it("leads the page, the claims and the runs", () => {
    const headline = { position_start: 512, position_end: 1024 };
    const { html } = renderReport({
      ...input,
      runs: undefined,
      headline,
      fit: fitLaws(points, { headline }),
    });
    const { document } = parseHTML(html);
    expect(document.querySelector("#chart h2").textContent).toBe("LM loss 512-1024");
    expect(document.querySelector("#claims caption").textContent).toContain("positions 512-1024, by 6ND");
    expect(document.querySelector("#runs caption").textContent).toContain("positions 512-1024");
  });
});

describe("writing", () => {
  it("leaves the page, the charts as SVG and PNG, and nothing aside", () => {
    const written = writeReport(join(folder, "out"), input);
    expect(written.report).toBe(join(folder, "out", "report.html"));
    for (const path of [written.chartSvg, written.chartPng, ...written.files])
      expect(existsSync(path)).toBe(true);
    expect(readdirSync(join(folder, "out")).sort()).toEqual(
      written.files.map((path) => path.slice(folder.length + 5)).sort(),
    );
    expect(readFileSync(written.chartPng).subarray(1, 4).toString()).toBe("PNG");
    const before = written.files.map((path) => readFileSync(path));
    const again = writeReport(join(folder, "out"), input);
    expect(again.files.every((path, i) => readFileSync(path).equals(before[i]!))).toBe(true);
  });
});

describe("what little there is", () => {
  const nothing = { laws: [], comparisons: [], warnings: [], reading: [], reading_parts: [] };

  it.each<[string, readonly CurvePoint[], string]>([
    ["no rows", [], "there are no runs to report"],
    [
      "one run",
      madeUpCurves({ attentions: ["full"], models: ["d2"], buckets: 1 }),
      "one size gives one final loss",
    ],
    ["two sizes", madeUpCurves({ models: ["d2", "d3"] }), "no law was fitted through its 2 sizes"],
    ["one attention", madeUpCurves({ attentions: ["moba-b128-k4"] }), "nothing can be compared"],
    [
      "all positions only",
      madeUpCurves({ buckets: 1 }).map((p) => ({ ...p, position_start: null, position_end: null })),
      "LM loss against compute",
    ],
    [
      "no compute as attended",
      madeUpCurves().map((p) => ({ ...p, pflops_days_attended: undefined })),
      "PFLOP/s-days",
    ],
  ])("reports %s without a crash, and says what is missing", (_, rows, sentence) => {
    const fitted = rows.length > 0 ? fitLaws(rows) : nothing;
    const { html } = renderReport({ title: "small", points: rows, fit: fitted });
    expect(text(html)).toContain(sentence);
  });

  it("reports floored and parametric laws", () => {
    const sizes = madeUpCurves({
      models: ["d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10"],
      buckets: 2,
    });
    for (const form of ["floored", "parametric"] as const) {
      const { html } = renderReport({ title: form, points: sizes, fit: fitLaws(sizes, { form }) });
      const heads = [...parseHTML(html).document.querySelectorAll("#laws th[scope=col]")].map(
        (head) => head.textContent,
      );
      expect(heads).toContain(form === "floored" ? "floor E" : "beta");
    }
  });
});
