/** `CUtensorMap`: what the bulk tensor copy engine (TMA) of Hopper cards needs to know of a tensor. */
import { InputError } from "../../errors.ts";
import type { DType } from "../contract.ts";
import type { Pointer } from "./context.ts";
import type { Device } from "./device.ts";
import { ffi } from "./ffi.ts";

export interface TensorMapOptions {
  /** 16-byte aligned. */
  readonly pointer: Pointer;
  readonly dtype: DType;
  /** Sizes in elements, innermost dimension first (so the reverse of a shape). One to five of them. */
  readonly sizes: readonly number[];
  /** Bytes from one index to the next of each dimension but the innermost; multiples of 16. */
  readonly strides: readonly number[];
  /** Elements that one copy moves, per dimension; at most 256 each. */
  readonly box: readonly number[];
  /** Bytes of the swizzle pattern; the box's inner dimension may not be wider. */
  readonly swizzle: 0 | 32 | 64 | 128;
}

const TENSOR_MAP_BYTES = 128;

/** Values of `CUtensorMapDataType` and `CUtensorMapSwizzle` (cuda.h). */
const TENSOR_MAP_TYPES: Readonly<Record<DType, number>> = { i32: 3, f32: 7, f64: 8, bf16: 9 };
const TENSOR_MAP_SWIZZLES: Readonly<Record<number, number>> = { 0: 0, 32: 1, 64: 2, 128: 3 };
/** `CU_TENSOR_MAP_L2_PROMOTION_L2_128B`. */
const TENSOR_MAP_L2_128 = 2;

/** Makes and keeps tensor maps. */
export function tensorMaps(device: Device): (options: TensorMapOptions) => Uint8Array {
  const made = new Map<string, Uint8Array>();
  return (options) => {
    const { pointer, dtype, sizes, strides, box, swizzle } = options;
    const key = [pointer, dtype, sizes, strides, box, swizzle].join(";");
    const known = made.get(key);
    if (known) return known;
    const encode = device.driver.raw.cuTensorMapEncodeTiled;
    if (!encode)
      throw new InputError("the CUDA driver has no cuTensorMapEncodeTiled, expected CUDA 12.0 or newer");
    const rank = sizes.length;
    // The driver wants 64-byte alignment; one line more than needed to find it in.
    const buffer = new ArrayBuffer(TENSOR_MAP_BYTES + 64);
    const map = new Uint8Array(buffer, Number(-ffi().address(buffer) & 63n), TENSOR_MAP_BYTES);
    device.driver.check(
      encode(
        map,
        TENSOR_MAP_TYPES[dtype],
        rank,
        pointer,
        BigUint64Array.from(sizes, BigInt),
        BigUint64Array.from(rank > 1 ? strides : [0], BigInt),
        Uint32Array.from(box),
        new Uint32Array(rank).fill(1),
        0,
        TENSOR_MAP_SWIZZLES[swizzle],
        TENSOR_MAP_L2_128,
        0,
      ),
      `describing a tensor for bulk copies (sizes ${sizes}, strides ${strides}, box ${box}, swizzle ${swizzle})`,
    );
    made.set(key, map);
    return map;
  };
}
