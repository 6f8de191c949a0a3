// The running choice of the best blocks of a query, shared by the four lanes of a warp that hold its scores.
#pragma once
#include "../common/vector.cuh"

/** Orders scores as integers: larger is better, NaN and "none" (the smallest) below everything, -0 equal to 0. */
constexpr int NO_SCORE = int(0x80000000);

__device__ __forceinline__ int order_of(float score) {
  const int bits = __float_as_int(score + 0.0f);
  return score != score ? NO_SCORE : bits ^ ((bits >> 31) & 0x7fffffff);
}

/** The inverse. */
__device__ __forceinline__ float score_of(int order) {
  return __int_as_float(order ^ ((order >> 31) & 0x7fffffff));
}

/** The best blocks seen so far, best first. Blocks come in ascending order, so that a tie never displaces. */
template <int SIZE>
struct Best {
  int score[SIZE], block[SIZE];

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
      score[i] = NO_SCORE;
      block[i] = -1;
    }
  }

  __device__ __forceinline__ void offer(int newScore, int newBlock) {
    if (newScore <= score[SIZE - 1]) return;
#pragma unroll
    for (int i = SIZE - 1; i >= 0; i--) {
      // Places behind the new one move down by one.
      const bool above = i > 0 && newScore > score[i - 1];
      if (above) {
        score[i] = score[i - 1];
        block[i] = block[i - 1];
      } else if (newScore > score[i]) {
        score[i] = newScore;
        block[i] = newBlock;
      }
    }
  }

  /** A score not above this can be left out: of later blocks none changes the list. NaN while there is room. */
  __device__ __forceinline__ float least() const {
    return block[SIZE - 1] < 0 ? __int_as_float(0x7fffffff) : score_of(score[SIZE - 1]);
  }

  /** Removes the best one. */
  __device__ __forceinline__ void drop() {
#pragma unroll
    for (int i = 0; i + 1 < SIZE; i++) {
      score[i] = score[i + 1];
      block[i] = block[i + 1];
    }
    score[SIZE - 1] = NO_SCORE;
    block[SIZE - 1] = -1;
  }
};

/**
 * What no lane of the query needs to look at in later blocks (a score not above it): the largest of their `least`. Ties
 * go to the blocks that are there: they are the lower ones.
 */
template <int SIZE>
__device__ __forceinline__ float least_of_query(const Best<SIZE>& best) {
  float least = best.least();
  least = fmaxf(least, __shfl_xor_sync(ALL_LANES, least, 1));
  return fmaxf(least, __shfl_xor_sync(ALL_LANES, least, 2));
}

/**
 * Merges the lists of four neighbouring lanes and writes the first `count` blocks, in ascending order, less `first`,
 * then -1, to `rows` rows of memory that are `count` values long; no rows: only takes part.
 */
template <int SIZE>
__device__ __forceinline__ void write_choice(int* out, int rows, Best<SIZE>& best, int count, int first, int lane) {
  int chosen[SIZE];
  int found = 0;
#pragma unroll
  for (int i = 0; i < SIZE; i++) {
    int score = best.score[0], block = best.block[0];
#pragma unroll
    for (int offset = 1; offset <= 2; offset *= 2) {
      const int otherScore = __shfl_xor_sync(ALL_LANES, score, offset);
      const int otherBlock = __shfl_xor_sync(ALL_LANES, block, offset);
      if (otherScore > score || (otherScore == score && otherBlock < block)) {
        score = otherScore;
        block = otherBlock;
      }
    }
    const bool is = i < count && score != NO_SCORE;
    chosen[i] = is ? block : 0x7fffffff;
    found += is;
    if (is && block == best.block[0]) best.drop();
  }
  for (int row = 0; row < rows; row++, out += count) {
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
      if (i >= count || (i & 3) != (lane & 3)) continue;
      if (i >= found) {
        out[i] = -1;
        continue;
      }
      int place = 0;
#pragma unroll
      for (int j = 0; j < SIZE; j++) place += chosen[j] < chosen[i];
      out[place] = chosen[i] - first;
    }
  }
}
