/** Laws and what they say, ready to be shown: projections with bands, claims as sentences, the report's tables. */
import type { Convention } from "../compute/compute.ts";
import type { FitResult, Interval, PowerLaw } from "../fit/types.ts";
import { computeDomain } from "../report/axes.ts";
import { attentionTitles, conventionTitle } from "../report/labels.ts";
import { project } from "../report/projection.ts";
import {
  claimInWords,
  claimsTable,
  comparisonTable,
  conventionsOf,
  lawsTable,
  optimalSizeTable,
} from "../report/tables.ts";
import type { StudyFit } from "../study/laws.ts";
import type { Projection, Results, TableView } from "./api.ts";
import { Unreadable } from "./inside.ts";
import { short } from "./steps.ts";

export type Laws = Omit<Results, "cursor">;

/** Checks that what `laws.json` holds is a fit, as far as the shapes of its lists; throws `Unreadable`. */
export function fitOf(content: unknown): FitResult & Partial<StudyFit> {
  const fit = content as Partial<StudyFit> | null;
  for (const field of ["laws", "comparisons", "warnings", "reading"] as const) {
    if (!Array.isArray(fit?.[field])) throw new Unreadable(`has no list of ${field}`);
  }
  const { reading, reading_parts, ...rest } = fit as FitResult & Partial<StudyFit>;
  // Written before there were parts.
  const whole = reading.length > 0 ? [{ title: "In words", sentences: reading.length }] : [];
  const parts = reading_parts ?? whole;
  const sound =
    Array.isArray(parts) &&
    parts.every(
      (part) => typeof part?.title === "string" && Number.isSafeInteger(part.sentences) && part.sentences > 0,
    ) &&
    parts.reduce((sum, part) => sum + part.sentences, 0) === reading.length &&
    reading.every((sentence) => typeof sentence === "string");
  if (!sound) throw new Unreadable("has parts of the reading that are not its sentences");
  return { ...rest, reading, reading_parts: parts };
}

/** Throws when the fit is not what it should be. */
export function resultsOf(fit: FitResult, fitted: Date | null): Laws {
  const titles = attentionTitles(fit.laws.map((law) => law.attention));
  for (const { baseline, other } of fit.comparisons) {
    for (const label of [baseline, other]) if (!titles.has(label)) titles.set(label, label);
  }
  return {
    fit,
    fitted: fitted?.toISOString() ?? null,
    projections: projectionsOf(fit),
    claims: fit.comparisons.map((comparison) =>
      comparison.claims.map(
        ({ claim, judgement, because }) =>
          `${claimInWords(claim, comparison, titles)}: ${judgement}. ${because}`,
      ),
    ),
    tables: tablesOf(fit),
  };
}

function projectionsOf(fit: FitResult): Projection[] {
  const laws = fit.laws.filter((law): law is PowerLaw => law.form !== "parametric");
  const domains = new Map<Convention, Interval>();
  for (const convention of conventionsOf(fit)) {
    const budgets = laws
      .filter((law) => law.convention === convention)
      .flatMap((law) => law.points.map((point) => point.pflops_days));
    if (budgets.length > 0) {
      // Wider than any chart's axis, which begins with the curves, below the first final loss.
      const [low, high] = computeDomain(Math.min(...budgets), Math.max(...budgets));
      domains.set(convention, [low / 1000, high]);
    }
  }
  return laws.flatMap((law): Projection[] => {
    const domain = domains.get(law.convention);
    if (domain === undefined) return [];
    const line = project(law, domain, 48);
    const { convention, attention, position_start, position_end } = law;
    return [
      {
        convention,
        attention,
        position_start,
        position_end,
        pflops_days: line.map((point) => Number(point.x.toPrecision(7))),
        loss: line.map((point) => short(point.y)),
        low: line.map((point) => short(point.low)),
        high: line.map((point) => short(point.high)),
      },
    ];
  });
}

function tablesOf(fit: FitResult): TableView[] {
  const tables: TableView[] = [];
  const add = (title: string, table: Omit<TableView, "title"> | null) => {
    if (table !== null) tables.push({ title, columns: table.columns, rows: table.rows });
  };
  for (const convention of conventionsOf(fit)) {
    const by = `compute by ${conventionTitle(convention)}`;
    add(`Scaling laws, ${by}`, lawsTable(fit, convention));
    add(`Comparison, ${by}`, comparisonTable(fit, convention));
    add(`Claims, ${by}`, claimsTable(fit, convention));
  }
  add("Compute-optimal size", optimalSizeTable(fit));
  return tables;
}
