/** Memory and documents. */
import assert from "node:assert/strict";
import type { Backend } from "../../../src/ops/contract.ts";
import { type Both, type SuiteCase, type SuiteOptions, sameBits, width } from "./harness.ts";

export function memoryCases(options: SuiteOptions): SuiteCase[] {
  return [
    {
      name: "tensors start as zeros, keep shape and role, and read gives a copy",
      run(h) {
        const b = h.tested;
        for (const role of ["activation", "weight", "float", "index"] as const) {
          const tensor = b.tensor([3, 5], role);
          assert.deepEqual([...tensor.shape], [3, 5]);
          assert.equal(tensor.length, 15);
          assert.equal(tensor.role, role);
          assert.equal(tensor.dtype, b.dtype(role));
          assert.deepEqual([...b.read(tensor)], new Array(15).fill(0));
          b.write(tensor, new Array(15).fill(2));
          const copy = b.read(tensor);
          copy.fill(7);
          assert.deepEqual([...b.read(tensor)], new Array(15).fill(2));
          b.zero(tensor);
          assert.deepEqual([...b.read(tensor)], new Array(15).fill(0));
        }
      },
    },
    {
      name: "views share memory, also views of views",
      run(h) {
        const b = h.tested;
        const tensor = b.tensor([12], "float");
        b.write(
          tensor,
          Array.from({ length: 12 }, (_, i) => i),
        );
        const view = b.view(tensor, 4, [2, 3]);
        assert.deepEqual([...view.shape], [2, 3]);
        assert.deepEqual([...b.read(view)], [4, 5, 6, 7, 8, 9]);
        const inner = b.view(view, 1, [2]);
        b.write(inner, [-1, -2]);
        assert.deepEqual([...b.read(tensor)], [0, 1, 2, 3, 4, -1, -2, 7, 8, 9, 10, 11]);
        b.zero(view);
        assert.deepEqual([...b.read(tensor)], [0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 10, 11]);
      },
    },
    {
      name: "copy copies values, not memory",
      run(h) {
        const b = h.tested;
        const [source, out] = [b.tensor([70], "float"), b.tensor([7, 10], "float")];
        b.write(
          source,
          Array.from({ length: 70 }, (_, i) => i),
        );
        b.copy(out, source);
        b.zero(source);
        assert.deepEqual(
          [...b.read(out)],
          Array.from({ length: 70 }, (_, i) => i),
        );
      },
    },
    {
      name: "readLater gives the values of its place in the order, again too",
      run(h) {
        const tensor = h.tested.tensor([5], "float");
        h.tested.write(tensor, [1, 2, 3, 4, 5]);
        const later = h.tested.readLater(tensor);
        h.tested.zero(tensor);
        assert.deepEqual([...later()], [1, 2, 3, 4, 5]);
        assert.deepEqual([...h.tested.read(tensor)], [0, 0, 0, 0, 0]);
        assert.deepEqual([...later()], [1, 2, 3, 4, 5]);
      },
    },
    {
      name: "sumLater gives the sum of its place in the order, in f64",
      run(h) {
        for (const length of [1, 31, 1024, 5000, 131_072]) {
          const tensor = h.tested.tensor([length], "float");
          // Halves up to 2^23 and a few large values: exact in f32, and the sum in f64 too, but not in f32.
          const values = Float32Array.from(
            { length },
            (_, i) => (i % 97 === 0 ? 2 ** 23 : 0) + (i % 7) + 0.5,
          );
          h.tested.write(tensor, values);
          const later = h.tested.sumLater(tensor);
          h.tested.zero(tensor);
          const zero = h.tested.sumLater(tensor);
          const sum = values.reduce((total, x) => total + x, 0);
          assert.equal(later(), sum);
          assert.equal(zero(), 0);
          assert.equal(later(), sum);
          h.tested.write(h.tested.view(tensor, length - 1, [1]), [Number.NaN]);
          assert.ok(Number.isNaN(h.tested.sumLater(tensor)()));
        }
        const weights = h.tested.tensor([4], "index");
        assert.throws(() => h.tested.sumLater(weights), /sumLater: values is a index tensor/);
      },
    },
    {
      name: "record runs nothing; each replay runs all in order on what the tensors then hold",
      run(h) {
        h.seed(1);
        const [T, N, K] = [9, width(options, 6), width(options, 7)];
        const [x, w, out] = [h.tensor([T, K]), h.tensor([N, K], "weight"), h.poisoned([T, N])];
        const [kept, dW] = [h.poisoned([T, N]), h.tensor([N, K], "float")];
        const operations = (b: Backend, on: <X>(pair: Both<X>) => X) => {
          b.linearForward(on(out), on(x), on(w));
          b.copy(on(kept), on(out));
          b.linearBackward(null, on(dW), on(out), on(x), on(w));
          b.zero(on(out));
        };
        const before = h.tested.read(dW.tested);
        const replay = h.tested.record(() => operations(h.tested, (pair) => pair.tested));
        sameBits("dW", h.tested.read(dW.tested), before);
        for (let step = 0; step < 3; step++) {
          h.write(x, h.normals(T * K));
          replay();
          operations(h.reference, (pair) => pair.reference);
          h.same({ kept, dW, out });
        }
      },
    },
    {
      name: "memory counts tensors",
      run(h) {
        const before = h.tested.memory();
        h.tested.tensor([1000], "float");
        assert.ok(h.tested.memory() >= before + 4000, "1000 floats are at least 4000 bytes");
      },
    },
    {
      name: "documents start as one document and change in place",
      run(h) {
        const documents = h.tested.documents(10, 3);
        assert.deepEqual([...documents.offsets], [0, 10]);
        h.tested.setDocuments(documents, [0, 1, 4, 10]);
        assert.deepEqual([...documents.offsets], [0, 1, 4, 10]);
        h.tested.setDocuments(documents, [0, 9, 10]);
        assert.deepEqual([...documents.offsets], [0, 9, 10]);
      },
    },
  ];
}
