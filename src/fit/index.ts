/** Scaling laws, intervals and comparisons: pure functions on the curves table, and the table as a file. */
export { csvField, csvRows } from "./csv.ts";
export {
  type CurvesTable,
  formatCurves,
  parseCurves,
  type ReadOptions,
  readCurves,
  readCurvesTable,
} from "./curves.ts";
export { largestRise, type SuddenDrop, suddenDrop } from "./drops.ts";
export { type FitOptions, FORMS, type Form, fit, fitKnown } from "./fit.ts";
export { geometricMeanBudget, type Prediction } from "./law.ts";
export {
  type Bucket,
  bucketKey,
  bucketLabel,
  distinctBuckets,
  type FinalPoint,
  finalPoints,
  finestBuckets,
  headlineBucket,
  type Known,
  type RunCurve,
  runCurves,
  sameBucket,
} from "./points.ts";
export { predict } from "./predict.ts";

export type * from "./types.ts";
export type { RunFacts } from "./warnings.ts";
export { formatBudget, formatRatio, nameAttentions } from "./words.ts";
