/** Where the page's models come from: the server, or the page itself when it is frozen. */
import type { Models, ModelView } from "../../src/server/api.ts";
import { at, connection, get, type Study } from "../store.ts";
import { bytesOf, kernels } from "./kernels.ts";
import { RoutedModel } from "./routed-model.ts";

/** Bytes of weights that read a text in about a second. */
const QUICK = 8_000_000;

export interface Candidate {
  readonly run: string;
  readonly attention: string;
  readonly bytes: number;
}

/** MoBA models first, the largest first. */
export async function listModels(study: Study): Promise<readonly Candidate[]> {
  if (study.model) {
    const { run, bytes } = study.model;
    const attention = study.runs.peek().find(({ id }) => id === run)?.attention ?? "";
    return [{ run, attention, bytes }];
  }
  if (connection.peek() === "frozen") return [];
  const { models } = await get<Models>(at(study, "models"));
  const isMoba = ({ attention }: Candidate) => Number(attention.startsWith("moba"));
  return [...models].sort((a, b) => isMoba(b) - isMoba(a) || b.bytes - a.bytes);
}

/** The first that computes in about a second, else the smallest. */
export function usualModel(candidates: readonly Candidate[]): Candidate | undefined {
  const smallest = candidates.reduce<Candidate | undefined>(
    (best, one) => (best && best.bytes <= one.bytes ? best : one),
    undefined,
  );
  return candidates.find(({ bytes }) => bytes <= QUICK) ?? smallest;
}

export interface Opened {
  readonly view: ModelView;
  readonly model: RoutedModel;
}

/** Throws an error that says in a sentence what is wrong. */
export async function openModel(study: Study, run: string): Promise<Opened> {
  if (study.model) {
    const { weights, ...view } = study.model;
    return { view, model: await RoutedModel.open(view, bytesOf(weights), kernels()) };
  }
  const query = `?run=${encodeURIComponent(run)}`;
  const view = await get<ModelView>(at(study, `model${query}`));
  const answer = await fetch(`api/${at(study, `weights${query}`)}`, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const weights = new Uint8Array(await answer.arrayBuffer());
  return { view, model: await RoutedModel.open(view, weights, kernels()) };
}
