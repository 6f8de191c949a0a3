/**
 * Makes what llama_logits.py checks: a small model, briefly trained and exported as a Hugging Face folder, with
 * `logits.json`: random tokens and our logits for them, in float64 from the exported (f32) weights.
 *
 *   npx tsx test/gpu/make-logits.ts FOLDER
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Random } from "../../src/data/random.ts";
import { loadWeights, readModelFolder, saveModel } from "../../src/model/checkpoint.ts";
import type { ModelConfig } from "../../src/model/config.ts";
import { Model } from "../../src/model/model.ts";
import { HYPER_LENGTH, Hyper } from "../../src/ops/contract.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";

const TOKENS = 48;
const STEPS = 30;
const config: ModelConfig = {
  layers: 3,
  heads: 4,
  kvHeads: 2,
  headDim: 16,
  modelDim: 48,
  feedForward: 128,
  vocabulary: 100,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
  tiedOutput: false,
  keyConvolution: 0,
};

const folder = process.argv[2];
if (!folder) {
  console.error("usage: npx tsx test/gpu/make-logits.ts FOLDER");
  process.exit(2);
}

const backend = createReferenceBackend();
const attention = new Array(config.layers).fill({ kind: "full" });
const random = new Random(1);
const tokens = Int32Array.from({ length: TOKENS }, () => random.below(config.vocabulary));
const targets = Int32Array.from(tokens, (_, t) => tokens[t + 1] ?? -1);
const batch = { tokens, targets, offsets: [0, TOKENS] };

const trained = new Model(backend, config, { tokens: TOKENS, maxDocuments: 1, training: true, attention });
trained.initialize(1);
trained.loadBatch(batch);
const P = [trained.parameters.length];
const [m, v] = [backend.tensor(P, "float"), backend.tensor(P, "float")];
const [hyper, norm, scale] = [HYPER_LENGTH, 1, 1].map((length) => backend.tensor([length], "float"));
backend.write(scale, [1 / (TOKENS - 1)]);
for (let step = 1; step <= STEPS; step++) {
  backend.zero(trained.grads!);
  trained.forwardBackward(scale);
  backend.gradNorm(norm, trained.grads!);
  const values = new Array<number>(HYPER_LENGTH).fill(0);
  values[Hyper.learningRate] = 0.005;
  values[Hyper.beta1] = 0.9;
  values[Hyper.beta2] = 0.95;
  values[Hyper.epsilon] = 1e-8;
  values[Hyper.bias1] = 1 - 0.9 ** step;
  values[Hyper.bias2] = 1 - 0.95 ** step;
  backend.write(hyper, values);
  const { master, weights, grads, parameters } = trained;
  backend.adamw(master, weights, grads!, m, v, parameters.decayed, hyper, norm);
}
saveModel(trained, folder, TOKENS);

const read = readModelFolder(folder);
const exported = new Model(backend, read.config, {
  tokens: TOKENS,
  maxDocuments: 1,
  training: false,
  attention: read.attention,
});
loadWeights(exported, folder);
exported.loadBatch(batch);
const losses = [...backend.read(exported.forward())];
const logits_TV = backend.tensor([TOKENS, config.vocabulary], "activation");
exported.logits(logits_TV);
const flat = [...backend.read(logits_TV)];
const logits = Array.from({ length: TOKENS }, (_, t) =>
  flat.slice(t * config.vocabulary, (t + 1) * config.vocabulary),
);
writeFileSync(join(folder, "logits.json"), JSON.stringify({ tokens: [...tokens], logits }));
const loss = losses.reduce((sum, x) => sum + x, 0) / (TOKENS - 1);
console.log(`wrote ${folder}: ${P[0]} parameters, loss ${loss.toFixed(3)} on the tokens of logits.json`);
