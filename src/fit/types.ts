/** The curves table (the one interchange format) and the result of a fit (`laws.json`, `fit --json`). */
import type { Convention } from "../compute/compute.ts";

/** A row of the curves table. Position bounds are both null for "all positions". */
export interface CurvePoint {
  readonly attention: string;
  readonly model: string;
  readonly position_start: number | null;
  readonly position_end: number | null;
  /** By 6ND; null when unknown (a fit then asks for it). */
  readonly pflops_days: number | null;
  readonly lm_loss: number;
  readonly seed?: number;
  readonly run?: string;
  readonly step?: number;
  readonly tokens?: number;
  readonly parameters?: number;
  readonly pflops_days_attended?: number;
  readonly split?: string;
  readonly time_s?: number;
  readonly tokens_per_second?: number;
  readonly predicted_tokens?: number;
  readonly bits_per_byte?: number;
}

export type Interval = [low: number, high: number];

export interface LossAt {
  readonly pflops_days: number;
  readonly loss: number;
  readonly interval: Interval;
}

/** A fitted point: one size's final loss (mean of its seeds). */
export interface FittedPoint {
  readonly model: string;
  readonly pflops_days: number;
  readonly lm_loss: number;
  readonly seeds: number;
}

/** `L = coefficient * C^exponent` (`power`), with `+ floor` when `floored`. C in PFLOP/s-days. */
export interface PowerLaw {
  readonly convention: Convention;
  readonly attention: string;
  readonly position_start: number | null;
  readonly position_end: number | null;
  readonly form: "power" | "floored";
  readonly coefficient: number;
  readonly exponent: number;
  readonly floor?: number;
  readonly floor_interval?: Interval;
  readonly coefficient_interval: Interval;
  readonly exponent_interval: Interval;
  readonly loss_at_mean_budget: LossAt;
  readonly points: FittedPoint[];
  /** Sum of squared log residuals, and whether the search converged (always true for `power`). */
  readonly objective: number;
  readonly converged: boolean;
  /** Refit without the largest size, predicting it (95 % prediction interval). */
  readonly holdout?: {
    readonly model: string;
    readonly predicted: number;
    readonly observed: number;
    readonly interval: Interval;
  };
}

/** `L(N, D) = E + A N^-alpha + B D^-beta`. */
export interface ParametricLaw {
  readonly convention: Convention;
  readonly attention: string;
  readonly position_start: number | null;
  readonly position_end: number | null;
  readonly form: "parametric";
  readonly E: number;
  readonly A: number;
  readonly B: number;
  readonly alpha: number;
  readonly beta: number;
  readonly objective: number;
  readonly converged: boolean;
  readonly points: number;
}

export type Law = PowerLaw | ParametricLaw;

export interface RatioAt {
  readonly pflops_days: number;
  readonly ratio: number;
  readonly interval: Interval;
}

export type Verdict =
  | "other higher"
  | "other lower"
  | "crossing"
  | "not distinguishable over the whole range";

export interface Claim {
  readonly claim: "cross" | "never cross" | "lower throughout" | "the same";
  readonly judgement: "supported" | "refuted" | "undecided";
  /** A sentence with the figure that decides. */
  readonly because: string;
}

/** `other` against `baseline` in one bucket: `L_other / L_baseline = ratio * C^exponent`. */
export interface Comparison {
  readonly convention: Convention;
  readonly position_start: number | null;
  readonly position_end: number | null;
  readonly baseline: string;
  readonly other: string;
  readonly ratio_law: {
    readonly ratio: number;
    readonly exponent: number;
    readonly ratio_interval: Interval;
    readonly exponent_interval: Interval;
    /** `paired`: regression of the log ratio over pairs; `joint`: both laws fitted jointly (C differs in the pairs). */
    readonly method: "paired" | "joint";
    readonly pairs: number;
    readonly degrees_of_freedom: number;
  };
  /** At the smallest, geometric-mean and largest fitted budget, and at 1 PFLOP/s-day when inside. */
  readonly ratio_at: RatioAt[];
  /**
   * `C_other / C_baseline` at the loss the baseline reaches with the budgets of `ratio_at`. Empty when the other's
   * exponent cannot be told from zero: the multiplier is then not bounded.
   */
  readonly multiplier_at: {
    readonly pflops_days: number;
    readonly multiplier: number;
    readonly interval: Interval;
  }[];
  readonly crossing: {
    readonly pflops_days: number;
    readonly interval: Interval;
    readonly inside_data: boolean;
  } | null;
  /**
   * Budgets of the fitted range where the ratio's interval excludes 1. When both ends of the range differ (on either
   * side of a located crossing), the wider stretch.
   */
  readonly differs_between: Interval | null;
  readonly fitted_range: Interval;
  readonly verdict: Verdict;
  readonly claims: Claim[];
}

export interface FitResult {
  readonly laws: Law[];
  readonly comparisons: Comparison[];
  readonly warnings: string[];
  /** The finding in words, for the headline bucket. Every sentence from a computed figure. */
  readonly reading: string[];
}
