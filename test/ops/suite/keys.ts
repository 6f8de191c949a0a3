/** Key convolution, split and RoPE, over packed documents. */
import { headDims, type SuiteCase, type SuiteOptions, sameBits } from "./harness.ts";

const THETA = 10_000;

export function keyCases(options: SuiteOptions): SuiteCase[] {
  const cases: SuiteCase[] = [];
  const offsets = [0, 1, 3, 6, 10, 15, 21, 60];
  const T = 60;
  for (const D of headDims(options)) {
    for (const [H, G] of [
      [2, 2],
      [8, 2],
    ]) {
      const E = (H + 2 * G) * D;
      for (const W of [3, 5]) {
        cases.push({
          name: `key convolution W=${W} H=${H} G=${G} D=${D}, documents of 1 to 39 tokens`,
          run(h) {
            h.seed(W + H + D);
            const docs = h.documents(offsets);
            const [qkv, keys, w] = [h.tensor([T, E]), h.poisoned([T, G, D]), h.tensor([W, G, D], "weight")];
            h.both((b, on) => b.keyConvForward(on(qkv), on(keys), on(w), on(docs), G));
            h.same({ qkv, keys });
            const [dQkv, dW] = [h.tensor([T, E]), h.tensor([W, G, D], "float")];
            h.both((b, on) => b.keyConvBackward(on(dQkv), on(dW), on(keys), on(w), on(docs), G));
            h.same({ dQkv, dW });
          },
        });
      }
      cases.push({
        name: `split and RoPE H=${H} G=${G} D=${D}, documents of 1 to 39 tokens`,
        run(h) {
          h.seed(H + D);
          const docs = h.documents(offsets);
          const qkv = h.tensor([T, E]);
          const [q, k, v] = [h.poisoned([T, H, D]), h.poisoned([T, G, D]), h.poisoned([T, G, D])];
          h.both((b, on) => b.splitRopeForward(on(q), on(k), on(v), on(qkv), on(docs), THETA));
          const [dQ, dK, dV] = [h.tensor([T, H, D]), h.tensor([T, G, D]), h.tensor([T, G, D])];
          const dQkv = h.poisoned([T, E]);
          h.both((b, on) => b.splitRopeBackward(on(dQkv), on(dQ), on(dK), on(dV), on(docs), THETA));
          h.same({ q, k, v, dQkv });
        },
      });
    }
  }
  const D = headDims(options)[0];
  cases.push({
    name: "RoPE at position 20000",
    run(h) {
      h.seed(9);
      const T = 20_001;
      const docs = h.documents([0, T]);
      const qkv = h.tensor([T, 3 * D]);
      const [q, k, v] = [h.poisoned([T, 1, D]), h.poisoned([T, 1, D]), h.poisoned([T, 1, D])];
      h.both((b, on) => b.splitRopeForward(on(q), on(k), on(v), on(qkv), on(docs), THETA));
      // The last rows alone: an angle computed in 32 bits is off by 1e-3 there.
      const last = (values: ArrayLike<number>) => Float64Array.from(values).slice(-100 * D);
      h.near("q", last(h.tested.read(q.tested)), last(h.reference.read(q.reference)));
      h.near("k", last(h.tested.read(k.tested)), last(h.reference.read(k.reference)));
    },
  });
  cases.push({
    name: "a token decoded alone is rotated as in its document",
    run(h) {
      h.seed(11);
      const T = 9;
      const [together, alone] = [h.documents([0, T]), h.documents([0, 1])];
      const qkv = h.tensor([T, 3 * D]);
      const [q, k, v] = [0, 1, 2].map(() => h.poisoned([T, 1, D]));
      h.tested.splitRopeForward(q.tested, k.tested, v.tested, qkv.tested, together.tested, THETA);
      const row = h.tensor(
        [1, 3 * D],
        "activation",
        Float64Array.from(h.tested.read(qkv.tested)).slice(-3 * D),
      );
      const [q1, k1, v1] = [0, 1, 2].map(() => h.poisoned([1, 1, D]));
      h.tested.splitRopeForward(q1.tested, k1.tested, v1.tested, row.tested, alone.tested, THETA, T - 1);
      for (const [name, all, one] of [
        ["q", q, q1],
        ["k", k, k1],
        ["v", v, v1],
      ] as const) {
        sameBits(name, h.tested.read(all.tested).slice(-D), h.tested.read(one.tested));
      }
    },
  });
  cases.push({
    name: "key convolution and RoPE restart: earlier documents do not matter",
    run(h) {
      h.seed(10);
      const [T, G] = [40, 2];
      const E = 3 * G * D;
      const docs = h.documents([0, 17, 40]);
      const values = h.normals(T * E);
      const w = h.tensor([5, G, D], "weight");
      const outputs = [1, 1e6].map((factor) => {
        const qkv = h.tensor(
          [T, E],
          "activation",
          values.map((x, i) => (i < 17 * E ? x * factor : x)),
        );
        const [keys, q, k, v] = [0, 1, 2, 3].map(() => h.poisoned([T, G, D]));
        h.tested.keyConvForward(qkv.tested, keys.tested, w.tested, docs.tested, G);
        h.tested.splitRopeForward(q.tested, k.tested, v.tested, qkv.tested, docs.tested, THETA);
        return [q, k, v].map((x) => h.tested.read(x.tested).slice(17 * G * D));
      });
      outputs[0].forEach((values, i) => {
        sameBits(["q", "k", "v"][i], values, outputs[1][i]);
      });
    },
  });
  return cases;
}
