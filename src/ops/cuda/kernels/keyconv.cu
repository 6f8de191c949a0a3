// Key convolution (FlashMoBA, arXiv 2511.11571): key += SiLU(sum_j w[j] key[t - j]), over the tokens of a document, and
// its gradients. A thread walks along 32 tokens with four columns, their last W keys in registers.
//
// In place on the key columns of the fused tensor, so both directions first copy these columns out (key_columns_copy):
// neighbours read there what a token's own thread overwrites.
#include "common/vector.cuh"

namespace {

constexpr int COPY_WARPS = 8;
/** Tokens and columns of a thread, and threads of a block along the tokens. */
constexpr int RUN = 32;
constexpr int COLUMNS = 4;
constexpr int RUNS = 8;

struct alignas(8) PackedFour {
  unsigned pair[2];
};

__device__ __forceinline__ void load_four(float (&out)[COLUMNS], const bf16_bits* p) {
  const PackedFour v = *reinterpret_cast<const PackedFour*>(p);
  out[0] = low_bf16(v.pair[0]);
  out[1] = high_bf16(v.pair[0]);
  out[2] = low_bf16(v.pair[1]);
  out[3] = high_bf16(v.pair[1]);
}

__device__ __forceinline__ void store_four(bf16_bits* p, const float (&x)[COLUMNS]) {
  *reinterpret_cast<PackedFour*>(p) = PackedFour{{round_pair(x[0], x[1]), round_pair(x[2], x[3])}};
}

/** The weights, the last W keys (0 in front of the run's first token: those there) and the position of a token. */
template <int W>
struct Window {
  float w[W][COLUMNS];
  float keys[W][COLUMNS];

  __device__ __forceinline__ void begin(const bf16_bits* w_WK, const bf16_bits* keys_TK, int t, int K, int c) {
#pragma unroll
    for (int j = 0; j < W; j++) {
      load_four(w[j], w_WK + j * K + c);
      const int before = t - 1 - j;
#pragma unroll
      for (int i = 0; i < COLUMNS; i++) keys[j][i] = 0.0f;
      if (before >= 0) load_four(keys[j], keys_TK + (long long)before * K + c);
    }
  }

  /** On to the token whose key is at p; its convolution, over at most `position` earlier tokens. */
  __device__ __forceinline__ void next(float (&sum)[COLUMNS], const bf16_bits* p, int position) {
#pragma unroll
    for (int j = W - 1; j > 0; j--) {
#pragma unroll
      for (int i = 0; i < COLUMNS; i++) keys[j][i] = keys[j - 1][i];
    }
    load_four(keys[0], p);
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) sum[i] = w[0][i] * keys[0][i];
#pragma unroll
    for (int j = 1; j < W; j++) {
#pragma unroll
      for (int i = 0; i < COLUMNS; i++) {
        if (j <= position) sum[i] = fmaf(w[j][i], keys[j][i], sum[i]);
      }
    }
  }
};

/** Grid [runs of 256 tokens, 128 columns], block [32, 8]. */
template <int W>
__device__ __forceinline__ void forward(bf16_bits* __restrict__ columns_TE, const bf16_bits* __restrict__ keys_TK,
                                        const bf16_bits* __restrict__ w_WK, const int* __restrict__ offsets_M,
                                        const int* __restrict__ document_T, int T, int E, int K) {
  const int c = (blockIdx.y * WARP + threadIdx.x) * COLUMNS;
  const int first = (blockIdx.x * RUNS + threadIdx.y) * RUN;
  if (c >= K || first >= T) return;
  Window<W> window;
  window.begin(w_WK, keys_TK, first, K, c);
  const int end = min(first + RUN, T);
#pragma unroll 4
  for (int t = first; t < end; t++) {
    float sum[COLUMNS];
    window.next(sum, keys_TK + (long long)t * K + c, t - offsets_M[document_T[t]]);
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) sum[i] = fmaf(sum[i], sigmoid(sum[i]), window.keys[0][i]);
    store_four(columns_TE + (long long)t * E + c, sum);
  }
}

/**
 * With z = sum_j w[j] key[t - j] and dZ[t] = dOut[t] SiLU'(z[t]): dKey[t] = dOut[t] + sum_j w[j] dZ[t + j], dW[j] = sum over t
 * of dZ[t] key[t - j], this block's share into partials. A run goes W - 1 tokens on for its last keys.
 */
template <int W>
__device__ __forceinline__ void backward(bf16_bits* __restrict__ columns_TE, float* __restrict__ partials,
                                         const bf16_bits* __restrict__ dOut_TK, const bf16_bits* __restrict__ keys_TK,
                                         const bf16_bits* __restrict__ w_WK, const int* __restrict__ offsets_M,
                                         const int* __restrict__ document_T, int T, int E, int K) {
  __shared__ float4 shares[RUNS][W][WARP];
  const int c = (blockIdx.y * WARP + threadIdx.x) * COLUMNS;
  const int first = (blockIdx.x * RUNS + threadIdx.y) * RUN;
  float dW[W][COLUMNS] = {};
  if (c < K && first < T) {
    Window<W> window;
    window.begin(w_WK, keys_TK, first, K, c);
    // pending[j]: what is known of the gradient of the key j tokens back.
    float pending[W][COLUMNS] = {};
    for (int t = first; t < first + RUN + W - 1; t++) {
#pragma unroll
      for (int j = W - 1; j > 0; j--) {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) pending[j][i] = pending[j - 1][i];
      }
      if (t < T) {
        const int position = t - offsets_M[document_T[t]];
        float z[COLUMNS], dZ[COLUMNS];
        load_four(pending[0], dOut_TK + (long long)t * K + c);
        window.next(z, keys_TK + (long long)t * K + c, position);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
          const float s = sigmoid(z[i]);
          dZ[i] = pending[0][i] * (s * fmaf(z[i], 1.0f - s, 1.0f));
        }
#pragma unroll
        for (int j = 0; j < W; j++) {
#pragma unroll
          for (int i = 0; i < COLUMNS; i++) {
            if (j > position) continue;
            pending[j][i] = fmaf(window.w[j][i], dZ[i], pending[j][i]);
            if (t < first + RUN) dW[j][i] = fmaf(dZ[i], window.keys[j][i], dW[j][i]);
          }
        }
      }
      const int done = t - (W - 1);
      if (done >= first && done < T) store_four(columns_TE + (long long)done * E + c, pending[W - 1]);
    }
  }
#pragma unroll
  for (int j = 0; j < W; j++) {
    shares[threadIdx.y][j][threadIdx.x] = make_float4(dW[j][0], dW[j][1], dW[j][2], dW[j][3]);
  }
  __syncthreads();
  if (threadIdx.y >= W || c >= K) return;
  const int j = threadIdx.y;
  float4 sum = shares[0][j][threadIdx.x];
#pragma unroll
  for (int r = 1; r < RUNS; r++) {
    const float4 share = shares[r][j][threadIdx.x];
    sum.x += share.x, sum.y += share.y, sum.z += share.z, sum.w += share.w;
  }
  *reinterpret_cast<float4*>(partials + ((long long)blockIdx.x * W + j) * K + c) = sum;
}

}  // namespace

/** out_TK[t] = columns_TE[t], K columns from rows E apart. A warp per row; K is a multiple of 8. */
extern "C" __global__ void __launch_bounds__(COPY_WARPS* WARP)
    key_columns_copy(bf16_bits* __restrict__ out_TK, const bf16_bits* __restrict__ columns_TE, int T, int E, int K) {
  const int t = blockIdx.x * COPY_WARPS + threadIdx.x / WARP;
  if (t >= T) return;
  copy_vectors(out_TK + (long long)t * K, columns_TE + (long long)t * E, K, threadIdx.x % WARP * PER_VECTOR,
               WARP * PER_VECTOR);
}

// columns_TE: the key columns of the fused rows, E apart. K = G D. partials: f32 [grid.x, W, K].
#define KEY_CONV(W)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(WARP* RUNS)                                                           \
      key_conv_forward_w##W(bf16_bits* columns_TE, const bf16_bits* keys_TK, const bf16_bits* w_WK,                  \
                            const int* offsets_M, const int* document_T, int T, int E, int K) {                      \
    forward<W>(columns_TE, keys_TK, w_WK, offsets_M, document_T, T, E, K);                                           \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(WARP* RUNS)                                                           \
      key_conv_backward_w##W(bf16_bits* columns_TE, float* partials, const bf16_bits* dOut_TK,                       \
                             const bf16_bits* keys_TK, const bf16_bits* w_WK, const int* offsets_M,                  \
                             const int* document_T, int T, int E, int K) {                                           \
    backward<W>(columns_TE, partials, dOut_TK, keys_TK, w_WK, offsets_M, document_T, T, E, K);                       \
  }

KEY_CONV(3)
KEY_CONV(5)
