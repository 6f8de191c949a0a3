/** What the memory-bound kernels ask of their tensors: 16-byte vectors; and sums of what their blocks found. */
import type { Tensor } from "../contract.ts";
import { type Context, type Pointer, pointerOf } from "./context.ts";

const VECTOR_BYTES = 16n;
/** bf16 values of a vector. */
export const PER_VECTOR = 8;
export const WARP = 32;

/** Refuses a width that rows of whole vectors cannot have. */
export function checkWidth(op: string, what: string, width: number): void {
  if (width % PER_VECTOR !== 0) {
    throw new RangeError(`${op}: ${what} is ${width}, expected a multiple of ${PER_VECTOR} on a CUDA card`);
  }
}

/** Refuses views that start between two vectors. */
export function checkAligned(op: string, tensors: Readonly<Record<string, Tensor>>): void {
  for (const [name, tensor] of Object.entries(tensors)) {
    const over = pointerOf(tensor) % VECTOR_BYTES;
    if (over !== 0n) {
      throw new RangeError(
        `${op}: ${name} starts ${over} bytes behind a multiple of ${VECTOR_BYTES} bytes, expected a view that starts at one`,
      );
    }
  }
}

/** The threads of a block, a whole number of warps, for `items` with `each` of them per thread. */
export function threadsFor(items: number, each: number, most: number): number {
  return Math.min(most, Math.ceil(items / each / WARP) * WARP);
}

/** Enqueues out[c] += sum over p of partials[p][c], f32, in a fixed order. */
export function addPartials(
  context: Context,
  out: Tensor,
  partials: Pointer,
  count: number,
  columns: number,
): void {
  const grid = [Math.ceil(columns / WARP), 1, 1] as const;
  const args = [{ ptr: out }, { ptr: partials }, { i32: count }, { i32: columns }];
  context.launch("partials:add_partials", grid, [WARP, 32, 1], 0, args);
}

/** Cuts one piece of scratch into parts of so many bytes, each 256-byte aligned. */
export function scratchParts(context: Context, name: string, bytes: readonly number[]): Pointer[] {
  const ends: number[] = [];
  let end = 0;
  for (const part of bytes) ends.push((end += Math.ceil(part / 256) * 256));
  const start = context.scratch(name, end);
  return ends.map((_, i) => start + BigInt(i === 0 ? 0 : ends[i - 1]));
}
