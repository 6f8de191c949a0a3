// RMSNorm: forward (alone, and behind a residual add) and backward. out = x rstd gain, rstd = 1 / sqrt(mean(x^2) + eps).
//
// A row lies in the registers of a group of lanes, VECTORS vectors of 8 bf16 values per lane, so that it is read once:
// a warp for C up to 2048 (kernels _v1 to _v8), a block of 8 warps for C up to 16384 (_wide). C is a multiple of 8.
#include "common/vector.cuh"

namespace {

constexpr int THREADS = 256;

/** x_TC + delta_TC goes to sum_TC, rounded, when ADD; the norm is of the rounded sum. sum may be x. */
template <int VECTORS, int WARPS, bool ADD>
__device__ __forceinline__ void norm_forward(bf16_bits* sum_TC, bf16_bits* out_TC, float* rstd_T, const bf16_bits* x_TC,
                                             const bf16_bits* delta_TC, const bf16_bits* gain_C, int T, int C,
                                             float eps) {
  constexpr int GROUP = WARPS * WARP;
  __shared__ float parts[WARPS];
  const int row = blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
  const int lane = threadIdx.x % GROUP;
  if (row >= T) return;
  const long long at = (long long)row * C;
  Packed x[VECTORS];
  Packed delta[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; v++) {
    const int c = (v * GROUP + lane) * PER_VECTOR;
    x[v] = c < C ? load_packed(x_TC + at + c) : Packed{};
    if (ADD) delta[v] = c < C ? load_packed(delta_TC + at + c) : Packed{};
  }
  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < VECTORS; v++) {
    float a[PER_VECTOR];
    widen(a, x[v]);
    if (ADD) {
      float b[PER_VECTOR];
      widen(b, delta[v]);
#pragma unroll
      for (int i = 0; i < PER_VECTOR; i++) a[i] += b[i];
      x[v] = round_packed(a);
      widen(a, x[v]);
      const int c = (v * GROUP + lane) * PER_VECTOR;
      if (c < C) store_packed(sum_TC + at + c, x[v]);
    }
#pragma unroll
    for (int i = 0; i < PER_VECTOR; i++) squares = fmaf(a[i], a[i], squares);
  }
  const float rstd = rsqrtf(block_sum<WARPS>(squares, parts) / C + eps);
  if (lane == 0) rstd_T[row] = rstd;
#pragma unroll
  for (int v = 0; v < VECTORS; v++) {
    const int c = (v * GROUP + lane) * PER_VECTOR;
    if (c >= C) continue;
    float a[PER_VECTOR], gain[PER_VECTOR];
    widen(a, x[v]);
    widen(gain, load_packed(gain_C + c));
#pragma unroll
    for (int i = 0; i < PER_VECTOR; i++) a[i] *= rstd * gain[i];
    store_packed(out_TC + at + c, round_packed(a));
  }
}

/**
 * With xn = x rstd: dX += rstd (gain dOut - xn mean(gain dOut xn)); each block writes its rows' share of
 * dGain = sum over rows of dOut xn. Blocks take rows in turn, so the order of additions depends on the grid alone.
 * Dynamic shared memory: C floats where WARPS is 1.
 */
template <int VECTORS, int WARPS>
__device__ __forceinline__ void norm_backward(bf16_bits* __restrict__ dX_TC, float* __restrict__ partials,
                                              const bf16_bits* __restrict__ dOut_TC,
                                              const bf16_bits* __restrict__ x_TC,
                                              const bf16_bits* __restrict__ gain_C,
                                              const float* __restrict__ rstd_T, int T, int C) {
  constexpr int GROUP = WARPS * WARP;
  constexpr int GROUPS = THREADS / GROUP;
  // Two, so that one barrier per row is enough.
  __shared__ float parts[2][WARPS];
  const int group = threadIdx.x / GROUP;
  const int lane = threadIdx.x % GROUP;
  Packed gain[VECTORS];
  float dGain[VECTORS][PER_VECTOR];
#pragma unroll
  for (int v = 0; v < VECTORS; v++) {
    const int c = (v * GROUP + lane) * PER_VECTOR;
    gain[v] = c < C ? load_packed(gain_C + c) : Packed{};
#pragma unroll
    for (int i = 0; i < PER_VECTOR; i++) dGain[v][i] = 0.0f;
  }
  int turn = 0;
  for (int row = blockIdx.x * GROUPS + group; row < T; row += gridDim.x * GROUPS, turn ^= 1) {
    const long long at = (long long)row * C;
    Packed x[VECTORS], dOut[VECTORS], dX[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      const int c = (v * GROUP + lane) * PER_VECTOR;
      x[v] = c < C ? load_packed(x_TC + at + c) : Packed{};
      dOut[v] = c < C ? load_packed(dOut_TC + at + c) : Packed{};
    }
    // Loaded early: it is needed only behind the sum over the row.
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      const int c = (v * GROUP + lane) * PER_VECTOR;
      dX[v] = c < C ? load_packed(dX_TC + at + c) : Packed{};
    }
    const float rstd = rstd_T[row];
    float dot = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      float a[PER_VECTOR], d[PER_VECTOR], g[PER_VECTOR];
      widen(a, x[v]);
      widen(d, dOut[v]);
      widen(g, gain[v]);
#pragma unroll
      for (int i = 0; i < PER_VECTOR; i++) {
        const float product = d[i] * (a[i] * rstd);
        dGain[v][i] += product;
        dot = fmaf(g[i], product, dot);
      }
    }
    const float mean = block_sum<WARPS>(dot, parts[turn]) / C;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      const int c = (v * GROUP + lane) * PER_VECTOR;
      float a[PER_VECTOR], d[PER_VECTOR], g[PER_VECTOR], out[PER_VECTOR];
      widen(a, x[v]);
      widen(d, dOut[v]);
      widen(g, gain[v]);
      widen(out, dX[v]);
#pragma unroll
      for (int i = 0; i < PER_VECTOR; i++) out[i] = fmaf(rstd, fmaf(g[i], d[i], -(a[i] * rstd) * mean), out[i]);
      if (c < C) store_packed(dX_TC + at + c, round_packed(out));
    }
  }
  float* partial = partials + (long long)blockIdx.x * C;
  if constexpr (GROUPS == 1) {
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      const int c = (v * GROUP + lane) * PER_VECTOR;
      if (c >= C) continue;
#pragma unroll
      for (int i = 0; i < PER_VECTOR; i++) partial[c + i] = dGain[v][i];
    }
  } else {
    // The groups add in turn: a fixed order in C floats.
    extern __shared__ float sums_C[];
    for (int turn_of = 0; turn_of < GROUPS; turn_of++) {
      if (group == turn_of) {
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
          const int c = (v * GROUP + lane) * PER_VECTOR;
          if (c >= C) continue;
#pragma unroll
          for (int i = 0; i < PER_VECTOR; i++) sums_C[c + i] = dGain[v][i] + (turn_of == 0 ? 0.0f : sums_C[c + i]);
        }
      }
      __syncthreads();
    }
    for (int c = threadIdx.x; c < C; c += THREADS) partial[c] = sums_C[c];
  }
}

}  // namespace

// Forward: one group of lanes per row. Backward: any grid, at most one block per 256 / (32 WARPS) rows is of use;
// partials is f32 [blocks, C]. BLOCKS per multiprocessor bound the registers.
#define NORM(NAME, VECTORS, WARPS, BLOCKS)                                                                          \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
      norm_forward_##NAME(bf16_bits* out_TC, float* rstd_T, const bf16_bits* x_TC, const bf16_bits* gain_C, int T,  \
                          int C, float eps) {                                                                       \
    norm_forward<VECTORS, WARPS, false>(nullptr, out_TC, rstd_T, x_TC, nullptr, gain_C, T, C, eps);                 \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
      add_norm_forward_##NAME(bf16_bits* sum_TC, bf16_bits* out_TC, float* rstd_T, const bf16_bits* x_TC,           \
                              const bf16_bits* delta_TC, const bf16_bits* gain_C, int T, int C, float eps) {        \
    norm_forward<VECTORS, WARPS, true>(sum_TC, out_TC, rstd_T, x_TC, delta_TC, gain_C, T, C, eps);                  \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                     \
      norm_backward_##NAME(bf16_bits* dX_TC, float* partials, const bf16_bits* dOut_TC, const bf16_bits* x_TC,      \
                           const bf16_bits* gain_C, const float* rstd_T, int T, int C) {                            \
    norm_backward<VECTORS, WARPS>(dX_TC, partials, dOut_TC, x_TC, gain_C, rstd_T, T, C);                            \
  }

NORM(v1, 1, 1, 4)
NORM(v2, 2, 1, 2)
NORM(v3, 3, 1, 2)
NORM(v4, 4, 1, 1)
NORM(v5, 5, 1, 1)
NORM(v6, 6, 1, 1)
NORM(v7, 7, 1, 1)
NORM(v8, 8, 1, 1)
NORM(wide, 8, 8, 1)
