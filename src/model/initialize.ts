/**
 * The initial parameters, a function of the shape and the seed alone (not of the attention), so that paired runs
 * start from the same point.
 *
 * Projections and the embedding are normal with standard deviation sqrt(2 / (5 C)), C the model width (Nguyen and
 * Salazar 2019; 0.02 at C = 1000). The projections that add to the residual stream start at zero, so that every layer
 * starts as the identity: short runs end lower so than with 1 / sqrt(2 L) (2.08 against 2.15 nats per byte after 120
 * steps of a ladder model of depth 4). The output matrix has half the deviation, so that logits start with variance 0.1 and the loss near ln V at every width.
 * A tied embedding has 2 / C: the logit of the token itself, about C times the deviation, then stays near 2. Norm gains
 * are 1, key convolutions 0 (no convolution yet).
 */
import { Random } from "../data/random.ts";
import type { ModelConfig } from "./config.ts";
import type { NamedRange } from "./parameters.ts";

/** The standard deviation of a parameter's initial values, or the constant they all have. */
export function initialization(
  config: ModelConfig,
  name: string,
): { deviation: number } | { constant: number } {
  const { modelDim } = config;
  if (name.endsWith("norm.weight")) return { constant: 1 };
  if (name.endsWith("k_conv.weight")) return { constant: 0 };
  if (name === "model.embed_tokens.weight" && config.tiedOutput) return { deviation: 2 / modelDim };
  if (name.endsWith("o_proj.weight") || name.endsWith("down_proj.weight")) return { constant: 0 };
  const deviation = Math.sqrt(2 / (5 * modelDim));
  return { deviation: name === "lm_head.weight" ? deviation / 2 : deviation };
}

/** Initial values of the `index`-th parameter of the layout: every parameter has a random stream of its own. */
export function initialValues(
  config: ModelConfig,
  parameter: NamedRange,
  index: number,
  seed: number,
): Float32Array {
  const values = new Float32Array(parameter.length);
  const rule = initialization(config, parameter.name);
  if ("constant" in rule) return values.fill(rule.constant);
  const random = new Random(seed, index);
  for (let i = 0; i < values.length; i++) values[i] = rule.deviation * random.gaussian();
  return values;
}
