/**
 * Which blocks layers that leave some out would attend to if not what a block holds but distance alone decided, or the
 * rotary embedding alone; of what `recall.json` has, so that it holds for runs that were measured before. Also for the browser.
 */
import { recallBands, VALUE, writeAsked } from "../data/recall.ts";
import { isRouted } from "../fit/by-size.ts";
import { rankCorrelation } from "../fit/rank.ts";
import type { ModelConfig } from "../model/config.ts";
import type { BlocksBack, RecallResult } from "../train/types.ts";

/** What of a run's config it needs, where that is known. */
export interface RoutedConfig {
  readonly attention: string;
  readonly context?: number;
  readonly shape?: Partial<ModelConfig>;
}

/** The attention at the end of training. */
const atEnd = (attention: string) => attention.split("+").at(-1)!;

/** Whether blocks are then chosen by what they hold. */
export const endsRouted = (attention: string): boolean => isRouted(atEnd(attention));

/** Tokens of a block then; null where no layer leaves blocks out. */
export function finalBlockSize(attention: string): number | null {
  const size = Number(/-b(\d+)-k/.exec(atEnd(attention))?.[1]);
  return size > 0 ? size : null;
}

/**
 * The result with `attended.by_distance`: the mean share of heads that attend to any block as far back as those that were
 * asked for. The records are written again, so distances and places are those asked; bands of which other records than
 * these were asked are left as they are.
 */
export function withDistance(result: RecallResult, config: RoutedConfig): RecallResult {
  const { bands, routing, windows } = result;
  const { attention, context, shape } = config;
  const size = finalBlockSize(attention);
  if (!size || !routing || !context || !shape?.vocabulary) return result;
  // A window is asked for one record at least, among them the furthest that there is room for.
  const most = bands.reduce((sum, { answers }) => sum + answers, 0);
  if (windows > most || bands.at(-1)?.distance_end !== recallBands(context).at(-1)?.end) return result;
  const shares = new Map(routing.map(({ blocks_back, share }) => [blocks_back, share]));
  // All heads attend to the query's own block.
  shares.set(0, 1);
  const sums = bands.map(() => ({ answers: 0, share: 0 }));
  const text = new Int32Array(context);
  for (let window = 0; window < windows; window++) {
    for (const { place, first, distance } of writeAsked(text, context, shape.vocabulary, window)) {
      const sum =
        sums[bands.findIndex((band) => distance >= band.distance_start && distance < band.distance_end)];
      if (!sum) continue;
      sum.answers++;
      sum.share += shares.get(Math.floor(place / size) - Math.floor((first + VALUE) / size)) ?? Number.NaN;
    }
  }
  return {
    ...result,
    bands: bands.map((band, i) => {
      const { answers, share } = sums[i];
      if (!band.attended || answers !== band.answers || Number.isNaN(share)) return band;
      return { ...band, attended: { ...band.attended, by_distance: share / answers } };
    }),
  };
}

/**
 * The mean score of a query against the mean key `n` blocks back, for `n` from 1 on, if all queries and keys were one
 * vector, as long in each pair of its numbers, before the rotary embedding turns them.
 */
export function rotaryScores(
  { headDim, ropeTheta }: Pick<ModelConfig, "headDim" | "ropeTheta">,
  blockSize: number,
  blocks: number,
): number[] {
  const pairs = Array.from({ length: headDim / 2 }, (_, i) => {
    const angle = ropeTheta ** ((-2 * i) / headDim);
    // What is left of a vector that turns so when the mean over a block is taken, once for queries and once for keys.
    const left = Math.sin((angle * blockSize) / 2) / (blockSize * Math.sin(angle / 2));
    return { angle, weight: left ** 2 };
  });
  return Array.from({ length: blocks }, (_, i) => {
    const turned = (i + 1) * blockSize;
    return (
      pairs.reduce((sum, { angle, weight }) => sum + weight * Math.cos(angle * turned), 0) / pairs.length
    );
  });
}

/** How well something orders the nearer half of the blocks as the shares of heads that attend to them do. */
export interface RoutingOrder {
  /** As `rotaryScores`, of the nearer half. */
  readonly scores: readonly number[];
  /** Rank correlations of the shares with the scores, and with nearness. */
  readonly rotary: number;
  readonly near: number;
  /** Partial rank correlation with the scores, nearness taken out; null where nearness alone is the order of either. */
  readonly beyond: number | null;
  readonly headDim: number;
  readonly ropeTheta: number;
}

/** Of fewer blocks an order says little. */
const FEWEST_BLOCKS = 8;

/**
 * Null where blocks are not chosen by what they hold, for too few of them, where all shares are the same, and where the
 * shape of a head is not known.
 */
export function routingOrder(routing: readonly BlocksBack[], config: RoutedConfig): RoutingOrder | null {
  const { headDim, ropeTheta } = config.shape ?? {};
  const size = finalBlockSize(config.attention);
  if (!endsRouted(config.attention) || !size || !headDim || !ropeTheta) return null;
  const half = routing.slice(0, Math.ceil(routing.length / 2));
  if (half.length < FEWEST_BLOCKS || half.some(({ blocks_back }, i) => blocks_back !== i + 1)) return null;
  const shares = half.map(({ share }) => share);
  const scores = rotaryScores({ headDim, ropeTheta }, size, half.length);
  const nearness = half.map((_, i) => -i);
  const near = rankCorrelation(shares, nearness);
  if (Number.isNaN(near)) return null;
  const [rotary, both] = [rankCorrelation(shares, scores), rankCorrelation(scores, nearness)];
  const open = (1 - near ** 2) * (1 - both ** 2);
  const beyond = open > 1e-9 ? (rotary - near * both) / Math.sqrt(open) : null;
  return { scores, rotary, near, beyond, headDim, ropeTheta };
}
