/** The whole model's gradients against finite differences of its loss, on the float64 reference. */
import { describe, expect, it } from "vitest";
import { Random } from "../../src/data/random.ts";
import type { LayerAttention, ModelConfig } from "../../src/model/config.ts";
import { createCpuBackend } from "../../src/ops/cpu/index.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { FULL, MOBA, makeModel, randomBatch, randomize, scalar, sum, TINY } from "./helpers.ts";

const cases: { name: string; config: ModelConfig; attention: LayerAttention }[] = [
  { name: "MoBA and full, grouped heads", config: TINY, attention: [MOBA, FULL] },
  { name: "tied output", config: { ...TINY, tiedOutput: true }, attention: [FULL, MOBA] },
  { name: "key convolution", config: { ...TINY, keyConvolution: 3 }, attention: [MOBA, MOBA] },
  {
    name: "one key/value head per query head, window and sink",
    config: { ...TINY, kvHeads: 4 },
    attention: [
      { kind: "window", blockSize: 2, topK: 2 },
      { kind: "sink", blockSize: 2, topK: 3 },
    ],
  },
];

describe("gradients against finite differences", () => {
  it.each(cases)("$name", ({ config, attention }) => {
    const backend = createReferenceBackend();
    const batch = randomBatch(config.vocabulary, [8, 1, 5]);
    const model = makeModel(backend, config, batch, { attention });
    randomize(model);
    const scale = 0.5;
    model.forwardBackward(scalar(backend, scale));
    const routing = attention.map((_, i) => [...model.readRouting(i)]);
    const grads = backend.read(model.grads!);
    const random = new Random(3);
    const step = 1e-5;
    for (const parameter of model.parameters.named) {
      const values = model.readParameter(parameter);
      for (let sample = 0; sample < 4; sample++) {
        const i = random.below(parameter.length);
        const kept = values[i];
        const loss = (value: number) => {
          values[i] = value;
          model.writeParameter(parameter, values);
          return scale * sum(backend.read(model.forward()));
        };
        const numeric = (loss(kept + step) - loss(kept - step)) / (2 * step);
        loss(kept);
        expect(Math.abs(grads[parameter.offset + i] - numeric), `${parameter.name}[${i}]`).toBeLessThan(
          1e-8 * (1 + Math.abs(numeric)) * 10,
        );
      }
    }
    // The differences hold only while no block changes hands.
    expect(attention.map((_, i) => [...model.readRouting(i)])).toEqual(routing);
    backend.close();
  });

  it("are accumulated over batches", () => {
    const backend = createReferenceBackend();
    const batch = randomBatch(TINY.vocabulary, [6]);
    const model = makeModel(backend, TINY, batch);
    randomize(model);
    const scale = scalar(backend, 1);
    model.forwardBackward(scale);
    const once = backend.read(model.grads!);
    model.forwardBackward(scale);
    const twice = backend.read(model.grads!);
    expect(Math.max(...twice.map((g, i) => Math.abs(g - 2 * once[i])))).toBeLessThan(1e-12);
    backend.close();
  });
});

describe.each([
  { name: "reference", make: createReferenceBackend },
  { name: "cpu", make: () => createCpuBackend({ threads: 1 }) },
])("recomputation on $name", ({ make }) => {
  it.each(cases)("gives the same bits: $name", ({ config, attention }) => {
    const batch = randomBatch(config.vocabulary, [8, 1, 5]);
    const [kept, again] = [false, true].map((recompute) => {
      const backend = make();
      const model = makeModel(backend, { ...config, layers: 4 }, batch, {
        recompute,
        attention: [...attention, ...attention],
      });
      randomize(model);
      const losses = backend.read(model.forwardBackward(scalar(backend, 1)));
      const grads = backend.read(model.grads!);
      backend.close();
      return { losses, grads };
    });
    expect(again).toEqual(kept);
    expect(sum(kept.losses)).toBeGreaterThan(1);
  });
});
