/**
 * Learning rate and batch from compute, one rule for every size and both arms: the fitted optima of DeepSeek LLM
 * (arXiv 2401.02954, section 3.1), learning rate 0.3118 C^-0.1250 and batch 0.2920 C^0.3271 tokens, C in operations by
 * 6ND. Its constants were fitted from 1e17 to 2e19 operations; the ladder's factors scale it where a sweep on
 * smaller budgets says so.
 */

export interface StepRule {
  readonly learningRate: number;
  /** Sequences of `context` tokens per optimizer step, at least 1. */
  readonly sequencesPerStep: number;
}

const ruleRate = (operations6ND: number): number => 0.3118 * operations6ND ** -0.125;
/** To three significant digits: the figure in the plan is the figure used. */
const rounded = (learningRate: number): number => Number(learningRate.toPrecision(3));

export function stepRule(
  operations6ND: number,
  context: number,
  factors: { learningRateFactor: number; batchFactor: number; sequencesPerStep?: number },
): StepRule {
  const batchTokens = factors.batchFactor * 0.292 * operations6ND ** 0.3271;
  return {
    learningRate: rounded(factors.learningRateFactor * ruleRate(operations6ND)),
    sequencesPerStep: factors.sequencesPerStep ?? Math.max(1, Math.round(batchTokens / context)),
  };
}

/** The factor on the rule, of one digit or two, that gives a learning rate; undefined when none does. */
export function factorOf(learningRate: number, operations6ND: number): number | undefined {
  const rule = ruleRate(operations6ND);
  const factors = [1, 2].map((digits) => Number((learningRate / rule).toPrecision(digits)));
  return factors.find((factor) => rounded(factor * rule) === learningRate);
}

/** The name of a size's model at a further learning rate, and the size again of any model. */
export const modelAt = (size: string, learningRateFactor: number): string =>
  `${size}-lr${learningRateFactor}`;
export const sizeOf = (model: string): string => model.replace(/-lr[\d.e+-]+$/, "");

/** The rule of a ladder in words, its factors included. */
export function ruleInWords(ladder: {
  readonly learningRateFactors: readonly number[];
  readonly batchFactor: number;
  readonly sequencesPerStep?: number;
  readonly context: number;
}): string {
  const times = (factors: readonly number[]) =>
    factors.length === 1 && factors[0] === 1 ? "" : `${factors.join(" | ")} x `;
  const batch =
    ladder.sequencesPerStep === undefined
      ? `${times([ladder.batchFactor])}0.292 C^0.3271 tokens`
      : `${ladder.sequencesPerStep * ladder.context} tokens`;
  return `learning rate ${times(ladder.learningRateFactors)}0.3118 C^-0.125, batch ${batch}, C = 6ND operations (arXiv 2401.02954)`;
}

/** The rule of the runs that are there and that of those planned in one: factors and batches of both, the former's first. */
export function rulesTogether(former: string, rule: string): string {
  const [before, own] = [former, rule].map((words) =>
    /^learning rate (?:(.+) x )?(\S+ C\S+), batch (.+), (C = .+)$/.exec(words),
  );
  if (!before || !own) return rule;
  const both = (a: string, b: string) =>
    [...new Set([a, b].flatMap((list) => list.split(" | ")))].join(" | ");
  const [, factors = "1", rate, batch, unit] = own;
  const all = both(before[1] ?? "1", factors);
  return `learning rate ${all === "1" ? "" : `${all} x `}${rate}, batch ${both(before[3], batch)}, ${unit}`;
}
