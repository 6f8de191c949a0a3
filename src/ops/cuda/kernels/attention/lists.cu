// From each query's choice of blocks to each block's list of queries, per head and in query order: count, scan, fill.
// The order follows from the tokens alone, so a list has the same bits every time.
//
//   selected_THS i32 [T, H, S]   first_M i32 [documents + 1]: whole blocks in front of each document
//   counts_HCB i32 [H, C, B]: entries of a chunk of tokens for a whole block, later how many lie in front of it
//   starts_HB, counts_HB i32 [H, B]: where a list starts among its head's T S entries, and how long it is
//   entries_HL i32 [H, T S]: 16 * token + rank   items_HI i32 [H, I, 4]: see Item
#include "query.cuh"

/** Blocks whose counters fit into shared memory at once (two warps' of them); more blocks, more rounds (grid z). */
constexpr int RANGE = 8192;

/** Entries that a thread loads before it works on the first: their latencies pass together. */
constexpr int AHEAD = 8;

/** Walks over the entries of `end` - `token` tokens of a head, the entry `first` and every STRIDE-th after it. */
template <int STRIDE>
struct Choices {
  const int* selected_THS;
  const int* document_T;
  const int* first_M;
  int heads, head, selectedCount, token, end, rank;
  int tokenStep, rankStep;

  __device__ __forceinline__ Choices(const int* selected_THS, const int* document_T, const int* first_M, int heads,
                                     int head, int selectedCount, int token, int end, int first)
      : selected_THS(selected_THS), document_T(document_T), first_M(first_M), heads(heads), head(head),
        selectedCount(selectedCount), token(token + first / selectedCount), end(end), rank(first % selectedCount),
        tokenStep(STRIDE / selectedCount), rankStep(STRIDE % selectedCount) {}

  /** The next entries (16 * token + rank), and the whole blocks, through the batch, that they stand for; -1 for none. */
  __device__ __forceinline__ void next(int (&entry)[AHEAD], int (&block)[AHEAD]) {
    int selected[AHEAD], document[AHEAD];
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
      entry[j] = RANKS * token + rank;
      selected[j] =
          token < end ? selected_THS[((long long)token * heads + head) * selectedCount + rank] : -1;
      document[j] = token < end ? document_T[token] : 0;
      token += tokenStep;
      rank += rankStep;
      if (rank >= selectedCount) {
        rank -= selectedCount;
        token++;
      }
    }
#pragma unroll
    for (int j = 0; j < AHEAD; j++) block[j] = selected[j] < 0 ? -1 : first_M[document[j]] + selected[j];
  }
};

constexpr int COUNT_THREADS = 256;

/** Shared memory: a counter for each block of the range. Grid: (C chunks, H, ranges of blocks). */
extern "C" __global__ void __launch_bounds__(COUNT_THREADS)
attention_lists_count(int* counts_HCB, const int* selected_THS, const int* document_T, const int* first_M, int tokens,
                      int heads, int selectedCount, int chunk, int blocks) {
  extern __shared__ int counters[];
  const int low = int(blockIdx.z) * RANGE, size = min(blocks - low, RANGE);
  for (int b = int(threadIdx.x); b < size; b += int(blockDim.x)) counters[b] = 0;
  __syncthreads();
  const int firstToken = int(blockIdx.x) * chunk, end = min(tokens, firstToken + chunk);
  Choices<COUNT_THREADS> choices(selected_THS, document_T, first_M, heads, int(blockIdx.y), selectedCount, firstToken,
                                 end, int(threadIdx.x));
  while (choices.token < end) {
    int entry[AHEAD], block[AHEAD];
    choices.next(entry, block);
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
      const int b = block[j] - low;
      // Whole numbers: their sum does not depend on the order.
      if (b >= 0 && b < size) atomicAdd(&counters[b], 1);
    }
  }
  __syncthreads();
  int* out = counts_HCB + ((long long)blockIdx.y * gridDim.x + blockIdx.x) * blocks + low;
  for (int b = int(threadIdx.x); b < size; b += int(blockDim.x)) out[b] = counters[b];
}

constexpr int SCAN_THREADS = 1024;

/**
 * Sums over the chunks of each list, over the lists of a head, and the table of its items of at most `rows` queries.
 * Grid: (H).
 */
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
attention_lists_scan(int* starts_HB, int* counts_HB, Item* items_HI, int* itemCounts_H, int* counts_HCB,
                     const int* blockStart_B, int chunks, int blocks, int rows, int itemsPerHead) {
  __shared__ int2 sums[SCAN_THREADS / WARP];
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
  const long long head = blockIdx.x;
  Item* items = items_HI + head * itemsPerHead;
  int entriesBefore = 0, itemsBefore = 0;
  for (int from = 0; from < blocks; from += SCAN_THREADS) {
    const int b = from + int(threadIdx.x);
    int count = 0;
    if (b < blocks) {
      int* inChunk = counts_HCB + head * chunks * blocks + b;
#pragma unroll 8
      for (int c = 0; c < chunks; c++) {
        const int here = inChunk[(long long)c * blocks];
        inChunk[(long long)c * blocks] = count;
        count += here;
      }
    }
    const int tiles = (count + rows - 1) / rows;
    int entries = count, upTo = tiles;
#pragma unroll
    for (int offset = 1; offset < WARP; offset *= 2) {
      const int otherEntries = __shfl_up_sync(ALL_LANES, entries, offset);
      const int otherItems = __shfl_up_sync(ALL_LANES, upTo, offset);
      if (lane >= offset) {
        entries += otherEntries;
        upTo += otherItems;
      }
    }
    if (lane == WARP - 1) sums[warp] = make_int2(entries, upTo);
    __syncthreads();
    int allEntries = 0, allItems = 0;
    for (int w = 0; w < SCAN_THREADS / WARP; w++) {
      if (w < warp) {
        entries += sums[w].x;
        upTo += sums[w].y;
      }
      allEntries += sums[w].x;
      allItems += sums[w].y;
    }
    if (b < blocks) {
      const int start = entriesBefore + entries - count;
      starts_HB[head * blocks + b] = start;
      counts_HB[head * blocks + b] = count;
      const int first = itemsBefore + upTo - tiles, firstKey = tiles > 0 ? blockStart_B[b] : 0;
      for (int i = 0; i < tiles; i++) items[first + i] = {firstKey, start + i * rows, min(rows, count - i * rows), 0};
    }
    entriesBefore += allEntries;
    itemsBefore += allItems;
    __syncthreads();
  }
  if (threadIdx.x == 0) itemCounts_H[head] = itemsBefore;
}

/**
 * Each warp takes its share of the chunk's tokens in order, 32 entries at a time. Shared memory: for each warp the next
 * place in the list of each block of the range. Grid: (C, H, ranges of blocks).
 */
extern "C" __global__ void __launch_bounds__(256)
attention_lists_fill(int* entries_HL, const int* counts_HCB, const int* starts_HB, const int* selected_THS,
                     const int* document_T, const int* first_M, int tokens, int heads, int selectedCount, int chunk,
                     int blocks, long long entriesPerHead) {
  extern __shared__ int places[];
  const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP, warps = int(blockDim.x) / WARP;
  const int head = int(blockIdx.y);
  const int low = int(blockIdx.z) * RANGE, size = min(blocks - low, RANGE);
  for (int i = int(threadIdx.x); i < warps * size; i += int(blockDim.x)) places[i] = 0;
  const int end = min(tokens, (int(blockIdx.x) + 1) * chunk), share = (chunk + warps - 1) / warps;
  const int firstToken = min(end, int(blockIdx.x) * chunk + warp * share);
  const int endToken = min(end, firstToken + share);
  const Choices<WARP> choices(selected_THS, document_T, first_M, heads, head, selectedCount, firstToken, endToken, lane);
  int* next = places + warp * size;
  __syncthreads();
  int entry[AHEAD], block[AHEAD];
  for (Choices<WARP> counted = choices; counted.token < endToken;) {
    counted.next(entry, block);
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
      const int b = block[j] - low;
      if (b >= 0 && b < size) atomicAdd(&next[b], 1);
    }
  }
  __syncthreads();
  // From counts to places: the lists in front, the chunks in front, the warps in front.
  const int* inFront = counts_HCB + ((long long)head * gridDim.x + blockIdx.x) * blocks + low;
  for (int b = int(threadIdx.x); b < size; b += int(blockDim.x)) {
    int place = starts_HB[(long long)head * blocks + low + b] + inFront[b];
    for (int w = 0; w < warps; w++) {
      const int count = places[w * size + b];
      places[w * size + b] = place;
      place += count;
    }
  }
  __syncthreads();
  int* out = entries_HL + head * entriesPerHead;
  Choices<WARP> filled = choices;
  filled.next(entry, block);
  for (int from = firstToken * selectedCount; from < endToken * selectedCount; from += WARP * AHEAD) {
    // The loads of the next round are under way during this one.
    int nextEntry[AHEAD], nextBlock[AHEAD];
    filled.next(nextEntry, nextBlock);
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
      const int b = block[j] - low < size ? block[j] - low : -1;
      const unsigned same = __match_any_sync(ALL_LANES, b);
      const int before = __popc(same & ((1u << lane) - 1));
      const int start = b < 0 ? 0 : next[b];
      __syncwarp();
      if (b >= 0) {
        out[start + before] = entry[j];
        if (before == 0) next[b] = start + __popc(same);
      }
      __syncwarp();
    }
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
      entry[j] = nextEntry[j];
      block[j] = nextBlock[j];
    }
  }
}
