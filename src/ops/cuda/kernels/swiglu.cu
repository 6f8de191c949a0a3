// SwiGLU: out = SiLU(gate) * up, forward and backward. Memory-bound: 6 and 10 bytes per element of out.
//
// Vectors of 8 values, numbered over the whole [T, F] (F is a multiple of 8); a block takes 512 neighbouring ones.
#include "common/vector.cuh"

namespace {

constexpr int THREADS = 256;
/** Vectors per thread, all loaded before the first is used. */
constexpr int UNROLL = 2;

/** Where a vector of [T, F] begins in it and, its gate, in [T, 2 F]. */
struct Place {
  long long out;
  long long gate;
};

__device__ __forceinline__ Place place(unsigned vector, unsigned rowVectors) {
  const unsigned t = vector / rowVectors;
  const long long out = (long long)vector * PER_VECTOR;
  return {out, out + (long long)t * rowVectors * PER_VECTOR};
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    swiglu_forward(bf16_bits* __restrict__ out_TF, const bf16_bits* __restrict__ gateUp_T2F, long long vectors, int F) {
  const unsigned rowVectors = F / PER_VECTOR;
  const long long first = (long long)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  Packed gate[UNROLL], up[UNROLL];
  Place at[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const long long vector = first + u * THREADS;
    if (vector >= vectors) break;
    at[u] = place(unsigned(vector), rowVectors);
    gate[u] = load_packed(gateUp_T2F + at[u].gate);
    up[u] = load_packed(gateUp_T2F + at[u].gate + F);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    if (first + u * THREADS >= vectors) break;
    float g[PER_VECTOR], x[PER_VECTOR];
    widen(g, gate[u]);
    widen(x, up[u]);
#pragma unroll
    for (int i = 0; i < PER_VECTOR; i++) x[i] *= g[i] * sigmoid(g[i]);
    store_packed(out_TF + at[u].out, round_packed(x));
  }
}

/** dGate = dOut up SiLU'(gate), SiLU'(g) = s (1 + g (1 - s)) with s = sigmoid(g); dUp = dOut SiLU(gate). */
extern "C" __global__ void __launch_bounds__(THREADS)
    swiglu_backward(bf16_bits* __restrict__ dGateUp_T2F, const bf16_bits* __restrict__ dOut_TF,
                    const bf16_bits* __restrict__ gateUp_T2F, long long vectors, int F) {
  const unsigned rowVectors = F / PER_VECTOR;
  const long long first = (long long)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  Packed gate[UNROLL], up[UNROLL], dOut[UNROLL];
  Place at[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const long long vector = first + u * THREADS;
    if (vector >= vectors) break;
    at[u] = place(unsigned(vector), rowVectors);
    gate[u] = load_packed(gateUp_T2F + at[u].gate);
    up[u] = load_packed(gateUp_T2F + at[u].gate + F);
    dOut[u] = load_packed(dOut_TF + at[u].out);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    if (first + u * THREADS >= vectors) break;
    float g[PER_VECTOR], x[PER_VECTOR], d[PER_VECTOR];
    widen(g, gate[u]);
    widen(x, up[u]);
    widen(d, dOut[u]);
#pragma unroll
    for (int i = 0; i < PER_VECTOR; i++) {
      const float s = sigmoid(g[i]);
      const float silu = g[i] * s;
      x[i] *= d[i] * fmaf(silu, 1.0f - s, s);
      d[i] *= silu;
    }
    store_packed(dGateUp_T2F + at[u].gate, round_packed(x));
    store_packed(dGateUp_T2F + at[u].gate + F, round_packed(d));
  }
}
