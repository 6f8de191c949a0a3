/** Recall by distance in words, and whether routed layers attend to the blocks that hold what is asked for. */
import { isRouted } from "../fit/by-size.ts";
import { byReason, formatLength, listOf, MOST_TOLD, nameAttentions } from "../fit/words.ts";
import { bandsTogether, routingTogether } from "../train/recall-result.ts";
import type { BlocksBack, RecallBand } from "../train/types.ts";
import type { RunEnd } from "./laws.ts";

/** Seeds of one attention and size. */
interface Recall {
  readonly name: string;
  readonly chance: number;
  readonly bands: readonly RecallBand[];
  readonly routing: readonly BlocksBack[];
  /** Whether its blocks are chosen by what they hold, at the end of training. */
  readonly routed: boolean;
}

/** Bands that are told: every other one, at most this many, the furthest last. */
const TOLD = 3;

/** The largest size of each attention. */
export function recallInWords(finished: readonly RunEnd[]): string[] {
  const recalls = largestOf(finished).slice(0, MOST_TOLD);
  if (recalls.length === 0) return [];
  const { bands, chance } = recalls[0];
  const told = bands.filter((_, i) => (bands.length - 1 - i) % 2 === 0).slice(-TOLD);
  const shares = (recall: Recall, of: (band: RecallBand) => number | undefined) => {
    const values = told.map(({ distance_start }) => {
      const band = recall.bands.find((band) => band.distance_start === distance_start);
      const share = band && of(band);
      return share === undefined ? "?" : percent(share);
    });
    return `${listOf(values, ", ", " and ")} %`;
  };
  const distances = told.map(
    ({ distance_start, distance_end }) => `${formatLength(distance_start)}-${formatLength(distance_end)}`,
  );
  const found = recalls.map(
    (recall) => `${recall.name} ${shares(recall, (band) => band.right / band.answers)}`,
  );
  return [
    `Share of records found that stand ${listOf(distances, ", ", " and ")} tokens back (chance ${(100 * chance).toPrecision(2)} %): ${found.join("; ")}.`,
    ...recalls.flatMap((recall) => {
      if (!recall.routed || recall.bands.every(({ attended }) => attended === undefined)) return [];
      const by = (field: keyof NonNullable<RecallBand["attended"]>) =>
        shares(recall, ({ attended }) => attended?.[field]);
      const [first, second] = recall.routing.map(
        ({ share, at_random }) => `${percent(share)} % (at random ${percent(at_random)} %)`,
      );
      const before = first
        ? ` The block before the query's own is attended to by ${first}${second ? `, the one before that by ${second}` : ""}.`
        : "";
      return [
        `The block that holds such a record's value is attended to by ${by("heads")} of the sparse heads of ${recall.name} (at random ${by("heads_at_random")}), ` +
          `for ${by("any")} of the records by at least one of them (${by("any_at_random")}).${before}`,
      ];
    }),
  ];
}

const percent = (share: number) => (100 * share).toFixed(1);

function largestOf(finished: readonly RunEnd[]): Recall[] {
  const known = finished.flatMap(({ recall, config }) =>
    recall && config && recall.result.bands.some(({ answers }) => answers > 0)
      ? [{ ...recall, attention: config.attention }]
      : [],
  );
  const name = nameAttentions(known.map(({ attention }) => attention));
  return byReason(known, ({ attention }) => attention).map((sizes): Recall => {
    const most = Math.max(...sizes.map(({ parameters }) => parameters));
    const { attention, model } = sizes.find(({ parameters }) => parameters === most)!;
    const seeds = sizes.filter((size) => size.model === model).map(({ result }) => result);
    return {
      name: `${name(attention)} ${model}`,
      chance: seeds[0].chance,
      bands: bandsTogether(seeds),
      routing: routingTogether(seeds),
      routed: isRouted(attention.split("+").at(-1)!),
    };
  });
}
