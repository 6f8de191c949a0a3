/** What the suite's cases share: pairs of tensors on the backend and on the reference, and how they are compared. */
import assert from "node:assert/strict";
import type {
  AttentionShape,
  AttentionState,
  Backend,
  Documents,
  DType,
  Role,
  Tensor,
} from "../../../src/ops/contract.ts";
import { createReferenceBackend } from "../../../src/ops/reference/index.ts";
import { normals, uniform } from "../random.ts";

export interface SuiteOptions {
  /**
   * Largest |x - reference| / |reference| over a tensor (Euclidean norms), or that of a tensor by its name in the case
   * ("dW") and its type. Default 1e-5, for f32.
   */
  readonly tolerance?: number | ((name: string, dtype: DType) => number);
  /** Head dimensions the backend has kernels for. Default 16, 24, 64; the first is used wherever one will do. */
  readonly headDims?: readonly number[];
  /** Block sizes to try. Default 16, 5, 32; the first is used wherever one will do. */
  readonly blockSizes?: readonly number[];
  /** The largest topK to try. Default 99. */
  readonly largestTopK?: number;
  /** Widths of matrices are rounded up to a multiple of this. Default 1. */
  readonly widthMultiple?: number;
  /** Receives remarks such as the number of near-ties. Default: dropped. */
  readonly report?: (line: string) => void;
}

export interface Case {
  readonly name: string;
  run(): void;
}

/** A case before the harness is known. */
export interface SuiteCase {
  readonly name: string;
  run(h: Harness): void;
}

/** The same thing on both backends. */
export interface Both<X> {
  readonly tested: X;
  readonly reference: X;
}

export type Numbers = Float64Array | Float32Array | Int32Array;

export const headDims = (options: SuiteOptions) => options.headDims ?? [16, 24, 64];
export const blockSizes = (options: SuiteOptions) => options.blockSizes ?? [16, 5, 32];
export const width = (options: SuiteOptions, n: number) =>
  Math.ceil(n / (options.widthMultiple ?? 1)) * (options.widthMultiple ?? 1);

export class Harness {
  readonly tested: Backend;
  readonly reference = createReferenceBackend();
  readonly options: SuiteOptions;
  next: () => number = uniform(1);

  constructor(tested: Backend, options: SuiteOptions) {
    this.tested = tested;
    this.options = options;
  }

  seed(seed: number): void {
    this.next = uniform(seed);
  }

  normals(length: number, scale = 1): Float64Array {
    return normals(this.next, length).map((x) => x * scale);
  }

  /** One tensor on each backend with the same values: what the tested backend stores is what the reference gets. */
  tensor(shape: readonly number[], role: Role = "activation", values?: ArrayLike<number>): Both<Tensor> {
    const tested = this.tested.tensor(shape, role);
    const reference = this.reference.tensor(shape, role);
    const pair = { tested, reference };
    this.write(pair, values ?? this.normals(tested.length));
    return pair;
  }

  /** A tensor full of NaN: an operation that overwrites it leaves none. */
  poisoned(shape: readonly number[], role: Role = "activation"): Both<Tensor> {
    const length = shape.reduce((product, n) => product * n, 1);
    return this.tensor(shape, role, new Float64Array(length).fill(Number.NaN));
  }

  write(pair: Both<Tensor>, values: ArrayLike<number>): void {
    this.tested.write(pair.tested, values);
    this.reference.write(pair.reference, this.tested.read(pair.tested));
  }

  /** Gives the reference the tested backend's values. */
  align(pair: Both<Tensor>): void {
    this.reference.write(pair.reference, this.tested.read(pair.tested));
  }

  documents(offsets: readonly number[], maxDocuments = offsets.length - 1): Both<Documents> {
    const make = (b: Backend) => {
      const documents = b.documents(offsets[offsets.length - 1], maxDocuments);
      b.setDocuments(documents, offsets);
      return documents;
    };
    return { tested: make(this.tested), reference: make(this.reference) };
  }

  state(shape: AttentionShape): Both<AttentionState> {
    return { tested: this.tested.attentionState(shape), reference: this.reference.attentionState(shape) };
  }

  /** Runs an operation on both backends; `on` picks the backend's one of a pair. */
  both(run: (b: Backend, on: <X>(pair: Both<X>) => X) => void): void {
    run(this.reference, (pair) => pair.reference);
    run(this.tested, (pair) => pair.tested);
  }

  /** Compares tensors by name. `floor`: the least size to measure the error by, where the true value is all rounding. */
  same(pairs: Readonly<Record<string, Both<Tensor>>>, floor = 0): void {
    for (const [name, pair] of Object.entries(pairs)) {
      const { dtype } = pair.tested;
      this.near(name, this.tested.read(pair.tested), this.reference.read(pair.reference), floor, dtype);
    }
  }

  /** Compares values with the reference's by the relative error over the tensor. */
  near(
    name: string,
    values: Numbers,
    reference: Numbers,
    floor = 0,
    dtype = this.tested.dtype("activation"),
  ): void {
    const { tolerance = 1e-5 } = this.options;
    const allowed = typeof tolerance === "number" ? tolerance : tolerance(name, dtype);
    const error = relativeError(values, reference, floor);
    assert.ok(error <= allowed, `${name}: relative error ${error}, at most ${allowed} allowed`);
  }

  close(): void {
    this.tested.close();
    assert.throws(() => this.tested.tensor([1], "float"), "tensor after close");
    assert.throws(() => this.tested.synchronize(), "synchronize after close");
  }
}

/** |x - reference| / |reference|, Euclidean. NaN in the same places counts as equal, in others as an infinite error. */
export function relativeError(values: Numbers, reference: Numbers, floor = 0): number {
  assert.equal(values.length, reference.length, "lengths differ");
  let difference = 0;
  let size = 0;
  for (let i = 0; i < values.length; i++) {
    if (Number.isNaN(values[i]) && Number.isNaN(reference[i])) continue;
    if (Number.isNaN(values[i]) || Number.isNaN(reference[i])) return Infinity;
    difference += (values[i] - reference[i]) ** 2;
    size += reference[i] ** 2;
  }
  if (difference === 0) return 0;
  return Math.sqrt(difference) / Math.max(Math.sqrt(size), floor);
}

export function norm(values: Numbers): number {
  return Math.sqrt(Float64Array.from(values).reduce((sum, x) => sum + x * x, 0));
}

/** Asserts that two arrays hold the same bits (NaN equals NaN, 0 and -0 differ). */
export function sameBits(name: string, a: Numbers, b: Numbers): void {
  assert.equal(a.length, b.length, `${name}: lengths differ`);
  for (let i = 0; i < a.length; i++) {
    if (!Object.is(a[i], b[i])) assert.fail(`${name}[${i}]: ${a[i]} and ${b[i]} differ`);
  }
}
