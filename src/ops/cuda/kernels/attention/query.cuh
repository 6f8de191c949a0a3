// Which query rows a block of threads works on: a run of tokens (own blocks, full attention) or a tile of the list of
// queries that chose an earlier block.
#pragma once
#include "keys.cuh"

/** A tile of the list of one head and whole block: where its keys and, in the head's lists, its entries start. */
struct alignas(16) Item {
  int firstKey, firstEntry, rows, unused;
};

/** Everything about lists (null pointers: there are none), of all heads; L = T S entries a head, B whole blocks at most, I items at most. */
struct Lists {
  /** i32 [H, L], [H, B] start of each list in its head's, [H, B] its length. */
  const int* entries_HL;
  const int* starts_HB;
  const int* counts_HB;
  /** i32 [H, I, 4], and how many there are [H]. */
  const Item* items_HI;
  const int* itemCounts_H;
  /** i32 [B] */
  const int* blockStart_B;
  long long entriesPerHead;
  int blocks, itemsPerHead;
};

/** The tokens of a warp's rows: `token(row)` of the tile is -1 where there is none. */
template <typename Tile, typename Token>
__device__ __forceinline__ void load_queries(unsigned tile, const bf16_bits* rows_THD, long long stride,
                                             Token token) {
  load_tile<Tile::D, Tile::ROWS, Tile::THREADS>(tile, rows_THD, [&](int row) {
    const int t = token(row);
    return t >= 0 ? rows_THD + t * stride : nullptr;
  });
}

/** Row of the tile that accumulator (m, half) of this lane belongs to. */
template <typename Tile>
__device__ __forceinline__ int row_of(int m, int half) {
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  return 16 * (Tile::M * warp + m) + lane / 4 + 8 * half;
}
