// The split of fused query-key-value rows into heads with RoPE on queries and keys, and its transpose.
//
// Rows are [H query heads | G key heads | G value heads], heads D wide. Hugging Face Llama's convention: element i pairs
// with i + D/2, angle = position * theta^(-2i/D). A warp handles a token: its lanes compute the token's D/2 angles once,
// then share them for all heads. Angles are kept in turns in float64 until the whole turns are gone, so that cosines and
// sines are right to 1e-7 at any position; no table is read.
#include "common/vector.cuh"

namespace {

constexpr int WARPS = 8;
/** Heads whose vectors a lane loads before it rotates the first. */
constexpr int UNROLL = 2;
constexpr double PER_RADIAN = 0.15915494309189533577;  // turns

/** FORWARD: q, k, v from qkv. Else qkv from q, k, v, rotated back. */
template <int D, bool FORWARD>
__device__ __forceinline__ void split_rope(bf16_bits* __restrict__ q_THD, bf16_bits* __restrict__ k_TGD,
                                           bf16_bits* __restrict__ v_TGD, bf16_bits* __restrict__ qkv_TE,
                                           const int* __restrict__ offsets_M, const int* __restrict__ document_T,
                                           double ratio, int T, int H, int G, int firstPosition) {
  constexpr int ANGLES = D / 2 / WARP;              // per lane
  constexpr int LANES = D / 2 / PER_VECTOR;         // per head
  constexpr int HEADS = WARP / LANES;               // at once
  static_assert(ANGLES * WARP * 2 == D, "whole angles per lane");
  const int t = blockIdx.x * WARPS + threadIdx.x / WARP;
  const int lane = threadIdx.x % WARP;
  if (t >= T) return;

  const double position = double(firstPosition) + double(t - offsets_M[document_T[t]]);
  double frequency = PER_RADIAN;                    // ratio^i turns per token, i this lane's first angle
  double power = ratio;
#pragma unroll
  for (int bit = 1; bit < D / 2; bit *= 2) {
    if ((ANGLES * lane) & bit) frequency *= power;
    power *= power;
  }
  float cosines[ANGLES], sines[ANGLES];
#pragma unroll
  for (int a = 0; a < ANGLES; a++) {
    const double turns = position * frequency;
    sincospif(2.0f * float(turns - rint(turns)), &sines[a], &cosines[a]);
    frequency *= ratio;
  }
  const int first = lane % LANES * PER_VECTOR;      // this lane's elements of a head: first .. first + 7, and D/2 on
  float c[PER_VECTOR], s[PER_VECTOR];
#pragma unroll
  for (int i = 0; i < PER_VECTOR; i++) {
    c[i] = __shfl_sync(ALL_LANES, cosines[i % ANGLES], (first + i) / ANGLES);
    s[i] = __shfl_sync(ALL_LANES, sines[i % ANGLES], (first + i) / ANGLES);
    if (!FORWARD) s[i] = -s[i];
  }

  bf16_bits* row = qkv_TE + (long long)t * (H + 2 * G) * D;
  bf16_bits* q = q_THD + (long long)t * H * D;
  bf16_bits* k = k_TGD + (long long)t * G * D;
  bf16_bits* v = v_TGD + (long long)t * G * D;
  auto fused = [&](int head) { return row + head * D + first; };
  auto split = [&](int head) { return (head < H ? q + head * D : k + (head - H) * D) + first; };
  for (int head = lane / LANES; head < H + G; head += UNROLL * HEADS) {
    Packed lower[UNROLL], upper[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int h = head + u * HEADS;
      if (h >= H + G) break;
      const bf16_bits* from = FORWARD ? fused(h) : split(h);
      lower[u] = load_packed(from);
      upper[u] = load_packed(from + D / 2);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int h = head + u * HEADS;
      if (h >= H + G) break;
      bf16_bits* to = FORWARD ? split(h) : fused(h);
      float a[PER_VECTOR], b[PER_VECTOR], x[PER_VECTOR], y[PER_VECTOR];
      widen(a, lower[u]);
      widen(b, upper[u]);
#pragma unroll
      for (int i = 0; i < PER_VECTOR; i++) {
        x[i] = fmaf(a[i], c[i], -(b[i] * s[i]));
        y[i] = fmaf(b[i], c[i], a[i] * s[i]);
      }
      store_packed(to, round_packed(x));
      store_packed(to + D / 2, round_packed(y));
    }
  }
  bf16_bits* values = row + (H + G) * D;
  copy_vectors(FORWARD ? v : values, FORWARD ? values : v, G * D, lane * PER_VECTOR, WARP * PER_VECTOR);
}

}  // namespace

// Grid: a block per 8 tokens. ratio = theta^(-2/D); offsets_M and document_T as in CudaDocuments.
#define ROPE(D)                                                                                                      \
  extern "C" __global__ void __launch_bounds__(WARPS* WARP) split_rope_forward_d##D(                                 \
      bf16_bits* q_THD, bf16_bits* k_TGD, bf16_bits* v_TGD, bf16_bits* qkv_TE, const int* offsets_M,                 \
      const int* document_T, double ratio, int T, int H, int G, int firstPosition) {                                 \
    split_rope<D, true>(q_THD, k_TGD, v_TGD, qkv_TE, offsets_M, document_T, ratio, T, H, G, firstPosition);          \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(WARPS* WARP) split_rope_backward_d##D(                                \
      bf16_bits* q_THD, bf16_bits* k_TGD, bf16_bits* v_TGD, bf16_bits* qkv_TE, const int* offsets_M,                 \
      const int* document_T, double ratio, int T, int H, int G, int firstPosition) {                                 \
    split_rope<D, false>(q_THD, k_TGD, v_TGD, qkv_TE, offsets_M, document_T, ratio, T, H, G, firstPosition);         \
  }

ROPE(64)
ROPE(128)
