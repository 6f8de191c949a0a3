// Attention forward: the blocks that queries chose (past), then own blocks, which take in the past's partial results.
// Full attention is the second kernel alone, with the document as own block.
//
//   q_THD, out_THD bf16 [T, H, D]   k_TGD, v_TGD bf16 [T, G, D]   selected_THS i32 [T, H, S]   lse_TH f32 [T, H]
//   partial_TPSD bf16 [T, P, S, D] and partialLse_TPS f32: of the P heads of this pass, at (query, head, rank);
//   normalized, log-sum-exp to base 2; the order within a row is that of `store_partial`
//
// Source: MoBA (arXiv 2502.13189), algorithm 1; online softmax as in FlashAttention-2 (arXiv 2307.08691).
#include "query.cuh"
#include "softmax.cuh"

/** Streams the keys of `range` past the query tile at `queries`. */
template <typename Tile>
__device__ __forceinline__ void attend(Softmax<Tile>& softmax, unsigned queries, unsigned stages, const KeyRows& rows,
                                       const KeyRange& range, const Bounds (&bounds)[Tile::M][2], float scale) {
  constexpr int D = Tile::D;
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  const unsigned left = queries + warp * Tile::M * 32 * D + by_row<D>(lane);
  const unsigned right = by_column<D>(lane), down = by_row<D>(lane);
  softmax.start();
  for_each_key_tile<Tile>(stages, rows, range, [&](unsigned keys, unsigned values, int first, bool masked) {
    float scores[Tile::M][Tile::KEYS / 8][4];
    multiply_rows<D>(scores, left, keys + right);
    if (masked) exclude(scores, bounds, first, lane);
    softmax.take(scores, values + down, scale);
  });
  softmax.finish();
}

/** One item of the past: a tile of the queries of one head that chose one block. */
template <typename Tile>
__device__ __forceinline__ void past(bf16_bits* partial_TPSD, float* partialLse_TPS, const bf16_bits* q_THD,
                                     const bf16_bits* k_TGD, const bf16_bits* v_TGD, const Lists& lists,
                                     int heads, int kvHeads, int selectedCount, int blockSize, int firstHead,
                                     float scale) {
  constexpr int D = Tile::D, ROWS = Tile::ROWS;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ int entries[ROWS];
  const int lane = int(threadIdx.x) % WARP;
  const int head = firstHead + int(blockIdx.y);
  if (int(blockIdx.x) >= lists.itemCounts_H[head]) return;
  const Item item = lists.items_HI[(long long)head * lists.itemsPerHead + blockIdx.x];
  const unsigned queries = shared_address(shared), stages = queries + Tile::TILE_BYTES;
  const int kvHead = head / (heads / kvHeads);
  const KeyRows keys = {k_TGD + kvHead * D, v_TGD + kvHead * D, (long long)kvHeads * D};
  const Bounds block = {item.firstKey, item.firstKey + blockSize - 1};
  const KeyRange range = {block.low, block.high + 1, block};
  load_stage<Tile>(stages, keys, range.first, range.end);
  const int* from = lists.entries_HL + head * lists.entriesPerHead + item.firstEntry;
  for (int row = int(threadIdx.x); row < ROWS; row += Tile::THREADS) entries[row] = row < item.rows ? from[row] : -1;
  __syncthreads();
  load_queries<Tile>(queries, q_THD + head * D, (long long)heads * D,
                     [&](int row) { return entries[row] >> 4; });  // -1 >> 4 is -1
  Bounds bounds[Tile::M][2];
#pragma unroll
  for (int m = 0; m < Tile::M; m++) bounds[m][0] = bounds[m][1] = block;
  Softmax<Tile> softmax;
  attend<Tile>(softmax, queries, stages, keys, range, bounds, scale);

#pragma unroll
  for (int m = 0; m < Tile::M; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int entry = entries[row_of<Tile>(m, half)];
      if (entry < 0) continue;
      const float sum = softmax.sum[m][half], most = softmax.most[m][half];
      const long long slot =
          ((long long)(entry / RANKS) * gridDim.y + blockIdx.y) * selectedCount + entry % RANKS;
      store_partial<D>(partial_TPSD + slot * D, softmax.out[m], half, sum == 0.0f ? 0.0f : 1.0f / sum, lane);
      // log2 of a zero sum is -inf: a partial result without weight.
      if ((lane & 3) == 0) partialLse_TPS[slot] = sum == 0.0f ? -infinity() : fmaf(most, scale, log2f(sum));
    }
  }
}

/** A run of ROWS tokens of one head: own blocks, partial results of the chosen ones, output and log-sum-exp. */
template <typename Tile>
__device__ __forceinline__ void own(bf16_bits* out_THD, float* lse_TH, const bf16_bits* q_THD, const bf16_bits* k_TGD,
                                    const bf16_bits* v_TGD, const int* selected_THS, const bf16_bits* partial_TPSD,
                                    const float* partialLse_TPS, const Documents& documents, int tokens, int heads,
                                    int kvHeads, int selectedCount, int blockSize, int firstHead, float scale) {
  constexpr int D = Tile::D, ROWS = Tile::ROWS;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  const int head = firstHead + int(blockIdx.y);
  // Long rows of keys first: they would be the stragglers.
  const int t0 = int(gridDim.x - 1 - blockIdx.x) * ROWS;
  const int rows = min(ROWS, tokens - t0);
  const long long stride = (long long)heads * D;

  const unsigned queries = shared_address(shared), stages = queries + Tile::TILE_BYTES;
  load_queries<Tile>(queries, q_THD + head * D, stride, [&](int row) { return row < rows ? t0 + row : -1; });
  Bounds bounds[Tile::M][2];
#pragma unroll
  for (int m = 0; m < Tile::M; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int t = t0 + row_of<Tile>(m, half);
      bounds[m][half] = t < tokens ? Bounds{documents.own_start(t, blockSize), t} : Bounds{0, -1};
    }
  }
  const Bounds inner = {documents.own_start(t0 + rows - 1, blockSize), t0};
  const int kvHead = head / (heads / kvHeads);
  const KeyRows keys = {k_TGD + kvHead * D, v_TGD + kvHead * D, (long long)kvHeads * D};
  const KeyRange range = {documents.own_start(t0, blockSize), t0 + rows, inner};
  load_stage<Tile>(stages, keys, range.first, range.end);
  Softmax<Tile> softmax;
  attend<Tile>(softmax, queries, stages, keys, range, bounds, scale);

  const unsigned staged = queries + warp * Tile::M * 32 * D;
#pragma unroll
  for (int m = 0; m < Tile::M; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int t = t0 + row_of<Tile>(m, half);
      if (t >= tokens) continue;
      float top = softmax.most[m][half] * scale;
      float sum = softmax.sum[m][half];
      const int* selected = selected_THS + ((long long)t * heads + head) * selectedCount;
      const long long slot = ((long long)t * gridDim.y + blockIdx.y) * selectedCount;
      int count = 0;
      while (count < selectedCount && selected[count] >= 0) {
        top = fmaxf(top, partialLse_TPS[slot + count]);
        count++;
      }
      const float reference = top == -infinity() ? 0.0f : top;
      const float weight = fast_exp2(fmaf(softmax.most[m][half], scale, -reference));
      sum *= weight;
#pragma unroll
      for (int n = 0; n < D / 8; n++) {
        softmax.out[m][n][2 * half] *= weight;
        softmax.out[m][n][2 * half + 1] *= weight;
      }
      for (int rank = 0; rank < count; rank++) {
        const float partWeight = fast_exp2(partialLse_TPS[slot + rank] - reference);
        sum += partWeight;
        add_partial<D>(softmax.out[m], partial_TPSD + (slot + rank) * D, half, partWeight, lane);
      }
      const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
      for (int n = 0; n < D / 8; n++) {
        softmax.out[m][n][2 * half] *= inverse;
        softmax.out[m][n][2 * half + 1] *= inverse;
      }
      if ((lane & 3) == 0) lse_TH[(long long)t * heads + head] = (reference + log2f(sum)) * LN2;
    }
    // The queries are not needed any more.
    stage_rows<D>(staged + m * 32 * D, softmax.out[m], lane);
    store_rows<D>(staged + m * 32 * D, lane, [&](int row) {
      const int t = t0 + 16 * (Tile::M * warp + m) + row;
      return t < tokens ? out_THD + t * stride + head * D : nullptr;
    });
  }
}

using Tile64 = QueryTile<64, 2, 4, 64>;
using Tile128 = QueryTile<128, 2, 4, 64>;

#define ATTENTION_FORWARD(D)                                                                                        \
  extern "C" __global__ void __launch_bounds__(Tile##D::THREADS, 2) attention_forward_past_d##D(                    \
      bf16_bits* partial_TPSD, float* partialLse_TPS, const bf16_bits* q_THD, const bf16_bits* k_TGD,               \
      const bf16_bits* v_TGD, const int* entries_HL, const int* starts_HB, const int* counts_HB,                    \
      const Item* items_HI, const int* itemCounts_H, const int* blockStart_B, long long entriesPerHead, int blocks, \
      int itemsPerHead, int heads, int kvHeads, int selectedCount, int blockSize, int firstHead, float scale) {     \
    const Lists lists = {entries_HL,   starts_HB,      counts_HB, items_HI,    itemCounts_H,                        \
                         blockStart_B, entriesPerHead, blocks,    itemsPerHead};                                    \
    past<Tile##D>(partial_TPSD, partialLse_TPS, q_THD, k_TGD, v_TGD, lists, heads, kvHeads, selectedCount,          \
                  blockSize, firstHead, scale);                                                                     \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(Tile##D::THREADS, 2) attention_forward_own_d##D(                     \
      bf16_bits* out_THD, float* lse_TH, const bf16_bits* q_THD, const bf16_bits* k_TGD, const bf16_bits* v_TGD,    \
      const int* selected_THS, const bf16_bits* partial_TPSD, const float* partialLse_TPS, const int* document_T,   \
      const int* offsets_M, int tokens, int heads, int kvHeads, int selectedCount, int blockSize, int firstHead,    \
      float scale) {                                                                                                \
    own<Tile##D>(out_THD, lse_TH, q_THD, k_TGD, v_TGD, selected_THS, partial_TPSD, partialLse_TPS,                  \
                 {document_T, offsets_M}, tokens, heads, kvHeads, selectedCount, blockSize, firstHead, scale);      \
  }

ATTENTION_FORWARD(64)
ATTENTION_FORWARD(128)
