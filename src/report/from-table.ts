/** The report of any curves table, such as one imported from other trainers' logs. */
import { type CurvePoint, type FitOptions, type FitResult, fit } from "../fit/index.ts";
import type { Interval } from "../fit/types.ts";
import type { Axis } from "./curves.ts";
import { type WrittenReport, writeReport } from "./report.ts";
import { formatReading } from "./tables.ts";

export interface TableReportOptions extends Omit<FitOptions, "runs"> {
  readonly title: string;
  /** What the leading chart is drawn against. */
  readonly axis?: Axis;
  readonly xDomain?: Interval;
  readonly yDomain?: Interval;
}

export interface TableReport extends WrittenReport {
  readonly fit: FitResult;
  /** The finding in words, for the terminal. */
  readonly summary: string;
}

/** Fits the table and writes its report into a folder that exists. A table without compute has curves and no laws. */
export function tableReport(
  points: readonly CurvePoint[],
  folder: string,
  options: TableReportOptions,
): TableReport {
  const { axis } = options;
  const ofCompute = axis === undefined || axis === "6ND" || axis === "attended";
  const result = ofCompute || points.some(hasCompute) ? fit(points, options) : WITHOUT_COMPUTE;
  const written = writeReport(folder, { ...options, points, fit: result });
  return { ...written, fit: result, summary: formatReading(result, options.headline) };
}

function hasCompute(point: CurvePoint): boolean {
  return point.pflops_days !== null || (point.parameters !== undefined && point.tokens !== undefined);
}

const WITHOUT_COMPUTE: FitResult = {
  laws: [],
  comparisons: [],
  warnings: ["the table has no compute (pflops_days, or parameters and tokens), so no law was fitted"],
  reading: [],
  reading_parts: [],
};
