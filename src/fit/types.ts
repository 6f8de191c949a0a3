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

/** A power law of compute, `coefficient * C^exponent`, C in PFLOP/s-days. */
export interface PowerOfCompute {
  readonly coefficient: number;
  readonly exponent: number;
  /** 95 %, Student t; null where the law comes from a surface, which has no regression of its own. */
  readonly coefficient_interval: Interval | null;
  readonly exponent_interval: Interval | null;
}

/** The compute-optimal size: parameters and training tokens that a budget is best spent on. */
export interface OptimalSize {
  /**
   * `quadratic`: minima of parabolas in log N, one for each budget; `envelope`: sizes of the runs that form the lower
   * envelope; `direct`: the valley of the parametric surface.
   */
  readonly method: "quadratic" | "envelope" | "direct";
  readonly parameters: PowerOfCompute;
  readonly tokens: PowerOfCompute;
}

/**
 * `L = coefficient * C^exponent`, C in PFLOP/s-days (`power`); with `+ floor` when `floored`; with another exponent past
 * `break` when `broken`; through the lower envelope of the training curves when `envelope`, through the lowest loss of
 * each budget when `isoflop`.
 */
export interface PowerLaw {
  readonly convention: Convention;
  readonly attention: string;
  readonly position_start: number | null;
  readonly position_end: number | null;
  readonly form: "power" | "floored" | "broken" | "envelope" | "isoflop";
  readonly coefficient: number;
  readonly exponent: number;
  readonly floor?: number;
  readonly floor_interval?: Interval;
  readonly break?: {
    readonly pflops_days: number;
    readonly interval: Interval;
    /** Whether its interval ends inside the range where a break was looked for, on both sides. */
    readonly located: boolean;
    readonly exponent_after: number;
    readonly exponent_after_interval: Interval;
  };
  /** Budgets between which the envelope was taken. */
  readonly window?: Interval;
  readonly optimal_size?: OptimalSize[];
  readonly coefficient_interval: Interval;
  readonly exponent_interval: Interval;
  /** Of the exponent, from resampled runs (percentiles); from 8 runs on. */
  readonly bootstrap_interval?: Interval;
  readonly loss_at_mean_budget: LossAt;
  /** At ten times the largest fitted budget, with the 95 % interval of one new run. */
  readonly projection: {
    readonly pflops_days: number;
    readonly loss: number;
    readonly prediction_interval: Interval;
  };
  readonly points: FittedPoint[];
  /** Sum of squared log residuals, that of every local minimum that was searched (lowest first), and convergence. */
  readonly objective: number;
  readonly objectives: number[];
  readonly converged: boolean;
  /** Standard deviation of log loss between seeds of one size, pooled over sizes, where there are several seeds. */
  readonly seed_noise?: number;
  /** Curvature of log loss in log C: whether the straight line bends. From 6 distinct budgets on. */
  readonly bend?: { readonly curvature: number; readonly interval: Interval; readonly supported: boolean };
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
  /** Sum of Huber(1e-3) on log residuals, that of every start's end (lowest first), and convergence. */
  readonly objective: number;
  readonly objectives: number[];
  readonly converged: boolean;
  readonly points: number;
  readonly optimal_size: OptimalSize;
  /** From resampled runs (percentiles); from 8 runs on. `parameters_exponent`: of the compute-optimal size. */
  readonly bootstrap_interval?: Record<"E" | "A" | "B" | "alpha" | "beta" | "parameters_exponent", Interval>;
}

export type Law = PowerLaw | ParametricLaw;

export interface RatioAt {
  readonly pflops_days: number;
  readonly ratio: number;
  readonly interval: Interval;
  readonly bootstrap_interval?: Interval;
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

/**
 * `other` against `baseline` in one bucket: `L_other / L_baseline = ratio * C^exponent`. In a fit of form `floored` the
 * ratios, multipliers, crossing and claims are those of the two floored laws, fitted jointly, and `ratio_law` is the
 * straight trend of the ratio beside them.
 */
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
    /** Of the exponent, from pairs resampled together (percentiles); from 8 pairs on. */
    readonly bootstrap_interval?: Interval;
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
  /**
   * Each size left out once, where enough are left: the ratio at the geometric mean budget of the others, and their
   * verdict, which has the wider intervals of fewer sizes. In the headline bucket.
   */
  readonly without?: {
    readonly model: string;
    readonly pflops_days: number;
    readonly ratio: number;
    readonly interval: Interval;
    readonly verdict: Verdict;
    /** Whether a verdict of higher or lower holds for their line with the intervals of all sizes around it. */
    readonly holds?: boolean;
  }[];
}

/** Two attentions in one bucket. */
interface Pair {
  readonly position_start: number | null;
  readonly position_end: number | null;
  readonly baseline: string;
  readonly other: string;
}

/**
 * `other` against `baseline` (the fit's, or a control without routing) at one size in one bucket: final losses of pairs
 * of the same seed, means over the pairs.
 */
export interface SizeRatio extends Pair {
  readonly model: string;
  readonly seeds: number;
  readonly ratio: number;
  /** 95 %, over the `documents` of both (docs/method.md, section 2), not over seeds. */
  readonly interval: Interval;
  readonly documents: number;
  /** Both attend to everything in this bucket, so that what differs there is training. */
  readonly alike: boolean;
  /**
   * In the headline bucket, where both attend to everything in the first one: the ratio of the losses, each a share of
   * its own run's in that first bucket, which ends at `from_end`.
   */
  readonly relative?: {
    readonly from_end: number;
    readonly ratio: number;
    readonly interval: Interval;
    readonly documents: number;
  };
}

/**
 * `other` at one size against the law of `baseline` as attended, at the budget that this size took: means over seeds.
 * For attentions without a comparison as attended, at budgets within the law's own or up to 1.5 times beyond them.
 */
export interface LawRatio extends Pair {
  readonly model: string;
  readonly seeds: number;
  /** As attended. */
  readonly pflops_days: number;
  readonly loss: number;
  /** The law's loss at that budget, and its 95 % prediction interval of one run. */
  readonly predicted: number;
  readonly prediction_interval: Interval;
  /** `loss / predicted`, and `loss` over the ends of `prediction_interval`. */
  readonly ratio: number;
  readonly interval: Interval;
  /** Whether the budget lies within those that the law was fitted to. */
  readonly inside: boolean;
}

/**
 * Losses in the headline bucket, each a share of its own run's in the first bucket, where both attentions attend to
 * everything: the ratio of these shares at the geometric mean budget, from a line through the sizes.
 */
export interface GrowthRatio extends Pair {
  /** End of the first bucket. */
  readonly from_end: number;
  readonly pflops_days: number;
  readonly ratio: number;
  readonly interval: Interval;
  readonly sizes: number;
}

/** As a comparison by compute, with the time that runs trained in its place; at the geometric mean of the times. */
export interface TimeRatio extends Pair {
  readonly sizes: number;
  /** Seconds. */
  readonly time_s: number;
  readonly ratio: number;
  readonly interval: Interval;
  /** Of the baseline's time, for the loss it reaches in `time_s`; absent where its 95 % set is not bounded. */
  readonly multiplier?: number;
  readonly multiplier_interval?: Interval;
}

/** How well a form predicted the largest sizes from the others. */
export interface FormError {
  readonly form: "power" | "floored" | "broken";
  /** Root mean square of the log error over the laws of all attentions and buckets. */
  readonly holdout_error: number;
  readonly laws: number;
}

export interface FitResult {
  readonly laws: Law[];
  /** The forms that the table could be fitted with, the best predictor first; absent when only one could. */
  readonly forms?: FormError[];
  readonly comparisons: Comparison[];
  /** Of the headline bucket and of the first; absent where no losses by document are known. */
  readonly size_ratios?: SizeRatio[];
  /** Of the headline bucket; absent where the baseline has no law as attended, or all others are compared with it. */
  readonly law_ratios?: LawRatio[];
  /** Absent where the first bucket does not lie within what all of an attention's runs attend to, or with few sizes. */
  readonly growth_ratios?: GrowthRatio[];
  /** Absent where runs have no times, or with few sizes. */
  readonly time_ratios?: TimeRatio[];
  readonly warnings: string[];
  /** The finding in words, for the headline bucket. Every sentence from a computed figure. */
  readonly reading: string[];
  /**
   * The parts of `reading` in order, the answer first: their titles, and how many of its sentences belong to each. None
   * is empty.
   */
  readonly reading_parts: { readonly title: string; readonly sentences: number }[];
}
