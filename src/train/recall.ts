/** How well a model finds records over the context (data/recall.ts): the share of right answers by distance. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { recallBands, VALUE, writeAsked } from "../data/recall.ts";
import type { EvaluationWindow } from "../data/types.ts";
import { InputError } from "../errors.ts";
import type { Model } from "../model/model.ts";
import { packWindows, spreadWindows } from "./evaluate.ts";
import { isRecall } from "./recall-result.ts";
import { type Asked, RoutingTally } from "./routing-tally.ts";
import type { RecallResult } from "./types.ts";

/** Name within a run folder. */
export const RECALL_FILE = "recall.json";
/** Windows that it is measured on, spread evenly over those given. */
const WINDOWS = 48;

/**
 * Writes records over some of the windows and asks for their values, all in one pass of the model, whose passes hold
 * whole windows. Right is an answer that is the likeliest of all tokens.
 */
export function evaluateRecall(
  model: Model,
  all: readonly EvaluationWindow[],
  context: number,
): RecallResult {
  const windows = spreadWindows(all, WINDOWS);
  const { backend, config } = model;
  const { vocabulary } = config;
  const bands = recallBands(context).map(({ start, end }) => ({ start, end, answers: 0, right: 0, loss: 0 }));
  const perPass = model.tokens / context;
  const routing = new RoutingTally(context, bands.length);
  const logits_TV = backend.tensor([model.tokens, vocabulary], "activation");
  for (let first = 0; first < windows.length; first += perPass) {
    const asked: (Asked & { readonly answer: number })[] = [];
    const packed = windows.slice(first, first + perPass).map(({ document, tokens }, i) => {
      const text = Int32Array.from(tokens);
      const records = writeAsked(text, context, vocabulary, first + i);
      for (const { place, first: record, answer, distance } of records) {
        const band = bands.findIndex(({ start, end }) => distance >= start && distance < end);
        asked.push({ row: i * context + place, answer, band, value: record + VALUE });
      }
      return { document, tokens: text };
    });
    model.loadBatch(packWindows(packed, perPass, context));
    model.logits(logits_TV, (_, { state }) => {
      routing.addLayer(state.shape, backend.readRouting(state), packed.length, asked);
    });
    routing.endPass(asked);
    for (const { row, answer, band: of } of asked) {
      const logits_V = backend.read(backend.view(logits_TV, row * vocabulary, [vocabulary]));
      const band = bands[of];
      const { best, loss } = judge(logits_V, answer);
      band.answers++;
      if (best === answer) band.right++;
      band.loss += loss;
    }
  }
  return {
    windows: windows.length,
    chance: 1 / vocabulary,
    bands: bands.flatMap(({ start, end, answers, right, loss }, i) => {
      if (answers === 0) return [];
      const attended = routing.attended(i);
      return [
        {
          ...{ distance_start: start, distance_end: end, answers, right, lm_loss: loss / answers },
          ...(attended && { attended }),
        },
      ];
    }),
    ...(routing.used && { routing: routing.blocksBack() }),
  };
}

/** The likeliest token (of equal ones the lowest id), and the loss of the answer in nats. */
function judge(logits_V: ArrayLike<number>, answer: number): { best: number; loss: number } {
  let best = 0;
  for (let v = 1; v < logits_V.length; v++) if (logits_V[v] > logits_V[best]) best = v;
  let sum = 0;
  for (let v = 0; v < logits_V.length; v++) sum += Math.exp(logits_V[v] - logits_V[best]);
  return { best, loss: Math.log(sum) + logits_V[best] - logits_V[answer] };
}

/** `recall.json` of a run folder, null when it is not there. */
export function readRecall(runFolder: string): RecallResult | null {
  const file = join(runFolder, RECALL_FILE);
  if (!existsSync(file)) return null;
  try {
    const result: unknown = JSON.parse(readFileSync(file, "utf8"));
    if (!isRecall(result)) throw new Error("it lacks bands or numbers, or has some that cannot be");
    return result;
  } catch (error) {
    throw new InputError(`${file} is not readable: ${(error as Error).message}`);
  }
}
