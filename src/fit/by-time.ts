/** Attentions by the time that their runs trained, where it is known: what a cheaper attention is worth on the machine. */
import { compare, FEWEST_PAIRS } from "./compare.ts";
import { distinctPairs, type Known, pairsInBucket, sameBucket } from "./points.ts";
import { mean } from "./regression.ts";
import type { TimeRatio } from "./types.ts";
import { formatFactor, higherThan } from "./words.ts";

/** At the geometric mean of the times, for attentions with at least 3 sizes whose runs all have a time. */
export function ratiosByTime({ finals, attentions, baseline, headline }: Known, margin: number): TimeRatio[] {
  if (baseline === null) return [];
  const here = finals.filter((final) => sameBucket(final, headline));
  const times = new Map(here.map(({ name, time_s }) => [name, time_s ?? 0]));
  const others = attentions.filter((label) => label !== baseline);
  return others.flatMap((other) => {
    const sizes = pairsInBucket(finals, headline, baseline, other);
    const pairs = sizes.map((pair) => {
      // As seeds of one size are averaged in their losses.
      const time = (side: 0 | 1) => mean(pair.names.map((names) => times.get(names[side])!));
      return {
        ...pair,
        baseline: { ...pair.baseline, pflops_days: time(0) },
        other: { ...pair.other, pflops_days: time(1) },
      };
    });
    const known = pairs.flatMap((pair) => pair.names.flat()).every((name) => times.get(name)! > 0);
    // Times of runs that do the same differ too, by chance.
    if (!known || Math.min(distinctPairs(sizes), distinctPairs(pairs)) < FEWEST_PAIRS) return [];
    // Seconds in place of compute: the same lines.
    const found = compare({ ...headline, convention: "attended", baseline, other }, pairs, margin);
    const [, { pflops_days: time_s, ratio, interval }] = found.ratio_at;
    const multiplier = found.multiplier_at.find((one) => one.pflops_days === time_s);
    return [
      {
        position_start: headline.position_start,
        position_end: headline.position_end,
        ...{ baseline, other, sizes: pairs.length, time_s, ratio, interval },
        ...(multiplier
          ? { multiplier: multiplier.multiplier, multiplier_interval: multiplier.interval }
          : {}),
      },
    ];
  });
}

const duration = (seconds: number) =>
  seconds < 120 ? `${Number(seconds.toPrecision(3))} s` : `${Number((seconds / 60).toPrecision(3))} minutes`;

export function byTimeInWords(ratios: readonly TimeRatio[], name: (attention: string) => string): string[] {
  return ratios.map((found) => {
    const lower = higherThan("", found.ratio, found.interval);
    const { multiplier, multiplier_interval: interval } = found;
    const needs =
      multiplier === undefined || interval === undefined
        ? "how much time the same loss takes is not bounded by these runs"
        : `the same loss takes ${formatFactor(multiplier)} times as long (${interval.map(formatFactor).join(" to ")})`;
    return `By the time that runs trained, at ${duration(found.time_s)}, the loss of ${name(found.other)} is ${lower}; ${needs}.`;
  });
}
