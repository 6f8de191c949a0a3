// Embedding: rows of the table by token, and the gradient of the table.
//
// The gradient is the same bits every time, without float atomics. Token places are sorted by token, stably (radix sort,
// 9 bits a pass: histogram, scan, scatter), so that each token's places lie together in token order. Runs of 32 sorted
// places are summed by one block each; what belongs to a token within one run is added to the table, and where a
// token's places cross runs, a second kernel adds the runs' partial sums in order.
#include "common/vector.cuh"

namespace {

constexpr int FORWARD_WARPS = 8;
/** Sort: a block takes 1024 places, digits are 9 bits. */
constexpr int TILE = 1024;
constexpr int BITS = 9;
constexpr int DIGITS = 1 << BITS;
/** Sum: places of a block. */
constexpr int RUN = 32;
constexpr int COLUMN_THREADS = 128;
constexpr int IN_FLIGHT = 8;

__device__ __forceinline__ int digit_of(int token, int shift) { return (unsigned(token) >> shift) & (DIGITS - 1); }

}  // namespace

/** out[t] = table[tokens[t]]; NaN where a token is out of range. A warp per row. C is a multiple of 8. */
extern "C" __global__ void __launch_bounds__(FORWARD_WARPS* WARP)
    embedding_forward(bf16_bits* __restrict__ out_TC, const bf16_bits* __restrict__ table_VC,
                      const int* __restrict__ tokens_T, int T, int V, int C) {
  const int t = blockIdx.x * FORWARD_WARPS + threadIdx.x / WARP;
  if (t >= T) return;
  const int token = tokens_T[t];
  bf16_bits* to = out_TC + (long long)t * C;
  const int first = threadIdx.x % WARP * PER_VECTOR;
  if (unsigned(token) < unsigned(V)) {
    copy_vectors(to, table_VC + (long long)token * C, C, first, WARP * PER_VECTOR);
    return;
  }
  const unsigned nan = 0x7fc07fc0u;
  for (int c = first; c < C; c += WARP * PER_VECTOR) store_packed(to + c, Packed{{nan, nan, nan, nan}});
}

/** counts[digit][tile]: how often a digit occurs in a tile of the places in `order` (null: as they are). */
extern "C" __global__ void __launch_bounds__(TILE)
    embedding_histogram(int* counts /* [DIGITS, tiles] */, const int* tokens_T, const int* order_T, int T, int shift) {
  __shared__ int found[DIGITS];
  for (int d = threadIdx.x; d < DIGITS; d += TILE) found[d] = 0;
  __syncthreads();
  const int p = blockIdx.x * TILE + threadIdx.x;
  if (p < T) atomicAdd(&found[digit_of(tokens_T[order_T ? order_T[p] : p], shift)], 1);
  __syncthreads();
  for (int d = threadIdx.x; d < DIGITS; d += TILE) counts[d * gridDim.x + blockIdx.x] = found[d];
}

/** Each count becomes the sum of those before it. One block of 1024; length is a multiple of 4. */
extern "C" __global__ void __launch_bounds__(1024) embedding_scan(int* counts, int length) {
  __shared__ int sums[WARP];
  const int each = (length / 4 + 1023) / 1024 * 4;
  const int start = min(int(threadIdx.x) * each, length);
  const int end = min(start + each, length);
  int sum = 0;
  for (int i = start; i < end; i += 4) {
    const int4 four = *reinterpret_cast<const int4*>(counts + i);
    sum += four.x + four.y + four.z + four.w;
  }
  const int lane = threadIdx.x % WARP;
  int before = sum;
#pragma unroll
  for (int offset = 1; offset < WARP; offset *= 2) {
    const int other = __shfl_up_sync(ALL_LANES, before, offset);
    if (lane >= offset) before += other;
  }
  if (lane == WARP - 1) sums[threadIdx.x / WARP] = before;
  __syncthreads();
  before -= sum;
  for (int w = 0; w < int(threadIdx.x) / WARP; w++) before += sums[w];
  for (int i = start; i < end; i += 4) {
    int4 four = *reinterpret_cast<const int4*>(counts + i);
    int4 out;
    out.x = before;
    out.y = out.x + four.x;
    out.z = out.y + four.y;
    out.w = out.z + four.z;
    before = out.w + four.w;
    *reinterpret_cast<int4*>(counts + i) = out;
  }
}

/** Puts every place behind those of smaller digits and those of its digit in front of it. */
extern "C" __global__ void __launch_bounds__(TILE)
    embedding_scatter(int* sorted_T, const int* tokens_T, const int* order_T, const int* starts /* [DIGITS, tiles] */,
                      int T, int shift) {
  constexpr int WARPS = TILE / WARP;
  __shared__ unsigned short ranks[WARPS][DIGITS];
  unsigned* words = reinterpret_cast<unsigned*>(ranks);
  for (int i = threadIdx.x; i < WARPS * DIGITS / 2; i += TILE) words[i] = 0;
  __syncthreads();
  const int p = blockIdx.x * TILE + threadIdx.x;
  const int warp = threadIdx.x / WARP;
  const int place = p < T ? (order_T ? order_T[p] : p) : 0;
  // Threads behind the end share a digit of their own.
  const int digit = p < T ? digit_of(tokens_T[place], shift) : DIGITS;
  const unsigned same = __match_any_sync(ALL_LANES, digit);
  const int rank = __popc(same & ((1u << (threadIdx.x % WARP)) - 1u));
  if (p < T && rank == 0) ranks[warp][digit] = (unsigned short)__popc(same);
  __syncthreads();
  if (threadIdx.x < DIGITS) {
    int before = 0;
    for (int w = 0; w < WARPS; w++) {
      const int count = ranks[w][threadIdx.x];
      ranks[w][threadIdx.x] = (unsigned short)before;
      before += count;
    }
  }
  __syncthreads();
  if (p < T) sorted_T[starts[digit * gridDim.x + blockIdx.x] + ranks[warp][digit] + rank] = place;
}

namespace {

/** dTable[token][c ..] += sum. */
__device__ __forceinline__ void add_to_table(float* dTable_VC, const float (&sum)[PER_VECTOR], int token, int V, int C,
                                             int c) {
  if (unsigned(token) >= unsigned(V)) return;
  float* to = dTable_VC + (long long)token * C + c;
  const float4 low = reinterpret_cast<const float4*>(to)[0];
  const float4 high = reinterpret_cast<const float4*>(to)[1];
  store_floats(to, low.x + sum[0], low.y + sum[1], low.z + sum[2], low.w + sum[3]);
  store_floats(to + 4, high.x + sum[4], high.y + sum[5], high.z + sum[6], high.w + sum[7]);
}

__device__ __forceinline__ int token_at(const int* tokens_T, const int* sorted_T, int p) {
  return tokens_T[sorted_T[p]];
}

}  // namespace

/**
 * A block sums the run blockIdx.x of sorted places, columns 8 (128 blockIdx.y + threadIdx.x) on. partials[run][0]: the
 * share of a token that began in an earlier run; partials[run][1]: that of one that goes on in the next.
 */
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
    embedding_runs(float* __restrict__ dTable_VC, float* __restrict__ partials /* [runs, 2, C] */,
                   const bf16_bits* __restrict__ dOut_TC, const int* __restrict__ tokens_T,
                   const int* __restrict__ sorted_T, int T, int V, int C) {
  // The run's places and tokens, with a neighbour's token at either end (-1: there is none, and no token is -2).
  __shared__ int places[RUN];
  __shared__ int tokens[RUN + 2];
  const int first = blockIdx.x * RUN;
  const int length = min(RUN, T - first);
  for (int i = threadIdx.x; i < length + 2; i += blockDim.x) {
    const int p = first + i - 1;
    const bool there = p >= 0 && p < T;
    const int place = there ? sorted_T[p] : 0;
    tokens[i] = there ? tokens_T[place] : -1;
    if (i > 0 && i <= length) places[i - 1] = place;
  }
  __syncthreads();
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * PER_VECTOR;
  if (c >= C) return;
  float* partial = partials + (long long)blockIdx.x * 2 * C + c;
  bool begun = tokens[0] == tokens[1];
  float sum[PER_VECTOR] = {};
  for (int p = 0; p < length; p += IN_FLIGHT) {
    Packed rows[IN_FLIGHT];
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++) {
      if (p + i < length) rows[i] = load_packed(dOut_TC + (long long)places[p + i] * C + c);
    }
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++) {
      if (p + i >= length) break;
      float row[PER_VECTOR];
      widen(row, rows[i]);
#pragma unroll
      for (int j = 0; j < PER_VECTOR; j++) sum[j] += row[j];
      const int token = tokens[p + i + 1];
      const bool last = p + i == length - 1;
      const bool goesOn = tokens[p + i + 2] == token;
      if (goesOn && !last) continue;
      if (begun || goesOn) {
        float* to = partial + (begun ? 0 : C);
        store_floats(to, sum[0], sum[1], sum[2], sum[3]);
        store_floats(to + 4, sum[4], sum[5], sum[6], sum[7]);
      } else {
        add_to_table(dTable_VC, sum, token, V, C, c);
      }
      begun = false;
#pragma unroll
      for (int j = 0; j < PER_VECTOR; j++) sum[j] = 0.0f;
    }
  }
}

/** A block completes the token that begins in the run blockIdx.x and goes on in the next; most blocks find none. */
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
    embedding_crossings(float* __restrict__ dTable_VC, const float* __restrict__ partials /* [runs, 2, C] */,
                        const int* __restrict__ tokens_T, const int* __restrict__ sorted_T, int T, int V, int C) {
  const int run = blockIdx.x;
  const int first = run * RUN;
  const int next = first + RUN;
  if (next >= T) return;
  const int token = token_at(tokens_T, sorted_T, next - 1);
  if (token_at(tokens_T, sorted_T, next) != token) return;
  const bool beganEarlier = first > 0 && token_at(tokens_T, sorted_T, first) == token &&
                            token_at(tokens_T, sorted_T, first - 1) == token;
  if (beganEarlier) return;
  // The runs behind this one that begin with the token: they follow one another, as the places are sorted.
  int runs = 0;
  for (;;) {
    const long long p = (long long)(run + 1 + runs + int(threadIdx.x)) * RUN;
    const int more = __syncthreads_count(p < T && token_at(tokens_T, sorted_T, int(p)) == token);
    runs += more;
    if (more < int(blockDim.x)) break;
  }
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * PER_VECTOR;
  if (c >= C) return;
  const float* from = partials + (long long)run * 2 * C + c;
  float sum[PER_VECTOR];
#pragma unroll
  for (int j = 0; j < PER_VECTOR; j++) sum[j] = from[C + j];
  for (int r = 1; r <= runs; r += IN_FLIGHT) {
    float4 rows[IN_FLIGHT][2];
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++) {
      if (r + i > runs) break;
      const float4* row = reinterpret_cast<const float4*>(from + (long long)(r + i) * 2 * C);
      rows[i][0] = row[0];
      rows[i][1] = row[1];
    }
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++) {
      if (r + i > runs) break;
      sum[0] += rows[i][0].x, sum[1] += rows[i][0].y, sum[2] += rows[i][0].z, sum[3] += rows[i][0].w;
      sum[4] += rows[i][1].x, sum[5] += rows[i][1].y, sum[6] += rows[i][1].z, sum[7] += rows[i][1].w;
    }
  }
  add_to_table(dTable_VC, sum, token, V, C, c);
}
