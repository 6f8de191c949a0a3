/** Recall by distance in words, and whether routed layers attend to the blocks that hold what is asked for. */
import { byReason, formatLength, listOf, MOST_TOLD, nameAttentions } from "../fit/words.ts";
import type { RecallBand } from "../train/types.ts";
import type { RunEnd } from "./laws.ts";
import { type RecallSize, type RunRecall, recallSizes } from "./recall-sizes.ts";
import { endsRouted, finalBlockSize, type RoutingOrder, withDistance } from "./routing-expected.ts";

/** Bands that are told: every other one, at most this many, the furthest last. */
const TOLD = 3;

/** The largest size of each attention; of routed ones the largest for which routing is known, too. */
export function recallInWords(finished: readonly RunEnd[]): string[] {
  const asked = finished.flatMap(({ recall, config }): RunRecall[] =>
    recall && config && recall.result.bands.some(({ answers }) => answers > 0)
      ? [{ ...recall, attention: config.attention, config }]
      : [],
  );
  if (asked.length === 0) return [];
  const label = nameAttentions(asked.map(({ attention }) => attention));
  const name = ({ attention, model }: RecallSize) => `${label(attention)} ${model}`;
  const recalls = recallSizes(largestOf(asked));
  const { bands } = recalls[0];
  const told = bands.filter((_, i) => (bands.length - 1 - i) % 2 === 0).slice(-TOLD);
  const distances = listOf(told.map(distanceOf), ", ", " and ");
  const found = recalls.map(
    (size) => `${name(size)} ${shares(size.bands, told, (band) => band.right / band.answers)}`,
  );
  const routed = asked.filter(
    ({ attention, result }) =>
      endsRouted(attention) && result.bands.some(({ attended }) => attended !== undefined),
  );
  const measured = largestOf(routed).map((run) => ({
    ...run,
    result: withDistance(run.result, run.config!),
  }));
  return [
    `Share of records found that stand ${distances} tokens back (chance ${(100 * asked[0].result.chance).toPrecision(2)} %): ${found.join("; ")}.`,
    ...recallSizes(measured).map((size) => routingInWords(size, told, name(size))),
  ];
}

/** Runs of the largest size of each attention, the first of those as large. */
function largestOf(asked: readonly RunRecall[]): RunRecall[] {
  const attentions = byReason(asked, ({ attention }) => attention).slice(0, MOST_TOLD);
  return attentions.flatMap((own) => {
    const largest = own.reduce((a, b) => (b.parameters! > a.parameters! ? b : a));
    return own.filter(({ model }) => model === largest.model);
  });
}

function routingInWords(
  { attention, seeds, bands, routing, order }: RecallSize,
  told: readonly RecallBand[],
  name: string,
): string {
  const by = (field: keyof NonNullable<RecallBand["attended"]>) =>
    shares(bands, told, ({ attended }) => attended?.[field]);
  const asFar = bands.some(({ attended }) => attended?.by_distance !== undefined)
    ? `any block as far back by ${by("by_distance")}; `
    : "";
  const [first, second] = routing.map(
    ({ share, at_random }) => `${percent(share)} % (at random ${percent(at_random)} %)`,
  );
  const before = first
    ? ` The block before the query's own is attended to by ${first}${second ? `, the one before that by ${second}` : ""}.`
    : "";
  const judged = told.flatMap((band) => sameBand(bands, band) ?? []);
  const against = againstDistance(judged, seeds, finalBlockSize(attention)!);
  const favoured = order ? favouredInWords(order, routing.length) : "";
  return (
    `The block that holds such a record's value is attended to by ${by("heads")} of the sparse heads of ${name} (${asFar}at random ${by("heads_at_random")}), ` +
    `for ${by("any")} of the records by at least one of them (${by("any_at_random")}).${against}${before}${favoured}`
  );
}

/**
 * Whether the block with the value is attended to more often than any as far back, from two blocks on: nearer, where in its
 * block a query stands matters as well. The interval is as wide as if all heads did the same for a record, and all seeds,
 * which are asked the same records.
 */
function againstDistance(bands: readonly RecallBand[], seeds: number, blockSize: number): string {
  const judged = bands.flatMap((band) => {
    if (band.attended?.by_distance === undefined || band.distance_start < 2 * blockSize) return [];
    const { heads, by_distance: share } = band.attended;
    const half = 1.96 * Math.sqrt((share * (1 - share) * seeds) / band.answers);
    const than = heads > share + half ? "more often than" : heads < share - half ? "less often than" : null;
    return [{ than: `${than ?? "as often as"} any${than ? "" : ", as far as can be told,"}`, band }];
  });
  if (judged.length === 0) return "";
  const parts = byReason(judged, ({ than }) => than).map((same) => {
    const distances = same.map(({ band }) => distanceOf(band));
    return `${same[0].than} at ${listOf(distances, ", ", " and ")}`;
  });
  return ` Two blocks back and further it is attended to ${listOf(parts, ", ", " and ")}.`;
}

/** What favours the same distances as the heads do. */
function favouredInWords(
  { scores, rotary, near, beyond, headDim, ropeTheta }: RoutingOrder,
  blocks: number,
): string {
  const aside = beyond === null ? "" : ` (nearness taken out: ${beyond.toFixed(2)})`;
  return (
    ` Which of the nearer ${scores.length} distances (of ${blocks}, in blocks) these heads favour has a rank correlation of ` +
    `${rotary.toFixed(2)} (1: the same order) with what the rotary embedding alone would favour${aside}, as if all queries and keys ` +
    `were alike before it turns them (base ${ropeTheta}, head width ${headDim}), and of ${near.toFixed(2)} with nearness alone.`
  );
}

/** In per cent, for each of the bands told. */
function shares(
  bands: readonly RecallBand[],
  told: readonly RecallBand[],
  of: (band: RecallBand) => number | undefined,
): string {
  const values = told.map((one) => {
    const band = sameBand(bands, one);
    const share = band && of(band);
    return share === undefined ? "?" : percent(share);
  });
  return `${listOf(values, ", ", " and ")} %`;
}

function sameBand(bands: readonly RecallBand[], { distance_start }: RecallBand): RecallBand | undefined {
  return bands.find((band) => band.distance_start === distance_start);
}

const distanceOf = ({ distance_start, distance_end }: RecallBand) =>
  `${formatLength(distance_start)}-${formatLength(distance_end)}`;

const percent = (share: number) => (100 * share).toFixed(1);
