// Attention backward from the side of the keys, on Hopper: dK and dV, and for full attention dQ in the same pass.
//
//   p = exp(score - lse), dp = <dOut, v>, delta = <dOut, out>, ds = p (dp - delta)
//   dV = sum p dOut, dK = scale sum ds q, dQ = scale sum ds k
//
//   dK_TGD, dV_TGD, k_TGD, v_TGD bf16 [T, G, D]   q_THD, dOut_THD, dQ_THD bf16 [T, H, D]
//   stats_HT f32 [H, T', 2]: log2(e) lse and delta of each query, T' = T rounded up to a multiple of 128; behind T and
//   in one more entry at the end +inf and 0, so that p is 0
//
// A block of threads owns 64 keys for each of its consumer warpgroups; keys and values stay in shared memory, tiles of
// queries stream past them: per query head of the group those of the own block (or document), then the list of the
// queries that chose the block. Scores are held transposed (rows are keys): rounded, they are left operands from
// registers of the products that sum over queries. A fourth warpgroup brings the tiles.
//
// A tile's products as a consumer issues them, and what it does meanwhile (the next tile's scores run through the end):
//   dp = V dOut^T                 p = exp2(scores), rounded
//   dV += p dOut                  ds = p (dp - delta), rounded, also to shared memory
//   dK += ds Q                    waits for the other warpgroup's ds
//   dQ = ds^T K (its half)
//   scores' = K Q'^T              frees the stage; hands its half of dQ to a warp that adds it to memory in bulk
//
// Barriers: keys (1: the copies), full (a stage's copies), empty (a warp of each consumer), and of each half of dQ
// ready (its 128 threads) and taken (1). The ds tile has two buffers: whoever writes one has passed the barrier of the
// tile before, where the others had finished reading it.
#include "../attention/query.cuh"
#include "hopper.cuh"

constexpr int CONSUMERS_BARRIER = 1;

/** A query's log-sum-exp to base 2, and delta. */
struct alignas(8) Stats {
  float lse, delta;
};

/** Queries in a head's stats. */
__device__ __forceinline__ long long padded(int tokens) { return (tokens + 127) / 128 * 128LL; }

/** What becomes of dQ: another kernel's work; added up in key order, so that it has one value; or as it comes. */
enum class QueryGradient { none, ordered, unordered };

template <int D_, int WARPGROUPS_, int QUERIES_, int STAGES_, QueryGradient GRADIENT_, bool LISTS_, bool EARLY_ = true>
struct KeysPass {
  static constexpr bool EARLY = EARLY_;
  static constexpr int D = D_, WARPGROUPS = WARPGROUPS_, QUERIES = QUERIES_, STAGES = STAGES_;
  static constexpr QueryGradient GRADIENT = GRADIENT_;
  /** Own blocks and lists; else documents. */
  static constexpr bool LISTS = LISTS_, DQ = GRADIENT != QueryGradient::none;
  static constexpr int KEYS = 64 * WARPGROUPS;
  static constexpr int THREADS = WARPGROUP * (WARPGROUPS + 1);
  static constexpr int CONSUMERS = WARPGROUP * WARPGROUPS;
  static constexpr int KEY_PANEL = KEYS * 128, QUERY_PANEL = QUERIES * 128;
  static constexpr unsigned KEYS_BYTES = KEYS * 2 * D, ROWS_BYTES = QUERIES * 2 * D;
  /** Queries, gradients of outputs; stats lie apart. */
  static constexpr unsigned STAGE_BYTES = 2 * ROWS_BYTES;
  /** Stats, then what the consumers must know of the tile (TileNote). */
  static constexpr unsigned NOTE = QUERIES * 8, STATS_BYTES = NOTE + 16;
  static constexpr unsigned DS_BYTES = DQ ? QUERIES * KEYS * 2 : 0;
  /** dQ halves: 64 x 64 values, 32 a thread, of half the columns (64 queries) or half the queries (128). */
  static constexpr unsigned HALF_BYTES = DQ ? 64 * 64 * 4 : 0;
  // Where things lie in shared memory.
  static constexpr unsigned VALUES = KEYS_BYTES, STAGE_0 = 2 * KEYS_BYTES, DS = STAGE_0 + STAGES * STAGE_BYTES;
  static constexpr unsigned HALVES = DS + 2 * DS_BYTES, STATS = HALVES + 2 * HALF_BYTES;
  static constexpr unsigned BARRIERS = STATS + STAGES * STATS_BYTES, SHARED = BARRIERS + 8 * (2 * STAGES + 5);
  /** Blocks of threads that share a multiprocessor, and registers of a thread. */
  static constexpr int BLOCKS = WARPGROUPS == 1 ? 2 : 1;
  static constexpr int CONSUMER_REGISTERS = WARPGROUPS == 1 ? 232 : WARPGROUPS == 2 ? (LISTS ? 232 : 240) : 160;
  static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 3 ? 32 : WARPGROUPS == 2 && LISTS ? 40 : 24;
  static_assert(!DQ || (WARPGROUPS == 2 && QUERIES * D == 64 * 128), "each warpgroup takes 64 x 64 of dQ");
  static_assert(SHARED <= 232448, "fits a multiprocessor");
};

/** Everything about queries and keys that the pass reads. */
struct KeysInputs {
  const bf16_bits* q_THD;
  const bf16_bits* dOut_THD;
  const Stats* stats_HT;
  const int* wholeBlocks;
  int tokens, heads, kvHeads, blockSize;
  /** 1 / sqrt(D) */
  float scale;
};

/** Boxes of 64 columns: [QUERIES, 1, 64] of q and dOut, [KEYS, 1, 64] of k and v. */
struct KeysMaps {
  const TensorMap &q, &dOut, &k, &v;
};

/**
 * f32 [H, query tiles, 2, 8, 128, 4]: a tile's halves as the threads of a warpgroup hold them. `added`: i32
 * [H, query tiles, 2], how many key tiles have added theirs, zero at the start.
 */
struct QuerySums {
  float* sums;
  int* added;
};

/** The keys of this block of threads, and the tokens whose own block (or document) they are in. */
struct KeysWork {
  int first, end, queryEnd;
  /** All keys are there and attended to by the queries from the last key up to this. */
  int commonEnd;
  /** Its whole block, -1 when no list belongs to it. */
  int block;
  bool any;
};

template <typename Pass>
__device__ __forceinline__ KeysWork keys_work(int tile, const Lists& lists, const Documents& documents,
                                              const KeysInputs& in) {
  constexpr int KEYS = Pass::KEYS;
  if (!Pass::LISTS) {
    const int first = tile * KEYS, end = min(first + KEYS, in.tokens);
    const int firstEnd = documents.offsets_M[documents.of(first) + 1];
    return {first, end, documents.offsets_M[documents.of(end - 1) + 1], end - first < KEYS ? 0 : firstEnd, -1, true};
  }
  const int tiles = (in.blockSize + KEYS - 1) / KEYS;
  const int b = tile / tiles;
  int first, queryEnd, block = -1;
  if (b < lists.blocks) {
    if (b >= *in.wholeBlocks) return {0, 0, 0, 0, -1, false};
    block = b;
    first = lists.blockStart_B[b];
    queryEnd = first + in.blockSize;
  } else {
    // The rest of a document behind its whole blocks.
    const int start = documents.offsets_M[b - lists.blocks];
    queryEnd = documents.offsets_M[b - lists.blocks + 1];
    first = start + (queryEnd - start) / in.blockSize * in.blockSize;
  }
  first += (tile - b * tiles) * KEYS;
  return {first, min(first + KEYS, queryEnd), queryEnd, queryEnd, block, first < queryEnd};
}

/** What is said of a tile of queries with it: its first token where a mask is needed, -1 elsewhere; whether it is the last. */
struct alignas(8) TileNote {
  int maskFrom, last;
};

/** The tiles of queries in order: full attention from the last query down, so that waiting for order is short. */
template <typename Pass>
struct QueryTiles {
  const KeysWork& work;
  const Lists& lists;
  const int* list;
  int head, headEnd, tile, ownTiles, count;
  /** Own tiles within these bounds need no mask. */
  int low, high;

  __device__ __forceinline__ QueryTiles(const KeysWork& work, const Lists& lists, int kvHead, int group)
      : work(work), lists(lists), list(nullptr), head(kvHead * group), headEnd(head + group), tile(0),
        ownTiles((work.queryEnd - work.first + Pass::QUERIES - 1) / Pass::QUERIES), count(0),
        low(work.first + Pass::KEYS - 1), high(work.commonEnd) {
    open();
  }

  __device__ __forceinline__ void open() {
    if (!Pass::LISTS || work.block < 0 || !lists.counts_HB) return;
    const long long i = (long long)head * lists.blocks + work.block;
    count = lists.counts_HB[i];
    list = lists.entries_HL + head * lists.entriesPerHead + lists.starts_HB[i];
  }

  __device__ __forceinline__ bool own() const { return !Pass::LISTS || tile < ownTiles; }
  /** First token of an own tile. */
  __device__ __forceinline__ int token() const {
    return work.first + (Pass::LISTS ? tile : ownTiles - 1 - tile) * Pass::QUERIES;
  }
  __device__ __forceinline__ int mask_from() const {
    return own() && (token() < low || token() + Pass::QUERIES > high) ? token() : -1;
  }
  /** First entry of a list's tile. */
  __device__ __forceinline__ int entry() const { return (tile - ownTiles) * Pass::QUERIES; }

  /** Steps to the next tile; false behind the last. */
  __device__ __forceinline__ bool advance() {
    tile++;
    if (tile < ownTiles + (count + Pass::QUERIES - 1) / Pass::QUERIES) return true;
    tile = 0;
    head++;
    if (head == headEnd) return false;
    open();
    return true;
  }
};

/** A place in a ring of stages, and the parity of its barriers. */
template <int STAGES>
struct Ring {
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage < STAGES) return;
    stage = 0;
    parity ^= 1;
  }
};

// --- the fourth warpgroup --------------------------------------------------------------------------------------------

/** By one thread: keys, values. */
template <typename Pass>
__device__ __forceinline__ void load_keys(unsigned shared, unsigned barrier, const KeysMaps& maps, int first,
                                          int kvHead) {
  barrier_arrive_expect(barrier, 2 * Pass::KEYS_BYTES);
#pragma unroll
  for (int p = 0; p < Pass::D / PANEL; p++) {
    tma_load(shared + p * Pass::KEY_PANEL, maps.k, barrier, p * PANEL, kvHead, first);
    tma_load(shared + Pass::VALUES + p * Pass::KEY_PANEL, maps.v, barrier, p * PANEL, kvHead, first);
  }
}

/** By one thread: a tile of successive queries and their gradients. */
template <typename Pass>
__device__ __forceinline__ void load_rows(unsigned stage, unsigned barrier, const KeysMaps& maps, int token,
                                          int head) {
#pragma unroll
  for (int p = 0; p < Pass::D / PANEL; p++) {
    tma_load(stage + p * Pass::QUERY_PANEL, maps.q, barrier, p * PANEL, head, token);
    tma_load(stage + Pass::ROWS_BYTES + p * Pass::QUERY_PANEL, maps.dOut, barrier, p * PANEL, head, token);
  }
}

/** One thread brings documents. */
template <typename Pass>
__device__ __forceinline__ void bring(unsigned shared, unsigned full, unsigned empty, QueryTiles<Pass> tiles,
                                      const KeysMaps& maps, const KeysInputs& in) {
  Ring<Pass::STAGES> ring;
  for (bool more = true; more;) {
    const unsigned barrier = full + 8 * ring.stage, stats = shared + Pass::STATS + ring.stage * Pass::STATS_BYTES;
    const int token = tiles.token(), head = tiles.head, maskFrom = tiles.mask_from();
    more = tiles.advance();
    barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
    store_shared(stats + Pass::NOTE, make_int2(maskFrom, !more));
    barrier_arrive_expect(barrier, Pass::STAGE_BYTES + Pass::NOTE);
    load_rows<Pass>(shared + Pass::STAGE_0 + ring.stage * Pass::STAGE_BYTES, barrier, maps, token, head);
    bulk_load(stats, in.stats_HT + head * padded(in.tokens) + token, Pass::NOTE, barrier);
    ring.advance();
  }
}

/**
 * All four warps bring own blocks and lists; each takes a quarter of the rows of a list's tile. Entries are read a tile
 * ahead.
 */
template <typename Pass>
__device__ __forceinline__ void gather(unsigned shared, unsigned full, unsigned empty, QueryTiles<Pass> tiles,
                                       const KeysMaps& maps, const KeysInputs& in) {
  constexpr int D = Pass::D, ROWS = Pass::QUERIES / 4, CHUNKS = D / 8, AT_ONCE = WARP / CHUNKS;
  const int thread = int(threadIdx.x) % WARPGROUP, lane = thread % WARP, row0 = thread / WARP * ROWS;
  const int chunk = lane % CHUNKS;
  const long long perHead = padded(in.tokens), stride = (long long)in.heads * D;
  const Stats* none = in.stats_HT + in.heads * perHead;
  /** The token of row row0 + lane; -1 for none. */
  const auto look = [&]() {
    if (lane >= ROWS) return -1;
    if (tiles.own()) {
      const int t = tiles.token() + row0 + lane;
      return t < tiles.work.queryEnd ? t : -1;
    }
    const int i = tiles.entry() + row0 + lane;
    return i < tiles.count ? tiles.list[i] / RANKS : -1;
  };
  Ring<Pass::STAGES> ring;
  int token = look();
  for (bool more = true; more;) {
    const unsigned barrier = full + 8 * ring.stage;
    const unsigned stage = shared + Pass::STAGE_0 + ring.stage * Pass::STAGE_BYTES;
    const unsigned stats = shared + Pass::STATS + ring.stage * Pass::STATS_BYTES;
    const bool own = tiles.own();
    const int head = tiles.head, firstToken = tiles.token(), here = token, maskFrom = tiles.mask_from();
    more = tiles.advance();
    if (more) token = look();
    barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
    if (lane < ROWS) {
      copy_async_8(stats + 8 * (row0 + lane), here < 0 ? none : in.stats_HT + head * perHead + here, true);
    }
    if (thread == 0) store_shared(stats + Pass::NOTE, make_int2(maskFrom, !more));
    if (own) {
      if (thread == 0) {
        barrier_arrive_expect(barrier, Pass::STAGE_BYTES);
        load_rows<Pass>(stage, barrier, maps, firstToken, head);
      }
    } else {
      if (thread == 0) barrier_arrive(barrier);
      const bf16_bits* q = in.q_THD + head * D + 8 * chunk;
      const bf16_bits* dOut = in.dOut_THD + head * D + 8 * chunk;
#pragma unroll
      for (int i = 0; i < ROWS / AT_ONCE; i++) {
        const int row = i * AT_ONCE + lane / CHUNKS;
        const int t = __shfl_sync(ALL_LANES, here, row);
        const long long at = t < 0 ? 0 : t * stride;
        const unsigned to = stage + panel_offset(Pass::QUERIES, row0 + row, 8 * chunk);
        copy_async_16(to, q + at, t >= 0);
        copy_async_16(to + Pass::ROWS_BYTES, dOut + at, t >= 0);
      }
    }
    barrier_arrive_copies(barrier);
    ring.advance();
  }
  // The copies read by nobody of this warpgroup must not outlive it.
  copy_commit();
  copy_wait<0>();
}

__device__ __forceinline__ void store_shared(unsigned to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

__device__ __forceinline__ int load_acquire(const int* p) {
  int x;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(x) : "l"(__cvta_generic_to_global(p)) : "memory");
  return x;
}

__device__ __forceinline__ void store_release(int* p, int x) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(x) : "memory");
}

/** Orders bulk copies and ordinary accesses of this thread. */
__device__ __forceinline__ void fence_all_for_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

/** Waits until all key tiles in front have added theirs. */
__device__ __forceinline__ void wait_turn(const int* added, int turn) {
#ifdef MOBALAB_TRAP
  for (int tries = 0; load_acquire(added) != turn; tries++) {
    if (tries == 1 << 24) asm volatile("st.global.u32 [%0], %1;" ::"l"(16ull), "r"(0) : "memory");
  }
#else
  while (load_acquire(added) != turn) {
  }
#endif
}

/** One thread adds a half of dQ to memory, tile by tile. */
template <typename Pass>
__device__ __forceinline__ void add_half(unsigned shared, unsigned ready, unsigned taken, int half,
                                         QueryTiles<Pass> tiles, const QuerySums& sums, const Documents& documents,
                                         const KeysInputs& in, int keyTile) {
  constexpr bool ORDERED = Pass::GRADIENT == QueryGradient::ordered;
  const unsigned from = shared + Pass::HALVES + half * Pass::HALF_BYTES;
  const int queryTiles = (in.tokens + Pass::QUERIES - 1) / Pass::QUERIES;
  unsigned parity = 0;
  const auto turn_of = [&]() { return ORDERED ? keyTile - documents.own_start(tiles.token(), 0) / Pass::KEYS : 0; };
  int turn = turn_of();
  for (bool more = true; more; parity ^= 1) {
    const long long at = 2 * ((long long)tiles.head * queryTiles + tiles.token() / Pass::QUERIES) + half;
    float* to = sums.sums + at * (64 * 64);
    int* added = sums.added + at;
    const int here = turn;
    more = tiles.advance();
    if (more) turn = turn_of();
    barrier_wait(ready, parity);
    if (ORDERED) {
      if (here > 0) wait_turn(added, here);
      fence_all_for_async();
    }
    if (ORDERED && here == 0) {
      bulk_store(to, from, Pass::HALF_BYTES);
    } else {
      bulk_add(to, from, Pass::HALF_BYTES);
    }
    bulk_commit();
    bulk_wait_read<0>();
    barrier_arrive(taken);
    if (ORDERED) {
      bulk_wait<0>();
      fence_all_for_async();
      store_release(added, here + 1);
    }
  }
  bulk_wait<0>();
}

// --- consumers -------------------------------------------------------------------------------------------------------

/** The operand `bytes` behind another: one addition, where to describe it anew would take registers through the loop. */
__device__ __forceinline__ unsigned long long further(unsigned long long operand, unsigned bytes) {
  return (operand & 0xffffffff00000000ull) | (unsigned(operand) + (bytes >> 4));
}

/** Scores: 64 keys (rows of `left`) against the queries of a tile, over D. */
template <typename Pass>
__device__ __forceinline__ void multiply_rows(float (&out)[Pass::QUERIES / 2], unsigned left, unsigned right) {
  const unsigned long long x = by_rows(left), y = by_rows(right);
  products_begin();
#pragma unroll
  for (int k = 0; k < Pass::D / 16; k++) {
    const unsigned column = k % 4 * 32;
    product<Along::rows, Along::rows>(out, further(x, k / 4 * Pass::KEY_PANEL + column),
                                      further(y, k / 4 * Pass::QUERY_PANEL + column), k > 0);
  }
  products_commit();
}

/** sum += left right: [64 x queries] times the rows of a tile. */
template <typename Pass>
__device__ __forceinline__ void accumulate_rows(float (&sum)[Pass::D / 2], const unsigned (&left)[Pass::QUERIES / 16][4],
                                                unsigned right) {
  const unsigned long long y = by_columns(right, Pass::QUERY_PANEL);
  products_begin();
#pragma unroll
  for (int k = 0; k < Pass::QUERIES / 16; k++) {
    product<Along::columns>(sum, left[k], further(y, k * 2048), true);
  }
  products_commit();
}

/** Pairs of neighbouring accumulators as left operands. */
template <int N>
__device__ __forceinline__ void round_rows(unsigned (&out)[N / 8][4], const float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N / 8; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) out[i][j] = round_pair(x[8 * i + 2 * j], x[8 * i + 2 * j + 1]);
  }
}

/** Accumulators times `factor` to the warp's 16 rows of a tile in shared memory, from there to memory. */
template <typename Pass>
__device__ __forceinline__ void store_keys(unsigned tile, int row0, const float (&x)[Pass::D / 2], float factor,
                                           bf16_bits* to_TGD, const KeysWork& work, long long stride) {
  constexpr int CHUNKS = Pass::D / 8;
  const int lane = int(threadIdx.x) % WARP;
#pragma unroll
  for (int n = 0; n < CHUNKS; n++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      store_shared(tile + panel_offset(Pass::KEYS, row0 + lane / 4 + 8 * half, 8 * n + 2 * (lane & 3)),
                   round_pair(factor * x[4 * n + 2 * half], factor * x[4 * n + 2 * half + 1]));
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * CHUNKS / WARP; i++) {
    const int row = row0 + lane / CHUNKS + i * (WARP / CHUNKS), chunk = lane % CHUNKS;
    const Packed v = load_shared(tile + panel_offset(Pass::KEYS, row, 8 * chunk));
    const int t = work.first + row;
    if (t < work.end) store_packed(to_TGD + t * stride + 8 * chunk, v);
  }
}

template <typename Pass>
__device__ __forceinline__ void consume(bf16_bits* dK_TGD, bf16_bits* dV_TGD, unsigned shared, unsigned keysBarrier,
                                        unsigned full, unsigned empty, unsigned halves, const KeysWork& work,
                                        const Documents& documents, const KeysInputs& in, int kvHead) {
  constexpr int D = Pass::D, QUERIES = Pass::QUERIES, N = QUERIES / 8;
  const int thread = int(threadIdx.x) % WARPGROUP, lane = thread % WARP;
  const int warpgroup = int(threadIdx.x) / WARPGROUP;
  const int row0 = 64 * warpgroup + thread / WARP * 16;
  // Queries key .. queryEnd - 1 attend to the key of an accumulator.
  const int key = work.first + row0 + lane / 4;
  int queryEnd[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int k = key + 8 * half;
    queryEnd[half] = k >= work.end ? 0 : Pass::LISTS ? work.queryEnd : documents.offsets_M[documents.of(k) + 1];
  }
  float dK[D / 2], dV[D / 2], scores[QUERIES / 2], dp[QUERIES / 2];
#pragma unroll
  for (int i = 0; i < D / 2; i++) dK[i] = dV[i] = 0.0f;
  const unsigned myKeys = shared + warpgroup * 8192, myValues = myKeys + Pass::VALUES;
  const float scale = in.scale * LOG2E;
  Ring<Pass::STAGES> ring;
  unsigned step = 0;
  barrier_wait(keysBarrier, 0);
  barrier_wait(full, 0);
  if (Pass::LISTS) fence_shared_for_async();
  if (Pass::EARLY) {
    multiply_rows<Pass>(scores, myKeys, shared + Pass::STAGE_0);
    products_wait<0>();
    keep(scores);
  }
  for (bool more = true; more; step ^= 1) {
    const unsigned stage = shared + Pass::STAGE_0 + ring.stage * Pass::STAGE_BYTES;
    const unsigned stats = shared + Pass::STATS + ring.stage * Pass::STATS_BYTES;
    const unsigned release = empty + 8 * ring.stage;
    if (!Pass::EARLY) multiply_rows<Pass>(scores, myKeys, stage);
    multiply_rows<Pass>(dp, myValues, stage + Pass::ROWS_BYTES);
    if (!Pass::EARLY) {
      products_wait<1>();
      keep(scores);
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
      const Packed two = load_shared(stats + 64 * n + 16 * (lane & 3));
#pragma unroll
      for (int i = 0; i < 4; i++) {
        scores[4 * n + i] = fast_exp2(fmaf(scores[4 * n + i], scale, -__uint_as_float(two.pair[2 * (i & 1)])));
      }
    }
    const Packed note = load_shared(stats + Pass::NOTE);
    more = note.pair[1] == 0;
    if (int(note.pair[0]) >= 0) {
      const int first = int(note.pair[0]) + 2 * (lane & 3);
#pragma unroll
      for (int i = 0; i < QUERIES / 2; i++) {
        const int t = first + i / 4 * 8 + (i & 1), half = i >> 1 & 1;
        if (t < key + 8 * half || t >= queryEnd[half]) scores[i] = 0.0f;
      }
    }
    unsigned p[QUERIES / 16][4], ds[QUERIES / 16][4];
    round_rows(p, scores);
    accumulate_rows<Pass>(dV, p, stage + Pass::ROWS_BYTES);
    products_wait<1>();
    keep(dp);
#pragma unroll
    for (int n = 0; n < N; n++) {
      const Packed two = load_shared(stats + 64 * n + 16 * (lane & 3));
#pragma unroll
      for (int half = 0; half < 2; half++) {
        // Rounded, as dV takes it: so its f32 values need no registers any more.
        const unsigned pair = p[n / 2][2 * (n & 1) + half];
        float* two_ds = dp + 4 * n + 2 * half;
        two_ds[0] = low_bf16(pair) * (two_ds[0] - __uint_as_float(two.pair[1]));
        two_ds[1] = high_bf16(pair) * (two_ds[1] - __uint_as_float(two.pair[3]));
      }
    }
    round_rows(ds, dp);
    accumulate_rows<Pass>(dK, ds, stage);

    float dQ[Pass::DQ ? 32 : 1];
    if constexpr (Pass::DQ) {
      const unsigned tile = shared + Pass::DS + step * Pass::DS_BYTES;
#pragma unroll
      for (int i = 0; i < QUERIES / 16; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          store_shared(tile + panel_offset(Pass::KEYS, row0 + lane / 4 + 8 * (j & 1), 16 * i + 8 * (j >> 1) + 2 * (lane & 3)),
                       ds[i][j]);
        }
      }
      fence_shared_for_async();
      named_sync(CONSUMERS_BARRIER, Pass::CONSUMERS);
      products_wait<1>();
      // Half of the columns, or half of the queries.
      const unsigned long long left =
          by_columns(tile + (QUERIES == 128 ? warpgroup * Pass::KEY_PANEL : 0), Pass::KEY_PANEL);
      const unsigned long long right =
          by_columns(shared + (QUERIES == 128 ? 0 : warpgroup * Pass::KEY_PANEL), Pass::KEY_PANEL);
      products_begin();
#pragma unroll
      for (int k = 0; k < Pass::KEYS / 16; k++) {
        product<Along::columns, Along::columns>(dQ, further(left, k * 2048), further(right, k * 2048), k > 0);
      }
      products_commit();
    }
    // All but the last are done, and their left operands' registers free again.
    products_wait<1>();
    if (more) {
      ring.advance();
      barrier_wait(full + 8 * ring.stage, ring.parity);
      if (Pass::LISTS) fence_shared_for_async();
    }
    // Behind the last tile its scores once more, which nobody looks at: the pipeline has one shape.
    if (Pass::EARLY) {
      multiply_rows<Pass>(scores, myKeys, shared + Pass::STAGE_0 + ring.stage * Pass::STAGE_BYTES);
      products_wait<1>();
    } else {
      products_wait<0>();
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(release);
    if constexpr (Pass::DQ) {
      keep(dQ);
      const unsigned ready = halves + 16 * warpgroup, taken = ready + 8;
      const unsigned to = shared + Pass::HALVES + warpgroup * Pass::HALF_BYTES + 16 * thread;
      barrier_wait(taken, step ^ 1);
#pragma unroll
      for (int i = 0; i < 8; i++) store_shared(to + 2048 * i, dQ[4 * i], dQ[4 * i + 1], dQ[4 * i + 2], dQ[4 * i + 3]);
      fence_shared_for_async();
      barrier_arrive(ready);
    }
    // None runs on into the next turn of the loop: the compiler could not follow it there.
    products_wait<0>();
    keep(scores);
  }
  keep(dK);
  keep(dV);
  // All have read keys and values for the last time.
  named_sync(CONSUMERS_BARRIER, Pass::CONSUMERS);
  const long long stride = (long long)in.kvHeads * D;
  store_keys<Pass>(shared, row0, dK, in.scale, dK_TGD + kvHead * D, work, stride);
  store_keys<Pass>(shared + Pass::VALUES, row0, dV, 1.0f, dV_TGD + kvHead * D, work, stride);
}

/** `tile`: of keys. */
template <typename Pass>
__device__ __forceinline__ void keys_backward(bf16_bits* dK_TGD, bf16_bits* dV_TGD, const KeysMaps& maps,
                                              const KeysInputs& in, const Lists& lists, const Documents& documents,
                                              const QuerySums& sums, int tile, int kvHead) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const KeysWork work = keys_work<Pass>(tile, lists, documents, in);
  if (!work.any) return;
  const unsigned shared = shared_address(memory);
  const unsigned keysBarrier = shared + Pass::BARRIERS, halves = keysBarrier + 8;
  const unsigned full = halves + 32, empty = full + 8 * Pass::STAGES;
  if (threadIdx.x == 0) {
    barrier_init(keysBarrier, 1);
    for (int i = 0; i < Pass::STAGES; i++) {
      barrier_init(full + 8 * i, Pass::LISTS ? WARPGROUP + 1 : 1);
      barrier_init(empty + 8 * i, 4 * Pass::WARPGROUPS);
    }
    for (int half = 0; half < 2; half++) {
      barrier_init(halves + 16 * half, WARPGROUP);
      barrier_init(halves + 16 * half + 8, 1);
    }
    barrier_inits_done();
  }
  __syncthreads();
  const int warp = __shfl_sync(ALL_LANES, int(threadIdx.x) / WARP, 0);
  if (warp >= 4 * Pass::WARPGROUPS) {
    registers_fewer<Pass::PRODUCER_REGISTERS>();
    const QueryTiles<Pass> tiles(work, lists, kvHead, in.heads / in.kvHeads);
    if (threadIdx.x == Pass::CONSUMERS) load_keys<Pass>(shared, keysBarrier, maps, work.first, kvHead);
    if constexpr (Pass::LISTS) {
      gather<Pass>(shared, full, empty, tiles, maps, in);
    } else {
      const int role = warp - 4 * Pass::WARPGROUPS;
      if (threadIdx.x % WARP == 0) {
        if (role == 0) {
          bring<Pass>(shared, full, empty, tiles, maps, in);
        } else if (Pass::DQ && role < 3) {
          const unsigned ready = halves + 16 * (role - 1);
          add_half<Pass>(shared, ready, ready + 8, role - 1, tiles, sums, documents, in, tile);
        }
      }
    }
  } else {
    registers_more<Pass::CONSUMER_REGISTERS>();
    consume<Pass>(dK_TGD, dV_TGD, shared, keysBarrier, full, empty, halves, work, documents, in, kvHead);
  }
}

// --- before and after ------------------------------------------------------------------------------------------------

/** A group of D / 8 lanes per query and head, [H, T'] and one more. */
template <int D>
__device__ __forceinline__ void backward_stats(Stats* stats_HT, const bf16_bits* out_THD, const bf16_bits* dOut_THD,
                                               const float* lse_TH, int tokens, int heads) {
  constexpr int LANES = D / 8;
  // Heads of a token beside each other, as out lies in memory.
  const long long query = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / LANES;
  const long long t = query / heads, perHead = padded(tokens);
  const int head = int(query % heads), lane = int(threadIdx.x) % LANES;
  float sum = 0.0f;
  if (t < tokens) {
    float out[PER_VECTOR], dOut[PER_VECTOR];
    widen(out, load_packed(out_THD + query * D + 8 * lane));
    widen(dOut, load_packed(dOut_THD + query * D + 8 * lane));
#pragma unroll
    for (int i = 0; i < PER_VECTOR; i++) sum = fmaf(out[i], dOut[i], sum);
  }
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, offset);
  if (lane != 0) return;
  const Stats none = {infinity(), 0.0f};
  if (t < perHead) stats_HT[head * perHead + t] = t < tokens ? Stats{lse_TH[query] * LOG2E, sum} : none;
  if (query == 0) stats_HT[heads * perHead] = none;
}

/** dQ from its sums. Grid: (2 halves of each query tile, H), 256 threads. */
template <int D>
__device__ __forceinline__ void query_gradients(bf16_bits* dQ_THD, const float* sums, int tokens, int heads,
                                                float scale) {
  constexpr int QUERIES = 64 * 128 / D;
  const int head = int(blockIdx.y), half = int(blockIdx.x) & 1, tile = int(blockIdx.x) >> 1;
  const int group = int(threadIdx.x) / 8, chunk = int(threadIdx.x) % 8;
  const float* from = sums + ((long long)head * gridDim.x + blockIdx.x) * (64 * 64) + (chunk * 128 + 4 * group) * 4;
  float4 x[4];
#pragma unroll
  for (int i = 0; i < 4; i++) x[i] = reinterpret_cast<const float4*>(from)[i];
  const int row = group / 8 * 16 + group % 8 + (D == 64 ? 64 * half : 0), column = 8 * chunk + (D == 64 ? 0 : 64 * half);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int t = tile * QUERIES + row + 8 * i;
    Packed v;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      v.pair[j] = i == 0 ? round_pair(scale * x[j].x, scale * x[j].y) : round_pair(scale * x[j].z, scale * x[j].w);
    }
    if (t < tokens) store_packed(dQ_THD + ((long long)t * heads + head) * D + column, v);
  }
}

// --- entry points ----------------------------------------------------------------------------------------------------

#ifndef MOBALAB_HARNESS

#define MAPS                                                                                      \
  const __grid_constant__ TensorMap qMap, const __grid_constant__ TensorMap dOutMap,              \
      const __grid_constant__ TensorMap kMap, const __grid_constant__ TensorMap vMap

/** Grid: (kv heads at once, key tiles, rounds of kv heads): long rows of queries first, heads beside each other. */
#define BACKWARD_FULL(D, QUERIES)                                                                                     \
  using Full##D = KeysPass<D, 2, QUERIES, 2, QueryGradient::ordered, false>;                                          \
  extern "C" __global__ void __launch_bounds__(Full##D::THREADS, Full##D::BLOCKS) hopper_backward_full_d##D(       \
      bf16_bits* dK_TGD, bf16_bits* dV_TGD, MAPS, const Stats* stats_HT, float* sums, int* added,                     \
      const int* document_T, const int* offsets_M, int tokens, int heads, int kvHeads, float scale) {                 \
    keys_backward<Full##D>(dK_TGD, dV_TGD, {qMap, dOutMap, kMap, vMap},                                               \
                           {nullptr, nullptr, stats_HT, nullptr, tokens, heads, kvHeads, 0, scale}, Lists{},          \
                           {document_T, offsets_M}, {sums, added}, int(blockIdx.y),                                   \
                           int(blockIdx.z * gridDim.x + blockIdx.x));                                                 \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(256) hopper_query_gradients_d##D(bf16_bits* dQ_THD,                 \
                                                                                   const float* sums, int tokens,     \
                                                                                   int heads, float scale) {          \
    query_gradients<D>(dQ_THD, sums, tokens, heads, scale);                                                           \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(256) hopper_backward_stats_d##D(                                    \
      Stats* stats_HT, const bf16_bits* out_THD, const bf16_bits* dOut_THD, const float* lse_TH, int tokens,          \
      int heads) {                                                                                                    \
    backward_stats<D>(stats_HT, out_THD, dOut_THD, lse_TH, tokens, heads);                                            \
  }

/** Grid: (key tiles, kv heads). */
#define BACKWARD_BLOCKS(D, KEYS, STAGES)                                                                              \
  using Blocks##KEYS##_##D = KeysPass<D, KEYS / 64, 64, STAGES, QueryGradient::none, true>;                           \
  extern "C" __global__ void __launch_bounds__(Blocks##KEYS##_##D::THREADS, Blocks##KEYS##_##D::BLOCKS)               \
      hopper_backward_keys##KEYS##_d##D(                                                                           \
          bf16_bits* dK_TGD, bf16_bits* dV_TGD, MAPS, const bf16_bits* dOut_THD, const bf16_bits* q_THD,              \
          const Stats* stats_HT, const int* entries_HL, const int* starts_HB, const int* counts_HB,                   \
          const Item* items_HI, const int* itemCounts_H, const int* blockStart_B, long long entriesPerHead,           \
          int blocks, int itemsPerHead, const int* wholeBlocks, const int* document_T, const int* offsets_M,          \
          int tokens, int heads, int kvHeads, int blockSize, float scale) {                                           \
    const Lists lists = {entries_HL,   starts_HB,      counts_HB, items_HI,    itemCounts_H,                          \
                         blockStart_B, entriesPerHead, blocks,    itemsPerHead};                                      \
    keys_backward<Blocks##KEYS##_##D>(dK_TGD, dV_TGD, {qMap, dOutMap, kMap, vMap},                                    \
                                      {q_THD, dOut_THD, stats_HT, wholeBlocks, tokens, heads, kvHeads, blockSize,     \
                                       scale},                                                                        \
                                      lists, {document_T, offsets_M}, {}, int(blockIdx.x), int(blockIdx.y));          \
  }

BACKWARD_FULL(64, 128)
BACKWARD_FULL(128, 64)
BACKWARD_BLOCKS(64, 64, 3)
BACKWARD_BLOCKS(64, 128, 4)
BACKWARD_BLOCKS(128, 64, 2)
BACKWARD_BLOCKS(128, 128, 3)

#endif
