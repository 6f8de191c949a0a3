/** Reads and checks a run's `config.json`: every field, and what fields must agree on. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { parseSchedule } from "../attention/schedule.ts";
import { InputError } from "../errors.ts";
import { byReason } from "../fit/words.ts";
import { checkModelConfig } from "../model/config.ts";
import type { RunConfig } from "./types.ts";

/** A field whose error says what is allowed; `parseRunConfig` puts the path and the value before it. */
const number = (allowed: string, ok: (value: number) => boolean) =>
  z.custom<number>((value) => typeof value === "number" && Number.isFinite(value) && ok(value), allowed);

const count = number("a whole number of at least 1", (x) => Number.isSafeInteger(x) && x >= 1);
const countOrZero = number("a whole number of at least 0", (x) => Number.isSafeInteger(x) && x >= 0);
const positive = number("a number above 0", (x) => x > 0);
const notNegative = number("a number of at least 0", (x) => x >= 0);
const share = number("a share between 0 and 1", (x) => x >= 0 && x <= 1);
const belowOne = number("a number from 0 to below 1", (x) => x >= 0 && x < 1);
const flag = z.boolean("true or false");
const text = z.custom<string>(
  (value) => typeof value === "string" && value !== "",
  "a text that is not empty",
);
const object = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.strictObject(shape, {
    error: (issue) =>
      issue.code === "unrecognized_keys" ? `only the fields ${Object.keys(shape).join(", ")}` : "an object",
  });

const schema = object({
  model: text,
  shape: object({
    layers: count,
    heads: count,
    kvHeads: count,
    headDim: count,
    modelDim: count,
    feedForward: count,
    vocabulary: number("a whole number of at least 2", (x) => Number.isSafeInteger(x) && x >= 2),
    ropeTheta: positive,
    normEpsilon: positive,
    tiedOutput: flag,
    keyConvolution: z.literal([0, 3, 5], "0, 3 or 5"),
  }),
  attention: text,
  dataset: text,
  context: number("a whole number of at least 2", (x) => Number.isSafeInteger(x) && x >= 2),
  sequencesPerStep: count,
  sequencesPerPass: count,
  horizon: z.union(
    [
      z.strictObject({ steps: count }),
      z.strictObject({ tokens: count }),
      z.strictObject({ tokensPerParameter: positive }),
      z.strictObject({ pflopsDays: positive }),
    ],
    "exactly one of steps, tokens (whole numbers of at least 1), tokensPerParameter, pflopsDays (numbers above 0)",
  ),
  optimizer: object({
    learningRate: positive,
    beta1: belowOne,
    beta2: belowOne,
    epsilon: positive,
    weightDecay: notNegative,
    maxNorm: notNegative,
    schedule: z.literal(["cosine", "wsd"], '"cosine" or "wsd"'),
    warmup: share,
    decay: share,
    finalShare: share,
  }),
  buckets: count,
  evaluations: count,
  evaluationWindows: z.optional(count),
  recall: z.optional(share),
  checkpointEvery: countOrZero,
  recompute: flag,
  seed: number("a whole number from 0 to 4294967295", (x) => Number.isInteger(x) && x >= 0 && x < 2 ** 32),
});

/**
 * Checks a parsed `config.json`. Throws one `InputError` sentence that names every wrong field, its value and what is
 * allowed. `name` is how the sentence calls the file.
 */
export function parseRunConfig(value: unknown, name: string): RunConfig {
  const parsed = schema.safeParse(value);
  if (!parsed.success) {
    const faults = parsed.error.issues.map((issue) => {
      const unknown = issue.code === "unrecognized_keys" ? issue.keys : [];
      const given = at(value, issue.path);
      const field = [...issue.path, ...unknown.slice(0, 1)].join(".") || "it";
      if (unknown.length > 0) return `${field} is unknown, expected ${issue.message}`;
      return given === undefined
        ? `${field} is missing, expected ${issue.message}`
        : `${field} is ${JSON.stringify(given)}, expected ${issue.message}`;
    });
    throw new InputError(`${name}: ${faults.join("; ")}`);
  }
  const config: RunConfig = parsed.data;
  const faults = contradictions(config);
  if (faults.length > 0) throw new InputError(`${name}: ${faults.join("; ")}`);
  return config;
}

/** Reads and checks `config.json` of a run folder. */
export function readRunConfig(runFolder: string): RunConfig {
  const file = join(runFolder, "config.json");
  let content: string;
  try {
    content = readFileSync(file, "utf8");
  } catch (error) {
    throw new InputError(`cannot read the run's configuration ${file}: ${(error as Error).message}`);
  }
  let value: unknown;
  try {
    value = JSON.parse(content);
  } catch (error) {
    throw new InputError(`${file} is not JSON: ${(error as Error).message}`);
  }
  return parseRunConfig(value, file);
}

/** A field in which configurations differ, with its values as JSON (`none` where there is none), in their order. */
export interface Difference {
  readonly field: string;
  readonly values: readonly string[];
}

/** All fields in which configurations differ. */
export function differencesOf(configs: readonly unknown[]): Difference[] {
  return differencesIn(configs.map((config) => fieldsOf(config)));
}

/**
 * The first field in which two configurations differ, as `optimizer.beta2 0.95 instead of 0.99` (the value of `a`
 * first); null when they are equal.
 */
export function firstDifference(a: unknown, b: unknown): string | null {
  const [first] = differencesOf([a, b]);
  return first ? differenceInWords(first) : null;
}

export function differenceInWords({ field, values }: Difference): string {
  return `${field} ${values.join(" instead of ")}`;
}

/** Fields in which runs of one size may differ: what is compared, and where and how it was trained and measured. */
const FREE = [
  "attention",
  "seed",
  "dataset",
  "sequencesPerPass",
  "checkpointEvery",
  "recompute",
  "evaluations",
];

/** Fields of shape and recipe in which configurations differ. */
export function recipeDifferences(configs: readonly object[]): Difference[] {
  return differencesIn(configs.map(recipeOf));
}

/** Fields in which the sizes of one ladder may differ as well: what a size is, how long and in what steps it trains. */
const OF_SIZE =
  /^(model|shape\.(layers|heads|kvHeads|modelDim|feedForward)|horizon\..*|optimizer\.learningRate|sequencesPerStep)$/;

/**
 * Fields of the recipe in which sizes differ that should share it, with the models that have each value; a model whose
 * own runs differ in a field has none.
 */
export function ladderDifferences(
  configs: readonly { readonly model?: string }[],
): { field: string; values: { value: string; models: string[] }[] }[] {
  const recipes = configs.map((config) => ({ model: config.model ?? "", recipe: recipeOf(config) }));
  return differencesIn(recipes.map(({ recipe }) => recipe)).flatMap(({ field, values }) => {
    if (OF_SIZE.test(field)) return [];
    const byModel = new Map<string, string>();
    const mixed = new Set<string>();
    for (const { model, recipe } of recipes) {
      const value = recipe.get(field) ?? NONE;
      if ((byModel.get(model) ?? value) !== value) mixed.add(model);
      byModel.set(model, value);
    }
    const parts = values.flatMap((value) => {
      const models = [...byModel].flatMap(([model, own]) =>
        own === value && !mixed.has(model) ? model : [],
      );
      return models.length > 0 ? [{ value, models }] : [];
    });
    return parts.length > 1 ? [{ field, values: parts }] : [];
  });
}

/** Fields that are no option: what a size is, how long it trains, and what it is measured on. */
const NO_OPTION =
  /^(model|shape\.(layers|heads|modelDim|feedForward|vocabulary)|horizon\..*|context|buckets|evaluationWindows)$/;

/** Models that differ in one option alone, by its values as JSON. */
export interface OneOption {
  readonly field: string;
  readonly models: readonly { readonly model: string; readonly value: string }[];
}

/** A model whose own runs differ is none of them. */
export function optionsOf(configs: readonly { readonly model?: string }[]): OneOption[] {
  const models = byReason(configs, ({ model = "" }) => model).flatMap((own) =>
    recipeDifferences(own).length > 0 ? [] : { model: own[0].model ?? "", recipe: recipeOf(own[0]) },
  );
  return differencesIn(models.map(({ recipe }) => recipe)).flatMap(({ field }) => {
    if (NO_OPTION.test(field)) return [];
    const others = ({ recipe }: { recipe: Map<string, string> }) =>
      JSON.stringify([...recipe].filter(([name]) => name !== field && name !== "model").sort());
    return byReason(models, others).flatMap((alike) => {
      const values = alike.map(({ model, recipe }) => ({ model, value: recipe.get(field) ?? NONE }));
      return new Set(values.map(({ value }) => value)).size > 1 ? { field, models: values } : [];
    });
  });
}

/** The fields of shape and recipe. */
function recipeOf(config: object): Map<string, string> {
  const recipe = fieldsOf(config);
  for (const field of FREE) recipe.delete(field);
  // To measure recall without training on it is no other recipe.
  if (!recipe.has("recall")) recipe.set("recall", "0");
  return recipe;
}

const NONE = "none";

/** Values as JSON by field, such as `optimizer.beta2`. */
function fieldsOf(value: unknown, path = ""): Map<string, string> {
  if (typeof value !== "object" || value === null) {
    return new Map([[path, JSON.stringify(value) ?? NONE]]);
  }
  return new Map(
    Object.entries(value).flatMap(([key, part]) => [...fieldsOf(part, path === "" ? key : `${path}.${key}`)]),
  );
}

function differencesIn(configs: readonly ReadonlyMap<string, string>[]): Difference[] {
  const fields = new Set(configs.flatMap((config) => [...config.keys()]));
  return [...fields].flatMap((field) => {
    const values = [...new Set(configs.map((config) => config.get(field) ?? NONE))];
    return values.length > 1 ? [{ field, values }] : [];
  });
}

/** What each field allows but all together do not, one clause each. */
function contradictions(config: RunConfig): string[] {
  const { shape, optimizer, context, buckets, sequencesPerStep, sequencesPerPass } = config;
  const faults: string[] = [];
  try {
    checkModelConfig(shape);
  } catch (error) {
    faults.push((error as Error).message.replace(/^model: /, "shape."));
  }
  if (shape.modelDim !== shape.heads * shape.headDim) {
    faults.push(
      `shape.modelDim is ${shape.modelDim}, expected shape.heads ${shape.heads} times shape.headDim ${shape.headDim}, ${shape.heads * shape.headDim}`,
    );
  }
  if (sequencesPerStep % sequencesPerPass !== 0) {
    faults.push(
      `sequencesPerPass is ${sequencesPerPass}, expected a divisor of sequencesPerStep ${sequencesPerStep}`,
    );
  }
  if (context % buckets !== 0) {
    faults.push(`buckets is ${buckets}, expected a divisor of the context ${context}`);
  }
  if (optimizer.schedule === "wsd" && optimizer.warmup + optimizer.decay > 1) {
    faults.push(
      `optimizer.warmup ${optimizer.warmup} and optimizer.decay ${optimizer.decay} are more than the whole run together, expected a sum of at most 1`,
    );
  }
  try {
    parseSchedule(config.attention, shape.layers);
  } catch (error) {
    faults.push(`attention: ${(error as Error).message}`);
  }
  return faults;
}

function at(value: unknown, path: readonly PropertyKey[]): unknown {
  let here = value;
  for (const key of path) here = (here as Record<PropertyKey, unknown> | undefined)?.[key];
  return here;
}
