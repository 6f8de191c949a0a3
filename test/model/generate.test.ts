/** Cached decoding against the full forward pass, and sampling against hand-worked cases. */
import { describe, expect, it } from "vitest";
import type { Attention } from "../../src/attention/attention.ts";
import type { ModelConfig } from "../../src/model/config.ts";
import { Decoder } from "../../src/model/decoder.ts";
import { generate, sampleToken } from "../../src/model/generate.ts";
import type { Backend, Tensor } from "../../src/ops/contract.ts";
import { createCpuBackend } from "../../src/ops/cpu/index.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { FULL, MOBA, makeModel, randomBatch, randomize, TINY } from "./helpers.ts";

const LENGTH = 23;
const attentions: [string, Attention][] = [
  ["full", FULL],
  ["moba", MOBA],
  ["moba, one block", { ...MOBA, topK: 1 }],
  ["moba, shared gate", { ...MOBA, sharedGate: true }],
  ["window", { kind: "window", blockSize: 3, topK: 3 }],
  ["sink", { kind: "sink", blockSize: 3, topK: 3 }],
];

describe.each([
  { name: "reference", make: createReferenceBackend, tolerance: 1e-11 },
  { name: "cpu", make: () => createCpuBackend({ threads: 1 }), tolerance: 1e-4 },
])("decoding on $name", ({ make, tolerance }) => {
  it.each(attentions)("gives the logits of the full forward pass: %s", (_, attention) => {
    for (const keyConvolution of [0, 3, 5] as const) {
      const backend = make();
      const config: ModelConfig = { ...TINY, keyConvolution };
      const batch = randomBatch(config.vocabulary, [LENGTH]);
      const model = makeModel(backend, config, batch, { training: false, attention: [attention, MOBA] });
      randomize(model);
      const logits_TV = backend.tensor([LENGTH, config.vocabulary], "activation");
      model.logits(logits_TV);
      const expected = backend.read(logits_TV);
      const decoder = new Decoder(model, LENGTH + 2);
      for (let pass = 0; pass < 2; pass++) {
        decoder.reset();
        let worst = 0;
        for (let t = 0; t < LENGTH; t++) {
          const logits = decoder.decode(batch.tokens[t]);
          logits.forEach((value, i) => {
            worst = Math.max(worst, Math.abs(value - expected[t * config.vocabulary + i]));
          });
        }
        expect(worst).toBeLessThan(tolerance);
      }
      backend.close();
    }
  });
});

describe("the blocks a decoded token attends to", () => {
  it.each([MOBA, { ...MOBA, topK: 3, sharedGate: true }])("are those of the full pass: %o", (attention) => {
    const backend = createReferenceBackend();
    const batch = randomBatch(TINY.vocabulary, [LENGTH]);
    const config = { ...TINY, layers: 1 };
    const model = makeModel(backend, config, batch, { attention: [attention] });
    randomize(model);
    model.forward();
    const routing = model.readRouting(0);
    const chosen = new Set<string>();
    const seen: { out: Tensor; q: Tensor; k: Tensor; v: Tensor; length: number }[] = [];
    const spying: Backend = new Proxy(backend, {
      get: (target, key) => {
        const method = Reflect.get(target, key);
        if (key === "attentionDecode") {
          return (...args: Parameters<Backend["attentionDecode"]>) => {
            target.attentionDecode(...args);
            const [out, q, k, v, length] = args;
            seen.push({ out, q, k, v, length });
          };
        }
        return typeof method === "function" ? method.bind(target) : method;
      },
    });
    const decoder = new Decoder(
      new Proxy(model, { get: (target, key) => (key === "backend" ? spying : Reflect.get(target, key)) }),
      LENGTH,
    );
    const { heads, kvHeads, headDim } = config;
    const { blockSize } = attention;
    for (let t = 0; t < LENGTH; t++) {
      decoder.decode(batch.tokens[t]);
      const { out, q, k, v, length } = seen.at(-1)!;
      expect(length).toBe(t + 1);
      const [outValues, qs, ks, vs] = [out, q, k, v].map((tensor) => backend.read(tensor));
      const own = Math.floor(t / blockSize);
      for (let h = 0; h < heads; h++) {
        const group = Math.floor((h * kvHeads) / heads);
        // Of all sets of earlier blocks of the right size, the one whose attention is the decoded output.
        const matching = subsets(own, Math.min(attention.topK - 1, own)).filter((blocks) => {
          const at = [...blocks, own].flatMap((block) =>
            Array.from({ length: blockSize }, (_, j) => block * blockSize + j).filter((s) => s <= t),
          );
          const scores = at.map((s) => {
            let score = 0;
            for (let d = 0; d < headDim; d++)
              score += qs[h * headDim + d] * ks[(s * kvHeads + group) * headDim + d];
            return Math.exp(score / Math.sqrt(headDim));
          });
          const total = scores.reduce((a, b) => a + b, 0);
          return Array.from({ length: headDim }, (_, d) => d).every((d) => {
            const value = at.reduce((a, s, j) => a + scores[j] * vs[(s * kvHeads + group) * headDim + d], 0);
            return Math.abs(value / total - outValues[h * headDim + d]) < 1e-10;
          });
        });
        expect(matching).toHaveLength(1);
        const S = attention.topK - 1;
        const place = (t * heads + h) * S;
        expect(matching[0]).toEqual([...routing.subarray(place, place + S)].filter((block) => block >= 0));
        chosen.add(matching[0].join());
      }
    }
    expect(chosen.size).toBeGreaterThan(3);
    backend.close();
  });
});

/** All ascending choices of `size` out of 0 .. n - 1. */
function subsets(n: number, size: number): number[][] {
  if (size === 0) return [[]];
  return Array.from({ length: n }, (_, last) => last).flatMap((last) =>
    subsets(last, size - 1).map((rest) => [...rest, last]),
  );
}

describe("sampling", () => {
  const logits = [0, Math.log(4), Math.log(2), Math.log(1)]; // probabilities 1/8, 4/8, 2/8, 1/8
  const picks = (sampling: Parameters<typeof sampleToken>[1]) =>
    [0, 0.49, 0.51, 0.74, 0.76, 0.87, 0.89, 0.999].map((u) => sampleToken(logits, sampling, u));

  it("follows the probabilities, likeliest first", () => {
    expect(picks({ temperature: 1 })).toEqual([1, 1, 2, 2, 0, 0, 3, 3]);
  });
  it("temperature 0 takes the likeliest, the lower index of two equal ones", () => {
    expect(picks({ temperature: 0 })).toEqual(new Array(8).fill(1));
    expect(sampleToken([1, 3, 3], { temperature: 0 }, 0.9)).toBe(1);
  });
  it("a higher temperature flattens", () => {
    // Weights 1, 2, sqrt 2, 1: of 5.414, the first reaches 0.369 and the second 0.631.
    expect([0.36, 0.38, 0.62, 0.64].map((u) => sampleToken(logits, { temperature: 2 }, u))).toEqual([
      1, 2, 2, 0,
    ]);
  });
  it("top-k and top-p cut the unlikely ones", () => {
    expect(picks({ temperature: 1, topK: 2 })).toEqual([1, 1, 1, 2, 2, 2, 2, 2]);
    expect(picks({ temperature: 1, topP: 0.5 })).toEqual(new Array(8).fill(1));
    expect(picks({ temperature: 1, topP: 0.51 })).toEqual([1, 1, 1, 2, 2, 2, 2, 2]);
  });
});

describe("generate", () => {
  const prepare = () => {
    const backend = createReferenceBackend();
    const model = makeModel(backend, TINY, randomBatch(TINY.vocabulary, [1]), {
      training: false,
      attention: [MOBA, FULL],
    });
    randomize(model);
    return model;
  };
  const options = { context: 16, maxTokens: 100, temperature: 1, seed: 4 };

  it("stops at the context, the number of tokens and the stop token, and repeats with its seed", () => {
    const model = prepare();
    const text = [...generate(model, [1, 2, 3], options)];
    expect(text).toHaveLength(13);
    expect([...generate(model, [1, 2, 3], options)]).toEqual(text);
    expect([...generate(model, [1, 2, 3], { ...options, seed: 5 })]).not.toEqual(text);
    expect([...generate(model, [1, 2, 3], { ...options, maxTokens: 4 })]).toEqual(text.slice(0, 4));
    const stopToken = text[6];
    expect([...generate(model, [1, 2, 3], { ...options, stopToken })]).toEqual(
      text.slice(0, text.indexOf(stopToken)),
    );
  });

  it("names what is wrong", () => {
    const model = prepare();
    const run = (prompt: number[], more: object) => () => [
      ...generate(model, prompt, { ...options, ...more }),
    ];
    expect(run([], {})).toThrow("the prompt is empty");
    expect(run(new Array(16).fill(1), {})).toThrow("the prompt has 16 tokens, expected fewer than");
    expect(run([1, 11], {})).toThrow("token 1 of the prompt is 11, expected 0 to 10");
    expect(run([1], { temperature: -1 })).toThrow("temperature is -1");
    expect(run([1], { topK: 0 })).toThrow("top-k is 0");
    expect(run([1], { topP: 1.5 })).toThrow("top-p is 1.5");
  });
});
