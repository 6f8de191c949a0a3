// The loop over keys that all attention kernels with query tiles share: key and value rows stream through two stages
// of shared memory while the tensor cores work on the other stage.
#pragma once
#include "blocks.cuh"
#include "tile.cuh"

/** The shape of a query tile: 16 M rows for each of WARPS warps, and how many keys it takes at once. */
template <int D_, int M_, int WARPS_, int KEYS_>
struct QueryTile {
  static constexpr int D = D_, M = M_, WARPS = WARPS_, KEYS = KEYS_;
  static constexpr int ROWS = 16 * M * WARPS;
  static constexpr int THREADS = WARP * WARPS;
  static constexpr unsigned ROW_BYTES = 2 * D;
  static constexpr unsigned TILE_BYTES = ROWS * ROW_BYTES;
  /** Keys, then values. */
  static constexpr unsigned STAGE_BYTES = 2 * KEYS * ROW_BYTES;
};

/** The rows of one key/value head. */
struct KeyRows {
  const bf16_bits* k;
  const bf16_bits* v;
  /** Values from one token's row to the next's. */
  long long stride;
};

/** What all rows of the tile have in common: keys first .. end - 1; without a mask where `low` .. `high` holds them. */
struct KeyRange {
  int first, end;
  /** Largest lower and smallest upper bound of the rows. */
  Bounds inner;
};

template <typename Tile>
__device__ __forceinline__ void load_stage(unsigned stage, const KeyRows& rows, int first, int end) {
  load_tile<Tile::D, Tile::KEYS, Tile::THREADS>(stage, rows.k, [&](int row) {
    return first + row < end ? rows.k + (first + row) * rows.stride : nullptr;
  });
  load_tile<Tile::D, Tile::KEYS, Tile::THREADS>(stage + Tile::KEYS * Tile::ROW_BYTES, rows.v, [&](int row) {
    return first + row < end ? rows.v + (first + row) * rows.stride : nullptr;
  });
}

/**
 * Calls work(keys, values, first, masked) for each tile of keys, in order; `keys` and `values` are addresses in shared
 * memory. Rows behind the end are zeros. The caller has started (not committed) the copies of the first stage and of
 * its own tiles; all have arrived when `work` is first called.
 */
template <typename Tile, typename Work>
__device__ __forceinline__ void for_each_key_tile(unsigned stages, const KeyRows& rows, const KeyRange& range,
                                                  Work work) {
  copy_commit();
  unsigned stage = stages;
  for (int first = range.first; first < range.end; first += Tile::KEYS) {
    copy_wait<0>();
    // Also: all warps are done with the other stage.
    __syncthreads();
    const unsigned other = stage == stages ? stages + Tile::STAGE_BYTES : stages;
    if (first + Tile::KEYS < range.end) load_stage<Tile>(other, rows, first + Tile::KEYS, range.end);
    copy_commit();
    const bool masked = first < range.inner.low || first + Tile::KEYS - 1 > range.inner.high;
    work(stage, stage + Tile::KEYS * Tile::ROW_BYTES, first, masked);
    stage = other;
  }
}
