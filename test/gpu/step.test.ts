/**
 * Whole training steps on the card: recorded and plain steps give the same bits, gradients agree with the float64
 * reference for the same routing, nothing is allocated after the first step, and how long the host is busy.
 *
 *   npm run build:gpu && node --test build/gpu/test/gpu/step.test.js
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Attention, attentionLabel } from "../../src/attention/attention.ts";
import type { ModelConfig } from "../../src/model/config.ts";
import type { Backend } from "../../src/ops/contract.ts";
import { createCudaBackend } from "../../src/ops/cuda/index.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { makeStep, SMALL } from "../ops/cuda/step.ts";
import { relativeError, sameBits } from "../ops/suite/harness.ts";
import { skip } from "./card.ts";

const LENGTHS = [1, 63, 200, 320];
const moba: Attention = { kind: "moba", blockSize: 64, topK: 2 };
const full: Attention = { kind: "full" };

/** Relative error of a parameter's gradient through two layers of bf16, the blocks chosen being the same. */
const GRADIENT_TOLERANCE = 0.05;
/** Share of places where rounding may choose another block than the reference from the same blocks below. */
const ROUTING_TOLERANCE = 0.02;

const cases: readonly (readonly [
  name: string,
  config: ModelConfig,
  attention: Attention,
  recompute: boolean,
])[] = [
  ["full", SMALL, full, false],
  ["moba", SMALL, moba, false],
  ["moba, recomputed", SMALL, moba, true],
  ["moba, key convolution", { ...SMALL, keyConvolution: 3 }, moba, false],
  ["full, head dimension 128, tied output", { ...SMALL, headDim: 128, tiedOutput: true }, full, false],
];

/** The routings of the backend from now on, in the order in which they are made. */
function keepRouting(backend: Backend): Int32Array[] {
  const choices: Int32Array[] = [];
  const route = backend.route.bind(backend);
  backend.route = (state, q_THD, k_TGD, documents) => {
    route(state, q_THD, k_TGD, documents);
    choices.push(backend.readRouting(state));
  };
  return choices;
}

/**
 * Makes the backend take these routings, in order, and counts where its own choice differs. A choice between blocks of
 * nearly equal score turns with rounding and then changes gradients by much more than rounding does: what is compared
 * is the arithmetic behind the same choice.
 */
function giveRouting(backend: Backend, choices: Int32Array[]): { differing: number; places: number } {
  const count = { differing: 0, places: 0 };
  const route = backend.route.bind(backend);
  backend.route = (state, q_THD, k_TGD, documents) => {
    route(state, q_THD, k_TGD, documents);
    const own = backend.readRouting(state);
    const given = choices.shift()!;
    assert.equal(given.length, own.length, "places of a routing");
    own.forEach((block, i) => {
      if (block !== given[i]) count.differing++;
    });
    count.places += own.length;
    if (own.length > 0) backend.writeRouting(state, given, documents);
  };
  return count;
}

describe("training step", { skip }, () => {
  for (const [name, config, attention, recompute] of cases) {
    test(`${name}: recorded and plain steps give the same bits`, (t) => {
      const results = [false, true].map((recorded) => {
        const backend = createCudaBackend();
        t.after(() => backend.close());
        const step = makeStep(backend, config, attention, LENGTHS, recompute);
        const run = recorded ? backend.record(step.enqueue) : step.enqueue;
        run();
        backend.synchronize();
        const before = backend.memory();
        run();
        run();
        assert.equal(backend.memory(), before, "memory after the first step");
        const { losses_T, norm_1, model } = step;
        return [losses_T, norm_1, model.grads!, model.master, model.weights].map((x) => backend.read(x));
      });
      results[0].forEach((values, i) => {
        sameBits(["losses", "norm", "gradients", "master", "weights"][i], results[1][i], values);
      });
    });

    test(`${name}: losses and gradients of the first step are the reference's`, (t) => {
      const backend = createCudaBackend();
      t.after(() => backend.close());
      const exact = createReferenceBackend();
      const [step, reference] = [backend, exact].map((b) =>
        makeStep(b, config, attention, LENGTHS, recompute),
      );
      // Before the step: it changes them.
      exact.write(reference.model.weights, backend.read(step.model.weights));
      const choices = keepRouting(backend);
      step.enqueue();
      const routing = giveRouting(exact, choices);
      reference.enqueue();
      const differing = routing.differing / Math.max(routing.places, 1);
      assert.equal(choices.length, 0, "routings that the reference did not ask for");
      assert.ok(differing <= ROUTING_TOLERANCE, `${differing} of the blocks chosen are not the reference's`);
      const losses = relativeError(backend.read(step.losses_T), exact.read(reference.losses_T));
      assert.ok(losses <= 0.01, `losses: relative error ${losses}, at most 0.01 allowed`);
      const worst = step.model.parameters.named
        .map(({ name, offset, shape }) => {
          const [ours, theirs] = [
            backend.read(backend.view(step.model.grads!, offset, shape)),
            exact.read(exact.view(reference.model.grads!, offset, shape)),
          ];
          return { name, error: relativeError(ours, theirs) };
        })
        .reduce((a, b) => (b.error > a.error || Number.isNaN(b.error) ? b : a));
      console.log(
        `  other blocks ${(100 * differing).toFixed(2)} %, losses ${losses.toExponential(1)}, worst gradient ${worst.name} ${worst.error.toExponential(1)}`,
      );
      assert.ok(
        worst.error <= GRADIENT_TOLERANCE,
        `gradient of ${worst.name}: relative error ${worst.error}`,
      );
    });
  }

  // 2.2 million parameters outside the embeddings, eight sequences of 16k tokens.
  const shape: ModelConfig = {
    ...{ layers: 5, heads: 3, kvHeads: 3, headDim: 64, modelDim: 192, feedForward: 512, vocabulary: 8192 },
    ...{ ropeTheta: 10_000, normEpsilon: 1e-5, tiedOutput: false, keyConvolution: 0 },
  };
  for (const attention of [full, { kind: "moba", blockSize: 512, topK: 3 } as const]) {
    test(`time of a recorded step, 2.2M, 8 x 16k tokens, ${attentionLabel(attention)}`, (t) => {
      const backend = createCudaBackend();
      t.after(() => backend.close());
      const step = makeStep(backend, shape, attention, new Array(8).fill(16_384));
      const replay = backend.record(step.enqueue);
      replay();
      backend.synchronize();
      const runs = 5;
      const start = performance.now();
      for (let i = 0; i < runs; i++) replay();
      const host = (performance.now() - start) / runs;
      backend.synchronize();
      const total = (performance.now() - start) / runs;
      const rate = (8 * 16_384) / total;
      console.log(
        `  ${total.toFixed(1)} ms (${rate.toFixed(0)} k tokens/s), host busy ${host.toFixed(2)} ms, ${(backend.memory() / 1e9).toFixed(2)} GB`,
      );
      assert.ok(host < 0.05 * total, `the host was busy for ${host} of ${total} ms, at most 5 % allowed`);
    });
  }
});
