// What the backward pass keeps of a query.
#pragma once
#include "../common/vector.cuh"

/** A query's log-sum-exp to base 2, and delta = <dOut, out>. */
struct alignas(8) Stats {
  float lse, delta;
};

/** <a, b> of two rows of D for all of a group of D / 8 lanes, of which `lane` is one; 0 when not `there` (nothing is read). */
template <int D>
__device__ __forceinline__ float row_product(const bf16_bits* a, const bf16_bits* b, int lane, bool there) {
  float sum = 0.0f;
  if (there) {
    float x[PER_VECTOR], y[PER_VECTOR];
    widen(x, load_packed(a + 8 * lane));
    widen(y, load_packed(b + 8 * lane));
#pragma unroll
    for (int i = 0; i < PER_VECTOR; i++) sum = fmaf(x[i], y[i], sum);
  }
#pragma unroll
  for (int offset = D / 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, offset);
  return sum;
}
