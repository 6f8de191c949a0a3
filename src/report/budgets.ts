/** Comparisons by the budget that they are reported at. */
import type { Comparison, Interval, RatioAt } from "../fit/types.ts";

/** The budgets at which comparisons are reported, as `ratio_at` and `multiplier_at` order them. */
export const BUDGETS = ["smallest", "mean", "largest"] as const;
export type BudgetName = (typeof BUDGETS)[number];

/** An entry of `ratio_at` or `multiplier_at` by its budget: the smallest, the geometric mean or the largest fitted. */
export function atBudget<T extends { readonly pflops_days: number }>(
  entries: readonly T[],
  range: Interval,
  name: BudgetName,
): T | undefined {
  const near = (entry: T, budget: number) => Math.abs(Math.log(entry.pflops_days / budget)) < 1e-6;
  if (name === "smallest") return entries.find((entry) => near(entry, range[0]));
  if (name === "largest") return entries.find((entry) => near(entry, range[1]));
  // The geometric mean comes before "1 PFLOP/s-day when inside", which may lie on either side of it.
  return entries.find((entry) => !near(entry, range[0]) && !near(entry, range[1]));
}

export function meanRatio(comparison: Comparison): RatioAt | undefined {
  return atBudget(comparison.ratio_at, comparison.fitted_range, "mean");
}
