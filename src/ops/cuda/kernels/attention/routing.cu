// Which earlier blocks each query attends to: block means, gate scores on the tensor cores with a running choice in
// registers (no table of scores in memory), and the static gates.
//
//   q_THD bf16 [T, H, D]   k_TGD bf16 [T, G, D]   selected_THS i32 [T, H, S]
//   first_M i32 [documents + 1]: number of whole blocks in front of each document; blockStart_B i32 [B]: first token of
//   each whole block (B at most). Both null: one document, from token 0.
//   means_3GBD bf16 [3, G, B, D]: each mean as the sum of three bf16 terms, so that products with a bf16 query, summed
//   in f32, are as exact as f32.
//
// Source: MoBA (arXiv 2502.13189), section 2.2; docs/method.md, section 1.
#include "blocks.cuh"
#include "choice.cuh"
#include "tile.cuh"

// --- where the blocks are --------------------------------------------------------------------------------------------

constexpr int PLAN_THREADS = 1024;

/** One block of threads: counts whole blocks per document, then finds where each starts. */
extern "C" __global__ void __launch_bounds__(PLAN_THREADS)
attention_blocks(int* first_M, int* blockStart_B, const int* offsets_M, int documents, int blockSize) {
  __shared__ int sums[PLAN_THREADS / WARP];
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  int before = 0;
  for (int from = 0; from < documents; from += PLAN_THREADS) {
    const int d = from + int(threadIdx.x);
    const int count = d < documents ? (offsets_M[d + 1] - offsets_M[d]) / blockSize : 0;
    int upTo = count;
#pragma unroll
    for (int offset = 1; offset < WARP; offset *= 2) {
      const int other = __shfl_up_sync(ALL_LANES, upTo, offset);
      if (lane >= offset) upTo += other;
    }
    if (lane == WARP - 1) sums[warp] = upTo;
    __syncthreads();
    int total = 0;
    for (int w = 0; w < PLAN_THREADS / WARP; w++) {
      if (w < warp) upTo += sums[w];
      total += sums[w];
    }
    if (d < documents) first_M[d] = before + upTo - count;
    before += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) first_M[documents] = before;
  __syncthreads();
  for (int b = int(threadIdx.x); b < before; b += PLAN_THREADS) {
    // The last document with first_M <= b: it is the one that has block b.
    int low = 0, high = documents;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_M[middle] <= b) low = middle;
      else high = middle;
    }
    blockStart_B[b] = offsets_M[low] + (b - first_M[low]) * blockSize;
  }
}

// --- means -----------------------------------------------------------------------------------------------------------

constexpr int MEAN_THREADS = 256;
/** Threads beside each other along a key, 8 dimensions each; the others take every 16th key of the block. */
constexpr int MEAN_COLUMNS = 16;
constexpr int MEAN_ROWS = MEAN_THREADS / MEAN_COLUMNS;

/** Grid: (128 dimensions of all heads, B). */
extern "C" __global__ void __launch_bounds__(MEAN_THREADS)
attention_means(bf16_bits* means_3GBD, const bf16_bits* k_TGD, const int* blockStart_B, const int* wholeBlocks,
                int kvHeads, int headDim, int blockSize, int blocks) {
  __shared__ float parts[MEAN_ROWS][8 * MEAN_COLUMNS];
  const int block = int(blockIdx.y + gridDim.y * blockIdx.z);
  if (block >= (wholeBlocks ? *wholeBlocks : blocks)) return;
  const int thread = int(threadIdx.x) % MEAN_COLUMNS, row = int(threadIdx.x) / MEAN_COLUMNS;
  const int column = 8 * (int(blockIdx.x) * MEAN_COLUMNS + thread);
  const long long stride = (long long)kvHeads * headDim;
  float sum[PER_VECTOR] = {};
  if (column < stride) {
    const bf16_bits* key = k_TGD + (blockStart_B ? blockStart_B[block] : block * blockSize) * stride + column;
#pragma unroll 8
    for (int i = row; i < blockSize; i += MEAN_ROWS) {
      float x[PER_VECTOR];
      widen(x, load_packed(key + i * stride));
#pragma unroll
      for (int j = 0; j < PER_VECTOR; j++) sum[j] += x[j];
    }
  }
#pragma unroll
  for (int j = 0; j < PER_VECTOR; j++) parts[row][8 * thread + j] = sum[j];
  __syncthreads();
  // From here on a thread for each dimension.
  const int dimension = int(blockIdx.x) * 8 * MEAN_COLUMNS + int(threadIdx.x);
  if (threadIdx.x >= 8 * MEAN_COLUMNS || dimension >= stride) return;
  float mean = 0.0f;
#pragma unroll
  for (int i = 0; i < MEAN_ROWS; i++) mean += parts[i][threadIdx.x];
  mean = __fdiv_rn(mean, float(blockSize));
  const long long term = (long long)kvHeads * blocks * headDim;
  bf16_bits* out = means_3GBD + ((long long)(dimension / headDim) * blocks + block) * headDim + dimension % headDim;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    out[i * term] = round_bf16(mean);
    const float taken = widen(round_bf16(mean));
    // An infinite mean has no rest (infinity minus itself would make it NaN).
    mean = is_finite(taken) ? mean - taken : 0.0f;
  }
}

// --- the choice ------------------------------------------------------------------------------------------------------

constexpr int ROUTE_WARPS = 8;
constexpr int ROUTE_ROWS = 16 * ROUTE_WARPS;
constexpr int ROUTE_THREADS = WARP * ROUTE_WARPS;
/** Blocks scored at once. */
constexpr int ROUTE_BLOCKS = 32;

/**
 * A tile of 128 queries of one gating head, 16 for each warp. SIZE: places for choices, at least S. SHARED: the heads
 * of a group choose together, with the sum of their queries (also in three terms).
 */
template <int D, int SIZE, bool SHARED>
__device__ __forceinline__ void route(int* selected_THS, const bf16_bits* q_THD, const bf16_bits* means_3GBD,
                                      const Documents& documents, const int* first_M, int tokens, int firstToken,
                                      int heads, int kvHeads, int blocks, int selectedCount, int blockSize) {
  constexpr int TERMS = SHARED ? 3 : 1;
  constexpr int N = ROUTE_BLOCKS / 8;
  constexpr unsigned TERM_BYTES = ROUTE_BLOCKS * 2 * D;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  const int group = heads / kvHeads;
  const int head = SHARED ? int(blockIdx.y) * group : int(blockIdx.y);
  const int kvHead = head / group;
  // Late queries have the most blocks to look at: first.
  const int t0 = int(gridDim.x - 1 - blockIdx.x) * ROUTE_ROWS;

  // Rows r and r + 8 of this lane: the blocks from .. to - 1 that they may choose.
  int from[2], to[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = t0 + 16 * warp + lane / 4 + 8 * half;
    from[half] = to[half] = 0;
    if (row >= tokens) continue;
    const int token = firstToken + row;
    const int document = documents.of(token);
    from[half] = first_M ? first_M[document] : 0;
    to[half] = from[half] + (token - documents.start(document)) / blockSize;
  }
  const int firstDocument = documents.of(firstToken + t0);
  const int lastToken = firstToken + min(t0 + ROUTE_ROWS, tokens) - 1;
  const int lastDocument = documents.of(lastToken);
  const int begin = first_M ? first_M[firstDocument] : 0;
  const int end = (first_M ? first_M[lastDocument] : 0) + (lastToken - documents.start(lastDocument)) / blockSize;

  const unsigned stages = shared_address(shared);
  const bf16_bits* means = means_3GBD + (long long)kvHead * blocks * D;
  const long long term = (long long)kvHeads * blocks * D;
  const auto load = [&](unsigned stage, int block) {
#pragma unroll
    for (int i = 0; i < 3; i++) {
      load_tile<D, ROUTE_BLOCKS, ROUTE_THREADS>(stage + i * TERM_BYTES, means, [&](int row) {
        return block + row < end ? means + i * term + (long long)(block + row) * D : nullptr;
      });
    }
  };
  if (begin < end) load(stages, begin);
  copy_commit();

  // The queries as left operands: pairs (r, c) (r + 8, c) (r, c + 8) (r + 8, c + 8).
  unsigned query[TERMS][D / 16][4];
#pragma unroll
  for (int step = 0; step < D / 16; step++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = t0 + 16 * warp + lane / 4 + 8 * (i & 1);
      const bf16_bits* at =
          q_THD + ((long long)row * heads + head) * D + 16 * step + 2 * (lane & 3) + 8 * (i >> 1);
      if (!SHARED) {
        query[0][step][i] = row < tokens ? *reinterpret_cast<const unsigned*>(at) : 0u;
        continue;
      }
      float low = 0.0f, high = 0.0f;
      for (int h = 0; h < group && row < tokens; h++) {
        const unsigned pair = *reinterpret_cast<const unsigned*>(at + (long long)h * D);
        low += low_bf16(pair);
        high += high_bf16(pair);
      }
#pragma unroll
      for (int j = 0; j < TERMS; j++) {
        const unsigned pair = round_pair(low, high);
        query[j][step][i] = pair;
        low = is_finite(low_bf16(pair)) ? low - low_bf16(pair) : 0.0f;
        high = is_finite(high_bf16(pair)) ? high - high_bf16(pair) : 0.0f;
      }
    }
  }

  Best<SIZE> best[2];
  best[0].start();
  best[1].start();
  const unsigned right = by_column<D>(lane);
  unsigned stage = stages;
  for (int block = begin; block < end; block += ROUTE_BLOCKS) {
    copy_wait<0>();
    // Also: all warps are done with the other stage.
    __syncthreads();
    const unsigned other = stage == stages ? stages + 3 * TERM_BYTES : stages;
    if (block + ROUTE_BLOCKS < end) load(other, block + ROUTE_BLOCKS);
    copy_commit();

    float scores[1][N][4];
    clear(scores);
    // Small terms first: they are added up before the large one is there to swallow them.
#pragma unroll
    for (int small = 2; small >= 0; small--) {
#pragma unroll
      for (int j = 0; j < TERMS; j++) {
        const int i = small - j;
        if (i < 0) continue;
#pragma unroll
        for (int step = 0; step < D / 16; step++) {
#pragma unroll
          for (int n = 0; n < N / 2; n++) {
            unsigned y[4];
            load_matrices(y, ((stage + right + i * TERM_BYTES) ^ unsigned(step << 5)) + n * 32 * D);
            mma(scores[0][2 * n], query[j][step], y[0], y[1]);
            mma(scores[0][2 * n + 1], query[j][step], y[2], y[3]);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int candidate = block + 8 * n + 2 * (lane & 3) + (i & 1);
        const int half = i >> 1;
        if (candidate >= from[half] && candidate < to[half]) {
          best[half].offer(order_of(scores[0][n][i]), candidate);
        }
      }
    }
    stage = other;
  }

  // The four lanes of a row have a quarter of its blocks each.
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = t0 + 16 * warp + lane / 4 + 8 * half;
    int* out = selected_THS + ((long long)row * heads + head) * selectedCount;
    write_choice(out, row >= tokens ? 0 : SHARED ? group : 1, best[half], selectedCount, from[half], lane);
  }
}

#define ATTENTION_ROUTE(D, SIZE, SHARED, NAME)                                                                        \
  extern "C" __global__ void __launch_bounds__(ROUTE_THREADS, 1) NAME(                                                \
      int* selected_THS, const bf16_bits* q_THD, const bf16_bits* means_3GBD, const int* document_T,                  \
      const int* offsets_M, const int* first_M, int tokens, int firstToken, int heads, int kvHeads, int blocks,       \
      int selectedCount, int blockSize) {                                                                             \
    route<D, SIZE, SHARED>(selected_THS, q_THD, means_3GBD, {document_T, offsets_M}, first_M, tokens, firstToken,     \
                           heads, kvHeads, blocks, selectedCount, blockSize);                                         \
  }

#define ATTENTION_ROUTES(D, SIZE)                                     \
  ATTENTION_ROUTE(D, SIZE, false, attention_route_d##D##_s##SIZE)     \
  ATTENTION_ROUTE(D, SIZE, true, attention_route_shared_d##D##_s##SIZE)

ATTENTION_ROUTES(64, 3)
ATTENTION_ROUTES(64, 7)
ATTENTION_ROUTES(64, 15)
ATTENTION_ROUTES(128, 3)
ATTENTION_ROUTES(128, 7)
ATTENTION_ROUTES(128, 15)

// --- static gates ----------------------------------------------------------------------------------------------------

/** Window (most recent blocks) or, with `sink`, block 0 and the most recent ones. A thread per query, head and rank. */
extern "C" __global__ void __launch_bounds__(256)
attention_static_gate(int* selected_THS, const int* document_T, const int* offsets_M, int tokens, int firstToken,
                      int heads, int selectedCount, int blockSize, int sink) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= (long long)tokens * heads * selectedCount) return;
  const Documents documents = {document_T, offsets_M};
  const int rank = int(i % selectedCount);
  const int token = firstToken + int(i / selectedCount / heads);
  const int own = (token - documents.start(documents.of(token))) / blockSize;
  const int count = min(selectedCount, own);
  selected_THS[i] = rank >= count ? -1 : sink && rank == 0 ? 0 : own - count + rank;
}

/** No block chosen. */
extern "C" __global__ void __launch_bounds__(256) attention_unselect(int* selected_THS, long long length) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < length) selected_THS[i] = -1;
}
