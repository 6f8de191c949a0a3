/** Decoding one token against a cache: the same blocks and the same output as the whole forward pass. */
import { type Attention, attentionLabel } from "../../../src/attention/attention.ts";
import { blockSizes, headDims, type SuiteCase, type SuiteOptions } from "./harness.ts";
import { Layer } from "./layer.ts";

export function decodeCases(options: SuiteOptions): SuiteCase[] {
  const [D, B] = [headDims(options)[0], blockSizes(options)[0]];
  const attentions: Attention[] = [
    { kind: "full" },
    { kind: "moba", blockSize: B, topK: 1 },
    { kind: "moba", blockSize: B, topK: 3 },
    { kind: "moba", blockSize: B, topK: 3, sharedGate: true },
    { kind: "window", blockSize: B, topK: 2 },
    { kind: "sink", blockSize: B, topK: 3 },
  ];
  const cases: SuiteCase[] = [];
  for (const attention of attentions) {
    for (const ties of [false, true]) {
      if (ties && attention.kind !== "moba") continue;
      cases.push({
        name: `${attentionLabel(attention)}, every token of a document${ties ? ", all blocks tied" : ""}`,
        run(h) {
          h.seed(1);
          const [T, H, G, cacheRows] = [6 * B + 3, 8, 2, 7 * B + 1];
          const pattern = h.normals(B * G * D);
          const k = ties ? new Float64Array(T * G * D).map((_, i) => pattern[i % pattern.length]) : undefined;
          const layer = new Layer(h, { offsets: [0, T], heads: H, kvHeads: G, headDim: D, attention }, { k });
          layer.route();
          layer.forward();
          const whole = h.tested.read(layer.out.tested);
          const queries = h.tested.read(layer.q.tested);
          // Rows of the cache that are not filled yet hold NaN and must not be touched.
          const cache = (rows: ArrayLike<number>, length: number) => {
            const filled = new Float64Array(cacheRows * G * D).fill(Number.NaN);
            filled.set(Float64Array.from(rows).subarray(0, length * G * D));
            return filled;
          };
          const [keys, values] = [h.tested.read(layer.k.tested), h.tested.read(layer.v.tested)];
          const kCache = h.tested.tensor([cacheRows, G, D], "activation");
          const vCache = h.tested.tensor([cacheRows, G, D], "activation");
          const [q, out] = [h.tested.tensor([H, D], "activation"), h.tested.tensor([H, D], "activation")];
          for (let t = 0; t < T; t++) {
            h.tested.write(kCache, cache(keys, t + 1));
            h.tested.write(vCache, cache(values, t + 1));
            h.tested.write(q, queries.slice(t * H * D, (t + 1) * H * D));
            h.tested.write(out, new Float64Array(H * D).fill(Number.NaN));
            h.tested.attentionDecode(out, q, kCache, vCache, t + 1, attention);
            h.near(`token ${t}`, h.tested.read(out), whole.slice(t * H * D, (t + 1) * H * D));
          }
        },
      });
    }
  }
  return cases;
}
