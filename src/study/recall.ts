/** Recall by distance in words, and whether routed layers attend to the blocks that hold what is asked for. */
import { isRouted } from "../fit/by-size.ts";
import { byReason, formatLength, listOf, MOST_TOLD, nameAttentions } from "../fit/words.ts";
import { bandsTogether, routingTogether } from "../train/recall-result.ts";
import type { RecallBand, RecallResult } from "../train/types.ts";
import type { RunEnd } from "./laws.ts";
import {
  finalBlockSize,
  type RoutedConfig,
  type RoutingOrder,
  routingOrder,
  withDistance,
} from "./routing-expected.ts";

/** A run that was asked. */
interface Asked {
  readonly model: string;
  readonly parameters: number;
  readonly config: RoutedConfig;
  readonly result: RecallResult;
}

/** Seeds of one attention and size. */
interface Size {
  readonly name: string;
  readonly config: RoutedConfig;
  readonly seeds: readonly RecallResult[];
  readonly bands: readonly RecallBand[];
}

/** Bands that are told: every other one, at most this many, the furthest last. */
const TOLD = 3;

/** The largest size of each attention; of routed ones the largest for which routing is known, too. */
export function recallInWords(finished: readonly RunEnd[]): string[] {
  const asked = finished.flatMap(({ recall, config }): Asked[] =>
    recall && config && recall.result.bands.some(({ answers }) => answers > 0) ? [{ ...recall, config }] : [],
  );
  if (asked.length === 0) return [];
  const name = nameAttentions(asked.map(({ config }) => config.attention));
  const recalls = largestOf(asked, name);
  const { bands, seeds } = recalls[0];
  const told = bands.filter((_, i) => (bands.length - 1 - i) % 2 === 0).slice(-TOLD);
  const distances = listOf(told.map(distanceOf), ", ", " and ");
  const found = recalls.map(
    (size) => `${size.name} ${shares(size, told, (band) => band.right / band.answers)}`,
  );
  const routed = asked.filter(
    ({ config, result }) =>
      isRouted(config.attention.split("+").at(-1)!) &&
      result.bands.some(({ attended }) => attended !== undefined),
  );
  return [
    `Share of records found that stand ${distances} tokens back (chance ${(100 * seeds[0].chance).toPrecision(2)} %): ${found.join("; ")}.`,
    ...largestOf(routed, name).map((size) => routingInWords(size, told)),
  ];
}

function largestOf(asked: readonly Asked[], name: (attention: string) => string): Size[] {
  const largest = byReason(asked, ({ config }) => config.attention).map((sizes): Size => {
    const most = Math.max(...sizes.map(({ parameters }) => parameters));
    const { model, config } = sizes.find(({ parameters }) => parameters === most)!;
    const seeds = sizes.filter((size) => size.model === model).map(({ result }) => result);
    return { name: `${name(config.attention)} ${model}`, config, seeds, bands: bandsTogether(seeds) };
  });
  return largest.slice(0, MOST_TOLD);
}

function routingInWords({ name, config, seeds }: Size, told: readonly RecallBand[]): string {
  const bands = bandsTogether(seeds.map((result) => withDistance(result, config)));
  const routing = routingTogether(seeds);
  const by = (field: keyof NonNullable<RecallBand["attended"]>) =>
    shares({ bands }, told, ({ attended }) => attended?.[field]);
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
  const against = againstDistance(judged, seeds.length, finalBlockSize(config.attention)!);
  const order = routingOrder(routing, config);
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
  { bands }: Pick<Size, "bands">,
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
