/**
 * Attentions at too few sizes for a comparison by attended operations, against what the baseline's law says of as many:
 * at one size they cost less than the baseline does, and no law goes through one size.
 */
import type { Convention } from "../compute/compute.ts";
import { type Bucket, bucketLabel, type Known, sameBucket, sizes } from "./points.ts";
import { predict } from "./predict.ts";
import type { Comparison, Law, LawRatio } from "./types.ts";
import { formatBudget, higherThan, MOST_TOLD } from "./words.ts";

/** How many times beyond the budgets of a law it is still asked. */
const BEYOND = 1.5;

export function ratiosToLaw(
  { finals, attentions, baseline, headline }: Known,
  laws: readonly Law[],
  comparisons: readonly Comparison[],
): LawRatio[] {
  const here = (row: Bucket & { readonly convention: Convention }) =>
    row.convention === "attended" && sameBucket(row, headline);
  const law = laws.find((one) => here(one) && one.attention === baseline);
  if (law === undefined || law.form === "parametric") return [];
  const budgets = law.points.map((point) => point.pflops_days);
  const [low, high] = [Math.min(...budgets), Math.max(...budgets)];
  const compared = new Set([baseline, ...comparisons.filter(here).map(({ other }) => other)]);
  const left = finals.filter((final) => sameBucket(final, headline) && !compared.has(final.attention));
  return attentions.flatMap((other) => {
    const own = left.filter(({ attention }) => attention === other);
    return sizes(own, "attended").flatMap(({ model, seeds, pflops_days, lm_loss: loss }) => {
      if (pflops_days < low / BEYOND || pflops_days > high * BEYOND) return [];
      const { loss: predicted, prediction_interval } = predict(law, pflops_days);
      const [least, most] = prediction_interval;
      return [
        {
          position_start: headline.position_start,
          position_end: headline.position_end,
          ...{ baseline: law.attention, other, model, seeds, pflops_days, loss },
          ...{ predicted, prediction_interval },
          ratio: loss / predicted,
          interval: [loss / most, Math.min(loss / least, Number.MAX_VALUE)] as const,
          inside: pflops_days >= low && pflops_days <= high,
        },
      ];
    });
  });
}

export function againstLawInWords(
  ratios: readonly LawRatio[],
  name: (attention: string) => string,
): string[] {
  if (ratios.length === 0) return [];
  const parts = ratios.slice(0, MOST_TOLD).map(({ other, model, pflops_days, loss, predicted, ...one }) => {
    const budget = `${formatBudget(pflops_days)} PFLOP/s-days${one.inside ? "" : ", outside the law's sizes"}`;
    const higher = higherThan(`the law's ${predicted.toFixed(3)}`, one.ratio, one.interval);
    return `${name(other)} at ${model} (${budget}) ends at ${loss.toFixed(3)}, ${higher}`;
  });
  const more = ratios.length - MOST_TOLD;
  const rest = more > 0 ? `; ${more} more size${more > 1 ? "s" : ""}` : "";
  return [
    `Against what the law of ${name(ratios[0].baseline)} at ${bucketLabel(ratios[0])} says of one run of the same budget ` +
      `as attended (attention counted as done): ${parts.join("; ")}${rest}.`,
  ];
}
