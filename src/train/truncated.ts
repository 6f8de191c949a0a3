/** How much of its context a model uses: the loss of the same tokens with more and less of the window before them. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Dataset, EvaluationWindow } from "../data/types.ts";
import { InputError } from "../errors.ts";
import type { Model } from "../model/model.ts";
import { eachWindow, spreadWindows } from "./evaluate.ts";
import type { TruncatedResult } from "./types.ts";

/** Name within a run folder. */
export const TRUNCATED_FILE = "truncated.json";

/** Windows that it is measured on, a quarter of all at the most: each takes a place in a pass for every context. */
const MOST_WINDOWS = 32;
/** Parts of the window that are kept: the first holds the predicted tokens alone. */
const PARTS = [1, 2, 4, 8, 16];
const MOST = Math.max(...PARTS);

/**
 * Measures it on a part of the windows, spread evenly, with a model whose passes hold whole windows; null when a
 * window is too short to be cut.
 */
export function evaluateTruncated(
  model: Model,
  dataset: Pick<Dataset, "heldOut">,
  windows: readonly EvaluationWindow[],
  context: number,
): TruncatedResult | null {
  const predicted = Math.floor(context / MOST);
  if (predicted === 0) return null;
  const chosen = spreadWindows(windows, Math.min(MOST_WINDOWS, Math.ceil(windows.length / 4)));
  const sums = new Map<number, { losses: number[]; tokens: number }>();
  for (const [part, parts] of PARTS.entries()) {
    const kept = parts * predicted;
    // What follows the kept tokens fills the window; no token before it sees it.
    const shortened = chosen.map(({ document, tokens }) => {
      const padded = new Int32Array(context + 1);
      padded.set(tokens.subarray(context - kept));
      return { document, tokens: padded };
    });
    eachWindow(model, shortened, context, ({ document }, losses, first) => {
      const sum = sums.get(document) ?? { losses: PARTS.map(() => 0), tokens: 0 };
      sums.set(document, sum);
      const end = first + kept;
      for (let at = end - predicted; at < end; at++) sum.losses[part] += losses[at];
      if (part === 0) sum.tokens += predicted;
    });
  }
  const documents = [...sums].sort(([a], [b]) => a - b);
  const tokens = predicted * chosen.length;
  return {
    windows: chosen.length,
    contexts: PARTS.map((parts) => parts * predicted),
    lm_loss: PARTS.map((_, i) => documents.reduce((all, [, sum]) => all + sum.losses[i], 0) / tokens),
    predicted_tokens: tokens,
    documents: documents.map(([document, sum]) => ({
      document: dataset.heldOut[document].name,
      lm_loss: sum.losses.map((loss) => loss / sum.tokens),
      predicted_tokens: sum.tokens,
    })),
  };
}

/** Whether changes of its losses are shares of something; such a result alone is kept. */
export function isComparable({ lm_loss }: TruncatedResult): boolean {
  return lm_loss.every((loss) => loss > 0 && Number.isFinite(loss));
}

/** `truncated.json` of a run folder, null when it is not there. */
export function readTruncated(runFolder: string): TruncatedResult | null {
  const file = join(runFolder, TRUNCATED_FILE);
  if (!existsSync(file)) return null;
  try {
    const result: TruncatedResult = JSON.parse(readFileSync(file, "utf8"));
    const { contexts, documents } = result;
    const longer = (length: number, i: number) =>
      Number.isSafeInteger(length) && length > (contexts[i - 1] ?? 0);
    if (!Array.isArray(contexts) || contexts.length < 2 || !contexts.every(longer))
      throw new Error("its contexts are not two or more lengths, ascending");
    if (!Array.isArray(documents)) throw new Error("it lacks documents");
    const lacking = () => new Error("it lacks a loss above 0 with each context");
    for (const part of [result, ...documents]) {
      const losses: readonly number[] = Array.isArray(part?.lm_loss) ? part.lm_loss : [];
      // That of one document may be 0, where it repeats itself.
      const whole = losses.length === contexts.length && losses.every(Number.isFinite);
      if (!whole || !(part.predicted_tokens > 0)) throw lacking();
    }
    if (!isComparable(result)) throw lacking();
    return result;
  } catch (error) {
    throw new InputError(`${file} is not readable: ${(error as Error).message}`);
  }
}
