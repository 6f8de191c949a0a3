/** One attention layer's tensors on both backends, and what the attention and routing cases do with them. */
import assert from "node:assert/strict";
import { type Attention, attentionLabel, earlierBlocks } from "../../../src/attention/attention.ts";
import type { AttentionState, Documents, Tensor } from "../../../src/ops/contract.ts";
import { type Both, type Harness, norm } from "./harness.ts";

export interface LayerShape {
  readonly offsets: readonly number[];
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly attention: Attention;
}

/** Two 32-bit gate scores closer than this times |q| |mean| may be ordered either way (docs/method.md, section 1). */
const NEAR_TIE = 2 ** -18;

export class Layer {
  readonly h: Harness;
  readonly shape: LayerShape;
  readonly T: number;
  readonly docs: Both<Documents>;
  readonly state: Both<AttentionState>;
  readonly q: Both<Tensor>;
  readonly k: Both<Tensor>;
  readonly v: Both<Tensor>;
  readonly out: Both<Tensor>;

  /** Random queries, keys and values unless given; the output is poisoned. */
  constructor(
    h: Harness,
    shape: LayerShape,
    values: { q?: Float64Array; k?: Float64Array; v?: Float64Array } = {},
  ) {
    const { offsets, heads: H, kvHeads: G, headDim: D, attention } = shape;
    this.h = h;
    this.shape = shape;
    this.T = offsets[offsets.length - 1];
    this.docs = h.documents(offsets);
    const maxDocuments = offsets.length - 1;
    this.state = h.state({ tokens: this.T, heads: H, kvHeads: G, headDim: D, maxDocuments, attention });
    this.q = h.tensor([this.T, H, D], "activation", values.q);
    this.k = h.tensor([this.T, G, D], "activation", values.k);
    this.v = h.tensor([this.T, G, D], "activation", values.v);
    this.out = h.poisoned([this.T, H, D]);
  }

  route(): void {
    this.h.both((b, on) => b.route(on(this.state), on(this.q), on(this.k), on(this.docs)));
  }

  /** The tested backend's routing and the reference's. */
  routing(): Both<Int32Array> {
    return {
      tested: this.h.tested.readRouting(this.state.tested),
      reference: this.h.reference.readRouting(this.state.reference),
    };
  }

  /** Compares the routings; near-ties may be ordered either way, are counted, and must be rare. */
  sameRouting(): void {
    const { tested, reference } = this.routing();
    assert.equal(tested.length, reference.length, "length of the routing");
    const S = earlierBlocks(this.shape.attention);
    const { heads } = this.shape;
    let nearTies = 0;
    for (let row = 0; row < this.T * heads; row++) {
      const ours = [...tested.subarray(row * S, (row + 1) * S)];
      const theirs = [...reference.subarray(row * S, (row + 1) * S)];
      if (ours.join() === theirs.join()) continue;
      const [t, head] = [Math.floor(row / heads), row % heads];
      const where = `query ${t}, head ${head}: selected ${ours.join()}, the reference ${theirs.join()}`;
      assert.ok(this.isNearTie(t, head, ours, theirs), where);
      nearTies++;
    }
    if (nearTies > 0) {
      const label = attentionLabel(this.shape.attention);
      this.h.options.report?.(`${label}: near-ties in ${nearTies} of ${this.T * heads} choices`);
    }
    assert.ok(nearTies <= 0.01 * this.T * heads, `${nearTies} near-ties in ${this.T * heads} queries`);
  }

  private isNearTie(t: number, head: number, ours: number[], theirs: number[]): boolean {
    const { attention, kvHeads: G, heads: H, headDim: D, offsets } = this.shape;
    if (attention.kind !== "moba") return false;
    const only = (a: number[], b: number[]) => a.filter((x) => x >= 0 && !b.includes(x));
    const [mine, other] = [only(ours, theirs), only(theirs, ours)];
    const ascending = ours.every(
      (b, i) => i === 0 || (b === -1 ? true : b > ours[i - 1] && ours[i - 1] >= 0),
    );
    if (!ascending || mine.length !== other.length) return false;
    const start = offsets.findLast((offset) => offset <= t)!;
    const g = Math.floor(head / (H / G));
    const [q, k] = [this.h.reference.read(this.q.reference), this.h.reference.read(this.k.reference)];
    const query = new Float64Array(D);
    const group = attention.sharedGate ? Array.from({ length: H / G }, (_, i) => g * (H / G) + i) : [head];
    for (const i of group) for (let d = 0; d < D; d++) query[d] += q[(t * H + i) * D + d];
    const score = (block: number) => {
      const mean = new Float64Array(D);
      const first = start + block * attention.blockSize;
      for (let s = first; s < first + attention.blockSize; s++) {
        for (let d = 0; d < D; d++) mean[d] += k[(s * G + g) * D + d] / attention.blockSize;
      }
      return { value: query.reduce((sum, x, d) => sum + x * mean[d], 0), size: norm(query) * norm(mean) };
    };
    return mine.every((a) =>
      other.every((b) => {
        const [x, y] = [score(a), score(b)];
        return Math.abs(x.value - y.value) <= NEAR_TIE * Math.max(x.size, y.size);
      }),
    );
  }

  /** Gives the tested backend the reference's routing. */
  shareRouting(): void {
    const { reference } = this.routing();
    if (this.shape.attention.kind !== "full") {
      this.h.tested.writeRouting(this.state.tested, reference, this.docs.tested);
    }
  }

  forward(): void {
    this.h.both((b, on) =>
      b.attentionForward(on(this.state), on(this.out), on(this.q), on(this.k), on(this.v), on(this.docs)),
    );
  }

  /** Gradients for a random dOut, poisoned before. */
  backward(dOut = this.h.tensor([this.T, this.shape.heads, this.shape.headDim])): {
    dQ: Both<Tensor>;
    dK: Both<Tensor>;
    dV: Both<Tensor>;
  } {
    const { heads: H, kvHeads: G, headDim: D } = this.shape;
    const gradients = {
      dQ: this.h.poisoned([this.T, H, D]),
      dK: this.h.poisoned([this.T, G, D]),
      dV: this.h.poisoned([this.T, G, D]),
    };
    const { dQ, dK, dV } = gradients;
    this.h.both((b, on) =>
      b.attentionBackward(
        on(this.state),
        on(dQ),
        on(dK),
        on(dV),
        on(dOut),
        on(this.out),
        on(this.q),
        on(this.k),
        on(this.v),
        on(this.docs),
      ),
    );
    return gradients;
  }

  /** Routing apart; then, given the reference's routing, output, log-sum-exp and every gradient. */
  check(floorOfGradients = 0): void {
    this.route();
    this.sameRouting();
    this.shareRouting();
    this.forward();
    const lse = { tested: this.state.tested.lse, reference: this.state.reference.lse };
    this.h.same({ out: this.out, lse });
    this.h.same({ ...this.backward() }, floorOfGradients);
  }

  /** The rows of `tensor` ([T, heads, D]) for tokens `from .. to - 1`, as the tested backend has them. */
  rows(tensor: Both<Tensor>, from: number, to: number) {
    const width = tensor.tested.length / this.T;
    return this.h.tested.read(tensor.tested).slice(from * width, to * width);
  }
}
