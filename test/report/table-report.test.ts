/** Reports of any curves table: other forms, other groups, other axes. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { InputError } from "../../src/errors.ts";
import { type CurvePoint, parseCurves } from "../../src/fit/index.ts";
import { tableReport } from "../../src/report/index.ts";
import { scalingChart } from "../../src/report/scaling.ts";
import { parseSvg } from "./svg.ts";

const folder = mkdtempSync(join(tmpdir(), "table-report-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Two optimizers at nine sizes, on `1.5 + 0.9 C^-0.21`; compute only when asked for. */
function table(withCompute: boolean): string {
  const rows = ["optimizer,model,position_start,position_end,pflops_days,lm_loss,step,tokens,time_s"];
  for (const optimizer of ["adam", "muon"]) {
    for (let size = 0; size < 9; size++) {
      for (let k = 1; k <= 20; k++) {
        const budget = (0.01 * 3 ** size * k) / 20;
        const loss = (1.5 + 0.9 * budget ** -0.21) * (optimizer === "adam" ? 1.02 : 1);
        const wave = 1 + 0.003 * Math.sin(7 * size + optimizer.charCodeAt(0));
        rows.push(
          `${optimizer},m${size},,,${withCompute ? budget : ""},${loss * wave},${k * 10},${k * 1e6 * 3 ** size},${k * 4}`,
        );
      }
    }
  }
  return rows.join("\n");
}

const points = (withCompute: boolean) =>
  parseCurves(table(withCompute), "t.csv", { group: "optimizer" }).points;

describe("a table grouped by another column", () => {
  it("has the column's values for attentions, and refuses a column that is not there", () => {
    expect(new Set(points(true).map((point) => point.attention))).toEqual(new Set(["adam", "muon"]));
    expect(() => parseCurves(table(true), "t.csv", { group: "lr" })).toThrow(InputError);
    expect(() => parseCurves(table(true), "t.csv", { group: "lr" })).toThrow(
      /column "lr" to group by is not in t.csv \(found optimizer, model/,
    );
  });

  it.each(["floored", "broken", "envelope", "auto"] as const)("is reported in form %s", (form) => {
    const { html, result } = report(points(true), { form, baseline: "adam", bootstrap: 50 });
    expect(result.fit.laws).toHaveLength(2);
    expect(html).not.toMatch(/NaN|undefined|e\+308/);
    expect(html).toContain(
      { floored: "floor E", broken: "break at", envelope: "coefficient a", auto: "floor E" }[form],
    );
    expect(html).toContain("b, runs resampled");
  });
});

describe("other axes", () => {
  it.each([
    ["tokens", "tokens"],
    ["steps", "step"],
    ["time", "time, s"],
  ] as const)("leads with curves against %s, compute after it", (axis, label) => {
    const { html, svg } = report(points(true), { axis, baseline: "adam", bootstrap: 0 });
    expect(svg).toContain(`>${label}<`);
    const chart = parseSvg(svg);
    expect(chart.querySelectorAll(".curve")).toHaveLength(18);
    expect(chart.querySelectorAll(".projection")).toHaveLength(0);
    expect(html).toContain("<h3>Compute by 6ND</h3>");
  });

  it("needs no compute for them, and says that no law was fitted", () => {
    const { html, result } = report(points(false), { axis: "time" });
    expect(result.fit.laws).toEqual([]);
    expect(result.summary).toMatch(/the table has no compute .* so no law\s+was fitted/);
    expect(html).not.toContain("<h3>Compute by 6ND</h3>");
    expect(() => report(points(false), {})).toThrow(/pflops_days of run adam m0 is empty/);
  });

  it("spans exactly the curves", () => {
    const chart = scalingChart(
      points(true),
      { laws: [], comparisons: [], warnings: [], reading: [], reading_parts: [] },
      { axis: "steps" },
    );
    expect((chart.plot.x as { domain: number[] }).domain).toEqual([10, 200]);
  });
});

function report(rows: CurvePoint[], options: Omit<Parameters<typeof tableReport>[2], "title">) {
  const result = tableReport(rows, folder, { title: "t", ...options });
  return { result, html: readFileSync(result.report, "utf8"), svg: readFileSync(result.chartSvg, "utf8") };
}
