/** What `recall.json` holds: whether it is sound, and seeds taken together. Also for the browser. */
import type { BlocksBack, RecallBand, RecallResult } from "./types.ts";

const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;
/** Rounding may leave a mean of ones above 1. */
const isShare = (value: unknown) =>
  Number.isFinite(value) && (value as number) >= 0 && (value as number) <= 1 + 1e-9;

const have = (rows: unknown, is: (value: unknown) => boolean, fields: readonly string[]) =>
  Array.isArray(rows) && rows.every((row) => fields.every((field) => is(row?.[field])));

export function isRecall(result: unknown): result is RecallResult {
  const { windows, chance, bands, routing } = (result ?? {}) as Partial<RecallResult>;
  return (
    isCount(windows) &&
    isShare(chance) &&
    have(bands, isCount, ["distance_start", "distance_end", "answers", "right"]) &&
    bands!.every(
      ({ answers, right, attended }) =>
        right <= answers &&
        (attended === undefined ||
          have([attended], isShare, ["heads", "heads_at_random", "any", "any_at_random"])),
    ) &&
    (routing === undefined ||
      (have(routing, isCount, ["blocks_back"]) && have(routing, isShare, ["share", "at_random"])))
  );
}

/** The bands in which something was asked, nearest first. */
export function bandsTogether(seeds: readonly RecallResult[]): RecallBand[] {
  const groups = new Map<number, RecallBand[]>();
  for (const band of seeds.flatMap(({ bands }) => bands)) {
    if (!(band.answers > 0)) continue;
    groups.set(band.distance_start, [...(groups.get(band.distance_start) ?? []), band]);
  }
  return [...groups.values()].map(oneBand).sort((a, b) => a.distance_start - b.distance_start);
}

function oneBand(bands: readonly RecallBand[]): RecallBand {
  const sum = (of: (band: RecallBand) => number) => bands.reduce((all, band) => all + of(band), 0);
  const answers = sum((band) => band.answers);
  const mean = (of: (band: RecallBand) => number) => sum((band) => of(band) * band.answers) / answers;
  const attended = (field: keyof NonNullable<RecallBand["attended"]>) =>
    mean((band) => band.attended![field] ?? Number.NaN);
  const { distance_start, distance_end } = bands[0]!;
  return {
    ...{ distance_start, distance_end, answers },
    ...{ right: sum((band) => band.right), lm_loss: mean((band) => band.lm_loss) },
    ...(bands.every((band) => band.attended) && {
      attended: {
        ...{ heads: attended("heads"), heads_at_random: attended("heads_at_random") },
        ...{ any: attended("any"), any_at_random: attended("any_at_random") },
        ...(bands.every((band) => band.attended?.by_distance !== undefined) && {
          by_distance: attended("by_distance"),
        }),
      },
    }),
  };
}

/** Means over the seeds, the nearest block first; empty where no layer leaves blocks out. */
export function routingTogether(seeds: readonly RecallResult[]): BlocksBack[] {
  const rows = seeds.flatMap(({ routing }) => routing ?? []);
  const blocks = [...new Set(rows.map(({ blocks_back }) => blocks_back))].sort((a, b) => a - b);
  return blocks.map((blocks_back) => {
    const same = rows.filter((row) => row.blocks_back === blocks_back);
    const mean = (of: "share" | "at_random") => same.reduce((sum, row) => sum + row[of], 0) / same.length;
    return { blocks_back, share: mean("share"), at_random: mean("at_random") };
  });
}
