// 16-byte accesses, bf16 to f32 and back, and sums over a warp: what the memory-bound kernels are made of.
//
// bf16 is the upper half of an f32, so widening is a shift. Needs no header of the toolkit (NVRTC may have none).
#pragma once

using bf16_bits = unsigned short;

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
/** bf16 values of one 16-byte access. */
constexpr int PER_VECTOR = 8;

/** Eight bf16 values as they lie in memory. */
struct alignas(16) Packed {
  unsigned pair[4];
};

__device__ __forceinline__ Packed load_packed(const bf16_bits* p) {
  const uint4 v = *reinterpret_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}

// Stores in so many words: the compiler splits plain ones into four of 4 bytes where it loses sight of the alignment.
// It moves no load above them, so loads that are to be in flight together come first.

__device__ __forceinline__ void store_packed(bf16_bits* p, const Packed& v) {
  asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.pair[0]), "r"(v.pair[1]), "r"(v.pair[2]),
               "r"(v.pair[3])
               : "memory");
}

__device__ __forceinline__ void store_floats(float* p, float a, float b, float c, float d) {
  asm volatile("st.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

/** Copies the vectors at first, first + stride, ... of a row of `width` values. */
__device__ __forceinline__ void copy_vectors(bf16_bits* to, const bf16_bits* from, int width, int first, int stride) {
  constexpr int IN_FLIGHT = 4;
  for (int i = first; i < width; i += IN_FLIGHT * stride) {
    Packed v[IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      if (i + u * stride < width) v[u] = load_packed(from + i + u * stride);
    }
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      if (i + u * stride < width) store_packed(to + i + u * stride, v[u]);
    }
  }
}

__device__ __forceinline__ float low_bf16(unsigned pair) { return __uint_as_float(pair << 16); }

__device__ __forceinline__ float high_bf16(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ float widen(bf16_bits x) { return __uint_as_float(unsigned(x) << 16); }

/** To nearest, ties to even; NaN stays NaN. `low` goes to the lower address. */
__device__ __forceinline__ unsigned round_pair(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ bf16_bits round_bf16(float x) { return bf16_bits(round_pair(x, 0.0f)); }

__device__ __forceinline__ void widen(float (&out)[PER_VECTOR], const Packed& v) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    out[2 * i] = low_bf16(v.pair[i]);
    out[2 * i + 1] = high_bf16(v.pair[i]);
  }
}

__device__ __forceinline__ Packed round_packed(const float (&x)[PER_VECTOR]) {
  Packed v;
#pragma unroll
  for (int i = 0; i < 4; i++) v.pair[i] = round_pair(x[2 * i], x[2 * i + 1]);
  return v;
}

/** Every lane gets the sum; the order of additions is fixed. */
template <typename T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
  return x;
}

/** NaN only when all are NaN, as fmaxf. */
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
  return x;
}

/**
 * The sum over the first WARPS warps of a block, every thread gets it. `parts` is shared memory of WARPS values, free
 * to be overwritten: no thread may still read it from an earlier call (a barrier lies between).
 */
template <int WARPS, typename T>
__device__ __forceinline__ T block_sum(T x, T* parts) {
  x = warp_sum(x);
  if (WARPS == 1) return x;
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = x;
  __syncthreads();
  T sum = parts[0];
#pragma unroll
  for (int i = 1; i < WARPS; i++) sum += parts[i];
  return sum;
}

/** 2^x and 1 / x by the special function unit: good to two units in the last place, tiny results become 0. */
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/** SiLU(x) is x sigmoid(x). */
__device__ __forceinline__ float sigmoid(float x) {
  return fast_reciprocal(1.0f + fast_exp2(x * -1.4426950408889634f));
}
