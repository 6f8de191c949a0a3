// Attention backward, without atomics: every sum has one order.
//
//   p = exp(score - lse), dp = <dOut, v>, delta = <dOut, out>, ds = p (dp - delta)
//   dV = sum p dOut, dK = scale sum ds q (one block of threads per tile of keys: its own block's queries, then the
//   lists of all query heads of the group)     dQ = scale sum ds k (the passes of forward.cu: past, then own)
// Scores are computed twice, once from each side: 7 products of tiles instead of 5, and no sums in memory but dQ's
// partial results, in 16 bit, one per chosen block.
//
//   dQ_THD, dOut_THD, out_THD, q_THD bf16 [T, H, D]   dK_TGD, dV_TGD, k_TGD, v_TGD bf16 [T, G, D]
//   lse_TH f32 [T, H]   stats_TH f32 [T, H, 2]: log2(e) lse, delta   partial_TPSD bf16 [T, P, S, D], as in forward.cu
#include "query.cuh"
#include "softmax.cuh"
#include "stats.cuh"

// --- delta -----------------------------------------------------------------------------------------------------------

/** A group of D / 8 lanes per query and head. */
template <int D>
__device__ __forceinline__ void delta(Stats* stats_TH, const bf16_bits* out_THD, const bf16_bits* dOut_THD,
                                      const float* lse_TH, long long queries) {
  constexpr int LANES = D / 8;
  const long long query = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / LANES;
  const int lane = int(threadIdx.x) % LANES;
  const float sum = row_product<D>(out_THD + query * D, dOut_THD + query * D, lane, query < queries);
  if (lane == 0 && query < queries) stats_TH[query] = {lse_TH[query] * LOG2E, sum};
}

// --- gradients of keys and values ------------------------------------------------------------------------------------

/** 16 M keys for each of WARPS warps; queries come QUERIES at a time, through two stages. */
template <int D_, int M_, int WARPS_, int QUERIES_>
struct KeyTile {
  static constexpr int D = D_, M = M_, WARPS = WARPS_, QUERIES = QUERIES_;
  static constexpr int KEYS = 16 * M * WARPS;
  static constexpr int THREADS = WARP * WARPS;
  static constexpr unsigned TILE_BYTES = KEYS * 2 * D;
  static constexpr unsigned ROWS_BYTES = QUERIES * 2 * D;
  /** Queries, gradients of outputs, stats, bounds. */
  static constexpr unsigned STAGE_BYTES = 2 * ROWS_BYTES + QUERIES * 16;
  static_assert(THREADS >= QUERIES && STAGE_BYTES % 256 == 0, "a thread for each query's stats, aligned rows");
};

/**
 * The queries that attend to a tile of keys, in order: per query head of the group those of the own block (or of the
 * document), then the list of those that chose the block.
 */
template <typename Tile>
__device__ __forceinline__ void keys_backward(bf16_bits* dK_TGD, bf16_bits* dV_TGD, const bf16_bits* dOut_THD,
                                              const bf16_bits* q_THD, const bf16_bits* k_TGD,
                                              const bf16_bits* v_TGD, const Stats* stats_TH, const Lists& lists,
                                              const int* wholeBlocks, const Documents& documents, int tokens,
                                              int heads, int kvHeads, int blockSize, float scale) {
  constexpr int D = Tile::D, M = Tile::M, KEYS = Tile::KEYS, QUERIES = Tile::QUERIES, N = QUERIES / 8;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  const int kvHead = int(blockIdx.y), group = heads / kvHeads;

  // Which keys, which queries of their own block or document, and which list.
  int first, end, queryEnd, block = -1;
  if (blockSize == 0) {
    first = int(blockIdx.x) * KEYS;
    end = min(first + KEYS, tokens);
    queryEnd = documents.offsets_M[documents.of(end - 1) + 1];
  } else {
    const int tiles = (blockSize + KEYS - 1) / KEYS;
    const int b = int(blockIdx.x) / tiles;
    if (b < lists.blocks) {
      if (b >= *wholeBlocks) return;
      block = b;
      first = lists.blockStart_B[b];
      queryEnd = first + blockSize;
    } else {
      // The rest of a document behind its whole blocks.
      const int start = documents.offsets_M[b - lists.blocks];
      queryEnd = documents.offsets_M[b - lists.blocks + 1];
      first = start + (queryEnd - start) / blockSize * blockSize;
    }
    first += (int(blockIdx.x) - b * tiles) * KEYS;
    end = min(first + KEYS, queryEnd);
    if (first >= end) return;
  }
  const int ownTiles = (queryEnd - first + QUERIES - 1) / QUERIES;

  const unsigned keys = shared_address(shared), values = keys + Tile::TILE_BYTES;
  const unsigned stages = values + Tile::TILE_BYTES;
  const long long keyStride = (long long)kvHeads * D, queryStride = (long long)heads * D;
  const bf16_bits* k = k_TGD + kvHead * D;
  const bf16_bits* v = v_TGD + kvHead * D;
  load_tile<D, KEYS, Tile::THREADS>(keys, k,
                                    [&](int row) { return first + row < end ? k + (first + row) * keyStride : nullptr; });
  load_tile<D, KEYS, Tile::THREADS>(values, v,
                                    [&](int row) { return first + row < end ? v + (first + row) * keyStride : nullptr; });

  // The place in the sequence of query tiles: query head, tile of the head; `count` and `list` of the head's list.
  int head = kvHead * group, tile = 0, count = 0;
  const int* list = nullptr;
  const auto open = [&]() {
    if (block < 0 || !lists.counts_HB) return;
    const long long i = (long long)head * lists.blocks + block;
    count = lists.counts_HB[i];
    list = lists.entries_HL + head * lists.entriesPerHead + lists.starts_HB[i];
  };
  const auto tiles = [&]() { return ownTiles + (count + QUERIES - 1) / QUERIES; };
  // The rows of the next tile that this thread copies: entries of a list are read well before they are needed.
  constexpr int CHUNKS = D / 8, EACH = QUERIES * CHUNKS / Tile::THREADS;
  const int chunk = int(threadIdx.x) % CHUNKS;
  struct Next {
    bool own;
    /** First token (own) or entry of the list; how many there are. */
    int from, rows;
    int token[EACH];
    /** Of the query whose stats this thread copies. */
    int statsToken;
  } next;
  const auto look = [&]() {
    next.own = tile < ownTiles;
    next.from = next.own ? first + tile * QUERIES : (tile - ownTiles) * QUERIES;
    next.rows = min(QUERIES, (next.own ? queryEnd : count) - next.from);
    const auto token = [&](int row) {
      return row >= next.rows ? -1 : next.own ? next.from + row : list[next.from + row] / RANKS;
    };
#pragma unroll
    for (int i = 0; i < EACH; i++) next.token[i] = token(int(threadIdx.x) / CHUNKS + i * (Tile::THREADS / CHUNKS));
    next.statsToken = token(min(int(threadIdx.x), QUERIES - 1));
  };
  /** Starts the copies of the tile looked up last; returns whether its scores need the bounds. */
  const auto load = [&](unsigned stage) {
    const bf16_bits* q = q_THD + head * D;
    const bf16_bits* dOut = dOut_THD + head * D;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int row = int(threadIdx.x) / CHUNKS + i * (Tile::THREADS / CHUNKS);
      const int t = next.token[i];
      const long long at = t < 0 ? 0 : t * queryStride + 8 * chunk;
      copy_async_16(stage + tile_offset<D>(row, chunk), q + at, t >= 0);
      copy_async_16(stage + Tile::ROWS_BYTES + tile_offset<D>(row, chunk), dOut + at, t >= 0);
    }
    if (int(threadIdx.x) < QUERIES) {
      const int t = next.statsToken;
      const unsigned stats = stage + 2 * Tile::ROWS_BYTES + 8 * int(threadIdx.x);
      copy_async_8(stats, stats_TH + (t < 0 ? 0 : (long long)t * heads + head), t >= 0);
      const int low = next.own && t >= 0 ? documents.own_start(t, blockSize) : 0;
      const int high = t < 0 ? -1 : next.own ? t : 0x7fffffff;
      store_shared(stats + 8 * QUERIES, make_int2(low, high));
    }
    if (next.rows < QUERIES) return true;
    return next.own &&
           (next.from < end - 1 || documents.own_start(next.from + next.rows - 1, blockSize) > first);
  };
  /** Steps to the next tile; false behind the last. */
  const auto advance = [&]() {
    tile++;
    if (tile < tiles()) return true;
    tile = 0;
    head++;
    if (head == (kvHead + 1) * group) return false;
    open();
    return true;
  };

  float dK[M][D / 8][4], dV[M][D / 8][4];
  clear(dK);
  clear(dV);
  const unsigned myKeys = keys + warp * M * 32 * D + by_row<D>(lane);
  const unsigned myValues = values + warp * M * 32 * D + by_row<D>(lane);
  const unsigned right = by_column<D>(lane), down = by_row<D>(lane);
  const int key = first + 16 * M * warp + lane / 4;
  open();
  unsigned stage = stages;
  look();
  bool masked = load(stage);
  copy_commit();
  for (bool more = true; more;) {
    copy_wait<0>();
    // Also: all warps are done with the other stage.
    __syncthreads();
    more = advance();
    const unsigned other = stage == stages ? stages + Tile::STAGE_BYTES : stages;
    bool nextMasked = false;
    if (more) look();

    // Rows are keys, columns queries.
    unsigned p[M][N / 2][4], ds[M][N / 2][4];
    {
      float scores[M][N][4], dp[M][N][4];
      multiply_rows<D>(scores, myKeys, stage + right);
      if (more) nextMasked = load(other);
      copy_commit();
      multiply_rows<D>(dp, myValues, stage + Tile::ROWS_BYTES + right);
      const unsigned stats = stage + 2 * Tile::ROWS_BYTES + 16 * (lane & 3);
#pragma unroll
      for (int n = 0; n < N; n++) {
        const Packed two = load_shared(stats + 64 * n);
        const float lse[2] = {__uint_as_float(two.pair[0]), __uint_as_float(two.pair[2])};
        const float delta[2] = {__uint_as_float(two.pair[1]), __uint_as_float(two.pair[3])};
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
          for (int i = 0; i < 4; i++) {
            scores[m][n][i] = fast_exp2(fmaf(scores[m][n][i], scale * LOG2E, -lse[i & 1]));
          }
        }
        if (masked) {
          const Packed pairs = load_shared(stats + 8 * QUERIES + 64 * n);
          const Bounds bounds[2] = {{int(pairs.pair[0]), int(pairs.pair[1])}, {int(pairs.pair[2]), int(pairs.pair[3])}};
#pragma unroll
          for (int m = 0; m < M; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
              if (!bounds[i & 1].has(key + 16 * m + 8 * (i >> 1))) scores[m][n][i] = 0.0f;
            }
          }
        }
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
          for (int i = 0; i < 4; i++) dp[m][n][i] = scores[m][n][i] * (dp[m][n][i] - delta[i & 1]);
        }
      }
#pragma unroll
      for (int m = 0; m < M; m++) {
        round_operands(p[m], scores[m]);
        round_operands(ds[m], dp[m]);
      }
    }
    accumulate<D>(dV, p, stage + Tile::ROWS_BYTES + down);
    accumulate<D>(dK, ds, stage + down);
    masked = nextMasked;
    stage = other;
  }

  // Only this warp reads its rows of the tiles of keys and values.
#pragma unroll
  for (int m = 0; m < M; m++) {
    const int row0 = 16 * (M * warp + m);
    const auto target = [&](bf16_bits* rows_TGD) {
      return [=](int row) {
        const int t = first + row0 + row;
        return t < end ? rows_TGD + t * keyStride + kvHead * D : nullptr;
      };
    };
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) dK[m][n][i] *= scale;
    stage_rows<D>(keys + row0 * 2 * D, dK[m], lane);
    stage_rows<D>(values + row0 * 2 * D, dV[m], lane);
    store_rows<D>(keys + row0 * 2 * D, lane, target(dK_TGD));
    store_rows<D>(values + row0 * 2 * D, lane, target(dV_TGD));
  }
}

// --- gradient of queries ---------------------------------------------------------------------------------------------

/** dQ (before the scale) of a query tile over the keys of `range`. `queries`: tiles of q and of dOut. */
template <typename Tile>
__device__ __forceinline__ void queries_backward(float (&dQ)[Tile::M][Tile::D / 8][4], unsigned queries,
                                                 unsigned stages, const KeyRows& rows, const KeyRange& range,
                                                 const Bounds (&bounds)[Tile::M][2],
                                                 const Stats (&stats)[Tile::M][2], float scale) {
  constexpr int D = Tile::D, M = Tile::M, N = Tile::KEYS / 8;
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  const unsigned left = queries + warp * M * 32 * D + by_row<D>(lane);
  const unsigned right = by_column<D>(lane), down = by_row<D>(lane);
  clear(dQ);
  for_each_key_tile<Tile>(stages, rows, range, [&](unsigned keys, unsigned values, int first, bool masked) {
    float scores[M][N][4], dp[M][N][4];
    multiply_rows<D>(scores, left, keys + right);
    if (masked) exclude(scores, bounds, first, lane);
    multiply_rows<D>(dp, left + Tile::TILE_BYTES, values + right);
    unsigned ds[M][N / 2][4];
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
      for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const Stats& row = stats[m][i >> 1];
          dp[m][n][i] = fast_exp2(fmaf(scores[m][n][i], scale * LOG2E, -row.lse)) * (dp[m][n][i] - row.delta);
        }
      }
      round_operands(ds[m], dp[m]);
    }
    accumulate<D>(dQ, ds, keys + down);
  });
}

/** One item of the past: partial gradients of a tile of the queries of one head that chose one block. */
template <typename Tile>
__device__ __forceinline__ void past(bf16_bits* partial_TPSD, const bf16_bits* dOut_THD, const bf16_bits* q_THD,
                                     const bf16_bits* k_TGD, const bf16_bits* v_TGD, const Stats* stats_TH,
                                     const Lists& lists, int heads, int kvHeads, int selectedCount, int blockSize,
                                     int firstHead, float scale) {
  constexpr int D = Tile::D, ROWS = Tile::ROWS;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ int entries[ROWS];
  const int lane = int(threadIdx.x) % WARP;
  const int head = firstHead + int(blockIdx.y);
  if (int(blockIdx.x) >= lists.itemCounts_H[head]) return;
  const Item item = lists.items_HI[(long long)head * lists.itemsPerHead + blockIdx.x];
  const unsigned queries = shared_address(shared), stages = queries + 2 * Tile::TILE_BYTES;
  const int kvHead = head / (heads / kvHeads);
  const KeyRows keys = {k_TGD + kvHead * D, v_TGD + kvHead * D, (long long)kvHeads * D};
  const Bounds block = {item.firstKey, item.firstKey + blockSize - 1};
  const KeyRange range = {block.low, block.high + 1, block};
  load_stage<Tile>(stages, keys, range.first, range.end);
  const int* from = lists.entries_HL + head * lists.entriesPerHead + item.firstEntry;
  for (int row = int(threadIdx.x); row < ROWS; row += Tile::THREADS) entries[row] = row < item.rows ? from[row] : -1;
  __syncthreads();
  const long long stride = (long long)heads * D;
  const auto token = [&](int row) { return entries[row] >> 4; };  // -1 >> 4 is -1
  load_queries<Tile>(queries, q_THD + head * D, stride, token);
  load_queries<Tile>(queries + Tile::TILE_BYTES, dOut_THD + head * D, stride, token);
  Bounds bounds[Tile::M][2];
  Stats stats[Tile::M][2];
#pragma unroll
  for (int m = 0; m < Tile::M; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int entry = entries[row_of<Tile>(m, half)];
      bounds[m][half] = block;
      stats[m][half] = entry < 0 ? Stats{0.0f, 0.0f} : stats_TH[(long long)(entry / RANKS) * heads + head];
    }
  }
  float dQ[Tile::M][D / 8][4];
  queries_backward<Tile>(dQ, queries, stages, keys, range, bounds, stats, scale);

#pragma unroll
  for (int m = 0; m < Tile::M; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int entry = entries[row_of<Tile>(m, half)];
      if (entry < 0) continue;
      const long long slot =
          ((long long)(entry / RANKS) * gridDim.y + blockIdx.y) * selectedCount + entry % RANKS;
      store_partial<D>(partial_TPSD + slot * D, dQ[m], half, scale, lane);
    }
  }
}

/** A run of ROWS tokens of one head: own blocks, then the partial gradients of the chosen ones, by rank. */
template <typename Tile>
__device__ __forceinline__ void own(bf16_bits* dQ_THD, const bf16_bits* dOut_THD, const bf16_bits* q_THD,
                                    const bf16_bits* k_TGD, const bf16_bits* v_TGD, const Stats* stats_TH,
                                    const int* selected_THS, const bf16_bits* partial_TPSD,
                                    const Documents& documents, int tokens, int heads, int kvHeads,
                                    int selectedCount, int blockSize, int firstHead, float scale) {
  constexpr int D = Tile::D, ROWS = Tile::ROWS;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  const int head = firstHead + int(blockIdx.y);
  // Long rows of keys first: they would be the stragglers.
  const int t0 = int(gridDim.x - 1 - blockIdx.x) * ROWS;
  const int rows = min(ROWS, tokens - t0);
  const long long stride = (long long)heads * D;

  const unsigned queries = shared_address(shared), stages = queries + 2 * Tile::TILE_BYTES;
  const auto token = [&](int row) { return row < rows ? t0 + row : -1; };
  load_queries<Tile>(queries, q_THD + head * D, stride, token);
  load_queries<Tile>(queries + Tile::TILE_BYTES, dOut_THD + head * D, stride, token);
  Bounds bounds[Tile::M][2];
  Stats stats[Tile::M][2];
#pragma unroll
  for (int m = 0; m < Tile::M; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int t = t0 + row_of<Tile>(m, half);
      bounds[m][half] = t < tokens ? Bounds{documents.own_start(t, blockSize), t} : Bounds{0, -1};
      stats[m][half] = t < tokens ? stats_TH[(long long)t * heads + head] : Stats{0.0f, 0.0f};
    }
  }
  const Bounds inner = {documents.own_start(t0 + rows - 1, blockSize), t0};
  const int kvHead = head / (heads / kvHeads);
  const KeyRows keys = {k_TGD + kvHead * D, v_TGD + kvHead * D, (long long)kvHeads * D};
  const KeyRange range = {documents.own_start(t0, blockSize), t0 + rows, inner};
  load_stage<Tile>(stages, keys, range.first, range.end);
  float dQ[Tile::M][D / 8][4];
  queries_backward<Tile>(dQ, queries, stages, keys, range, bounds, stats, scale);

  const unsigned staged = queries + warp * Tile::M * 32 * D;
#pragma unroll
  for (int m = 0; m < Tile::M; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int t = t0 + row_of<Tile>(m, half);
      if (t >= tokens) continue;
#pragma unroll
      for (int n = 0; n < D / 8; n++) {
        dQ[m][n][2 * half] *= scale;
        dQ[m][n][2 * half + 1] *= scale;
      }
      const int* selected = selected_THS + ((long long)t * heads + head) * selectedCount;
      const long long slot = ((long long)t * gridDim.y + blockIdx.y) * selectedCount;
      for (int rank = 0; rank < selectedCount && selected[rank] >= 0; rank++) {
        add_partial<D>(dQ[m], partial_TPSD + (slot + rank) * D, half, 1.0f, lane);
      }
    }
    // The queries are not needed any more.
    stage_rows<D>(staged + m * 32 * D, dQ[m], lane);
    store_rows<D>(staged + m * 32 * D, lane, [&](int row) {
      const int t = t0 + 16 * (Tile::M * warp + m) + row;
      return t < tokens ? dQ_THD + t * stride + head * D : nullptr;
    });
  }
}

// --- entry points ----------------------------------------------------------------------------------------------------

using Queries64 = QueryTile<64, 2, 4, 32>;
using Queries128 = QueryTile<128, 2, 4, 32>;
// Tiles of 64 keys for small blocks, of 128 for the others.
using Keys64_64 = KeyTile<64, 1, 4, 64>;
using Keys64_128 = KeyTile<128, 1, 4, 64>;
using Keys128_64 = KeyTile<64, 2, 4, 32>;
using Keys128_128 = KeyTile<128, 1, 8, 64>;

#define LISTS                                                                                                       \
  const int *entries_HL, const int *starts_HB, const int *counts_HB, const Item *items_HI, const int *itemCounts_H, \
      const int *blockStart_B, long long entriesPerHead, int blocks, int itemsPerHead
#define LISTS_OF                                                                                                 \
  {                                                                                                              \
    entries_HL, starts_HB, counts_HB, items_HI, itemCounts_H, blockStart_B, entriesPerHead, blocks, itemsPerHead \
  }

#define ATTENTION_BACKWARD(D)                                                                                        \
  extern "C" __global__ void __launch_bounds__(256) attention_delta_d##D(                                            \
      Stats* stats_TH, const bf16_bits* out_THD, const bf16_bits* dOut_THD, const float* lse_TH,                     \
      long long queries) {                                                                                           \
    delta<D>(stats_TH, out_THD, dOut_THD, lse_TH, queries);                                                          \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(Queries##D::THREADS, 2) attention_backward_past_d##D(                 \
      bf16_bits* partial_TPSD, const bf16_bits* dOut_THD, const bf16_bits* q_THD, const bf16_bits* k_TGD,            \
      const bf16_bits* v_TGD, const Stats* stats_TH, LISTS, int heads, int kvHeads, int selectedCount,               \
      int blockSize, int firstHead, float scale) {                                                                   \
    const Lists lists = LISTS_OF;                                                                                    \
    past<Queries##D>(partial_TPSD, dOut_THD, q_THD, k_TGD, v_TGD, stats_TH, lists, heads, kvHeads, selectedCount,    \
                     blockSize, firstHead, scale);                                                                   \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(Queries##D::THREADS, 2) attention_backward_own_d##D(                  \
      bf16_bits* dQ_THD, const bf16_bits* dOut_THD, const bf16_bits* q_THD, const bf16_bits* k_TGD,                  \
      const bf16_bits* v_TGD, const Stats* stats_TH, const int* selected_THS, const bf16_bits* partial_TPSD,         \
      const int* document_T, const int* offsets_M, int tokens, int heads, int kvHeads, int selectedCount,            \
      int blockSize, int firstHead, float scale) {                                                                   \
    own<Queries##D>(dQ_THD, dOut_THD, q_THD, k_TGD, v_TGD, stats_TH, selected_THS, partial_TPSD,                     \
                    {document_T, offsets_M}, tokens, heads, kvHeads, selectedCount, blockSize, firstHead, scale);    \
  }

#define ATTENTION_BACKWARD_KEYS(D, KEYS)                                                                             \
  extern "C" __global__ void __launch_bounds__(Keys##KEYS##_##D::THREADS, 1) attention_backward_keys##KEYS##_d##D(   \
      bf16_bits* dK_TGD, bf16_bits* dV_TGD, const bf16_bits* dOut_THD, const bf16_bits* q_THD,                       \
      const bf16_bits* k_TGD, const bf16_bits* v_TGD, const Stats* stats_TH, LISTS, const int* wholeBlocks,          \
      const int* document_T, const int* offsets_M, int tokens, int heads, int kvHeads, int blockSize, float scale) { \
    const Lists lists = LISTS_OF;                                                                                    \
    keys_backward<Keys##KEYS##_##D>(dK_TGD, dV_TGD, dOut_THD, q_THD, k_TGD, v_TGD, stats_TH, lists, wholeBlocks,     \
                                    {document_T, offsets_M}, tokens, heads, kvHeads, blockSize, scale);              \
  }

ATTENTION_BACKWARD(64)
ATTENTION_BACKWARD(128)
ATTENTION_BACKWARD_KEYS(64, 64)
ATTENTION_BACKWARD_KEYS(64, 128)
ATTENTION_BACKWARD_KEYS(128, 64)
ATTENTION_BACKWARD_KEYS(128, 128)
