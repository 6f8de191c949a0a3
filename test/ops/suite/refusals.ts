/** Bad arguments: a `RangeError` that names the operation and the argument. */
import assert from "node:assert/strict";
import type { Attention } from "../../../src/attention/attention.ts";
import { type Backend, HYPER_LENGTH } from "../../../src/ops/contract.ts";
import { headDims, type SuiteCase, type SuiteOptions } from "./harness.ts";

/** `words`: what the message must contain. */
type Refusal = readonly [name: string, words: readonly string[], run: (b: Backend) => void];

export function refusalCases(options: SuiteOptions): SuiteCase[] {
  const D = headDims(options)[0];
  const activation = (b: Backend, ...shape: number[]) => b.tensor(shape, "activation");
  const weight = (b: Backend, ...shape: number[]) => b.tensor(shape, "weight");
  const float = (b: Backend, ...shape: number[]) => b.tensor(shape, "float");
  const index = (b: Backend, ...shape: number[]) => b.tensor(shape, "index");
  const documents = (b: Backend, offsets: number[], tokens = 16) => {
    const made = b.documents(tokens, 3);
    b.setDocuments(made, offsets);
    return made;
  };
  const full: Attention = { kind: "full" };
  const moba: Attention = { kind: "moba", blockSize: 4, topK: 3 };
  const shape = { tokens: 16, heads: 4, kvHeads: 2, headDim: D, maxDocuments: 3, attention: moba };
  const routing = (change: (rows: Int32Array) => void) => (b: Backend) => {
    const state = b.attentionState({ ...shape, heads: 1, kvHeads: 1 });
    const selected = new Int32Array(16 * 2).fill(-1);
    change(selected);
    b.writeRouting(state, selected, documents(b, [0, 9, 16]));
  };
  const decode = (length: number, attention: Attention) => (b: Backend) =>
    b.attentionDecode(
      activation(b, 4, D),
      activation(b, 4, D),
      activation(b, 8, 2, D),
      activation(b, 8, 2, D),
      length,
      attention,
    );
  const adamw = (decayed: number, hyperLength: number) => (b: Backend) => {
    const [master, g, m, v] = [float(b, 8), float(b, 8), float(b, 8), float(b, 8)];
    const weights = b.dtype("weight") === b.dtype("float") ? master : weight(b, 8);
    b.adamw(master, weights, g, m, v, decayed, float(b, hyperLength), float(b, 1));
  };
  const refusals: Refusal[] = [
    ["an empty shape", ["tensor", "shape"], (b) => b.tensor([], "float")],
    ["a dimension of 0", ["tensor", "shape", "3, 0"], (b) => b.tensor([3, 0], "float")],
    ["a view past the end", ["view", "shape"], (b) => b.view(float(b, 8), 4, [5])],
    ["a negative offset", ["view", "offset", "-1"], (b) => b.view(float(b, 8), -1, [5])],
    ["too few values", ["write", "values", "7"], (b) => b.write(float(b, 8), new Array(7).fill(0))],
    ["a fraction as an index", ["write", "values[1]", "0.5"], (b) => b.write(index(b, 2), [1, 0.5])],
    ["a copy of another length", ["copy", "source"], (b) => b.copy(float(b, 8), float(b, 7))],
    ["no documents", ["documents", "maxDocuments", "0"], (b) => b.documents(16, 0)],
    ["offsets not from 0", ["setDocuments", "offsets[0]", "1"], (b) => documents(b, [1, 16])],
    ["an empty document", ["setDocuments", "offsets[2]", "5"], (b) => documents(b, [0, 5, 5, 16])],
    ["decreasing offsets", ["setDocuments", "offsets[2]", "4"], (b) => documents(b, [0, 5, 4, 16])],
    ["offsets that end early", ["setDocuments", "offsets[2]", "15"], (b) => documents(b, [0, 5, 15])],
    ["too many documents", ["setDocuments", "offsets", "4"], (b) => documents(b, [0, 1, 2, 3, 16])],
    [
      "a width that does not match",
      ["linearForward", "w_NK", "[7, 6]"],
      (b) => b.linearForward(activation(b, 3, 7), activation(b, 3, 5), weight(b, 7, 6)),
    ],
    [
      "an output of another length",
      ["linearForward", "out_TN", "[4, 7]"],
      (b) => b.linearForward(activation(b, 4, 7), activation(b, 3, 5), weight(b, 7, 5)),
    ],
    [
      "indices where activations belong",
      ["linearForward", "x_TK", "index"],
      (b) => b.linearForward(activation(b, 3, 7), index(b, 3, 5), weight(b, 7, 5)),
    ],
    [
      "a gradient of another shape",
      ["linearBackward", "dW_NK"],
      (b) =>
        b.linearBackward(null, float(b, 5, 7), activation(b, 3, 7), activation(b, 3, 5), weight(b, 7, 5)),
    ],
    [
      "tokens that are not indices",
      ["embeddingForward", "tokens_T", "float"],
      (b) => b.embeddingForward(activation(b, 3, 4), weight(b, 5, 4), float(b, 3)),
    ],
    [
      "eps of 0",
      ["rmsNormForward", "eps", "0"],
      (b) => b.rmsNormForward(activation(b, 3, 4), float(b, 3), activation(b, 3, 4), weight(b, 4), 0),
    ],
    [
      "a gain of another length",
      ["rmsNormForward", "gain_C", "[5]"],
      (b) => b.rmsNormForward(activation(b, 3, 4), float(b, 3), activation(b, 3, 4), weight(b, 5), 1e-5),
    ],
    [
      "gate and up of another width",
      ["swigluForward", "gateUp_T2F", "[3, 9]"],
      (b) => b.swigluForward(activation(b, 3, 4), activation(b, 3, 9)),
    ],
    [
      "a key convolution of width 4",
      ["keyConvForward", "w_WGD", "4", "3 or 5"],
      (b) => {
        const w = weight(b, 4, 2, D);
        b.keyConvForward(activation(b, 16, 8 * D), activation(b, 16, 2, D), w, documents(b, [0, 16]), 2);
      },
    ],
    [
      "theta of 0",
      ["splitRopeForward", "theta", "0"],
      (b) => {
        const [q, k, v] = [activation(b, 16, 4, D), activation(b, 16, 2, D), activation(b, 16, 2, D)];
        b.splitRopeForward(q, k, v, activation(b, 16, 8 * D), documents(b, [0, 16]), 0);
      },
    ],
    [
      "documents of another length",
      ["splitRopeForward", "documents.tokens", "15"],
      (b) => {
        const [q, k, v] = [activation(b, 16, 4, D), activation(b, 16, 2, D), activation(b, 16, 2, D)];
        b.splitRopeForward(q, k, v, activation(b, 16, 8 * D), documents(b, [0, 15], 15), 1e4);
      },
    ],
    [
      "a fused width that does not match",
      ["splitRopeForward", "fused", String(9 * D)],
      (b) => {
        const [q, k, v] = [activation(b, 16, 4, D), activation(b, 16, 2, D), activation(b, 16, 2, D)];
        b.splitRopeForward(q, k, v, activation(b, 16, 9 * D), documents(b, [0, 16]), 1e4);
      },
    ],
    [
      "heads that are no multiple of kvHeads",
      ["attentionState", "kvHeads", "3"],
      (b) => b.attentionState({ ...shape, kvHeads: 3 }),
    ],
    [
      "an odd head dimension",
      ["attentionState", "headDim", "15"],
      (b) => b.attentionState({ ...shape, headDim: 15 }),
    ],
    [
      "a block size of 0",
      ["blockSize", "0"],
      (b) => b.attentionState({ ...shape, attention: { ...moba, blockSize: 0 } }),
    ],
    ["a top-k of 0", ["topK", "0"], (b) => b.attentionState({ ...shape, attention: { ...moba, topK: 0 } })],
    [
      "a top-k of 1.5",
      ["topK", "1.5"],
      (b) => b.attentionState({ ...shape, attention: { kind: "window", blockSize: 4, topK: 1.5 } }),
    ],
    [
      "keys of another shape than the state's",
      ["route", "k_TGD", `[16, 4, ${D}]`],
      (b) => {
        const state = b.attentionState(shape);
        b.route(state, activation(b, 16, 4, D), activation(b, 16, 4, D), documents(b, [0, 16]));
      },
    ],
    [
      "more documents than the state's",
      ["route", "documents.maxDocuments", "3"],
      (b) => {
        const state = b.attentionState({ ...shape, maxDocuments: 2 });
        b.route(state, activation(b, 16, 4, D), activation(b, 16, 2, D), documents(b, [0, 16]));
      },
    ],
    [
      "values of another shape",
      ["attentionForward", "v_TGD"],
      (b) => {
        const [q, k, v] = [activation(b, 16, 4, D), activation(b, 16, 2, D), activation(b, 15, 2, D)];
        const state = b.attentionState({ ...shape, attention: full });
        b.attentionForward(state, activation(b, 16, 4, D), q, k, v, documents(b, [0, 16]));
      },
    ],
    ["the own block selected", ["writeRouting", "selected_THS[10]", "1"], routing((s) => (s[10] = 1))],
    ["a block of the next document", ["writeRouting", "selected_THS[18]", "0"], routing((s) => (s[18] = 0))],
    [
      "selected blocks not ascending",
      ["writeRouting", "selected_THS[17]", "0"],
      routing((s) => {
        s[16] = 1;
        s[17] = 0;
      }),
    ],
    [
      "a block behind an unused place",
      ["writeRouting", "selected_THS[17]", "0"],
      routing((s) => (s[17] = 0)),
    ],
    [
      "a routing of another length",
      ["writeRouting", "selected_THS", "31"],
      (b) =>
        b.writeRouting(b.attentionState({ ...shape, heads: 2 }), new Int32Array(31), documents(b, [0, 16])),
    ],
    [
      "heads of a group that differ under a shared gate",
      ["writeRouting", "selected_THS[34]", "0"],
      (b) => {
        const attention: Attention = { ...moba, sharedGate: true };
        const state = b.attentionState({ ...shape, heads: 2, kvHeads: 1, attention });
        const selected = new Int32Array(16 * 2 * 2).fill(-1);
        selected[34] = 0;
        b.writeRouting(state, selected, documents(b, [0, 16]));
      },
    ],
    ["a length of 0", ["attentionDecode", "length", "0"], decode(0, moba)],
    ["a length past the cache", ["attentionDecode", "length", "9"], decode(9, moba)],
    ["decoding with a top-k of -1", ["topK", "-1"], decode(8, { ...moba, topK: -1 })],
    [
      "targets of another length",
      ["lossForward", "losses_T", "[4]"],
      (b) => b.lossForward(float(b, 4), activation(b, 3, 4), weight(b, 5, 4), index(b, 3)),
    ],
    ["a norm of two numbers", ["gradNorm", "norm_1", "[2]"], (b) => b.gradNorm(float(b, 2), float(b, 8))],
    ["more decayed than there are", ["adamw", "decayed", "9"], adamw(9, HYPER_LENGTH)],
    ["hyper of another length", ["adamw", "hyper", "7"], adamw(8, 7)],
  ];
  return refusals.map(([name, words, run]) => ({
    name,
    run(h) {
      assert.throws(
        () => run(h.tested),
        (error: Error) => {
          assert.ok(error instanceof RangeError, `a RangeError was expected, got ${error}`);
          for (const word of words) {
            assert.ok(error.message.includes(word), `"${error.message}" does not mention "${word}"`);
          }
          return true;
        },
      );
    },
  }));
}
