/**
 * A model as a Hugging Face folder: `config.json` and `model.safetensors` with Llama's tensor names, so that
 * transformers loads it as `LlamaForCausalLM` (which attends fully), and Llama checkpoints load here. What Llama's
 * configuration cannot say (the attention of each layer, the key convolution) is kept under the key `mobalab`.
 */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { attentionLabel, parseAttention } from "../attention/attention.ts";
import { InputError } from "../errors.ts";
import { writeWhole, writing } from "../files.ts";
import { checkModelConfig, type LayerAttention, type ModelConfig } from "./config.ts";
import type { Model } from "./model.ts";
import { openSafetensors, readSafetensor, type SafetensorsFile, writeSafetensors } from "./safetensors.ts";

const CONFIG_FILE = "config.json";
const WEIGHTS_FILE = "model.safetensors";
const INDEX_FILE = "model.safetensors.index.json";

const LLAMA = "LlamaForCausalLM";
/** With key convolution the model is no Llama, and must not load as one. */
const WITH_KEY_CONVOLUTION = "MobalabForCausalLM";

export interface ModelFolder {
  readonly folder: string;
  readonly config: ModelConfig;
  /** Full in every layer when the folder does not say. */
  readonly attention: LayerAttention;
  /** Tokens the model was trained for (`max_position_embeddings`). */
  readonly context: number;
}

/**
 * Writes a model's weights (f32) and configuration into `folder`, which is made when missing. Throws `RunError`
 * naming the file when it cannot be written.
 */
export function saveModel(model: Model, folder: string, context: number): void {
  writing(folder, () => mkdirSync(folder, { recursive: true }));
  const tensors = model.parameters.named.map((parameter) => ({
    ...parameter,
    values: () => model.readParameter(parameter),
  }));
  writeSafetensors(join(folder, WEIGHTS_FILE), tensors, { format: "pt" });
  writeWhole(join(folder, CONFIG_FILE), `${JSON.stringify(toLlama(model, context), null, 2)}\n`);
}

/** Reads a folder's configuration, as `modelOf`. */
export function readModelFolder(folder: string): ModelFolder {
  const path = join(folder, CONFIG_FILE);
  return { folder, ...modelOf(path, readJson(path)) };
}

/**
 * What a `config.json`, our own or any Llama's, says. Throws an `InputError` naming `path` and the key for what a model
 * here cannot do.
 */
export function modelOf(path: string, json: Record<string, unknown>): Omit<ModelFolder, "folder"> {
  const refuse = (what: string): never => {
    throw new InputError(`${path}: ${what}`);
  };
  const given = (key: string) => json[key] ?? undefined;
  const number = (key: string, otherwise?: number): number => {
    const value = given(key) ?? otherwise;
    if (value === undefined) return refuse(`${key} is missing`);
    return typeof value === "number"
      ? value
      : refuse(`${key} is ${JSON.stringify(value)}, expected a number`);
  };
  const only = (key: string, ...allowed: unknown[]) => {
    const value = given(key);
    if (value !== undefined && !allowed.includes(value)) {
      refuse(`${key} is ${JSON.stringify(value)}, expected ${JSON.stringify(allowed[0])}`);
    }
  };

  const mobalab = asObject(given("mobalab") ?? {}, () => refuse("mobalab is not an object"));
  const keyConvolution = (mobalab.key_convolution ?? 0) as ModelConfig["keyConvolution"];
  const architecture = keyConvolution ? WITH_KEY_CONVOLUTION : LLAMA;
  const architectures = given("architectures");
  if (!Array.isArray(architectures) || architectures.length !== 1 || architectures[0] !== architecture) {
    refuse(`architectures is ${JSON.stringify(architectures)}, expected ["${architecture}"]`);
  }
  only("model_type", "llama");
  only("hidden_act", "silu");
  only("attention_bias", false);
  only("mlp_bias", false);
  if (given("rope_scaling") !== undefined) {
    refuse(`rope_scaling is ${JSON.stringify(given("rope_scaling"))}, expected null (plain RoPE)`);
  }
  // Newer configurations keep theta here.
  const rope = asObject(given("rope_parameters") ?? {}, () => refuse("rope_parameters is not an object"));
  if ((rope.rope_type ?? "default") !== "default") {
    refuse(`rope_parameters.rope_type is ${JSON.stringify(rope.rope_type)}, expected "default"`);
  }

  const heads = number("num_attention_heads");
  const modelDim = number("hidden_size");
  const tied = given("tie_word_embeddings") ?? false;
  if (typeof tied !== "boolean") {
    refuse(`tie_word_embeddings is ${JSON.stringify(tied)}, expected true or false`);
  }
  const config: ModelConfig = {
    layers: number("num_hidden_layers"),
    heads,
    kvHeads: number("num_key_value_heads", heads),
    headDim: number("head_dim", modelDim / heads),
    modelDim,
    feedForward: number("intermediate_size"),
    vocabulary: number("vocab_size"),
    ropeTheta: number("rope_theta", typeof rope.rope_theta === "number" ? rope.rope_theta : 10_000),
    normEpsilon: number("rms_norm_eps", 1e-6),
    tiedOutput: tied as boolean,
    keyConvolution,
  };
  const labels = mobalab.attention ?? new Array<string>(config.layers).fill("full");
  try {
    checkModelConfig(config);
    if (!Array.isArray(labels) || labels.length !== config.layers) {
      refuse(
        `mobalab.attention is ${JSON.stringify(labels)}, expected a label for each of ${config.layers} layers`,
      );
    }
    const attention = (labels as unknown[]).map((label) => parseAttention(String(label)));
    return { config, attention, context: number("max_position_embeddings", 2048) };
  } catch (error) {
    if (error instanceof RangeError) refuse(error.message);
    throw error;
  }
}

/** Loads the weights of a folder, in one file or in shards, as `takeWeights`. */
export function loadWeights(model: Model, folder: string): void {
  takeWeights(model, weightFiles(folder));
}

/**
 * Loads weights into a model of their shape. Throws an `InputError` naming the file and the tensor when one is missing,
 * unknown, or of another shape; nothing is loaded then.
 */
export function takeWeights(model: Model, files: readonly SafetensorsFile[]): void {
  const { named } = model.parameters;
  const where = new Map<string, SafetensorsFile>();
  for (const file of files) {
    for (const name of file.tensors.keys()) {
      if (where.has(name))
        throw new InputError(`${file.path}: tensor "${name}" is also in ${where.get(name)!.path}`);
      where.set(name, file);
    }
  }
  const known = new Set(named.map(({ name }) => name));
  for (const [name, { path }] of where) {
    // Redundant in older files: the rotation's frequencies, and the output when it is the embedding.
    const redundant =
      name.endsWith("rotary_emb.inv_freq") || (name === "lm_head.weight" && model.config.tiedOutput);
    if (!known.has(name) && !redundant)
      throw new InputError(`${path}: tensor "${name}" is not part of the model`);
  }
  for (const { name, shape } of named) {
    const file = where.get(name);
    if (!file) throw new InputError(`${files[0].path}: tensor "${name}" is missing`);
    const stored = file.tensors.get(name)!.shape;
    if (stored.length !== shape.length || stored.some((size, i) => size !== shape[i])) {
      throw new InputError(`${file.path}: tensor "${name}" has shape [${stored}], expected [${shape}]`);
    }
  }
  for (const parameter of named) {
    model.writeParameter(parameter, readSafetensor(where.get(parameter.name)!, parameter.name));
  }
}

function weightFiles(folder: string): SafetensorsFile[] {
  const whole = join(folder, WEIGHTS_FILE);
  const indexPath = join(folder, INDEX_FILE);
  if (existsSync(whole) || !existsSync(indexPath)) return [openSafetensors(whole)];
  const refuse = (): never => {
    throw new InputError(`${indexPath}: weight_map is not an object from tensor names to files`);
  };
  const shards = Object.values(asObject(readJson(indexPath).weight_map, refuse));
  if (shards.length === 0) refuse();
  return [...new Set(shards)].map((shard) =>
    typeof shard === "string" ? openSafetensors(join(folder, shard)) : refuse(),
  );
}

function toLlama({ config, attention }: Model, context: number): Record<string, unknown> {
  return {
    architectures: [config.keyConvolution === 0 ? LLAMA : WITH_KEY_CONVOLUTION],
    model_type: "llama",
    hidden_size: config.modelDim,
    intermediate_size: config.feedForward,
    num_hidden_layers: config.layers,
    num_attention_heads: config.heads,
    num_key_value_heads: config.kvHeads,
    head_dim: config.headDim,
    vocab_size: config.vocabulary,
    max_position_embeddings: context,
    rms_norm_eps: config.normEpsilon,
    rope_theta: config.ropeTheta,
    rope_scaling: null,
    hidden_act: "silu",
    attention_bias: false,
    mlp_bias: false,
    tie_word_embeddings: config.tiedOutput,
    torch_dtype: "float32",
    bos_token_id: null,
    eos_token_id: null,
    mobalab: { attention: attention.map(attentionLabel), key_convolution: config.keyConvolution },
  };
}

function readJson(path: string): Record<string, unknown> {
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    throw new InputError(`cannot read ${path}: ${(error as Error).message}`);
  }
  return asObject(json, () => {
    throw new InputError(`${path} is not a JSON object`);
  });
}

function asObject(value: unknown, refuse: () => never): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : refuse();
}
