/** What the words of charts and tables mean, for a reader who sees them for the first time. */
export const DEFINITIONS: readonly (readonly [string, string])[] = [
  [
    "LM loss",
    "Mean negative log-likelihood of the next token on held-out documents, in nats per token. A bucket such as 10k-12k holds the tokens predicted from those positions of the window.",
  ],
  ["PFLOP/s-day", "8.64 × 10¹⁹ floating-point operations."],
  [
    "6ND",
    "Compute as 6 × parameters (without embedding and output matrices) × training tokens. It is blind to attention: both attentions end at the same place.",
  ],
  [
    "As attended",
    "6ND, plus the output matrix, plus attention as done for the pairs attended, plus the gate. A cheaper attention moves to the left on this axis.",
  ],
  ["Training curve", "A thin solid line: the held-out loss of one run as its compute grows."],
  [
    "Law and projection",
    "A dashed line: loss = a × C^b through the final losses (dots), one for each size, extended over the whole width. Beyond the dots it is a projection, not a measurement.",
  ],
  [
    "Band",
    "The shaded area: where one new run would end with 95 % probability if the law holds. It widens away from the data.",
  ],
  [
    "95 % interval",
    "Student-t from the regression. An interval of a ratio that holds 1 does not tell the attentions apart.",
  ],
  [
    "Ratio",
    "Loss divided by the baseline's loss at the same compute, from pairs of runs of one size and seed. Above 1 is worse.",
  ],
  [
    "Compute multiplier",
    "How many times the baseline's compute is needed for the loss that the baseline reaches. Above 1 is worse.",
  ],
  [
    "Mean budget",
    "The geometric mean of the fitted budgets: the middle of the data, where a law is known best.",
  ],
  ["Crossing", "Where the ratio is 1. It counts as located only when its 95 % set is a bounded interval."],
];
