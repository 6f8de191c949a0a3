/** Embedding, RMSNorm, linear and SwiGLU: outputs overwritten, gradients accumulated where the contract says so. */
import assert from "node:assert/strict";
import { integers } from "../random.ts";
import { type SuiteCase, type SuiteOptions, sameBits, width } from "./harness.ts";

export function denseCases(options: SuiteOptions): SuiteCase[] {
  const cases: SuiteCase[] = [];
  for (const [T, size] of [
    [1, 5],
    [37, 24],
    [130, 67],
  ]) {
    const C = width(options, size);
    cases.push({
      name: `embedding T=${T} C=${C}`,
      run(h) {
        h.seed(T + C);
        const V = 11;
        const tokens = h.tensor([T], "index", integers(h.next, T, V));
        const table = h.tensor([V, C], "weight");
        const out = h.poisoned([T, C]);
        h.both((b, on) => b.embeddingForward(on(out), on(table), on(tokens)));
        sameBits("out", h.tested.read(out.tested), h.reference.read(out.reference));
        const dTable = h.tensor([V, C], "float");
        const dOut = h.tensor([T, C]);
        h.both((b, on) => b.embeddingBackward(on(dTable), on(dOut), on(tokens)));
        h.same({ dTable });
      },
    });
    cases.push({
      name: `rmsNorm T=${T} C=${C}`,
      run(h) {
        h.seed(2 * T + C);
        const x = h.tensor([T, C], "activation", h.normals(T * C, 3));
        const gain = h.tensor([C], "weight");
        const [out, rstd] = [h.poisoned([T, C]), h.poisoned([T], "float")];
        h.both((b, on) => b.rmsNormForward(on(out), on(rstd), on(x), on(gain), 1e-5));
        h.same({ out, rstd });
        const [dOut, dX, dGain] = [h.tensor([T, C]), h.tensor([T, C]), h.tensor([C], "float")];
        h.both((b, on) => b.rmsNormBackward(on(dX), on(dGain), on(dOut), on(x), on(gain), on(rstd)));
        h.same({ dX, dGain });
      },
    });
    for (const inPlace of [false, true]) {
      cases.push({
        name: `add + rmsNorm T=${T} C=${C}${inPlace ? " in place" : ""}`,
        run(h) {
          h.seed(3 * T + C);
          const [x, delta, gain] = [h.tensor([T, C]), h.tensor([T, C]), h.tensor([C], "weight")];
          const sum = inPlace ? x : h.poisoned([T, C]);
          const [out, rstd] = [h.poisoned([T, C]), h.poisoned([T], "float")];
          h.both((b, on) =>
            b.addRmsNormForward(on(sum), on(out), on(rstd), on(x), on(delta), on(gain), 1e-5),
          );
          // Of the stored sum, which a backend may have rounded.
          h.same({ sum, out, "rstd of the sum": rstd });
        },
      });
    }
    cases.push({
      name: `swiglu T=${T} F=${C}`,
      run(h) {
        h.seed(4 * T + C);
        const gateUp = h.tensor([T, 2 * C], "activation", h.normals(T * 2 * C, 3));
        const out = h.poisoned([T, C]);
        h.both((b, on) => b.swigluForward(on(out), on(gateUp)));
        const [dOut, dGateUp] = [h.tensor([T, C]), h.poisoned([T, 2 * C])];
        h.both((b, on) => b.swigluBackward(on(dGateUp), on(dOut), on(gateUp)));
        h.same({ out, dGateUp });
      },
    });
  }
  cases.push({
    name: "swiglu with gates of -100 and 100",
    run(h) {
      const F = width(options, 4);
      const gateUp = h.tensor(
        [1, 2 * F],
        "activation",
        Float64Array.from({ length: 2 * F }, (_, i) => (i < F ? (i % 2 ? 100 : -100) : 1)),
      );
      const [out, dOut, dGateUp] = [
        h.poisoned([1, F]),
        h.tensor([1, F], "activation", new Float64Array(F).fill(1)),
        h.poisoned([1, 2 * F]),
      ];
      h.both((b, on) => b.swigluForward(on(out), on(gateUp)));
      h.both((b, on) => b.swigluBackward(on(dGateUp), on(dOut), on(gateUp)));
      h.same({ out, dGateUp });
    },
  });
  for (const [T, n, k] of [
    [1, 1, 1],
    [5, 7, 3],
    [33, 24, 40],
    [130, 65, 70],
    [64, 192, 256],
    [257, 12, 130],
  ]) {
    const [N, K] = [width(options, n), width(options, k)];
    cases.push({
      name: `linear T=${T} N=${N} K=${K}`,
      run(h) {
        h.seed(T + N + K);
        const [x, w, out] = [h.tensor([T, K]), h.tensor([N, K], "weight"), h.poisoned([T, N])];
        h.both((b, on) => b.linearForward(on(out), on(x), on(w)));
        const [dOut, dX, dW] = [h.tensor([T, N]), h.poisoned([T, K]), h.tensor([N, K], "float")];
        h.both((b, on) => b.linearBackward(on(dX), on(dW), on(dOut), on(x), on(w)));
        h.same({ out, dX, dW });
      },
    });
  }
  cases.push({
    name: "linear without dX, weights as views of one buffer, [T, H, D] as [T, K]",
    run(h) {
      h.seed(5);
      const [T, H, D, N] = [9, width(options, 2), 16, width(options, 6)];
      const [offset, length] = [width(options, 3), N * H * D];
      const weights = h.tensor([offset + length + 8], "weight");
      const grads = h.tensor([offset + length + 8], "float");
      const before = h.tested.read(grads.tested);
      const w = {
        tested: h.tested.view(weights.tested, offset, [N, H * D]),
        reference: h.reference.view(weights.reference, offset, [N, H * D]),
      };
      const dW = {
        tested: h.tested.view(grads.tested, offset, [N, H * D]),
        reference: h.reference.view(grads.reference, offset, [N, H * D]),
      };
      const [x, out, dOut] = [h.tensor([T, H, D]), h.poisoned([T, N]), h.tensor([T, N])];
      h.both((b, on) => b.linearForward(on(out), on(x), on(w)));
      h.both((b, on) => b.linearBackward(null, on(dW), on(dOut), on(x), on(w)));
      h.same({ out, dW });
      const after = h.tested.read(grads.tested);
      sameBits("grads before the view", after.slice(0, offset), before.slice(0, offset));
      sameBits("grads behind the view", after.slice(offset + length), before.slice(offset + length));
    },
  });
  cases.push({
    name: "a repeated step allocates nothing",
    run(h) {
      h.seed(6);
      const [T, N, K] = [70, width(options, 40), width(options, 50)];
      const [x, w, out] = [h.tensor([T, K]), h.tensor([N, K], "weight"), h.tensor([T, N])];
      const [dX, dW] = [h.tensor([T, K]), h.tensor([N, K], "float")];
      const step = () => {
        h.tested.linearForward(out.tested, x.tested, w.tested);
        h.tested.linearBackward(dX.tested, dW.tested, out.tested, x.tested, w.tested);
        h.tested.synchronize();
        return h.tested.memory();
      };
      const first = step();
      assert.equal(step(), first);
    },
  });
  return cases;
}
