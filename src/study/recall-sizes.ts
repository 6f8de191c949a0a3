/** Recall of each attention and size, seeds together, and what its routing goes by. Also for the browser. */
import { byReason } from "../fit/words.ts";
import { bandsTogether, routingTogether } from "../train/recall-result.ts";
import type { BlocksBack, RecallBand, RecallResult } from "../train/types.ts";
import { type RoutedConfig, type RoutingOrder, routingOrder } from "./routing-expected.ts";

/** The result of one run. */
export interface RunRecall {
  readonly attention: string;
  readonly model: string;
  readonly result: RecallResult;
  /** Without embeddings; and what it trained with: where they are known. */
  readonly parameters?: number;
  readonly config?: RoutedConfig;
}

export interface RecallSize {
  readonly attention: string;
  readonly model: string;
  /** 0 where it is not known. */
  readonly parameters: number;
  readonly seeds: number;
  /** Those in which something was asked. */
  readonly bands: readonly RecallBand[];
  readonly routing: readonly BlocksBack[];
  /** Of blocks chosen by what they hold. */
  readonly order: RoutingOrder | null;
}

/** In the order of the runs. */
export function recallSizes(runs: readonly RunRecall[]): RecallSize[] {
  return byReason(runs, ({ attention, model }) => JSON.stringify([attention, model])).map((seeds) => {
    const { attention, model, config, parameters = 0 } = seeds[0];
    const results = seeds.map(({ result }) => result);
    const routing = routingTogether(results);
    return {
      ...{ attention, model, parameters, seeds: seeds.length, bands: bandsTogether(results), routing },
      order: config ? routingOrder(routing, config) : null,
    };
  });
}
