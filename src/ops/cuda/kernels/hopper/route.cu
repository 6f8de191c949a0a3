// The choice of attention/routing.cu with Hopper's products: gate scores of 128 queries and 64 blocks at a time.
//
// Each of two warpgroups keeps 64 queries of one head as left operands in registers; the means of the blocks (three
// terms) stream through two stages of shared memory as right operands. 24 products of 64 x 64 x 16 (D = 128) give the
// scores of a stage, 32 in each thread; of 64 x 32 x 16 where at most 32 blocks are left. A query's scores lie in four
// lanes, each of which keeps the best of its quarter. Two blocks of threads share a multiprocessor: while one looks at
// scores, the other multiplies.
//
//   selected_THS i32 [T, H, S]   q_THD bf16 [T, H, D]   means_3GBD bf16 [3, G, B, D]   first_M: see attention/routing.cu
#include "../attention/blocks.cuh"
#include "../attention/choice.cuh"
#include "../attention/tile.cuh"
#include "hopper.cuh"

constexpr int ROUTE_QUERIES = 128;
constexpr int ROUTE_THREADS = 256;
constexpr int ROUTE_BLOCKS = 64;

/**
 * Scores `BLOCKS` blocks from `block` on, whose means are in `stage`, and offers them. `edge`: not all queries may choose
 * all of them. `least`: see least_of_query.
 */
template <int D, int BLOCKS, int SIZE>
__device__ __forceinline__ void choose_among(Best<SIZE> (&best)[2], const unsigned (&query)[D / 16][4], unsigned stage,
                                             int block, bool edge, const int (&from)[2], const int (&to)[2],
                                             const float (&least)[2], int lane) {
  constexpr unsigned TERM_BYTES = ROUTE_BLOCKS * 2 * D, PANEL_BYTES = ROUTE_BLOCKS * 2 * PANEL;
  float scores[BLOCKS / 2];
  products_begin();
  // Small terms first: they are added up before the large one is there to swallow them.
#pragma unroll
  for (int i = 2; i >= 0; i--) {
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
      product<Along::rows>(scores, query[step],
                           by_rows(stage + i * TERM_BYTES + step / 4 * PANEL_BYTES + step % 4 * 32), i < 2 || step > 0);
    }
  }
  products_commit();
  products_wait<0>();
  keep(scores);

  const int first = block + 2 * (lane & 3);
  if (edge) {
#pragma unroll
    for (int i = 0; i < BLOCKS / 2; i++) {
      const int candidate = first + 8 * (i / 4) + (i & 1), half = i >> 1 & 1;
      if (candidate < from[half] || candidate >= to[half]) scores[i] = __int_as_float(0x7fffffff);
    }
  }
#pragma unroll
  for (int i = 0; i < BLOCKS / 2; i++) {
    const int half = i >> 1 & 1;
    // Also true for NaN, which is not taken; `least` is NaN while there is room.
    if (!(scores[i] <= least[half])) best[half].offer(order_of(scores[i]), first + 8 * (i / 4) + (i & 1));
  }
}

template <int D, int SIZE>
__device__ __forceinline__ void route(int* selected_THS, const bf16_bits* q_THD, const bf16_bits* means_3GBD,
                                      const Documents& documents, const int* first_M, int tokens, int heads,
                                      int kvHeads, int blocks, int selectedCount, int blockSize) {
  constexpr unsigned TERM_BYTES = ROUTE_BLOCKS * 2 * D;
  static_assert(ROUTE_QUERIES * 2 * D <= 3 * TERM_BYTES, "the queries pass through the second stage");
  extern __shared__ __align__(1024) unsigned char shared[];
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  const int head = int(blockIdx.y), kvHead = head / (heads / kvHeads);
  // Late queries have the most blocks to look at: first.
  const int t0 = int(gridDim.x - 1 - blockIdx.x) * ROUTE_QUERIES;

  // Whole blocks from .. to - 1 are those that a token may choose; both grow with the token.
  const auto from_of = [&](int token) { return first_M[documents.of(token)]; };
  const auto to_of = [&](int token) {
    const int document = documents.of(token);
    return first_M[document] + (token - documents.start(document)) / blockSize;
  };
  const int last = min(t0 + ROUTE_QUERIES, tokens) - 1;
  const int begin = from_of(t0), end = to_of(last);
  const int innerBegin = from_of(last), innerEnd = to_of(t0);
  int from[2], to[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int t = t0 + 16 * warp + lane / 4 + 8 * half;
    from[half] = t < tokens ? from_of(t) : 0;
    to[half] = t < tokens ? to_of(t) : 0;
  }

  const unsigned stages = shared_address(shared);
  const bf16_bits* means = means_3GBD + (long long)kvHead * blocks * D;
  const long long term = (long long)kvHeads * blocks * D;
  const auto load = [&](unsigned stage, int block) {
    constexpr int CHUNKS = D / 8;
    const int chunk = int(threadIdx.x) % CHUNKS;
#pragma unroll
    for (int i = 0; i < 3; i++) {
#pragma unroll
      for (int j = 0; j < ROUTE_BLOCKS * CHUNKS / ROUTE_THREADS; j++) {
        const int row = int(threadIdx.x) / CHUNKS + j * (ROUTE_THREADS / CHUNKS);
        const bool there = block + row < end;
        copy_async_16(stage + i * TERM_BYTES + panel_offset(ROUTE_BLOCKS, row, 8 * chunk),
                      means + i * term + (there ? (long long)(block + row) * D : 0) + 8 * chunk, there);
      }
    }
  };

  Best<SIZE> best[2];
  best[0].start();
  best[1].start();
  if (begin < end) {
    unsigned stage = stages, other = stages + 3 * TERM_BYTES;
    load_tile<D, ROUTE_QUERIES, ROUTE_THREADS>(other, q_THD, [&](int row) {
      return t0 + row < tokens ? q_THD + ((long long)(t0 + row) * heads + head) * D : nullptr;
    });
    copy_commit();
    load(stage, begin);
    copy_commit();
    copy_wait<1>();
    __syncthreads();
    unsigned query[D / 16][4];
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
      load_matrices(query[step], (other + warp * 32 * D + by_row<D>(lane)) ^ unsigned(step << 5));
    }

    float least[2] = {best[0].least(), best[1].least()};
    for (int block = begin; block < end; block += ROUTE_BLOCKS) {
      copy_wait<0>();
      fence_shared_for_async();
      // Also: all warps are done with the other stage.
      __syncthreads();
      if (block + ROUTE_BLOCKS < end) load(other, block + ROUTE_BLOCKS);
      copy_commit();

      const bool edge = block < innerBegin || block + ROUTE_BLOCKS > innerEnd;
      if (end - block > ROUTE_BLOCKS / 2) {
        choose_among<D, ROUTE_BLOCKS>(best, query, stage, block, edge, from, to, least, lane);
      } else {
        choose_among<D, ROUTE_BLOCKS / 2>(best, query, stage, block, edge, from, to, least, lane);
      }
      least[0] = least_of_query(best[0]);
      least[1] = least_of_query(best[1]);
      const unsigned swap = stage;
      stage = other;
      other = swap;
    }
  }

#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int t = t0 + 16 * warp + lane / 4 + 8 * half;
    write_choice(selected_THS + ((long long)t * heads + head) * selectedCount, t < tokens ? 1 : 0, best[half],
                 selectedCount, from[half], lane);
  }
}

#define ROUTE(D, SIZE, BLOCKS)                                                                                      \
  extern "C" __global__ void __launch_bounds__(ROUTE_THREADS, BLOCKS) hopper_route_d##D##_s##SIZE(                         \
      int* selected_THS, const bf16_bits* q_THD, const bf16_bits* means_3GBD, const int* document_T,                \
      const int* offsets_M, const int* first_M, int tokens, int heads, int kvHeads, int blocks, int selectedCount,  \
      int blockSize) {                                                                                              \
    route<D, SIZE>(selected_THS, q_THD, means_3GBD, {document_T, offsets_M}, first_M, tokens, heads, kvHeads,       \
                   blocks, selectedCount, blockSize);                                                               \
  }

ROUTE(64, 3, 2)
ROUTE(64, 7, 2)
ROUTE(64, 15, 1)
ROUTE(128, 3, 2)
ROUTE(128, 7, 2)
ROUTE(128, 15, 1)
