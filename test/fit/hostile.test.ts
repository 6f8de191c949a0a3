/** Tables that nobody should have made: a sentence, or an answer with a warning; never a number that is none. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { InputError } from "../../src/errors.ts";
import { fit as fitTable, parseCurves, readCurves } from "../../src/fit/index.ts";
import { formatFit } from "../../src/report/tables.ts";

const HEADER = "attention,model,position_start,position_end,pflops_days,lm_loss";

/** Two attentions of five sizes on `2 C^-0.05`, the second 1 % higher. */
function ladder(): string {
  const rows = ["full", "moba"].flatMap((attention) =>
    [0.1, 0.2, 0.4, 0.8, 1.6].map((budget, i) => {
      const loss = 2 * budget ** -0.05 * (attention === "full" ? 1 : 1.01);
      return `${attention},m${i},,,${budget},${loss}`;
    }),
  );
  return `${HEADER}\n${rows.join("\n")}\n`;
}

function refusal(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    expect(error).toBeInstanceOf(InputError);
    return (error as Error).message;
  }
  throw new Error("was not refused");
}

describe("numbers no measurement has", () => {
  it.each([
    ["loss", "full,m9,,,5,1e308", "lm_loss"],
    ["loss", "full,m9,,,5,1e-308", "lm_loss"],
    ["budget", "full,m9,,,1e308,1.5", "pflops_days"],
    ["budget", "full,m9,,,1e-300,1.5", "pflops_days"],
  ])("refuses a %s beyond what projections and charts carry: %s", (_, row, column) => {
    const message = refusal(() => parseCurves(`${ladder()}${row}\n`, "t.csv"));
    expect(message).toContain(`line 12, column ${column}`);
    expect(message).toContain("1e-30 to 1e+30");
  });

  it("keeps a budget of zero, where training starts", () => {
    expect(parseCurves(`${ladder()}full,m0,,,0,9\n`, "t.csv").points).toHaveLength(11);
  });
});

describe("what is no table", () => {
  it("names compressed files, UTF-16 and folders in words, without their bytes", () => {
    const folder = mkdtempSync(join(tmpdir(), "mobalab-hostile-"));
    try {
      const files = {
        "t.csv.gz": gzipSync(ladder()),
        "utf16.csv": Buffer.from(`\ufeff${ladder()}`, "utf16le"),
        "zeros.csv": Buffer.alloc(5000),
      };
      for (const [name, content] of Object.entries(files)) {
        writeFileSync(join(folder, name), content);
        const message = refusal(() => readCurves(join(folder, name)));
        expect(message).toContain("is no UTF-8 text");
        expect(message).not.toMatch(/\p{Cc}/u);
      }
      expect(refusal(() => readCurves(folder))).toContain("it is a folder");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("escapes control characters of a header and shows little of a long one", () => {
    const message = refusal(() => parseCurves(`\x1b[31m${"x".repeat(9000)},b\n1,2\n`, "t.csv"));
    expect(message).not.toMatch(/\p{Cc}/u);
    expect(message.length).toBeLessThan(400);
  });

  it("refuses another spelling of the split train, which would have counted as held out", () => {
    const table = ladder()
      .trim()
      .split("\n")
      .map((row, i) => `${row},${i === 0 ? "split" : "training"}`);
    expect(refusal(() => parseCurves(table.join("\n"), "t.csv"))).toContain(
      "train, or the name of a held-out split",
    );
  });
});

describe("words of the finding", () => {
  it("says that rows at one budget without a step were averaged", () => {
    const { points } = parseCurves(`${ladder()}${ladder().split("\n").slice(1).join("\n")}`, "t.csv");
    expect(fitTable(points).warnings.join("\n")).toContain("their losses were averaged");
  });

  it("gives no place to a crossing outside the range and no sign to zero", () => {
    const rows = [0.1, 0.2, 0.4, 0.8, 1.6].flatMap((budget, i) => {
      const loss = 2 * budget ** -0.05 * (1 + 1e-4 * (i % 2));
      return [`full,m${i},,,${budget},${loss}`, `moba,m${i},,,${budget},${loss * 1.05 * budget ** -0.02}`];
    });
    const words = formatFit(fitTable(parseCurves(`${HEADER}\n${rows.join("\n")}\n`, "t.csv").points));
    expect(words).toContain("The lines cross inside the range: refuted");
    expect(words).toContain("The lines never cross inside the range: supported");
    expect(words).not.toMatch(/[+-]0\.0+(?!\d)/);
  });
});
