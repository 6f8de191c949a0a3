/** Hugging Face folders: round trips, foreign Llama configurations, and what must be refused. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { InputError } from "../../src/errors.ts";
import { loadWeights, readModelFolder, saveModel } from "../../src/model/checkpoint.ts";
import type { LayerAttention, ModelConfig } from "../../src/model/config.ts";
import type { Model } from "../../src/model/model.ts";
import { openSafetensors, writeSafetensors } from "../../src/model/safetensors.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { FULL, full, MOBA, makeModel, randomBatch, randomize, TINY } from "./helpers.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "checkpoint-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

function make(config: ModelConfig, attention: LayerAttention = full(config), seed = 5): Model {
  const batch = randomBatch(config.vocabulary, [8]);
  const model = makeModel(createReferenceBackend(), config, batch, { training: false, attention });
  randomize(model, seed);
  return model;
}

const configPath = () => join(folder, "config.json");
const weightsPath = () => join(folder, "model.safetensors");
const readConfig = () => JSON.parse(readFileSync(configPath(), "utf8"));
const changeConfig = (change: object) =>
  writeFileSync(configPath(), JSON.stringify({ ...readConfig(), ...change }));

describe("a saved model", () => {
  it.each<[string, ModelConfig, LayerAttention]>([
    ["full", TINY, [FULL, FULL]],
    ["tied, MoBA with a shared gate", { ...TINY, tiedOutput: true }, [{ ...MOBA, sharedGate: true }, FULL]],
    ["key convolution", { ...TINY, keyConvolution: 5 }, [MOBA, MOBA]],
  ])("comes back: %s", (_, config, attention) => {
    const model = make(config, attention);
    saveModel(model, folder, 64);
    expect(readdirSync(folder).sort()).toEqual(["config.json", "model.safetensors"]);
    const read = readModelFolder(folder);
    expect(read).toEqual({ folder, config, attention, context: 64 });
    const again = make(read.config, read.attention, 6);
    loadWeights(again, folder);
    for (const parameter of model.parameters.named) {
      expect(again.readParameter(parameter), parameter.name).toEqual(
        Float64Array.from(Float32Array.from(model.readParameter(parameter))),
      );
    }
  });

  it("has Llama's keys, names and shapes", () => {
    saveModel(make(TINY), folder, 64);
    expect(readConfig()).toMatchObject({
      architectures: ["LlamaForCausalLM"],
      model_type: "llama",
      hidden_size: 12,
      intermediate_size: 10,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      head_dim: 4,
      rms_norm_eps: 1e-5,
      rope_theta: 100,
      vocab_size: 11,
      tie_word_embeddings: false,
      max_position_embeddings: 64,
      hidden_act: "silu",
      torch_dtype: "float32",
    });
    const shapes = Object.fromEntries(
      [...openSafetensors(weightsPath()).tensors].map(([name, { shape }]) => [name, shape]),
    );
    const layer = (i: number) => ({
      [`model.layers.${i}.self_attn.q_proj.weight`]: [16, 12],
      [`model.layers.${i}.self_attn.k_proj.weight`]: [8, 12],
      [`model.layers.${i}.self_attn.v_proj.weight`]: [8, 12],
      [`model.layers.${i}.self_attn.o_proj.weight`]: [12, 16],
      [`model.layers.${i}.mlp.gate_proj.weight`]: [10, 12],
      [`model.layers.${i}.mlp.up_proj.weight`]: [10, 12],
      [`model.layers.${i}.mlp.down_proj.weight`]: [12, 10],
      [`model.layers.${i}.input_layernorm.weight`]: [12],
      [`model.layers.${i}.post_attention_layernorm.weight`]: [12],
    });
    expect(shapes).toEqual({
      "model.embed_tokens.weight": [11, 12],
      ...layer(0),
      ...layer(1),
      "model.norm.weight": [12],
      "lm_head.weight": [11, 12],
    });
  });

  it("with key convolution is not read as a Llama", () => {
    const model = make({ ...TINY, keyConvolution: 3 });
    saveModel(model, folder, 64);
    expect(readConfig().architectures).toEqual(["MobalabForCausalLM"]);
  });
});

describe("a foreign configuration", () => {
  const llama = {
    architectures: ["LlamaForCausalLM"],
    hidden_size: 64,
    intermediate_size: 96,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    vocab_size: 100,
  };
  const write = (config: object) => writeFileSync(configPath(), JSON.stringify(config));

  it("takes transformers' defaults for what it leaves out", () => {
    write(llama);
    expect(readModelFolder(folder)).toEqual({
      folder,
      context: 2048,
      attention: [FULL, FULL],
      config: {
        layers: 2,
        heads: 4,
        kvHeads: 4,
        headDim: 16,
        modelDim: 64,
        feedForward: 96,
        vocabulary: 100,
        ropeTheta: 10000,
        normEpsilon: 1e-6,
        tiedOutput: false,
        keyConvolution: 0,
      },
    });
    write({ ...llama, rope_parameters: { rope_type: "default", rope_theta: 5e5 } });
    expect(readModelFolder(folder).config.ropeTheta).toBe(5e5);
  });

  it.each<[object, string]>([
    [{ architectures: ["MistralForCausalLM"] }, 'architectures is ["MistralForCausalLM"], expected'],
    [{ architectures: undefined }, "architectures is undefined"],
    [{ rope_scaling: { factor: 8, rope_type: "llama3" } }, "rope_scaling is {"],
    [{ rope_parameters: { rope_type: "yarn" } }, 'rope_parameters.rope_type is "yarn"'],
    [{ attention_bias: true }, "attention_bias is true, expected false"],
    [{ mlp_bias: true }, "mlp_bias is true, expected false"],
    [{ hidden_act: "gelu" }, 'hidden_act is "gelu", expected "silu"'],
    [{ vocab_size: undefined }, "vocab_size is missing"],
    [{ hidden_size: "64" }, 'hidden_size is "64", expected a number'],
    [{ num_attention_heads: 6 }, "headDim is 10.6"],
    [{ num_key_value_heads: 3 }, "kvHeads is 3, expected a divisor of heads (4)"],
    [{ tie_word_embeddings: "yes" }, "tie_word_embeddings is"],
    [{ mobalab: { attention: ["full"] } }, "mobalab.attention is"],
    [{ mobalab: { attention: ["full", "moba"] } }, 'unknown attention "moba"'],
    [{ mobalab: { key_convolution: 3 } }, 'expected ["MobalabForCausalLM"]'],
  ])("is refused by key: %o", (change, message) => {
    write({ ...llama, ...change });
    expect(() => readModelFolder(folder)).toThrow(InputError);
    expect(() => readModelFolder(folder)).toThrow(configPath());
    expect(() => readModelFolder(folder)).toThrow(message);
  });

  it("missing or not JSON", () => {
    expect(() => readModelFolder(folder)).toThrow(InputError);
    writeFileSync(configPath(), "{");
    expect(() => readModelFolder(folder)).toThrow(`cannot read ${configPath()}`);
  });
});

describe("loading weights", () => {
  it("joins shards and skips what is redundant", () => {
    const model = make({ ...TINY, tiedOutput: true });
    const tensors = model.parameters.named.map((parameter) => ({
      ...parameter,
      values: () => model.readParameter(parameter),
    }));
    const extra = (name: string, length: number) => ({
      name,
      shape: [length],
      values: () => new Float32Array(length),
    });
    writeSafetensors(join(folder, "a.safetensors"), [...tensors.slice(0, 5), extra("lm_head.weight", 132)]);
    writeSafetensors(join(folder, "b.safetensors"), [
      ...tensors.slice(5),
      extra("model.layers.0.self_attn.rotary_emb.inv_freq", 2),
    ]);
    const weight_map = Object.fromEntries(
      tensors.map(({ name }, i) => [name, i < 5 ? "a.safetensors" : "b.safetensors"]),
    );
    writeFileSync(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map }));
    const again = make(model.config, full(model.config), 6);
    loadWeights(again, folder);
    const last = model.parameters.named.at(-1)!;
    expect(again.readParameter(last)).toEqual(
      Float64Array.from(Float32Array.from(model.readParameter(last))),
    );
  });

  it.each<
    [string, (name: string, shape: readonly number[]) => { name: string; shape: readonly number[] }[], string]
  >([
    [
      "missing",
      (name, shape) => (name === "model.norm.weight" ? [] : [{ name, shape }]),
      'tensor "model.norm.weight" is missing',
    ],
    [
      "of another shape",
      (name, shape) => [{ name, shape: name === "lm_head.weight" ? [12, 11] : shape }],
      'tensor "lm_head.weight" has shape [12,11], expected [11,12]',
    ],
    [
      "unknown",
      (name, shape) =>
        name === "model.norm.weight"
          ? [
              { name, shape },
              { name: "model.norm.bias", shape },
            ]
          : [{ name, shape }],
      'tensor "model.norm.bias" is not part of the model',
    ],
  ])("refuses a tensor that is %s", (_, change, message) => {
    const model = make(TINY);
    saveModel(model, folder, 64);
    const before = model.readParameter(model.parameters.named[0]);
    const tensors = model.parameters.named.flatMap(({ name, shape }) => change(name, shape));
    writeSafetensors(
      weightsPath(),
      tensors.map(({ name, shape }) => ({
        name,
        shape,
        values: () => new Float32Array(shape.reduce((product, n) => product * n, 1)),
      })),
    );
    expect(() => loadWeights(model, folder)).toThrow(InputError);
    expect(() => loadWeights(model, folder)).toThrow(`${weightsPath()}: ${message}`);
    expect(model.readParameter(model.parameters.named[0])).toEqual(before);
  });

  it("refuses a folder of another shape and one without weights", () => {
    const model = make(TINY);
    expect(() => loadWeights(model, folder)).toThrow(InputError);
    saveModel(model, folder, 64);
    changeConfig({ vocab_size: 12 });
    const other = make(readModelFolder(folder).config);
    expect(() => loadWeights(other, folder)).toThrow(
      'tensor "model.embed_tokens.weight" has shape [11,12], expected [12,12]',
    );
  });
});
