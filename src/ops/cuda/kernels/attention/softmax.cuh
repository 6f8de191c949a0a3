// Online softmax of the rows of a query tile, in registers: running maximum, sum and weighted values, all f32.
#pragma once
#include "keys.cuh"

/** Powers of two below; `scale` is log2(e) / sqrt(D), which takes raw scores there. */
template <typename Tile>
struct Softmax {
  static constexpr int D = Tile::D, M = Tile::M, N = Tile::KEYS / 8;

  float out[M][D / 8][4];
  /** Largest raw score so far, of rows r and r + 8. */
  float most[M][2];
  /** This lane's share of the sum. */
  float sum[M][2];

  __device__ __forceinline__ void start() {
    clear(out);
#pragma unroll
    for (int m = 0; m < M; m++) {
      most[m][0] = most[m][1] = -infinity();
      sum[m][0] = sum[m][1] = 0.0f;
    }
  }

  /** Takes raw scores (excluded ones are -inf: their weight is exactly zero) and the tile of values. */
  __device__ __forceinline__ void take(float (&scores)[M][N][4], unsigned values, float scale) {
    unsigned weights[M][N / 2][4];
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float top = most[m][half];
#pragma unroll
        for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
        // Nothing allowed yet: any finite reference gives weights of zero.
        const float reference = top == -infinity() ? 0.0f : top;
        const float shrink = fast_exp2((most[m][half] - reference) * scale);
        most[m][half] = top;
        const float offset = -reference * scale;
        float added = 0.0f;
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; i++) {
            scores[m][n][i] = fast_exp2(fmaf(scores[m][n][i], scale, offset));
            added += scores[m][n][i];
          }
        }
        sum[m][half] = fmaf(sum[m][half], shrink, added);
        // Most tiles bring no new maximum to any row of the warp.
        if (__any_sync(ALL_LANES, shrink != 1.0f)) {
#pragma unroll
          for (int n = 0; n < D / 8; n++) {
            out[m][n][2 * half] *= shrink;
            out[m][n][2 * half + 1] *= shrink;
          }
        }
      }
      round_operands(weights[m], scores[m]);
    }
    accumulate<D>(out, weights, values);
  }

  /** The whole sum of a row, for all its lanes. */
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        sum[m][half] += __shfl_xor_sync(ALL_LANES, sum[m][half], 1);
        sum[m][half] += __shfl_xor_sync(ALL_LANES, sum[m][half], 2);
      }
    }
  }
};

/** Scores of keys that a row may not attend to become -inf. */
template <int M, int N>
__device__ __forceinline__ void exclude(float (&scores)[M][N][4], const Bounds (&bounds)[M][2], int first, int lane) {
#pragma unroll
  for (int m = 0; m < M; m++) {
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int key = first + 8 * n + 2 * (lane & 3) + (i & 1);
        if (!bounds[m][i >> 1].has(key)) scores[m][n][i] = -infinity();
      }
    }
  }
}
