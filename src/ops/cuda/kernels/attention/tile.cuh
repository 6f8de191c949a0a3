// Tiles of rows of D bf16 values in shared memory, and the products of tiles that attention is made of.
//
// A row is D / 8 chunks of 16 bytes; chunk i of row r lies at place i ^ (r % 8) of its row, so that the eight rows of
// an 8 x 8 matrix fall into different banks. Tiles start at multiples of 1024 bytes. A warp reads through one of two
// lane offsets, added to the address of a multiple of 16 rows; columns are then stepped through by exclusive or:
//   by_row     rows as rows of a left operand, or (transposed) as the summed index of a right operand
//   by_column  rows as columns of a right operand
#pragma once
#include "../common/mma.cuh"

template <int D>
__device__ __forceinline__ unsigned tile_offset(int row, int chunk) {
  return unsigned(row * (2 * D) + ((chunk ^ (row & 7)) << 4));
}

template <int D>
__device__ __forceinline__ unsigned by_row(int lane) {
  return tile_offset<D>(lane & 15, lane >> 4);
}

template <int D>
__device__ __forceinline__ unsigned by_column(int lane) {
  return tile_offset<D>((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
}

/** Copies ROWS rows; `source(row)` is the address of a row's first value, or null for a row of zeros. */
template <int D, int ROWS, int THREADS, typename Source>
__device__ __forceinline__ void load_tile(unsigned tile, const bf16_bits* any, Source source) {
  constexpr int CHUNKS = D / 8;
  static_assert(THREADS % CHUNKS == 0 && (ROWS * CHUNKS) % THREADS == 0, "each thread copies as many chunks");
  const int chunk = int(threadIdx.x) % CHUNKS;
#pragma unroll
  for (int i = 0; i < ROWS * CHUNKS / THREADS; i++) {
    const int row = int(threadIdx.x) / CHUNKS + i * (THREADS / CHUNKS);
    const bf16_bits* from = source(row);
    copy_async_16(tile + tile_offset<D>(row, chunk), (from ? from : any) + 8 * chunk, from != nullptr);
  }
}

template <int M, int N>
__device__ __forceinline__ void clear(float (&sum)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) sum[m][n][i] = 0.0f;
}

/**
 * out[m][n] = rows of `left` times rows of `right`, over D: 16 M rows (`left`: by_row) against 8 N rows (`right`:
 * by_column).
 */
template <int D, int M, int N>
__device__ __forceinline__ void multiply_rows(float (&out)[M][N][4], unsigned left, unsigned right) {
  clear(out);
#pragma unroll
  for (int step = 0; step < D / 16; step++) {
    unsigned x[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) load_matrices(x[m], (left ^ unsigned(step << 5)) + m * 32 * D);
#pragma unroll
    for (int n = 0; n < N / 2; n++) {
      unsigned y[4];
      load_matrices(y, (right ^ unsigned(step << 5)) + n * 32 * D);
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma(out[m][2 * n], x[m], y[0], y[1]);
        mma(out[m][2 * n + 1], x[m], y[2], y[3]);
      }
    }
  }
}

/** Rounds accumulators to bf16 as left operands: pair of columns 8 n .. 8 n + 15 becomes operand n / 2. */
template <int N>
__device__ __forceinline__ void round_operands(unsigned (&out)[N / 2][4], const float (&x)[N][4]) {
#pragma unroll
  for (int n = 0; n < N / 2; n++) {
    out[n][0] = round_pair(x[2 * n][0], x[2 * n][1]);
    out[n][1] = round_pair(x[2 * n][2], x[2 * n][3]);
    out[n][2] = round_pair(x[2 * n + 1][0], x[2 * n + 1][1]);
    out[n][3] = round_pair(x[2 * n + 1][2], x[2 * n + 1][3]);
  }
}

/** sum[m] += left[m] right: [16 x 16 K] times the tile's 16 K rows of D (`right`: by_row). */
template <int D, int M, int K>
__device__ __forceinline__ void accumulate(float (&sum)[M][D / 8][4], const unsigned (&left)[M][K][4],
                                           unsigned right) {
#pragma unroll
  for (int k = 0; k < K; k++) {
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
      unsigned y[4];
      load_matrices_transposed(y, (right ^ unsigned(n << 5)) + k * 32 * D);
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma(sum[m][2 * n], left[m][k], y[0], y[1]);
        mma(sum[m][2 * n + 1], left[m][k], y[2], y[3]);
      }
    }
  }
}

/** Accumulators of 16 rows, rounded, into a tile at a multiple of 16 rows: only this warp may use these rows. */
template <int D>
__device__ __forceinline__ void stage_rows(unsigned rows, const float (&x)[D / 8][4], int lane) {
  __syncwarp();
#pragma unroll
  for (int n = 0; n < D / 8; n++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const unsigned to = rows + tile_offset<D>((lane >> 2) + 8 * half, n) + 4 * (lane & 3);
      store_shared(to, round_pair(x[n][2 * half], x[n][2 * half + 1]));
    }
  }
}

/** 16 rows of a tile, staged by this warp, to memory: `target(row)` is a row's address, or null to leave it out. */
template <int D, typename Target>
__device__ __forceinline__ void store_rows(unsigned rows, int lane, Target target) {
  constexpr int CHUNKS = D / 8;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * CHUNKS / WARP; i++) {
    const int row = lane / CHUNKS + i * (WARP / CHUNKS);
    const int chunk = lane % CHUNKS;
    const Packed v = load_shared(rows + tile_offset<D>(row, chunk));
    bf16_bits* to = target(row);
    if (to) store_packed(to + 8 * chunk, v);
  }
}

/**
 * Partial results lie in memory in the order in which the lanes hold them: lane % 4 owns D / 4 values of a row, those
 * of its accumulators n = 0, 1, ... So they are written and read 16 bytes at a time. `half`: row r or r + 8.
 */
template <int D>
__device__ __forceinline__ void store_partial(bf16_bits* row, const float (&x)[D / 8][4], int half, float factor,
                                              int lane) {
#pragma unroll
  for (int i = 0; i < D / 32; i++) {
    Packed v;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      v.pair[j] = round_pair(factor * x[4 * i + j][2 * half], factor * x[4 * i + j][2 * half + 1]);
    }
    store_packed(row + (lane & 3) * (D / 4) + 8 * i, v);
  }
}

/** x += factor * partial. */
template <int D>
__device__ __forceinline__ void add_partial(float (&x)[D / 8][4], const bf16_bits* row, int half, float factor,
                                            int lane) {
#pragma unroll
  for (int i = 0; i < D / 32; i++) {
    const Packed v = load_packed(row + (lane & 3) * (D / 4) + 8 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      x[4 * i + j][2 * half] = fmaf(factor, low_bf16(v.pair[j]), x[4 * i + j][2 * half]);
      x[4 * i + j][2 * half + 1] = fmaf(factor, high_bf16(v.pair[j]), x[4 * i + j][2 * half + 1]);
    }
  }
}
