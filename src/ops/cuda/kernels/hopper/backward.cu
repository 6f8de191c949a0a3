// Attention backward on Hopper: dK, dV and dQ in one pass from the side of the keys.
//
//   p = exp(score - lse), dp = <dOut, v>, delta = <dOut, out>, ds = p (dp - delta)
//   dV = sum p dOut, dK = scale sum ds q, dQ = scale sum ds k
//
//   dK_TGD, dV_TGD, k_TGD, v_TGD bf16 [T, G, D]   q_THD, dOut_THD, dQ_THD bf16 [T, H, D]
//   stats_HT f32 [H, T', 2]: log2(e) lse and delta of each query, T' = T rounded up to a multiple of 128; behind T and
//   in one more entry at the end +inf and 0, so that p is 0
//
// A block of threads owns 64 keys for each of its two consumer warpgroups; keys and values stay in shared memory, tiles
// of queries stream past them: per query head of the group those that chose the block, from its list, and those of the
// own block (or document). Scores are held transposed (rows are keys): rounded, they are left operands from registers of
// the products that sum over queries. A third warpgroup brings the tiles.
//
// A tile's products as a consumer issues them, and what it does meanwhile (the next tile's scores run through the end):
//   dp = V dOut^T                 p = exp2(scores), rounded
//   dV += p dOut                  ds = p (dp - delta), rounded, also to shared memory
//   dK += ds Q                    waits for the other warpgroup's ds
//   dQ = ds^T K (its half)
//   scores' = K Q'^T              frees the stage; hands its half of dQ to a thread that adds it to memory in bulk
//
// Barriers: keys (1: the copies), full (a stage's copies), empty (a warp of each consumer), and of dQ ready (threads of
// consumers; one for even tiles, one for odd ones) and taken (1). The ds tile has two buffers: whoever writes one has
// passed the barrier of the tile before, where the others had finished reading it.
//
// Two threads add up dQ, every second tile each: from the start of an addition until all can see it takes longer than a
// tile, and while one waits for that the other begins.
//
// dQ is summed in f32, a tile of queries at a time, by one tile of keys after another in their order: every sum has one
// value. Blocks of threads wait only for those in front of them in the grid, which started before them. Own queries come
// last and from the last one down: so the tiles of keys follow each other closely, and all begin with the same tile.
// A query's sums over its own block and over each chosen one lie apart; a last kernel adds them up.
//
// A long list is cut into parts (Unit), which add up dK and dV in their order in the same way.
#include "../attention/query.cuh"
#include "../attention/stats.cuh"
#include "hopper.cuh"

constexpr int CONSUMERS_BARRIER = 1;

/** Queries in a head's stats. */
__device__ __forceinline__ long long padded(int tokens) { return (tokens + 127) / 128 * 128LL; }

template <int D_, bool LISTS_>
struct KeysPass {
  static constexpr int D = D_, STAGES = 2, QUERIES = 64 * 128 / D;
  /** Own blocks and lists; else documents. */
  static constexpr bool LISTS = LISTS_;
  static constexpr int WARPGROUPS = 2, KEYS = 64 * WARPGROUPS;
  static constexpr int CONSUMERS = WARPGROUP * WARPGROUPS, THREADS = CONSUMERS + WARPGROUP;
  /** Warps that bring own blocks and lists; of two others a thread each adds up dQ. */
  static constexpr int GATHERERS = 2;
  static constexpr int KEY_PANEL = KEYS * 128, QUERY_PANEL = QUERIES * 128;
  static constexpr unsigned KEYS_BYTES = KEYS * 2 * D, ROWS_BYTES = QUERIES * 2 * D;
  /** Queries, gradients of outputs; stats lie apart. */
  static constexpr unsigned STAGE_BYTES = 2 * ROWS_BYTES;
  /** Stats, then what the consumers must know of the tile (TileNote). */
  static constexpr unsigned NOTE = QUERIES * 8, STATS_BYTES = NOTE + 16;
  static constexpr unsigned DS_BYTES = QUERIES * KEYS * 2;
  /** dQ halves: 64 x 64 values, 32 a thread, of half the columns (64 queries) or half the queries (128). */
  static constexpr unsigned HALF_BYTES = 64 * 64 * 4;
  // Where things lie in shared memory.
  static constexpr unsigned VALUES = KEYS_BYTES, STAGE_0 = 2 * KEYS_BYTES, DS = STAGE_0 + STAGES * STAGE_BYTES;
  static constexpr unsigned HALVES = DS + 2 * DS_BYTES, STATS = HALVES + 2 * HALF_BYTES;
  static constexpr unsigned BARRIERS = STATS + STAGES * STATS_BYTES, SHARED = BARRIERS + 8 * (2 * STAGES + 4);
  static constexpr int CONSUMER_REGISTERS = LISTS ? 224 : 240, PRODUCER_REGISTERS = LISTS ? 56 : 24;
  static_assert(SHARED <= 232448, "fits a multiprocessor");
};

/** Some tiles of the lists of a block, of all heads of a group one after another; the last part also has own queries. */
struct alignas(32) Unit {
  int block, firstTile, tiles;
  int part, parts;
  /** Where its sums of dK and dV lie when there are several parts: which of the blocks cut this is. */
  int cut;
  /** The block's first token, and its document. */
  int first, document;
};

/** i32 [G, N, 8], and how many there are [G]; those of kv head g from g N. */
struct Units {
  const Unit* units_GN;
  const int* counts_G;
  int perHead;
};

/** Everything about queries and keys that the pass reads. */
struct KeysInputs {
  const bf16_bits* q_THD;
  const bf16_bits* dOut_THD;
  const Stats* stats_HT;
  /** i32 [documents + 1] whole blocks in front of each document, where there are blocks. */
  const int* first_M;
  int tokens, heads, kvHeads, blockSize, selectedCount;
  /** 1 / sqrt(D) */
  float scale;
};

/** Boxes of 64 columns: [QUERIES, 1, 64] of q and dOut, [KEYS, 1, 64] of k and v. */
struct KeysMaps {
  const TensorMap &q, &dOut, &k, &v;
};

/**
 * Sums of the heads of this launch (`heads` of them from firstHead on).
 *
 *   dQ f32 [heads, tilesPerHead, 2, 4, 2, 128, 4]: of each tile of queries its halves, as `query_gradients` says
 *   added i32 [heads, tilesPerHead]: how many key tiles have added theirs, zero at the start
 *   place_TPS i32: where the sums of (query, head, rank) are: QUERIES * tile of the head + row
 *   keys f32 [kv heads, cuts, key tiles of a block, 2, D / 8, 256, 4]: dK and dV of cut blocks
 *   done i32 [kv heads, cuts, key tiles of a block]: how many parts have added theirs, zero at the start
 */
struct Sums {
  float* dQ;
  int* added;
  int* place_TPS;
  float* keys;
  int* done;
  int firstHead, heads, tilesPerHead, cuts;
};

/** Tiles of dQ of a head in front of those of own blocks: a list may leave each tile but one unfilled. */
__device__ __forceinline__ int list_tiles(long long entriesPerHead, int blocks, int queries) {
  return entriesPerHead == 0 ? 0 : int(entriesPerHead / queries) + blocks;
}

/** Tile of dQ that a block's own queries start with: `before` blocks, whole or not, lie in front of it. */
__device__ __forceinline__ int own_tile(int firstToken, int before, int queries) { return firstToken / queries + before; }

/** The keys of this block of threads, and the tokens whose own block (or document) they are in. */
struct KeysWork {
  int first, end, queryEnd;
  /** All keys are there and attended to by the queries from the last key up to this. */
  int commonEnd;
  /** Which tile of keys of its block this is. */
  int tile;
  /** Tile of dQ of its own queries. */
  int ownTile;
  Unit unit;
  bool any;
};

template <typename Pass>
__device__ __forceinline__ KeysWork keys_work(int tile, int kvHead, const Units& units, const Lists& lists,
                                              const Documents& documents, const KeysInputs& in) {
  constexpr int KEYS = Pass::KEYS, QUERIES = Pass::QUERIES;
  Unit unit = {-1, 0, 0, 0, 1, 0, 0, 0};
  if (!Pass::LISTS) {
    const int first = tile * KEYS, end = min(first + KEYS, in.tokens);
    const int firstEnd = documents.offsets_M[documents.of(first) + 1];
    const int queryEnd = documents.offsets_M[documents.of(end - 1) + 1];
    return {first, end, queryEnd, end - first < KEYS ? 0 : firstEnd, tile, first / QUERIES, unit, true};
  }
  const int tiles = (in.blockSize + KEYS - 1) / KEYS;
  const int n = tile / tiles;
  int first, queryEnd, before;
  tile -= n * tiles;
  if (n < units.perHead) {
    // Both at once; behind the last unit is something, too.
    const int count = units.counts_G[kvHead];
    unit = units.units_GN[(long long)kvHead * units.perHead + n];
    if (n >= count) return {0, 0, 0, 0, 0, 0, unit, false};
    first = unit.first;
    queryEnd = first + in.blockSize;
    before = unit.block + unit.document;
  } else {
    // The rest of a document behind its whole blocks.
    const int d = n - units.perHead;
    const int start = documents.offsets_M[d];
    queryEnd = documents.offsets_M[d + 1];
    first = start + (queryEnd - start) / in.blockSize * in.blockSize;
    before = in.first_M[d + 1] + d;
  }
  const int ownTile = list_tiles(lists.entriesPerHead, lists.blocks, QUERIES) + own_tile(first, before, QUERIES) +
                      tile * (KEYS / QUERIES);
  first += tile * KEYS;
  return {first, min(first + KEYS, queryEnd), queryEnd, queryEnd, tile, ownTile, unit, first < queryEnd};
}

/**
 * What is said of a tile of queries with it. maskFrom: its first token where a mask is needed; NO_MASK; or, of a list,
 * KEYS_MASK, when there are fewer keys than KEYS. last: whether it is.
 */
struct alignas(8) TileNote {
  static constexpr int NO_MASK = -1, KEYS_MASK = -2;
  int maskFrom, last;
};

/** The tiles of queries in order: lists, head after head; own queries from the last down, of all heads in turn. */
template <typename Pass>
struct QueryTiles {
  static constexpr int QUERIES = Pass::QUERIES;
  const KeysWork& work;
  const Lists& lists;
  int firstHead, headEnd, head, tile;
  bool own;
  /** Of lists: tiles still to come, this one included; entries of this one's list, where it starts, its tile of dQ. */
  int left, count;
  const int* list;
  int listTile;

  __device__ __forceinline__ QueryTiles(const KeysWork& work, const Lists& lists, int kvHead, int group)
      : work(work), lists(lists), firstHead(kvHead * group), headEnd(firstHead + group), head(firstHead),
        tile(work.unit.firstTile), own(false), left(work.unit.tiles), count(0), list(nullptr), listTile(0) {
    if (Pass::LISTS && left > 0) {
      open();
      settle();
    } else {
      begin_own();
    }
  }

  __device__ __forceinline__ void begin_own() {
    own = true;
    head = firstHead;
    tile = (work.queryEnd - work.first + QUERIES - 1) / QUERIES - 1;
  }

  __device__ __forceinline__ void open() {
    const long long i = (long long)head * lists.blocks + work.unit.block;
    const int start = lists.starts_HB[i];
    count = lists.counts_HB[i];
    list = lists.entries_HL + head * lists.entriesPerHead + start;
    listTile = start / QUERIES + work.unit.block;
  }

  /** To the head whose list has this tile. */
  __device__ __forceinline__ void settle() {
    for (;;) {
      const int tiles = (count + QUERIES - 1) / QUERIES;
      if (tile < tiles) return;
      tile -= tiles;
      head++;
      open();
    }
  }

  /** First token of an own tile. */
  __device__ __forceinline__ int token() const { return work.first + tile * QUERIES; }
  /** First entry of a list's tile. */
  __device__ __forceinline__ int entry() const { return tile * QUERIES; }
  __device__ __forceinline__ int mask_from() const {
    if (!own) return work.end - work.first < Pass::KEYS ? TileNote::KEYS_MASK : TileNote::NO_MASK;
    const bool all = token() >= work.first + Pass::KEYS - 1 && token() + QUERIES <= work.commonEnd;
    return all ? TileNote::NO_MASK : token();
  }
  /** Tile of the head's dQ. */
  __device__ __forceinline__ int sums() const { return (own ? work.ownTile : listTile) + tile; }

  /** Steps to the next tile; false behind the last. */
  __device__ __forceinline__ bool advance() {
    if (own) {
      if (++head < headEnd) return true;
      head = firstHead;
      return --tile >= 0;
    }
    if (--left > 0) {
      tile++;
      settle();
      return true;
    }
    begin_own();
    return work.unit.part == work.unit.parts - 1;
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

/** The first warps bring own blocks and lists, a share of the rows of a list's tile each. Entries are read a tile ahead. */
template <typename Pass>
__device__ __forceinline__ void gather(unsigned shared, unsigned full, unsigned empty, QueryTiles<Pass> tiles,
                                       const KeysMaps& maps, const KeysInputs& in, const Sums& sums) {
  constexpr int D = Pass::D, ROWS = Pass::QUERIES / Pass::GATHERERS, CHUNKS = D / 8, AT_ONCE = WARP / CHUNKS;
  constexpr int EACH = ROWS / WARP;
  const int thread = int(threadIdx.x) % WARPGROUP, lane = thread % WARP, row0 = thread / WARP * ROWS;
  const int chunk = lane % CHUNKS;
  const long long perHead = padded(in.tokens), stride = (long long)in.heads * D;
  const Stats* none = in.stats_HT + in.heads * perHead;
  // Tokens of rows row0 + lane, and WARP further on; -1 for none.
  int token[EACH], here[EACH];
  const auto look = [&]() {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int row = row0 + i * WARP + lane;
      if (tiles.own) {
        const int t = tiles.token() + row;
        token[i] = t < tiles.work.queryEnd ? t : -1;
        continue;
      }
      token[i] = -1;
      if (tiles.entry() + row >= tiles.count) continue;
      const int entry = tiles.list[tiles.entry() + row];
      token[i] = entry / RANKS;
      if (tiles.work.tile > 0) continue;
      const long long choice = ((long long)token[i] * sums.heads + tiles.head - sums.firstHead) * in.selectedCount;
      sums.place_TPS[choice + entry % RANKS] = tiles.sums() * Pass::QUERIES + row;
    }
  };
  Ring<Pass::STAGES> ring;
  look();
  for (bool more = true; more;) {
    const unsigned barrier = full + 8 * ring.stage;
    const unsigned stage = shared + Pass::STAGE_0 + ring.stage * Pass::STAGE_BYTES;
    const unsigned stats = shared + Pass::STATS + ring.stage * Pass::STATS_BYTES;
    const bool own = tiles.own;
    const int head = tiles.head, firstToken = tiles.token(), maskFrom = tiles.mask_from();
#pragma unroll
    for (int i = 0; i < EACH; i++) here[i] = token[i];
    more = tiles.advance();
    if (more) look();
    barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      copy_async_8(stats + 8 * (row0 + i * WARP + lane), here[i] < 0 ? none : in.stats_HT + head * perHead + here[i],
                   true);
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
        const int t = __shfl_sync(ALL_LANES, here[i * AT_ONCE / WARP], row % WARP);
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

/** One thread adds every second tile of dQ to memory, from the first (`which` 0) or the second (1) on. */
template <typename Pass>
__device__ __forceinline__ void add_tiles(unsigned shared, unsigned ready, unsigned taken, int which,
                                          QueryTiles<Pass> tiles, const Sums& sums, const Documents& documents) {
  const unsigned from = shared + Pass::HALVES;
  if (which == 1 && !tiles.advance()) return;
  const auto turn_of = [&]() {
    const int tile = tiles.work.tile;
    return Pass::LISTS ? tile : tile - documents.own_start(tiles.token(), 0) / Pass::KEYS;
  };
  unsigned parity = 0;
  int turn = turn_of();
  for (bool more = true; more; parity ^= 1) {
    const long long at = (long long)(tiles.head - sums.firstHead) * sums.tilesPerHead + tiles.sums();
    float* to = sums.dQ + at * (2 * 64 * 64);
    int* added = sums.added + at;
    const int here = turn;
    more = tiles.advance() && tiles.advance();
    if (more) turn = turn_of();
    barrier_wait(ready + 8 * which, parity);
    if (here > 0) wait_turn(added, here);
    fence_all_for_async();
    if (here == 0) {
      bulk_store(to, from, 2 * Pass::HALF_BYTES);
    } else {
      bulk_add(to, from, 2 * Pass::HALF_BYTES);
    }
    bulk_commit();
    bulk_wait_read<0>();
    barrier_arrive(taken);
    bulk_wait<0>();
    fence_all_for_async();
    store_release(added, here + 1);
  }
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

/**
 * Adds what the parts in front found to dK and dV; false when a later part goes on. Here and there the values of a thread
 * lie as they are in its registers.
 */
template <typename Pass>
__device__ __forceinline__ bool join_parts(float (&dK)[Pass::D / 2], float (&dV)[Pass::D / 2], const KeysWork& work,
                                           const KeysInputs& in, const Sums& sums, int kvHead) {
  constexpr int VALUES = Pass::D / 2;
  const int tiles = (in.blockSize + Pass::KEYS - 1) / Pass::KEYS, thread = int(threadIdx.x);
  const long long firstKvHead = sums.firstHead / (in.heads / in.kvHeads);
  const long long at = ((kvHead - firstKvHead) * sums.cuts + work.unit.cut) * tiles + work.tile;
  float* mine = sums.keys + at * (2 * VALUES * Pass::CONSUMERS) + 4 * thread;
  if (work.unit.part > 0) {
    if (thread == 0) wait_turn(sums.done + at, work.unit.part);
    named_sync(CONSUMERS_BARRIER, Pass::CONSUMERS);
#pragma unroll
    for (int i = 0; i < VALUES; i += 4) {
      const float4 k = *reinterpret_cast<const float4*>(mine + i * Pass::CONSUMERS);
      const float4 v = *reinterpret_cast<const float4*>(mine + (VALUES + i) * Pass::CONSUMERS);
      dK[i] += k.x, dK[i + 1] += k.y, dK[i + 2] += k.z, dK[i + 3] += k.w;
      dV[i] += v.x, dV[i + 1] += v.y, dV[i + 2] += v.z, dV[i + 3] += v.w;
    }
  }
  if (work.unit.part == work.unit.parts - 1) return true;
#pragma unroll
  for (int i = 0; i < VALUES; i += 4) {
    store_floats(mine + i * Pass::CONSUMERS, dK[i], dK[i + 1], dK[i + 2], dK[i + 3]);
    store_floats(mine + (VALUES + i) * Pass::CONSUMERS, dV[i], dV[i + 1], dV[i + 2], dV[i + 3]);
  }
  __threadfence();
  named_sync(CONSUMERS_BARRIER, Pass::CONSUMERS);
  if (thread == 0) store_release(sums.done + at, work.unit.part + 1);
  return false;
}

template <typename Pass>
__device__ __forceinline__ void consume(bf16_bits* dK_TGD, bf16_bits* dV_TGD, unsigned shared, unsigned keysBarrier,
                                        unsigned full, unsigned empty, unsigned ready, unsigned taken,
                                        const KeysWork& work, const Documents& documents, const KeysInputs& in,
                                        const Sums& sums, int kvHead) {
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
  multiply_rows<Pass>(scores, myKeys, shared + Pass::STAGE_0);
  products_wait<0>();
  keep(scores);
  for (bool more = true; more; step ^= 1) {
    const unsigned stage = shared + Pass::STAGE_0 + ring.stage * Pass::STAGE_BYTES;
    const unsigned stats = shared + Pass::STATS + ring.stage * Pass::STATS_BYTES;
    const unsigned release = empty + 8 * ring.stage;
    multiply_rows<Pass>(dp, myValues, stage + Pass::ROWS_BYTES);
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
    const int maskFrom = int(note.pair[0]);
    if (maskFrom != TileNote::NO_MASK) {
      const bool list = maskFrom == TileNote::KEYS_MASK;
      const int first = maskFrom + 2 * (lane & 3);
#pragma unroll
      for (int i = 0; i < QUERIES / 2; i++) {
        const int t = first + i / 4 * 8 + (i & 1), half = i >> 1 & 1;
        const bool allowed = list ? queryEnd[half] > 0 : t >= key + 8 * half && t < queryEnd[half];
        if (!allowed) scores[i] = 0.0f;
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

    float dQ[32];
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
    // All but the last are done, and their left operands' registers free again.
    products_wait<1>();
    if (more) {
      ring.advance();
      barrier_wait(full + 8 * ring.stage, ring.parity);
      if (Pass::LISTS) fence_shared_for_async();
    }
    // Behind the last tile its scores once more, which nobody looks at: the pipeline has one shape.
    multiply_rows<Pass>(scores, myKeys, shared + Pass::STAGE_0 + ring.stage * Pass::STAGE_BYTES);
    products_wait<1>();
    __syncwarp();
    if (lane == 0) barrier_arrive(release);
    keep(dQ);
    const unsigned to = shared + Pass::HALVES + warpgroup * Pass::HALF_BYTES + 16 * thread;
    barrier_wait(taken, step ^ 1);
    // So that what belongs to a row lies 64 bytes at a time.
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int n = i / 2 * 8 + i % 2 * 2;
      store_shared(to + 2048 * i, dQ[n], dQ[n + 1], dQ[n + 4], dQ[n + 5]);
    }
    fence_shared_for_async();
    barrier_arrive(ready + 8 * step);
    // None runs on into the next turn of the loop: the compiler could not follow it there.
    products_wait<0>();
    keep(scores);
  }
  keep(dK);
  keep(dV);
  if (Pass::LISTS && work.unit.parts > 1 && !join_parts<Pass>(dK, dV, work, in, sums, kvHead)) return;
  // All have read keys and values for the last time.
  named_sync(CONSUMERS_BARRIER, Pass::CONSUMERS);
  const long long stride = (long long)in.kvHeads * D;
  store_keys<Pass>(shared, row0, dK, in.scale, dK_TGD + kvHead * D, work, stride);
  store_keys<Pass>(shared + Pass::VALUES, row0, dV, 1.0f, dV_TGD + kvHead * D, work, stride);
}

/** `tile`: of keys. */
template <typename Pass>
__device__ __forceinline__ void keys_backward(bf16_bits* dK_TGD, bf16_bits* dV_TGD, const KeysMaps& maps,
                                              const KeysInputs& in, const Units& units, const Lists& lists,
                                              const Documents& documents, const Sums& sums, int tile, int kvHead) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const KeysWork work = keys_work<Pass>(tile, kvHead, units, lists, documents, in);
  if (!work.any) return;
  const unsigned shared = shared_address(memory);
  const unsigned keysBarrier = shared + Pass::BARRIERS, ready = keysBarrier + 8, taken = ready + 16;
  const unsigned full = taken + 8, empty = full + 8 * Pass::STAGES;
  if (threadIdx.x == 0) {
    barrier_init(keysBarrier, 1);
    for (int i = 0; i < Pass::STAGES; i++) {
      barrier_init(full + 8 * i, Pass::LISTS ? Pass::GATHERERS * WARP + 1 : 1);
      barrier_init(empty + 8 * i, 4 * Pass::WARPGROUPS);
    }
    for (int i = 0; i < 2; i++) barrier_init(ready + 8 * i, Pass::CONSUMERS);
    barrier_init(taken, 1);
    barrier_inits_done();
  }
  __syncthreads();
  const int warp = __shfl_sync(ALL_LANES, int(threadIdx.x) / WARP, 0);
  if (warp >= 4 * Pass::WARPGROUPS) {
    registers_fewer<Pass::PRODUCER_REGISTERS>();
    if (threadIdx.x == Pass::CONSUMERS) load_keys<Pass>(shared, keysBarrier, maps, work.first, kvHead);
    const QueryTiles<Pass> tiles(work, lists, kvHead, in.heads / in.kvHeads);
    const int role = warp - 4 * Pass::WARPGROUPS, which = role - Pass::GATHERERS;
    if (which >= 0) {
      if (threadIdx.x % WARP == 0) add_tiles<Pass>(shared, ready, taken, which, tiles, sums, documents);
    } else if constexpr (Pass::LISTS) {
      gather<Pass>(shared, full, empty, tiles, maps, in, sums);
    } else {
      if (threadIdx.x == Pass::CONSUMERS) bring<Pass>(shared, full, empty, tiles, maps, in);
    }
  } else {
    registers_more<Pass::CONSUMER_REGISTERS>();
    consume<Pass>(dK_TGD, dV_TGD, shared, keysBarrier, full, empty, ready, taken, work, documents, in, sums,
                  kvHead);
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
  const float sum = row_product<D>(out_THD + query * D, dOut_THD + query * D, lane, t < tokens);
  if (lane != 0) return;
  const Stats none = {infinity(), 0.0f};
  if (t < perHead) stats_HT[head * perHead + t] = t < tokens ? Stats{lse_TH[query] * LOG2E, sum} : none;
  if (query == 0) stats_HT[heads * perHead] = none;
}

/** Where the gradient of a query is summed. */
struct QuerySums {
  const float* dQ;
  const int* place_TPS;
  const int* selected_THS;
  Documents documents;
  const int* first_M;
  long long entriesPerHead;
  int blocks, blockSize, selectedCount, tokens, heads, firstHead, headCount, tilesPerHead;
};

/**
 * dQ from its sums, own block first, then the chosen ones by rank. A group of D / 4 lanes per query and head. Of each half
 * of a tile a row is 4 pieces of 16 values; lane l of 4 has columns 2 l, 2 l + 1, 2 l + 8, 2 l + 9 of a piece.
 */
template <int D, bool LISTS>
__device__ __forceinline__ void query_gradients(bf16_bits* dQ_THD, const QuerySums& in, float scale) {
  constexpr int QUERIES = 64 * 128 / D, LANES = D / 4;
  const long long query = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / LANES;
  const int lane = int(threadIdx.x) % LANES;
  const bool there = query < (long long)in.tokens * in.headCount;
  const int t = there ? int(query / in.headCount) : 0, head = there ? int(query % in.headCount) : 0;
  const float* sums = in.dQ + (long long)head * in.tilesPerHead * (2 * 64 * 64) + lane / 4 % 4 * 1024 + lane % 4 * 4;
  const auto piece = [&](int place) {
    const int tile = place / QUERIES, row = place % QUERIES;
    const int half = D == 64 ? row / 64 : lane / 16;
    const int at = row % 64 / 16 * 128 + row % 8 * 16 + row / 8 % 2 * 512;
    return *reinterpret_cast<const float4*>(sums + (2LL * tile + half) * (64 * 64) + at);
  };
  int own = t;
  if (LISTS) {
    const int d = in.documents.of(t), start = in.documents.start(d), block = (t - start) / in.blockSize;
    const int first = start + block * in.blockSize, before = in.first_M[d] + block + d;
    const int tile = list_tiles(in.entriesPerHead, in.blocks, QUERIES) + own_tile(first, before, QUERIES);
    own = tile * QUERIES + t - first;
  }
  float4 x = piece(own);
  if (LISTS) {
    const long long row = (long long)t * in.headCount + head;
    const int* selected = in.selected_THS + ((long long)t * in.heads + in.firstHead + head) * in.selectedCount;
    int count = 0;
    while (count < in.selectedCount && selected[count] >= 0) count++;
#pragma unroll 4
    for (int rank = 0; rank < count; rank++) {
      const float4 y = piece(in.place_TPS[row * in.selectedCount + rank]);
      x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
    }
  }
  // A piece is 8 pairs, of which a lane has two neighbouring ones after exchange.
  const unsigned low = round_pair(scale * x.x, scale * x.y), high = round_pair(scale * x.z, scale * x.w);
  const int from = int(threadIdx.x) % WARP / 4 * 4 + lane % 2 * 2;
  const unsigned lows[2] = {__shfl_sync(ALL_LANES, low, from), __shfl_sync(ALL_LANES, low, from + 1)};
  const unsigned highs[2] = {__shfl_sync(ALL_LANES, high, from), __shfl_sync(ALL_LANES, high, from + 1)};
  const bool upper = lane % 4 >= 2;
  if (!there) return;
  bf16_bits* to = dQ_THD + ((long long)t * in.heads + in.firstHead + head) * D + 4 * lane;
  *reinterpret_cast<uint2*>(to) = make_uint2(upper ? highs[0] : lows[0], upper ? highs[1] : lows[1]);
}

constexpr int UNIT_THREADS = 1024;

/** Units of at most `most` tiles of queries. Grid: (G). */
template <int D>
__device__ __forceinline__ void list_units(Unit* units_GN, int* counts_G, const int* counts_HB, const int* wholeBlocks,
                                           const int* blockStart_B, const int* document_T, int blocks, int heads,
                                           int kvHeads, int perHead, int most) {
  constexpr int QUERIES = 64 * 128 / D;
  __shared__ int2 sums[UNIT_THREADS / WARP];
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  const int kvHead = int(blockIdx.x), group = heads / kvHeads;
  Unit* units = units_GN + (long long)kvHead * perHead;
  int unitsBefore = 0, cutsBefore = 0;
  for (int from = 0; from < blocks; from += UNIT_THREADS) {
    const int b = from + int(threadIdx.x);
    int tiles = 0, parts = 0, first = 0, document = 0;
    if (b < blocks && b < *wholeBlocks) {
      first = blockStart_B[b];
      document = document_T[first];
      for (int i = 0; i < group && counts_HB; i++) {
        tiles += (counts_HB[((long long)kvHead * group + i) * blocks + b] + QUERIES - 1) / QUERIES;
      }
      parts = max(1, (tiles + most - 1) / most);
    }
    const int isCut = parts > 1;
    int upTo = parts, cuts = isCut;
#pragma unroll
    for (int offset = 1; offset < WARP; offset *= 2) {
      const int otherParts = __shfl_up_sync(ALL_LANES, upTo, offset);
      const int otherCuts = __shfl_up_sync(ALL_LANES, cuts, offset);
      if (lane >= offset) {
        upTo += otherParts;
        cuts += otherCuts;
      }
    }
    if (lane == WARP - 1) sums[warp] = make_int2(upTo, cuts);
    __syncthreads();
    int all = 0, allCuts = 0;
    for (int w = 0; w < UNIT_THREADS / WARP; w++) {
      if (w < warp) {
        upTo += sums[w].x;
        cuts += sums[w].y;
      }
      all += sums[w].x;
      allCuts += sums[w].y;
    }
    for (int part = 0; part < parts; part++) {
      units[unitsBefore + upTo - parts + part] = {
          b, part * most, min(most, tiles - part * most), part, parts, cutsBefore + cuts - isCut, first, document};
    }
    unitsBefore += all;
    cutsBefore += allCuts;
    __syncthreads();
  }
  if (threadIdx.x == 0) counts_G[kvHead] = unitsBefore;
}

// --- entry points ----------------------------------------------------------------------------------------------------

#define MAPS                                                                                      \
  const __grid_constant__ TensorMap qMap, const __grid_constant__ TensorMap dOutMap,              \
      const __grid_constant__ TensorMap kMap, const __grid_constant__ TensorMap vMap

/**
 * Grid of `full`: (key tiles of `together` kv heads in turn, rounds of kv heads): long rows of queries first.
 * Grid of `blocks`: (key tiles of (units + documents), kv heads).
 */
#define ATTENTION_BACKWARD(D)                                                                                         \
  using Full##D = KeysPass<D, false>;                                                                                 \
  using Blocks##D = KeysPass<D, true>;                                                                                \
  extern "C" __global__ void __launch_bounds__(Full##D::THREADS, 1) hopper_backward_full_d##D(                        \
      bf16_bits* dK_TGD, bf16_bits* dV_TGD, MAPS, const Stats* stats_HT, float* sums, int* added,                     \
      const int* document_T, const int* offsets_M, int tokens, int heads, int kvHeads, int firstKvHead,               \
      int kvHeadCount, int together, float scale) {                                                                   \
    const int group = heads / kvHeads, index = int(blockIdx.y) * together + int(blockIdx.x) % together;               \
    if (index >= kvHeadCount) return;                                                                                 \
    keys_backward<Full##D>(                                                                                           \
        dK_TGD, dV_TGD, {qMap, dOutMap, kMap, vMap},                                                                  \
        {nullptr, nullptr, stats_HT, nullptr, tokens, heads, kvHeads, 0, 0, scale}, Units{}, Lists{},                 \
        {document_T, offsets_M},                                                                                      \
        {sums, added, nullptr, nullptr, nullptr, firstKvHead * group, kvHeadCount * group,                            \
         (tokens + Full##D::QUERIES - 1) / Full##D::QUERIES, 0},                                                      \
        int(blockIdx.x) / together, firstKvHead + index);                                                                 \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(Blocks##D::THREADS, 1) hopper_backward_blocks_d##D(                    \
      bf16_bits* dK_TGD, bf16_bits* dV_TGD, MAPS, const bf16_bits* dOut_THD, const bf16_bits* q_THD,                  \
      const Stats* stats_HT, const int* entries_HL, const int* starts_HB, const int* counts_HB,                       \
      const int* blockStart_B, const int* first_M, const Unit* units_GN, const int* unitCounts_G, float* sums,        \
      int* added, int* place_TPS, float* keySums, int* done, const int* document_T, const int* offsets_M,             \
      long long entriesPerHead, int blocks, int units, int cuts, int tilesPerHead, int tokens, int heads,             \
      int kvHeads, int blockSize, int selectedCount, int firstKvHead, float scale) {                                  \
    const int group = heads / kvHeads;                                                                                \
    const Lists lists = {entries_HL, starts_HB, counts_HB, nullptr, nullptr, blockStart_B, entriesPerHead, blocks, 0};\
    keys_backward<Blocks##D>(                                                                                         \
        dK_TGD, dV_TGD, {qMap, dOutMap, kMap, vMap},                                                                  \
        {q_THD, dOut_THD, stats_HT, first_M, tokens, heads, kvHeads, blockSize, selectedCount, scale},                \
        {units_GN, unitCounts_G, units}, lists, {document_T, offsets_M},                                              \
        {sums, added, place_TPS, keySums, done, firstKvHead * group, int(gridDim.y) * group, tilesPerHead, cuts},     \
        int(blockIdx.x), firstKvHead + int(blockIdx.y));                                                              \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(256) hopper_query_gradients_full_d##D(                                 \
      bf16_bits* dQ_THD, const float* sums, int tokens, int heads, int firstHead, int headCount, float scale) {       \
    query_gradients<D, false>(dQ_THD,                                                                                 \
                              {sums, nullptr, nullptr, {}, nullptr, 0, 0, 0, 0, tokens, heads, firstHead, headCount,  \
                               (tokens + Full##D::QUERIES - 1) / Full##D::QUERIES},                                   \
                              scale);                                                                                 \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(256) hopper_query_gradients_blocks_d##D(                               \
      bf16_bits* dQ_THD, const float* sums, const int* place_TPS, const int* selected_THS, const int* document_T,     \
      const int* offsets_M, const int* first_M, long long entriesPerHead, int blocks, int blockSize,                  \
      int selectedCount, int tokens, int heads, int firstHead, int headCount, int tilesPerHead, float scale) {        \
    query_gradients<D, true>(dQ_THD,                                                                                  \
                             {sums, place_TPS, selected_THS, {document_T, offsets_M}, first_M, entriesPerHead, blocks,\
                              blockSize, selectedCount, tokens, heads, firstHead, headCount, tilesPerHead},           \
                             scale);                                                                                  \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(UNIT_THREADS) hopper_list_units_d##D(                                  \
      Unit* units_GN, int* unitCounts_G, const int* counts_HB, const int* wholeBlocks, const int* blockStart_B,       \
      const int* document_T, int blocks, int heads, int kvHeads, int perHead, int most) {                             \
    list_units<D>(units_GN, unitCounts_G, counts_HB, wholeBlocks, blockStart_B, document_T, blocks, heads, kvHeads,   \
                  perHead, most);                                                                                     \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(256) hopper_backward_stats_d##D(                                       \
      Stats* stats_HT, const bf16_bits* out_THD, const bf16_bits* dOut_THD, const float* lse_TH, int tokens,          \
      int heads) {                                                                                                    \
    backward_stats<D>(stats_HT, out_THD, dOut_THD, lse_TH, tokens, heads);                                            \
  }

ATTENTION_BACKWARD(64)
ATTENTION_BACKWARD(128)
