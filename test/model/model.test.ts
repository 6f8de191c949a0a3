/** The model against Llama's formulas, at initialization, in training, and when something is not finite. */
import { describe, expect, it } from "vitest";
import type { Attention } from "../../src/attention/attention.ts";
import {
  ladderModel,
  type ModelConfig,
  nonEmbeddingParameters,
  totalParameters,
} from "../../src/model/config.ts";
import { planMemory } from "../../src/model/memory.ts";
import { Model } from "../../src/model/model.ts";
import { parameterLayout } from "../../src/model/parameters.ts";
import type { Backend, Role } from "../../src/ops/contract.ts";
import { createCpuBackend } from "../../src/ops/cpu/index.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { FULL, full, MOBA, makeModel, randomBatch, randomize, scalar, sum, TINY } from "./helpers.ts";
import { llamaLogits } from "./llama.ts";

const shapes: [string, ModelConfig][] = [
  ["grouped heads", TINY],
  ["tied", { ...TINY, tiedOutput: true }],
  ["as many key/value heads, wider heads than the model", { ...TINY, kvHeads: 4, headDim: 6 }],
];

function logitsOf(model: Model): ArrayLike<number> {
  const out = model.backend.tensor([model.tokens, model.config.vocabulary], "activation");
  model.logits(out);
  return model.backend.read(out);
}

function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  return Math.max(...Array.from(a, (value, i) => Math.abs(value - b[i])));
}

describe("against Llama's formulas", () => {
  it.each(shapes)("logits and losses: %s", (_, config) => {
    const backend = createReferenceBackend();
    const batch = randomBatch(config.vocabulary, [9, 7]);
    const model = makeModel(backend, config, batch, { training: false });
    randomize(model);
    const logits = logitsOf(model);
    const losses = backend.read(model.forward());
    const weights = (name: string) =>
      model.readParameter(model.parameters.named.find((parameter) => parameter.name === name)!);
    const expected = [
      [0, 9],
      [9, 16],
    ].flatMap(([start, end]) => llamaLogits(config, weights, [...batch.tokens.subarray(start, end)]));
    expect(largestDifference(logits, expected.flat())).toBeLessThan(1e-9);
    const expectedLosses = expected.map((row, t) => {
      if (batch.targets[t] < 0) return 0;
      return Math.log(sum(row.map(Math.exp))) - row[batch.targets[t]];
    });
    expect(largestDifference(losses, expectedLosses)).toBeLessThan(1e-9);
    backend.close();
  });

  it("MoBA with as many blocks as the document has is full attention", () => {
    const backend = createReferenceBackend();
    const model = makeModel(backend, TINY, randomBatch(TINY.vocabulary, [11, 5]));
    randomize(model);
    const expected = logitsOf(model);
    const moba = (topK: number): Attention[] => [MOBA, MOBA].map((attention) => ({ ...attention, topK }));
    model.setAttention(moba(4));
    expect(largestDifference(logitsOf(model), expected)).toBeLessThan(1e-12);
    model.setAttention(moba(2));
    expect(largestDifference(logitsOf(model), expected)).toBeGreaterThan(1e-3);
    backend.close();
  });
});

describe("parameters", () => {
  it.each(shapes)("counts agree with the layout: %s", (_, shape) => {
    for (const keyConvolution of [0, 5] as const) {
      const config = { ...shape, keyConvolution };
      const layout = parameterLayout(config);
      expect(layout.length).toBe(totalParameters(config));
      const matrices = config.vocabulary * config.modelDim * (config.tiedOutput ? 1 : 2);
      expect(nonEmbeddingParameters(config)).toBe(layout.length - matrices);
      let end = 0;
      let undecayed = 0;
      for (const { name, offset, length } of layout.named) {
        expect(offset, name).toBe(end);
        end += length;
        if (/norm|k_conv/.test(name)) undecayed += length;
      }
      expect(end).toBe(layout.length);
      expect(layout.decayed).toBe(layout.length - undecayed);
    }
  });

  it("are what the report's table 1 says, within its rounding", () => {
    for (const [depth, millions] of [
      [14, 545],
      [16, 822],
      [18, 1100],
      [20, 1500],
      [22, 2100],
    ]) {
      const config = ladderModel(depth, { headDim: 128, vocabulary: 100 });
      expect(Math.abs(nonEmbeddingParameters(config) / 1e6 / millions - 1)).toBeLessThan(0.07);
    }
  });

  it("start near ln V at every width, tied or not", () => {
    const backend = createCpuBackend({ threads: 1 });
    for (const tiedOutput of [false, true]) {
      for (const [depth, headDim, vocabulary] of [
        [1, 32, 256],
        [2, 16, 64],
        [4, 32, 1024],
        [4, 64, 256],
      ]) {
        const config = ladderModel(depth, { headDim, vocabulary, tiedOutput });
        const model = makeModel(backend, config, randomBatch(vocabulary, [128]), { training: false });
        for (const seed of [1, 2]) {
          model.initialize(seed);
          const loss = sum(backend.read(model.forward())) / 127;
          expect(Math.abs(loss / Math.log(vocabulary) - 1), `${depth} ${vocabulary}`).toBeLessThan(0.05);
        }
      }
    }
    backend.close();
  });
});

describe("memory", () => {
  const role = (name: Role) => createReferenceBackend().dtype(name);

  it.each([{ training: true }, { training: true, recompute: true }, { training: false }])(
    "what is planned is what is allocated: %o",
    (how) => {
      for (const config of [TINY, { ...TINY, keyConvolution: 3 as const, tiedOutput: true, layers: 3 }]) {
        const backend = createReferenceBackend();
        const options = { tokens: 17, maxDocuments: 2, attention: full(config), ...how };
        let bytes = 0;
        const counting: Backend = Object.create(backend, {
          tensor: {
            value: (...args: Parameters<Backend["tensor"]>) => {
              const tensor = backend.tensor(...args);
              bytes += tensor.length * (tensor.dtype === "i32" ? 4 : 8);
              return tensor;
            },
          },
          dtype: { value: role },
          view: { value: backend.view.bind(backend) },
          documents: { value: backend.documents.bind(backend) },
          attentionState: { value: backend.attentionState.bind(backend) },
        });
        new Model(counting, config, options);
        const plan = planMemory(config, options, role);
        expect(plan.parameters + plan.gradients + plan.activations).toBe(bytes);
        expect(plan.total).toBe(bytes + plan.optimizer + plan.attentionStates);
        // The log-sum-exp of every layer that keeps its own.
        const states = how.training && !how.recompute ? config.layers : 1;
        expect(plan.attentionStates).toBe(states * 17 * config.heads * 8);
      }
    },
  );

  it("recomputation needs less, and inference least", () => {
    const config = ladderModel(8, { headDim: 32, vocabulary: 256 });
    const options = { tokens: 2048, maxDocuments: 1, attention: full(config) };
    const [kept, recomputed, inference] = [
      { training: true },
      { training: true, recompute: true },
      { training: false },
    ].map((how) => planMemory(config, { ...options, ...how }, role).activations);
    expect(recomputed).toBeLessThan(0.4 * kept);
    expect(inference).toBeLessThan(0.6 * recomputed);
  });

  it("a step allocates nothing", () => {
    const backend = createCpuBackend({ threads: 1 });
    const model = makeModel(backend, TINY, randomBatch(TINY.vocabulary, [16]), { attention: [MOBA, FULL] });
    const scale = scalar(backend, 1);
    model.setAttention(full(TINY));
    model.forwardBackward(scale);
    model.setAttention([MOBA, FULL]);
    model.forwardBackward(scale);
    const bytes = backend.memory();
    model.setAttention(full(TINY));
    model.forwardBackward(scale);
    expect(backend.memory()).toBe(bytes);
    backend.close();
  });
});

describe("training", () => {
  it.each(["full", "moba"])("one batch is learned by heart: %s", (kind) => {
    const backend = createCpuBackend({ threads: 1 });
    const config = ladderModel(2, { headDim: 16, vocabulary: 32 });
    const attention: Attention = kind === "full" ? FULL : { kind: "moba", blockSize: 8, topK: 2 };
    const model = makeModel(backend, config, randomBatch(32, [33, 31]), {
      attention: [attention, attention],
    });
    model.initialize(1);
    const P = [model.parameters.length];
    const m = backend.tensor(P, "float");
    const v = backend.tensor(P, "float");
    const hyper = backend.tensor([8], "float");
    const norm = backend.tensor([1], "float");
    const scale = scalar(backend, 1 / 62);
    let loss = 0;
    for (let step = 1; step <= 100; step++) {
      backend.zero(model.grads!);
      loss = sum(backend.read(model.forwardBackward(scale))) / 62;
      if (step === 1) expect(Math.abs(loss / Math.log(32) - 1)).toBeLessThan(0.05);
      backend.gradNorm(norm, model.grads!);
      backend.write(hyper, [0.01, 0.9, 0.95, 1e-8, 0, 1 - 0.9 ** step, 1 - 0.95 ** step, 1]);
      backend.adamw(model.master, model.weights, model.grads!, m, v, model.parameters.decayed, hyper, norm);
    }
    expect(loss).toBeLessThan(0.05);
    expect(model.findNonFinite()).toBeNull();
    backend.close();
  });
});

describe("findNonFinite", () => {
  const prepare = (config: ModelConfig = TINY) => {
    const backend = createReferenceBackend();
    const model = makeModel(backend, config, randomBatch(config.vocabulary, [9]));
    randomize(model);
    const set = (name: string, index: number, value: number) => {
      const parameter = model.parameters.named.find((named) => named.name === name)!;
      const values = model.readParameter(parameter);
      values[index] = value;
      model.writeParameter(parameter, values);
    };
    return { backend, model, set };
  };

  it("names a parameter", () => {
    const { model, set } = prepare();
    set("model.layers.1.self_attn.k_proj.weight", 3, Number.NaN);
    expect(model.findNonFinite()).toBe("parameter model.layers.1.self_attn.k_proj.weight");
  });

  it("names an activation that overflows", () => {
    const { model, set } = prepare();
    for (let i = 0; i < TINY.feedForward * TINY.modelDim; i++) {
      set("model.layers.1.mlp.gate_proj.weight", i, 1e200);
      set("model.layers.1.mlp.up_proj.weight", i, 1e200);
    }
    expect(model.findNonFinite()).toBe("layer 1 SwiGLU");
  });

  it("names the first gradient on the way back", () => {
    const { backend, model } = prepare();
    const grads = backend.read(model.grads!);
    for (const name of ["model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"]) {
      grads[model.parameters.named.find((named) => named.name === name)!.offset] = Infinity;
    }
    backend.write(model.grads!, grads);
    expect(model.findNonFinite()).toBe("gradient of model.layers.1.mlp.up_proj.weight");
  });
});

describe("bad arguments", () => {
  it("are named", () => {
    const backend = createReferenceBackend();
    const batch = randomBatch(TINY.vocabulary, [9]);
    const make = (config: Partial<ModelConfig>) => () => makeModel(backend, { ...TINY, ...config }, batch);
    expect(make({ kvHeads: 3 })).toThrow("model: kvHeads is 3, expected a divisor of heads (4)");
    expect(make({ headDim: 3 })).toThrow("model: headDim is 3, expected an even number");
    expect(make({ layers: 0 })).toThrow("model: layers is 0, expected a whole number of at least 1");
    const model = makeModel(backend, TINY, batch, { training: false });
    expect(() => model.setAttention([FULL])).toThrow("attention is given for 1 layers, expected 2");
    expect(() => model.loadBatch({ ...batch, tokens: batch.tokens.with(4, 11) })).toThrow(
      "batch: tokens[4] is 11, expected 0 to 10 (the vocabulary is 11)",
    );
    expect(() => model.loadBatch({ ...batch, targets: batch.targets.with(0, -2) })).toThrow(
      "batch: targets[0] is -2",
    );
    expect(() => model.loadBatch(randomBatch(11, [8]))).toThrow("batch: 8 tokens, expected 9");
    expect(() => model.loadBatch({ ...batch, offsets: [0, 5, 5, 9] })).toThrow(RangeError);
    expect(() => model.forwardBackward(scalar(backend, 1))).toThrow("made without training");
    backend.close();
  });
});
