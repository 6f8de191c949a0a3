/** Matrix products by cuBLASLt: bf16 (or f32) in, sums in f32, the best algorithm looked up once per shape. */
import { InputError, RunError } from "../../errors.ts";
import type { DType } from "../contract.ts";
import type { Pointer } from "./context.ts";
import type { Device } from "./device.ts";
import { versionText } from "./driver.ts";
import type { Memory } from "./memory.ts";

/** A row-major matrix without gaps between rows. */
export interface Matrix {
  readonly pointer: Pointer;
  readonly dtype: Extract<DType, "bf16" | "f32">;
}

/**
 * out = op(a) op(b), or out += op(a) op(b): `out` is [m, n]; `a` is [m, k], or [k, m] when `transposeA`; `b` is [k, n],
 * or [n, k] when `transposeB`. `a` and `b` have one type. x w^T is `transposeB`, dOut^T x is `transposeA`.
 */
export interface MatrixProduct {
  readonly out: Matrix;
  readonly a: Matrix;
  readonly b: Matrix;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly transposeA?: boolean;
  readonly transposeB?: boolean;
  readonly accumulate?: boolean;
}

type Call = (...args: (number | bigint | ArrayBufferView | null)[]) => number;

/** Every cuBLASLt function used, parameters as in driver.ts. */
export const BLAS_FUNCTIONS = {
  cublasLtCreate: "p",
  cublasLtDestroy: "h",
  cublasLtMatmulDescCreate: "pii",
  cublasLtMatmulDescSetAttribute: "hipn",
  cublasLtMatrixLayoutCreate: "pihhh",
  cublasLtMatmulPreferenceCreate: "p",
  cublasLtMatmulPreferenceSetAttribute: "hipn",
  cublasLtMatmulPreferenceDestroy: "h",
  cublasLtMatmulAlgoGetHeuristic: "hhhhhhhipp",
  cublasLtMatmul: "hhphhhhphhhhphnh",
} as const;

export type RawBlas = Readonly<Record<keyof typeof BLAS_FUNCTIONS, Call>>;

// Values of cuBLASLt's and the CUDA library's enumerations.
const COMPUTE_F32 = 68;
const TYPES = { bf16: 14, f32: 0 } as const;
const DESC_TRANSPOSE_A = 3;
const DESC_TRANSPOSE_B = 4;
const PREFER_WORKSPACE_BYTES = 1;
const PREFER_REDUCTIONS = 3;
const PREFER_ALIGNMENT_A = 5;
/** Sums of a split inner dimension in f32, in place or in the workspace: never rounded to bf16 in between. */
const REDUCTIONS_IN_F32 = 1 | 2;
/** `cublasLtMatmulHeuristicResult_t`: the algorithm is its first 64 bytes, its state lies at byte 72. */
const RESULT_BYTES = 96;
const STATE_AT = 72;
/** What NVIDIA advises for Hopper, doubled: a split inner dimension of a large weight gradient uses it. */
const WORKSPACE_BYTES = 64 << 20;
const NOT_SUPPORTED = 15;

interface Plan {
  readonly description: bigint;
  readonly layoutA: bigint;
  readonly layoutB: bigint;
  readonly layoutOut: bigint;
  readonly algorithm: Uint8Array;
}

export class Blas {
  readonly #device: Device;
  readonly #memory: Memory;
  readonly #raw: RawBlas;
  readonly #handle: bigint;
  readonly #plans = new Map<string, Plan>();
  readonly #out = new BigUint64Array(new ArrayBuffer(8));
  readonly #zero = new Float32Array(new ArrayBuffer(4));
  readonly #one = new Float32Array(new ArrayBuffer(4)).fill(1);

  constructor(device: Device, memory: Memory, raw: RawBlas) {
    this.#device = device;
    this.#memory = memory;
    this.#raw = raw;
    device.activate();
    const code = raw.cublasLtCreate(this.#out);
    if (code !== 0) {
      throw new InputError(
        `cuBLASLt does not start (${statusText(code)}): the driver supports CUDA ${versionText(device.driver.version())}, is the library for a newer one?`,
      );
    }
    this.#handle = this.#out[0];
  }

  matmul(product: MatrixProduct): void {
    const { out, a, b, accumulate } = product;
    this.#device.activate();
    const plan = this.#plan(product);
    const workspace = this.#memory.scratch("cuBLASLt", WORKSPACE_BYTES);
    if (this.#device.mode === "plan") return;
    // cuBLASLt is column-major, where these matrices are their own transposes: out^T = op(b)^T op(a)^T.
    const code = this.#raw.cublasLtMatmul(
      this.#handle,
      plan.description,
      this.#one,
      b.pointer,
      plan.layoutB,
      a.pointer,
      plan.layoutA,
      accumulate ? this.#one : this.#zero,
      out.pointer,
      plan.layoutOut,
      out.pointer,
      plan.layoutOut,
      plan.algorithm,
      workspace,
      WORKSPACE_BYTES,
      this.#device.stream,
    );
    check(code, `multiplying matrices, ${productText(product)}`);
  }

  #plan(product: MatrixProduct): Plan {
    const { out, a, b, m, n, k, transposeA, transposeB } = product;
    const alignments = [b, a, out].map(({ pointer }) => alignmentOf(pointer));
    const key = [m, n, k, !!transposeA, !!transposeB, a.dtype, b.dtype, out.dtype, ...alignments].join();
    let plan = this.#plans.get(key);
    if (!plan) this.#plans.set(key, (plan = this.#choose(product, alignments)));
    return plan;
  }

  #choose(product: MatrixProduct, alignments: readonly number[]): Plan {
    const raw = this.#raw;
    const { out, a, b, m, n, k, transposeA, transposeB } = product;
    const what = `choosing an algorithm for a matrix product, ${productText(product)}`;
    const made = (code: number) => {
      check(code, what);
      return this.#out[0];
    };
    const set = (
      call: "cublasLtMatmulDescSetAttribute" | "cublasLtMatmulPreferenceSetAttribute",
      object: bigint,
      attribute: number,
      value: number,
      bytes: 4 | 8,
    ) => {
      this.#out[0] = BigInt(value);
      check(raw[call](object, attribute, this.#out, bytes), what);
    };
    const description = made(raw.cublasLtMatmulDescCreate(this.#out, COMPUTE_F32, TYPES.f32));
    set("cublasLtMatmulDescSetAttribute", description, DESC_TRANSPOSE_A, transposeB ? 1 : 0, 4);
    set("cublasLtMatmulDescSetAttribute", description, DESC_TRANSPOSE_B, transposeA ? 1 : 0, 4);
    // Rows and columns as cuBLASLt sees them: those of the transpose.
    const layout = ({ dtype }: Matrix, rows: number, columns: number) =>
      made(
        raw.cublasLtMatrixLayoutCreate(
          this.#out,
          TYPES[dtype],
          BigInt(columns),
          BigInt(rows),
          BigInt(columns),
        ),
      );
    const layoutA = transposeA ? layout(a, k, m) : layout(a, m, k);
    const layoutB = transposeB ? layout(b, n, k) : layout(b, k, n);
    const layoutOut = layout(out, m, n);

    const preference = made(raw.cublasLtMatmulPreferenceCreate(this.#out));
    const prefer = (attribute: number, value: number, bytes: 4 | 8) =>
      set("cublasLtMatmulPreferenceSetAttribute", preference, attribute, value, bytes);
    prefer(PREFER_WORKSPACE_BYTES, WORKSPACE_BYTES, 8);
    prefer(PREFER_REDUCTIONS, REDUCTIONS_IN_F32, 4);
    [...alignments, alignments[2]].forEach((bytes, i) => {
      prefer(PREFER_ALIGNMENT_A + i, bytes, 4);
    });
    const result = new Uint8Array(new ArrayBuffer(RESULT_BYTES));
    const code = raw.cublasLtMatmulAlgoGetHeuristic(
      this.#handle,
      description,
      layoutB,
      layoutA,
      layoutOut,
      layoutOut,
      preference,
      1,
      result,
      this.#out,
    );
    raw.cublasLtMatmulPreferenceDestroy(preference);
    check(code, what);
    const found = new Int32Array(this.#out.buffer)[0];
    check(found > 0 ? new Int32Array(result.buffer)[STATE_AT / 4] : NOT_SUPPORTED, what);
    return { description, layoutA, layoutB, layoutOut, algorithm: result };
  }

  close(): void {
    this.#device.activate();
    this.#raw.cublasLtDestroy(this.#handle);
  }
}

/** The largest power of two that divides an address, at most 256: what cuBLASLt may rely on. */
function alignmentOf(pointer: Pointer): number {
  const low = pointer & -pointer;
  return low === 0n || low > 256n ? 256 : Number(low);
}

function productText({ out, a, b, m, n, k, transposeA, transposeB, accumulate }: MatrixProduct): string {
  const left = transposeA ? `[${k}, ${m}]^T` : `[${m}, ${k}]`;
  const right = transposeB ? `[${n}, ${k}]^T` : `[${k}, ${n}]`;
  return `${out.dtype} [${m}, ${n}] ${accumulate ? "+=" : "="} ${a.dtype} ${left} x ${b.dtype} ${right}`;
}

function statusText(code: number): string {
  return `cuBLASLt status ${code}${STATUS[code] ?? ""}`;
}

function check(code: number, what: string): void {
  if (code !== 0) throw new RunError(`${what} failed: ${statusText(code)}`);
}

const STATUS: Readonly<Record<number, string>> = {
  1: " (not initialised)",
  3: " (out of memory)",
  7: " (invalid value)",
  8: " (not for this card's architecture)",
  13: " (execution failed)",
  14: " (internal error)",
  15: " (not supported)",
};
