import { expect, test } from "vitest";
import { InputError } from "../../src/errors.ts";
import {
  firstDifference,
  ladderDifferences,
  optionsOf,
  parseRunConfig,
  recipeDifferences,
} from "../../src/train/config.ts";
import { tinyConfig } from "./tiny.ts";

const good = tinyConfig();

test("a good configuration comes back as it was", () => {
  expect(parseRunConfig(JSON.parse(JSON.stringify(good)), "config.json")).toEqual(good);
});

const { seed: _, ...withoutSeed } = good;
test.each<[string, unknown, string]>([
  ["not an object", 3, "config.json: it is 3, expected an object"],
  ["missing field", withoutSeed, "seed is missing, expected a whole number from 0 to 4294967295"],
  ["unknown field", { ...good, lr: 1 }, "lr is unknown, expected only the fields model, shape,"],
  [
    "negative learning rate",
    { ...good, optimizer: { ...good.optimizer, learningRate: -1 } },
    "optimizer.learningRate is -1, expected a number above 0",
  ],
  ["text for a number", { ...good, context: "2k" }, 'context is "2k", expected a whole number of at least 2'],
  [
    "unknown schedule",
    { ...good, optimizer: { ...good.optimizer, schedule: "step" } },
    'optimizer.schedule is "step", expected "cosine" or "wsd"',
  ],
  ["two horizons", { ...good, horizon: { steps: 3, tokens: 5 } }, "expected exactly one of steps, tokens"],
  ["no horizon", { ...good, horizon: {} }, "horizon is {}, expected exactly one of"],
  [
    "passes do not divide the step",
    { ...good, sequencesPerStep: 6, sequencesPerPass: 4 },
    "sequencesPerPass is 4, expected a divisor of sequencesPerStep 6",
  ],
  [
    "key/value heads",
    { ...good, shape: { ...good.shape, heads: 3, kvHeads: 2, modelDim: 24 } },
    "shape.kvHeads is 2, expected a divisor of heads (3)",
  ],
  [
    "odd head dimension",
    { ...good, shape: { ...good.shape, headDim: 7 } },
    "shape.headDim is 7, expected an even",
  ],
  [
    "rotary base",
    { ...good, shape: { ...good.shape, ropeTheta: 1e300 } },
    "shape.ropeTheta is 1e+300, expected a number from 1 to 1000000000000",
  ],
  [
    "model width",
    { ...good, shape: { ...good.shape, modelDim: 24 } },
    "shape.modelDim is 24, expected shape.heads 2 times shape.headDim 8, 16",
  ],
  ["buckets", { ...good, buckets: 5 }, "buckets is 5, expected a divisor of the context 32"],
  ["attention", { ...good, attention: "moba" }, 'attention: unknown attention "moba": expected full, moba-b'],
  [
    "warm-up and decay",
    { ...good, optimizer: { ...good.optimizer, schedule: "wsd", warmup: 0.6, decay: 0.5 } },
    "expected a sum of at most 1",
  ],
])("refuses: %s", (_name, value, sentence) => {
  const refused = () => parseRunConfig(value, "config.json");
  expect(refused).toThrow(InputError);
  expect(refused).toThrow(sentence);
  expect(refused).not.toThrow("\n");
});

test("the first difference is named by its path", () => {
  expect(firstDifference(good, JSON.parse(JSON.stringify(good)))).toBeNull();
  const other = { ...good, optimizer: { ...good.optimizer, beta2: 0.99 } };
  expect(firstDifference(good, other)).toBe("optimizer.beta2 0.95 instead of 0.99");
  expect(firstDifference({ horizon: { steps: 1 } }, { horizon: { tokens: 1 } })).toBe(
    "horizon.steps 1 instead of none",
  );
});

test("how a run is measured is none of its recipe", () => {
  const { recall: _recall, ...plain } = good;
  const measured = { ...plain, recall: 0, evaluations: plain.evaluations + 1 };
  expect(firstDifference(plain, measured)).toMatch(/^evaluations /);
  expect(recipeDifferences([plain, measured])).toEqual([]);
  expect(ladderDifferences([plain, { ...measured, model: "other" }])).toEqual([]);
  const trained = { ...measured, recall: 0.5 };
  expect(recipeDifferences([plain, trained, measured])).toEqual([{ field: "recall", values: ["0", "0.5"] }]);
});

test("models that differ in one option are told from sizes, and from models whose own runs differ", () => {
  const of = (model: string, more: object = {}, shape: object = {}) => ({
    ...good,
    ...{ model, ...more },
    shape: { ...good.shape, ...shape },
  });
  const faster = { optimizer: { ...good.optimizer, learningRate: 1 } };
  const plain = [of("a"), of("a", { attention: "full", seed: 9 })];
  const keys = of("a-keys", {}, { keyConvolution: 3 });
  expect(optionsOf([...plain, keys, of("a-lr1", faster), of("b", faster, { layers: 9 })])).toEqual([
    { field: "shape.keyConvolution", models: [one("a", good.shape.keyConvolution), one("a-keys", 3)] },
    { field: "optimizer.learningRate", models: [one("a", good.optimizer.learningRate), one("a-lr1", 1)] },
  ]);
  expect(optionsOf([...plain, of("b", {}, { layers: 9 }), of("c", { horizon: { steps: 99 } })])).toEqual([]);
  expect(optionsOf([...plain, keys, of("a-keys", {}, { keyConvolution: 5 })])).toEqual([]);
});

const one = (model: string, value: number) => ({ model, value: JSON.stringify(value) });
