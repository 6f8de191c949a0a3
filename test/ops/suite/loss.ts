/** Cross-entropy with the output matrix, gradient norm and AdamW. */
import { HYPER_LENGTH, Hyper } from "../../../src/ops/contract.ts";
import { integers } from "../random.ts";
import { type Harness, type SuiteCase, type SuiteOptions, sameBits, width } from "./harness.ts";

export function lossCases(options: SuiteOptions): SuiteCase[] {
  const cases: SuiteCase[] = [];
  for (const [T, size, vocabulary, scale] of [
    [1, 5, 3, 1],
    [7, 24, 11, 1],
    [70, 33, 257, 1],
    [300, 16, 1000, 1],
    [40, 64, 256, 30],
  ]) {
    const [C, V] = [width(options, size), width(options, vocabulary)];
    cases.push({
      name: `loss T=${T} C=${C} V=${V}${scale > 1 ? `, states times ${scale}` : ""}, a third without target`,
      run(h) {
        h.seed(T + V);
        const x = h.tensor([T, C], "activation", h.normals(T * C, scale));
        const w = h.tensor([V, C], "weight");
        const values = integers(h.next, T, V).map((target, t) => (t % 3 === 1 ? -1 : target));
        const targets = h.tensor([T], "index", values);
        const [alone, losses] = [h.poisoned([T], "float"), h.poisoned([T], "float")];
        h.both((b, on) => b.lossForward(on(alone), on(x), on(w), on(targets)));
        const [dX, dW] = [h.poisoned([T, C]), h.tensor([V, C], "float", h.normals(V * C, 0.01))];
        const factor = h.tensor([1], "float", [0.25]);
        h.both((b, on) =>
          b.lossForwardBackward(on(losses), on(dX), on(dW), on(x), on(w), on(targets), on(factor)),
        );
        const withGradient = { "losses with gradient": losses, "dX of the loss": dX, "dW of the loss": dW };
        h.same({ losses: alone, ...withGradient });
      },
    });
  }
  cases.push({
    name: "no target at all: losses and dX zero, dW unchanged",
    run(h) {
      h.seed(3);
      const [T, C, V] = [9, width(options, 6), width(options, 12)];
      const [x, w] = [h.tensor([T, C]), h.tensor([V, C], "weight")];
      const targets = h.tensor([T], "index", new Int32Array(T).fill(-1));
      const [losses, dX, dW] = [h.poisoned([T], "float"), h.poisoned([T, C]), h.tensor([V, C], "float")];
      const factor = h.tensor([1], "float", [1]);
      const before = h.tested.read(dW.tested);
      h.both((b, on) =>
        b.lossForwardBackward(on(losses), on(dX), on(dW), on(x), on(w), on(targets), on(factor)),
      );
      h.same({ losses, dX });
      sameBits("dW", h.tested.read(dW.tested), before);
    },
  });

  for (const P of [1, 37, 100_003]) {
    cases.push({
      name: `gradient norm P=${P}`,
      run(h) {
        h.seed(P);
        const [grads, length] = [h.tensor([P], "float"), h.poisoned([1], "float")];
        h.both((b, on) => b.gradNorm(on(length), on(grads)));
        h.same({ norm: length });
      },
    });
  }
  cases.push({
    name: "gradient norm is not finite when a gradient is not",
    run(h) {
      for (const bad of [Number.NaN, Infinity]) {
        const [grads, length] = [h.tensor([50], "float"), h.tensor([1], "float")];
        h.write(
          grads,
          h.normals(50).map((x, i) => (i === 33 ? bad : x)),
        );
        h.tested.gradNorm(length.tested, grads.tested);
        if (Number.isFinite(h.tested.read(length.tested)[0])) throw new Error(`finite norm with a ${bad}`);
      }
    },
  });
  for (const [name, maxNorm] of [
    ["no clipping", 0],
    ["norm above the largest", 0.5],
    ["norm below the largest", 1e6],
  ] as const) {
    cases.push({
      name: `adamw, three steps, ${name}`,
      run(h) {
        h.seed(17);
        const adam = optimizer(h, maxNorm);
        for (let step = 1; step <= 3; step++) {
          h.write(adam.grads, h.normals(P));
          adam.step(step);
        }
        h.same({ master: adam.master, weights: adam.weights, m: adam.m, v: adam.v });
      },
    });
  }
  for (const bad of [Number.NaN, Infinity]) {
    cases.push({
      name: `adamw leaves everything unchanged when the norm is ${bad}`,
      run(h) {
        h.seed(18);
        const adam = optimizer(h, 1);
        adam.step(1);
        const tensors = [adam.master, adam.weights, adam.m, adam.v];
        const before = tensors.map((x) => h.tested.read(x.tested));
        h.write(
          adam.grads,
          h.normals(P).map((x, i) => (i === 5 ? bad : x)),
        );
        adam.step(2);
        tensors.forEach((x, i) => {
          sameBits(["master", "weights", "m", "v"][i], h.tested.read(x.tested), before[i]);
        });
      },
    });
  }
  return cases;
}

const P = 1003;

/** An optimizer's tensors on both backends, the first 600 parameters decayed. */
function optimizer(h: Harness, maxNorm: number) {
  // Parameters of the size of a step, so that an error in the step shows.
  const master = h.tensor([P], "float", h.normals(P, 0.01));
  const oneType = h.tested.dtype("weight") === h.tested.dtype("float");
  const weights = oneType ? master : h.tensor([P], "weight");
  const grads = h.tensor([P], "float");
  const m = h.tensor([P], "float", new Float64Array(P));
  const v = h.tensor([P], "float", new Float64Array(P));
  const hyper = h.tensor([HYPER_LENGTH], "float", new Float64Array(HYPER_LENGTH));
  const length = h.tensor([1], "float");
  const [beta1, beta2] = [0.9, 0.95];
  const step = (t: number) => {
    const values = new Float64Array(HYPER_LENGTH);
    values[Hyper.learningRate] = 0.01;
    values[Hyper.beta1] = beta1;
    values[Hyper.beta2] = beta2;
    values[Hyper.epsilon] = 1e-8;
    values[Hyper.weightDecay] = 0.1;
    values[Hyper.bias1] = 1 - beta1 ** t;
    values[Hyper.bias2] = 1 - beta2 ** t;
    values[Hyper.maxNorm] = maxNorm;
    h.write(hyper, values);
    h.both((b, on) => b.gradNorm(on(length), on(grads)));
    h.both((b, on) => b.adamw(on(master), on(weights), on(grads), on(m), on(v), 600, on(hyper), on(length)));
  };
  return { master, weights, grads, m, v, step };
}
