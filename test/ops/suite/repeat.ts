/** The same bits for the same inputs. */
import type { Attention } from "../../../src/attention/attention.ts";
import type { Backend, Role } from "../../../src/ops/contract.ts";
import { integers, normals, uniform } from "../random.ts";
import {
  blockSizes,
  headDims,
  type Numbers,
  type SuiteCase,
  type SuiteOptions,
  sameBits,
  width,
} from "./harness.ts";

export function repeatCases(options: SuiteOptions): SuiteCase[] {
  return [
    {
      name: "every operation gives the same bits again",
      run(h) {
        const first = sampleOutputs(h.tested, options);
        const second = sampleOutputs(h.tested, options);
        for (const [name, values] of Object.entries(first)) sameBits(name, second[name], values);
      },
    },
  ];
}

/**
 * Outputs of every operation that could depend on the order of work, from fixed inputs. Compare the results of two
 * backends that must give the same bits, such as one worker and many.
 */
export function sampleOutputs(b: Backend, options: SuiteOptions = {}): Record<string, Numbers> {
  const next = uniform(99);
  const outputs: Record<string, Numbers> = {};
  const tensor = (shape: number[], role: Role = "activation") => {
    const made = b.tensor(shape, role);
    b.write(made, normals(next, made.length));
    return made;
  };
  const [D, B] = [headDims(options)[0], blockSizes(options)[0]];
  const [T, C, V, N] = [12 * B + 3, width(options, 40), width(options, 90), width(options, 72)];
  const [H, G] = [8, 2];
  const tokens = b.tensor([T], "index");
  b.write(tokens, integers(next, T, V));
  const documents = b.documents(T, 4);
  b.setDocuments(documents, [0, 1, 3 * B, 5 * B + 2, T]);

  const [x, dOut, out] = [tensor([T, C]), tensor([T, C]), tensor([T, C])];
  const [dTable, dGain, rstd] = [tensor([V, C], "float"), tensor([C], "float"), tensor([T], "float")];
  const [gain, dX] = [tensor([C], "weight"), tensor([T, C])];
  b.embeddingBackward(dTable, dOut, tokens);
  b.rmsNormForward(out, rstd, x, gain, 1e-5);
  b.rmsNormBackward(dX, dGain, dOut, x, gain, rstd);
  Object.assign(outputs, { dTable: b.read(dTable), out: b.read(out), dX: b.read(dX), dGain: b.read(dGain) });

  const [w, dW, y, dY] = [tensor([N, C], "weight"), tensor([N, C], "float"), tensor([T, N]), tensor([T, N])];
  b.linearForward(y, x, w);
  b.linearBackward(dX, dW, dY, x, w);
  Object.assign(outputs, { linear: b.read(y), "linear dX": b.read(dX), "linear dW": b.read(dW) });

  const [head, dHead, losses] = [tensor([V, C], "weight"), tensor([V, C], "float"), tensor([T], "float")];
  const scale = b.tensor([1], "float");
  b.write(scale, [1]);
  b.lossForwardBackward(losses, dX, dHead, x, head, tokens, scale);
  Object.assign(outputs, { losses: b.read(losses), "loss dX": b.read(dX), "loss dW": b.read(dHead) });
  const [grads, length] = [tensor([50_001], "float"), tensor([1], "float")];
  b.gradNorm(length, grads);
  outputs.norm = b.read(length);

  const E = (H + 2 * G) * D;
  const [qkv, keys, conv] = [tensor([T, E]), tensor([T, G, D]), tensor([3, G, D], "weight")];
  const [dQkv, dConv] = [tensor([T, E]), tensor([3, G, D], "float")];
  b.keyConvForward(qkv, keys, conv, documents, G);
  b.keyConvBackward(dQkv, dConv, keys, conv, documents, G);
  Object.assign(outputs, { qkv: b.read(qkv), dQkv: b.read(dQkv), dConv: b.read(dConv) });

  const attentions: Attention[] = [{ kind: "full" }, { kind: "moba", blockSize: B, topK: 3 }];
  for (const attention of attentions) {
    const state = b.attentionState({
      tokens: T,
      heads: H,
      kvHeads: G,
      headDim: D,
      maxDocuments: 4,
      attention,
    });
    const [q, k, v, o] = [tensor([T, H, D]), tensor([T, G, D]), tensor([T, G, D]), tensor([T, H, D])];
    const [dQ, dK, dV, dO] = [tensor([T, H, D]), tensor([T, G, D]), tensor([T, G, D]), tensor([T, H, D])];
    b.splitRopeForward(q, k, v, qkv, documents, 10_000);
    b.route(state, q, k, documents);
    b.attentionForward(state, o, q, k, v, documents);
    b.attentionBackward(state, dQ, dK, dV, dO, o, q, k, v, documents);
    for (const [name, t] of Object.entries({ q, o, dQ, dK, dV })) {
      outputs[`${attention.kind} ${name}`] = b.read(t);
    }
    outputs[`${attention.kind} routing`] = b.readRouting(state);
  }
  return outputs;
}
