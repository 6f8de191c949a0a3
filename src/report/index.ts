/** Charts, tables and the reading: everything that is shown of a fit. */
export type { Chart } from "./chart.ts";
export { AXES, type Axis } from "./curves.ts";
export { type TableReport, type TableReportOptions, tableReport } from "./from-table.ts";
export { chartPng, chartSvg, renderScalingChart } from "./render.ts";
export { type ReportInput, renderReport, type WrittenReport, writeReport } from "./report.ts";
export { type ScalingOptions, scalingChart } from "./scaling.ts";
export type { RunSummary, StudyDescription } from "./sections.ts";
export { type StudyReport, studyReport } from "./study.ts";
export { formatComparison, formatFit, formatLaws, formatReading } from "./tables.ts";
export type { TrainingCurve } from "./training.ts";
