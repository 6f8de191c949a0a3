// Attention of one query, token length - 1 of a document, against a cache of keys and values: for generation. The
// chosen blocks come from the kernels of routing.cu, so they are the very ones of the whole forward pass.
//
//   out_HD, q_HD bf16 [H, D]   k_TGD, v_TGD bf16 [cache rows, G, D]   selected_HS i32 [H, S]
#include "../common/vector.cuh"
#include "blocks.cuh"

constexpr int DECODE_THREADS = 256;
/** Lanes that share a key, each with D / 8 dimensions. */
constexpr int KEY_LANES = 8;
constexpr int GROUPS = DECODE_THREADS / KEY_LANES;

/** One block of threads per query head. */
template <int D>
__device__ __forceinline__ void decode(bf16_bits* out_HD, const bf16_bits* q_HD, const bf16_bits* k_TGD,
                                       const bf16_bits* v_TGD, const int* selected_HS, int length, int heads,
                                       int kvHeads, int selectedCount, int blockSize, float scale) {
  constexpr int MINE = D / KEY_LANES;
  __shared__ float parts[GROUPS][D];
  __shared__ float mosts[GROUPS], sums[GROUPS];
  const int head = int(blockIdx.x), kvHead = head / (heads / kvHeads);
  const int group = int(threadIdx.x) / KEY_LANES, lane = int(threadIdx.x) % KEY_LANES;
  const long long stride = (long long)kvHeads * D;
  float q[MINE], out[MINE];
  float most = -infinity(), sum = 0.0f;
#pragma unroll
  for (int i = 0; i < MINE; i++) {
    q[i] = widen(q_HD[head * D + lane * MINE + i]) * scale;
    out[i] = 0.0f;
  }
  const auto take = [&](int first, int end) {
    // Every thread of a warp takes part in the exchange, with or without a key.
    for (int from = first; from < end; from += GROUPS) {
      const int token = from + group;
      const long long at = min(token, end - 1) * stride + kvHead * D + lane * MINE;
      float k[MINE], v[MINE];
#pragma unroll
      for (int i = 0; i < MINE; i += PER_VECTOR) {
        float x[PER_VECTOR], y[PER_VECTOR];
        widen(x, load_packed(k_TGD + at + i));
        widen(y, load_packed(v_TGD + at + i));
#pragma unroll
        for (int j = 0; j < PER_VECTOR; j++) {
          k[i + j] = x[j];
          v[i + j] = y[j];
        }
      }
      float score = 0.0f;
#pragma unroll
      for (int i = 0; i < MINE; i++) score = fmaf(q[i], k[i], score);
#pragma unroll
      for (int offset = KEY_LANES / 2; offset > 0; offset /= 2) score += __shfl_xor_sync(ALL_LANES, score, offset);
      if (token >= end) continue;
      const float top = fmaxf(most, score);
      const float reference = top == -infinity() ? 0.0f : top;
      const float shrink = fast_exp2(most - reference), weight = fast_exp2(score - reference);
      most = top;
      sum = fmaf(sum, shrink, weight);
#pragma unroll
      for (int i = 0; i < MINE; i++) out[i] = fmaf(out[i], shrink, weight * v[i]);
    }
  };
  for (int i = 0; i < selectedCount; i++) {
    const int block = selected_HS[head * selectedCount + i];
    if (block < 0) break;
    take(block * blockSize, (block + 1) * blockSize);
  }
  take(blockSize == 0 ? 0 : (length - 1) / blockSize * blockSize, length);

#pragma unroll
  for (int i = 0; i < MINE; i++) parts[group][lane * MINE + i] = out[i];
  if (lane == 0) {
    mosts[group] = most;
    sums[group] = sum;
  }
  __syncthreads();
  if (int(threadIdx.x) >= D) return;
  float top = mosts[0];
  for (int i = 1; i < GROUPS; i++) top = fmaxf(top, mosts[i]);
  const float reference = top == -infinity() ? 0.0f : top;
  float value = 0.0f, total = 0.0f;
  for (int i = 0; i < GROUPS; i++) {
    const float weight = fast_exp2(mosts[i] - reference);
    value = fmaf(weight, parts[i][threadIdx.x], value);
    total = fmaf(weight, sums[i], total);
  }
  out_HD[head * D + threadIdx.x] = round_bf16(total == 0.0f ? 0.0f : value / total);
}

#define ATTENTION_DECODE(D)                                                                                         \
  extern "C" __global__ void __launch_bounds__(DECODE_THREADS) attention_decode_d##D(                               \
      bf16_bits* out_HD, const bf16_bits* q_HD, const bf16_bits* k_TGD, const bf16_bits* v_TGD,                     \
      const int* selected_HS, int length, int heads, int kvHeads, int selectedCount, int blockSize, float scale) {  \
    decode<D>(out_HD, q_HD, k_TGD, v_TGD, selected_HS, length, heads, kvHeads, selectedCount, blockSize, scale);    \
  }

ATTENTION_DECODE(64)
ATTENTION_DECODE(128)
