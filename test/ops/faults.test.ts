/** The suite finds faults: each of these broken backends fails the named case. */
import { expect, test } from "vitest";
import type { AttentionState, Backend, Documents, Tensor } from "../../src/ops/contract.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { opSuite } from "./suite.ts";

let calls = 0;

type Fault = [name: string, failing: RegExp, breakIt: (b: Backend) => Partial<Backend>];

/** Changes the routing after `route`: `change(selected row, own block)` for every query of every document. */
function routed(b: Backend, change: (row: Int32Array, t: number) => void): Partial<Backend> {
  return {
    route(state: AttentionState, q: Tensor, k: Tensor, documents: Documents) {
      b.route(state, q, k, documents);
      const selected = b.readRouting(state);
      const S = selected.length / (state.shape.tokens * state.shape.heads);
      if (S === 0) return;
      for (let i = 0; i < selected.length; i += S) {
        change(selected.subarray(i, i + S), Math.floor(i / S / state.shape.heads));
      }
      b.writeRouting(state, selected, documents);
    },
  };
}

const scale = (b: Backend, tensor: Tensor, factor: number) =>
  b.write(
    tensor,
    Array.from(b.read(tensor), (x) => x * factor),
  );

const faults: Fault[] = [
  [
    "dW overwritten",
    /^dense: linear T=5/,
    (b) => ({
      linearBackward(dX, dW, dOut, x, w) {
        b.zero(dW);
        b.linearBackward(dX, dW, dOut, x, w);
      },
    }),
  ],
  [
    "dX accumulated",
    /^dense: linear T=5/,
    (b) => ({
      linearBackward(dX, dW, dOut, x, w) {
        const before = dX ? b.read(dX) : [];
        b.linearBackward(dX, dW, dOut, x, w);
        if (dX)
          b.write(
            dX,
            Array.from(b.read(dX), (y, i) => y + before[i]),
          );
      },
    }),
  ],
  [
    "output off by 2e-5",
    /^dense: linear T=5/,
    (b) => ({
      linearForward(out, x, w) {
        b.linearForward(out, x, w);
        scale(b, out, 1 + 2e-5);
      },
    }),
  ],
  [
    "dGain off",
    /^dense: rmsNorm T=37/,
    (b) => ({
      rmsNormBackward(dX, dGain, dOut, x, gain, rstd) {
        b.rmsNormBackward(dX, dGain, dOut, x, gain, rstd);
        scale(b, dGain, 1.001);
      },
    }),
  ],
  [
    "RoPE through documents",
    /^keys: split and RoPE H=2/,
    (b) => ({
      splitRopeForward(q, k, v, qkv, documents, theta, first) {
        const whole = b.documents(documents.tokens, 1);
        b.splitRopeForward(q, k, v, qkv, whole, theta, first);
      },
    }),
  ],
  [
    "key convolution through documents",
    /^keys: key convolution W=3 H=2/,
    (b) => ({
      keyConvForward(qkv, keys, w, documents, kvHeads) {
        b.keyConvForward(qkv, keys, w, b.documents(documents.tokens, 1), kvHeads);
      },
    }),
  ],
  [
    "the last selected block dropped",
    /^routing: random B=16 k=3, /,
    (b) =>
      routed(b, (row) => {
        const used = row.findLastIndex((x) => x >= 0);
        if (used >= 0) row[used] = -1;
      }),
  ],
  [
    "ties to the higher block",
    /^routing: exact ties.* B=16/,
    (b) =>
      routed(b, (row, t) => {
        const own = Math.floor(t / 16);
        if (own > row.length) row.set(row.map((_, i) => own - row.length + i));
      }),
  ],
  [
    "attention to the block before",
    /^attention: moba-b16-k1, documents/,
    (b) => ({
      attentionForward(state, out, q, k, v, documents) {
        const { attention, ...shape } = state.shape;
        if (attention.kind === "full") return b.attentionForward(state, out, q, k, v, documents);
        const wide = b.attentionState({ ...shape, attention: { kind: "window", blockSize: 16, topK: 2 } });
        b.route(wide, q, k, documents);
        b.attentionForward(wide, out, q, k, v, documents);
      },
    }),
  ],
  [
    "gradients of the wrong head",
    /^attention: full, documents/,
    (b) => ({
      attentionBackward(state, dQ, dK, dV, ...rest) {
        b.attentionBackward(state, dQ, dK, dV, ...rest);
        const values = b.read(dK);
        const D = state.shape.headDim;
        b.write(
          dK,
          Array.from(values, (_, i) => values[i ^ D]),
        );
      },
    }),
  ],
  [
    "the whole cache attended",
    /^decode: full/,
    (b) => ({
      attentionDecode(out, q, k, v, _, attention) {
        b.attentionDecode(out, q, k, v, k.shape[0], attention);
      },
    }),
  ],
  [
    "decode without routing",
    /^decode: moba-b16-k3, every token of a document$/,
    (b) => ({
      attentionDecode(out, q, k, v, length) {
        b.attentionDecode(out, q, k, v, length, { kind: "full" });
      },
    }),
  ],
  [
    "loss where there is no target",
    /^loss: loss T=7/,
    (b) => ({
      lossForward(losses, x, w, targets) {
        b.lossForward(losses, x, w, targets);
        b.write(
          losses,
          Array.from(b.read(losses), (loss) => loss || 1),
        );
      },
    }),
  ],
  [
    "the scale ignored",
    /^loss: loss T=7/,
    (b) => ({
      lossForwardBackward(losses, dX, dW, x, w, targets) {
        const one = b.tensor([1], "float");
        b.write(one, [1]);
        b.lossForwardBackward(losses, dX, dW, x, w, targets, one);
      },
    }),
  ],
  [
    "decay on all parameters",
    /^loss: adamw, three steps, no clipping/,
    (b) => ({
      adamw(master, weights, grads, m, v, _, hyper, norm) {
        b.adamw(master, weights, grads, m, v, master.length, hyper, norm);
      },
    }),
  ],
  [
    "a step in spite of a NaN norm",
    /^loss: adamw leaves everything unchanged when the norm is NaN/,
    (b) => ({
      adamw(master, weights, grads, m, v, decayed, hyper, norm) {
        if (!Number.isFinite(b.read(norm)[0])) b.write(norm, [1]);
        b.adamw(master, weights, grads, m, v, decayed, hyper, norm);
      },
    }),
  ],
  [
    "a noisy reduction",
    /^repeat:/,
    (b) => ({
      gradNorm(norm, grads) {
        b.gradNorm(norm, grads);
        scale(b, norm, 1 + 1e-12 * calls++);
      },
    }),
  ],
  [
    "an error without the argument's name",
    /^refusals: a width that does not match/,
    (b) => ({
      linearForward(out, x, w) {
        if (x.shape[1] !== w.shape[1]) throw new RangeError("shapes do not match");
        b.linearForward(out, x, w);
      },
    }),
  ],
];

test.each(faults)("%s", (_, failing, breakIt) => {
  const b = createReferenceBackend();
  const broken = breakIt(b);
  const backend = new Proxy(b, {
    get(target, property) {
      const value = broken[property as keyof Backend] ?? target[property as keyof Backend];
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const chosen = opSuite(() => backend).filter(({ name }) => failing.test(name));
  expect(chosen.length).toBeGreaterThan(0);
  for (const { name, run } of chosen) expect(run, name).toThrow();
});
