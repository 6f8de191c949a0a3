/** Sampling text (token ids) from a model. */
import { Random } from "../data/random.ts";
import { InputError } from "../errors.ts";
import { Decoder } from "./decoder.ts";
import type { Model } from "./model.ts";

export interface Sampling {
  /** 0: always the likeliest token. */
  readonly temperature: number;
  /** Only the `topK` likeliest tokens; absent: all. */
  readonly topK?: number;
  /** Only the likeliest tokens that together reach this probability, in (0, 1]; absent: all. */
  readonly topP?: number;
}

export interface GenerateOptions extends Sampling {
  /** Tokens of prompt and answer together; generation stops there. */
  readonly context: number;
  readonly maxTokens: number;
  readonly seed: number;
  /** Ends the text; not part of it. */
  readonly stopToken?: number;
}

/**
 * Yields the tokens that follow `prompt`, one by one, until `maxTokens`, the context's end or the stop token. The
 * model's batch shape does not matter. Throws an `InputError` naming what is wrong with the prompt or an option.
 */
export function* generate(
  model: Model,
  prompt: ArrayLike<number>,
  options: GenerateOptions,
): Generator<number, void, void> {
  const { context, maxTokens, stopToken } = options;
  checkSampling(options);
  if (prompt.length === 0) throw new InputError("the prompt is empty, expected at least one token");
  if (prompt.length >= context) {
    throw new InputError(
      `the prompt has ${prompt.length} tokens, expected fewer than the context, ${context}`,
    );
  }
  const { vocabulary } = model.config;
  for (let i = 0; i < prompt.length; i++) {
    if (!(prompt[i] >= 0 && prompt[i] < vocabulary)) {
      throw new InputError(`token ${i} of the prompt is ${prompt[i]}, expected 0 to ${vocabulary - 1}`);
    }
  }
  const decoder = new Decoder(model, context);
  const random = new Random(options.seed);
  let logits: ArrayLike<number> = [];
  for (let i = 0; i < prompt.length; i++) logits = decoder.decode(prompt[i]);
  for (let count = 0; count < maxTokens; count++) {
    const token = sampleToken(logits, options, random.uniform());
    if (token === stopToken) return;
    yield token;
    if (decoder.position + 1 >= context || count + 1 === maxTokens) return;
    logits = decoder.decode(token);
  }
}

/**
 * The token that a uniform number in [0, 1) picks: tokens ordered from the likeliest down (equal ones by index), cut
 * by `topK`, then by `topP` among those left.
 */
export function sampleToken(logits: ArrayLike<number>, sampling: Sampling, uniform: number): number {
  const { temperature, topK = logits.length, topP = 1 } = sampling;
  const order = Array.from(logits, (_, token) => token).sort((a, b) => logits[b] - logits[a] || a - b);
  if (temperature === 0) return order[0];
  const kept = order.slice(0, topK);
  const weights = kept.map((token) => Math.exp((logits[token] - logits[kept[0]]) / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let count = 0;
  let mass = 0;
  do mass += weights[count++];
  while (count < kept.length && mass < topP * total);
  let left = uniform * mass;
  for (let i = 0; i < count - 1; i++) {
    left -= weights[i];
    if (left < 0) return kept[i];
  }
  return kept[count - 1];
}

function checkSampling({ temperature, topK, topP, maxTokens }: GenerateOptions): void {
  const refuse = (name: string, value: number, allowed: string) => {
    throw new InputError(`${name} is ${value}, expected ${allowed}`);
  };
  if (!(temperature >= 0 && Number.isFinite(temperature)))
    refuse("temperature", temperature, "a number from 0 on");
  if (topK !== undefined && !(Number.isInteger(topK) && topK >= 1))
    refuse("top-k", topK, "a whole number of at least 1");
  if (topP !== undefined && !(topP > 0 && topP <= 1))
    refuse("top-p", topP, "a number above 0, and 1 at most");
  if (!(Number.isInteger(maxTokens) && maxTokens >= 1))
    refuse("max tokens", maxTokens, "a whole number of at least 1");
}
