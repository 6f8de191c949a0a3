// The choice of attention/routing.cu with Hopper's products: gate scores of 64 queries a warpgroup, 64 blocks at a time.
//
// A block of threads lives as long as there are tiles of queries of one head: GROUPS warpgroups that choose for 64
// queries each, and a warp that copies the means of 64 blocks (three terms, 48 KB at D = 128) into a ring of stages,
// ahead and across tiles. A warpgroup keeps its queries as left operands in registers; 24 products of 64 x 64 x 16 give
// 32 scores in each thread. The warpgroups take turns in starting products, so that the others look at scores
// meanwhile.
//
// A query's scores lie in four lanes, each of which keeps a list of the best of its quarter. What is not above a bound
// under which S better ones are known is left out at once (nearly all of it: the bound is that of all four lanes); what
// is left are set bits of a mask, which the lanes take one each at a time.
//
// Barriers: full[s] 1 arrival and the bytes of a stage; empty[s] one of each warp that multiplies. Named barrier
// 1 + g: the turn of warpgroup g, 256 threads (itself and the one before it).
//
//   selected_THS i32 [T, H, S]   q_THD bf16 [T, H, D]   means: [3 G, B, D] of attention/routing.cu as boxes of 64 x 64
//   first_M: see there
#include "../attention/blocks.cuh"
#include "../attention/choice.cuh"
#include "hopper.cuh"

constexpr int ROUTE_BLOCKS = 64;
constexpr int ROUTE_STAGES = 4;
/** Scores of a thread for each of its two queries, rows r and r + 8 of the warp's 16. */
constexpr int ROUTE_SCORES = ROUTE_BLOCKS / 4;

template <int D_, int SIZE_>
struct RoutePlan {
  static constexpr int D = D_, SIZE = SIZE_;
  /** As many as registers allow: all their queries share what is read of the means. */
  static constexpr int GROUPS = SIZE > 7 ? 2 : 4;
  static constexpr int QUERIES = 64 * GROUPS, THREADS = WARPGROUP * (GROUPS + 1);
  /** In all no more than the block of threads starts with: 384 times 168, 640 times 96. */
  static constexpr int REGISTERS = GROUPS == 2 ? 240 : 112, LOADING_REGISTERS = GROUPS == 2 ? 24 : 32;
  static constexpr unsigned PANEL_BYTES = ROUTE_BLOCKS * 2 * PANEL, TERM_BYTES = ROUTE_BLOCKS * 2 * D;
  static constexpr unsigned STAGE_BYTES = 3 * TERM_BYTES;
};

struct RouteArgs {
  int* selected_THS;
  const bf16_bits* q_THD;
  Documents documents;
  const int* first_M;
  int tokens, heads, kvHeads, selectedCount, blockSize;

  /** Whole blocks from .. to - 1 are those that a token may choose; both grow with the token. */
  __device__ __forceinline__ int from(int token) const { return first_M[documents.of(token)]; }
  __device__ __forceinline__ int to(int token) const {
    const int document = documents.of(token);
    return first_M[document] + (token - documents.start(document)) / blockSize;
  }
};

/** Tile `index` of all: queries from t0 on of a head, and the blocks that any of them may choose. Late queries first. */
template <class P>
struct RouteTile {
  int head, t0, begin, end;

  __device__ __forceinline__ RouteTile(const RouteArgs& args, int index) {
    const int tiles = (args.tokens + P::QUERIES - 1) / P::QUERIES;
    head = index % args.heads;
    t0 = (tiles - 1 - index / args.heads) * P::QUERIES;
    begin = args.from(t0);
    end = args.to(min(t0 + P::QUERIES, args.tokens) - 1);
  }
};

/** Score `i` of a query, of 16. */
__device__ __forceinline__ float pick(const float (&scores)[2 * ROUTE_SCORES], int half, unsigned i) {
  float eight[8], four[4], two[2];
#pragma unroll
  for (int j = 0; j < 8; j++) eight[j] = i & 1 ? scores[4 * j + 2 * half + 1] : scores[4 * j + 2 * half];
#pragma unroll
  for (int j = 0; j < 4; j++) four[j] = i & 2 ? eight[2 * j + 1] : eight[2 * j];
#pragma unroll
  for (int j = 0; j < 2; j++) two[j] = i & 4 ? four[2 * j + 1] : four[2 * j];
  return i & 8 ? two[1] : two[0];
}

/**
 * The least score worth looking at while the lists are empty: of each of the query's lanes as many scores are at least
 * as large as make SIZE in all. Minus infinity when there are not enough.
 */
template <int SIZE>
__device__ __forceinline__ float first_bound(const float (&scores)[2 * ROUTE_SCORES], int half) {
  constexpr int EACH = (SIZE + 3) / 4;
  float top[EACH];
#pragma unroll
  for (int k = 0; k < EACH; k++) top[k] = -infinity();
#pragma unroll
  for (int j = 0; j < ROUTE_SCORES; j++) {
    // Without NaN.
    float x = fmaxf(scores[4 * (j / 2) + 2 * half + j % 2], -infinity());
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      const float larger = fmaxf(top[k], x);
      x = fminf(top[k], x);
      top[k] = larger;
    }
  }
  float bound = top[EACH - 1];
  bound = fminf(bound, __shfl_xor_sync(ALL_LANES, bound, 1));
  return fminf(bound, __shfl_xor_sync(ALL_LANES, bound, 2));
}

/**
 * The least score of later blocks worth looking at, given the query's four lists: larger than what SIZE chosen ones
 * reach, be they one lane's, two lanes' or all four's (ties go to those that are there: they are the lower blocks).
 */
template <int SIZE>
__device__ __forceinline__ float bound_of_query(const Best<SIZE>& best) {
  int one = best.score[SIZE - 1], two = best.score[(SIZE - 1) / 2], four = best.score[(SIZE - 1) / 4];
  four = min(four, __shfl_xor_sync(ALL_LANES, four, 1));
  one = max(one, __shfl_xor_sync(ALL_LANES, one, 1));
  one = max(one, min(two, __shfl_xor_sync(ALL_LANES, two, 1)));
  one = max(one, __shfl_xor_sync(ALL_LANES, one, 2));
  one = max(one, min(four, __shfl_xor_sync(ALL_LANES, four, 2)));
  // The next larger number; nothing is above infinity (NaN), and everything is at least minus infinity.
  return score_of(max(one + 1, order_of(-infinity())));
}

template <class P>
__device__ __forceinline__ void route_load(const RouteArgs& args, const TensorMap& means, unsigned stages,
                                           unsigned full, unsigned empty, int all) {
  int n = 0;
  for (int index = int(blockIdx.x); index < all; index += int(gridDim.x)) {
    const RouteTile<P> tile(args, index);
    const int kvHead = tile.head / (args.heads / args.kvHeads);
    for (int block = tile.begin; block < tile.end; block += ROUTE_BLOCKS, n++) {
      const int s = n % ROUTE_STAGES;
      barrier_wait(empty + 8 * s, (n / ROUTE_STAGES & 1) ^ 1);
      barrier_arrive_expect(full + 8 * s, P::STAGE_BYTES);
#pragma unroll
      for (int i = 0; i < 3; i++) {
#pragma unroll
        for (int panel = 0; panel < P::D / PANEL; panel++) {
          tma_load(stages + s * P::STAGE_BYTES + i * P::TERM_BYTES + panel * P::PANEL_BYTES, means, full + 8 * s,
                   PANEL * panel, block, i * args.kvHeads + kvHead);
        }
      }
    }
  }
}

template <class P>
__device__ __forceinline__ void route_choose(const RouteArgs& args, unsigned stages, unsigned full, unsigned empty,
                                             int all) {
  constexpr int D = P::D, SIZE = P::SIZE;
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP, group = warp / 4;
  int n = 0;
  for (int index = int(blockIdx.x); index < all; index += int(gridDim.x)) {
    const RouteTile<P> tile(args, index);
    const int row = tile.t0 + 16 * warp + lane / 4;
    // The queries as left operands: pairs (r, c) (r + 8, c) (r, c + 8) (r + 8, c + 8).
    unsigned query[D / 16][4];
    int from[2], to[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int t = min(row + 8 * half, args.tokens - 1);
      const bf16_bits* at = args.q_THD + ((long long)t * args.heads + tile.head) * D + 2 * (lane & 3);
#pragma unroll
      for (int step = 0; step < D / 16; step++) {
        query[step][half] = *reinterpret_cast<const unsigned*>(at + 16 * step);
        query[step][half + 2] = *reinterpret_cast<const unsigned*>(at + 16 * step + 8);
      }
      from[half] = args.from(t);
      to[half] = args.to(t);
    }
    const int innerBegin = __shfl_sync(ALL_LANES, from[1], WARP - 1), innerEnd = __shfl_sync(ALL_LANES, to[0], 0);
    Best<SIZE> best[2];
    best[0].start();
    best[1].start();
    float bound[2];

    for (int block = tile.begin; block < tile.end; block += ROUTE_BLOCKS, n++) {
      const int s = n % ROUTE_STAGES;
      const unsigned stage = stages + s * P::STAGE_BYTES;
      float scores[2 * ROUTE_SCORES];
      barrier_wait(full + 8 * s, n / ROUTE_STAGES & 1);
      if (n > 0 || group > 0) named_sync(1 + group, 2 * WARPGROUP);
      products_begin();
      // Small terms first: they are added up before the large one is there to swallow them.
#pragma unroll
      for (int i = 2; i >= 0; i--) {
#pragma unroll
        for (int step = 0; step < D / 16; step++) {
          product<Along::rows>(scores, query[step],
                               by_rows(stage + i * P::TERM_BYTES + step / 4 * P::PANEL_BYTES + step % 4 * 32),
                               i < 2 || step > 0);
        }
      }
      products_commit();
      named_arrive(1 + (group + 1) % P::GROUPS, 2 * WARPGROUP);
      products_wait<0>();
      keep(scores);
      if (lane == 0) barrier_arrive(empty + 8 * s);

      const int first = block + 2 * (lane & 3);
      if (block < innerBegin || block + ROUTE_BLOCKS > innerEnd) {
#pragma unroll
        for (int i = 0; i < 2 * ROUTE_SCORES; i++) {
          const int candidate = first + 8 * (i / 4) + (i & 1), half = i >> 1 & 1;
          if (candidate < from[half] || candidate >= to[half]) scores[i] = __int_as_float(0x7fffffff);
        }
      }
      if (block == tile.begin) {
#pragma unroll
        for (int half = 0; half < 2; half++) bound[half] = first_bound<SIZE>(scores, half);
      }
      unsigned open[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < 2 * ROUTE_SCORES; i++) {
        const int half = i >> 1 & 1;
        // Not true for NaN, which is not taken.
        if (scores[i] >= bound[half]) open[half] |= 1u << (2 * (i / 4) + (i & 1));
      }
      if (__any_sync(ALL_LANES, open[0] | open[1])) {
        do {
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int i = __ffs(int(open[half])) - 1;
            const float score = pick(scores, half, unsigned(i));
            best[half].offer(i >= 0 ? order_of(score) : NO_SCORE, first + 8 * (i >> 1) + (i & 1));
            open[half] &= open[half] - 1;
          }
        } while (__any_sync(ALL_LANES, open[0] | open[1]));
        bound[0] = bound_of_query(best[0]);
        bound[1] = bound_of_query(best[1]);
      } else if (block == tile.begin) {
        bound[0] = bound[1] = -infinity();
      }
    }

#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int t = row + 8 * half;
      write_choice(args.selected_THS + ((long long)t * args.heads + tile.head) * args.selectedCount,
                   t < args.tokens ? 1 : 0, best[half], args.selectedCount, from[half], lane);
    }
  }
  // The turn that the last warpgroup passed on at the end.
  if (group == 0 && n > 0) named_sync(1, 2 * WARPGROUP);
}

template <class P>
__device__ __forceinline__ void route(const RouteArgs& args, const TensorMap& means) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const unsigned stages = shared_address(shared);
  const unsigned full = stages + ROUTE_STAGES * P::STAGE_BYTES, empty = full + 8 * ROUTE_STAGES;
  if (threadIdx.x == 0) {
    for (int s = 0; s < ROUTE_STAGES; s++) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, 4 * P::GROUPS);
    }
    barrier_inits_done();
  }
  __syncthreads();
  const int all = (args.tokens + P::QUERIES - 1) / P::QUERIES * args.heads;
  if (threadIdx.x < WARPGROUP * P::GROUPS) {
    registers_more<P::REGISTERS>();
    route_choose<P>(args, stages, full, empty, all);
  } else {
    registers_fewer<P::LOADING_REGISTERS>();
    if (threadIdx.x == WARPGROUP * P::GROUPS) route_load<P>(args, means, stages, full, empty, all);
  }
}

#define ROUTE(D, SIZE)                                                                                               \
  extern "C" __global__ void __launch_bounds__(RoutePlan<D, SIZE>::THREADS, 1) hopper_route_d##D##_s##SIZE(          \
      int* selected_THS, const bf16_bits* q_THD, const __grid_constant__ TensorMap means, const int* document_T,     \
      const int* offsets_M, const int* first_M, int tokens, int heads, int kvHeads, int selectedCount,               \
      int blockSize) {                                                                                               \
    route<RoutePlan<D, SIZE>>({selected_THS, q_THD, {document_T, offsets_M}, first_M, tokens, heads, kvHeads,        \
                               selectedCount, blockSize},                                                            \
                              means);                                                                                \
  }

ROUTE(64, 3)
ROUTE(64, 7)
ROUTE(64, 15)
ROUTE(128, 3)
ROUTE(128, 7)
ROUTE(128, 15)
