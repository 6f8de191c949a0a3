// Attention forward on Hopper: the blocks that queries chose (past; small where a block is at most one tile of keys),
// then own blocks, which take in the past's partial results. Full attention is the latter alone, with the document as
// own block.
//
//   q_THD, out_THD bf16 [T, H, D]   k_TGD, v_TGD bf16 [T, G, D]   selected_THS i32 [T, H, S]   lse_TH f32 [T, H]
//   partial_TPSD bf16 [T, P, S, D] and partialLse_TPS f32: of the P heads of this pass, at (query, head, rank);
//   normalized, log-sum-exp to base 2; the order within a row is that of `partial_chunk`
//
// One block of threads a multiprocessor, which stays: one warpgroup that loads, and CONSUMERS warpgroups that multiply,
// each 64 query rows of a tile. Three rings in shared memory connect them:
//
//   queries  SLOTS tiles of ROWS rows, with a `Work` that says what is to be done with them
//   keys     STAGES tiles of KEYS rows
//   values   STAGES tiles of KEYS rows
//
// and each place of a ring has two barriers: `full`, on which the loads complete, and `empty`, on which every consumer
// warp arrives. Loads run ahead over the ends of tiles as far as the rings allow. A tile meets its keys from the
// last to the first. What a consumer warpgroup does with keys j, in the order of issue:
//
//   S = Q K_j      with PINGPONG: when the warpgroup before it in the round has issued its two products
//   O += P V_j-1
//   wait for S; mask, maximum, P = 2^(S - maximum), while O += P V_j-1 runs on
//   wait for O; O shrinks to the new maximum
//
// Source: MoBA (arXiv 2502.13189), algorithm 1; the overlap is that of FlashAttention-3 (arXiv 2407.08608), 3.1 and 3.2.
#include "../attention/query.cuh"
#include "hopper.cuh"

/** A shape of the kernels. AHEAD: the product S of the next keys is issued before O += P V. */
template <int D_, int KEYS_, int CONSUMERS_, int SLOTS_, int STAGES_, bool PINGPONG_ = true, bool AHEAD_ = true>
struct Plan {
  static constexpr int D = D_, KEYS = KEYS_, CONSUMERS = CONSUMERS_, SLOTS = SLOTS_, STAGES = STAGES_;
  static constexpr bool PINGPONG = PINGPONG_, AHEAD = AHEAD_;
  static constexpr int ROWS = 64 * CONSUMERS;
  static constexpr int THREADS = WARPGROUP * (1 + CONSUMERS);
  static constexpr int PANELS = D / PANEL;
  static constexpr unsigned ROW_BYTES = 2 * D;
  static constexpr unsigned QUERY_BYTES = ROWS * ROW_BYTES, KEY_BYTES = KEYS * ROW_BYTES;
  static constexpr unsigned KEYS_AT = SLOTS * QUERY_BYTES, VALUES_AT = KEYS_AT + STAGES * KEY_BYTES;
  static constexpr unsigned BARRIERS_AT = VALUES_AT + STAGES * KEY_BYTES;
  static constexpr unsigned WORKS_AT = BARRIERS_AT + 16 * (SLOTS + 2 * STAGES);
  static constexpr unsigned SHARED_BYTES = WORKS_AT + 32 * SLOTS;
  /** Registers of a thread: all that there are, at launch dealt out evenly. */
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 1 ? 256 - 16 : CONSUMERS == 2 ? 232 : 160;
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 1 ? 128 : CONSUMERS == 2 ? 40 : 32;
};

/** What is to be done with a tile of queries: keys firstKey .. firstKey + KEYS - 1, then those in front, `tiles` times. */
struct alignas(16) Work {
  int head;
  /** Own: the first token. Past: the first entry of the head's list. */
  int first;
  int rows;
  /** None: there is no more work. */
  int tiles;
  int firstKey;
  /** Lower bounds of the first row and the last row, and upper bound of the past's rows. */
  int low, lastLow, high;
};

/** A place in a ring, and the parity of its barriers' phase. */
template <int PLACES>
struct Ring {
  int place = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void step() {
    if (++place == PLACES) {
      place = 0;
      parity ^= 1;
    }
  }
};

/** Shared memory of a block of threads. */
template <typename P>
struct Stage {
  unsigned base;
  unsigned char* memory;

  __device__ __forceinline__ unsigned queries(int place) const { return base + place * P::QUERY_BYTES; }
  __device__ __forceinline__ unsigned keys(int place) const { return base + P::KEYS_AT + place * P::KEY_BYTES; }
  __device__ __forceinline__ unsigned values(int place) const { return base + P::VALUES_AT + place * P::KEY_BYTES; }
  __device__ __forceinline__ unsigned barrier(int i) const { return base + P::BARRIERS_AT + 8 * i; }
  __device__ __forceinline__ unsigned queriesFull(int place) const { return barrier(place); }
  __device__ __forceinline__ unsigned queriesEmpty(int place) const { return barrier(P::SLOTS + place); }
  __device__ __forceinline__ unsigned keysFull(int place) const { return barrier(2 * P::SLOTS + place); }
  __device__ __forceinline__ unsigned keysEmpty(int place) const { return barrier(2 * P::SLOTS + P::STAGES + place); }
  __device__ __forceinline__ unsigned valuesFull(int place) const {
    return barrier(2 * (P::SLOTS + P::STAGES) + place);
  }
  __device__ __forceinline__ unsigned valuesEmpty(int place) const {
    return barrier(2 * (P::SLOTS + P::STAGES) + P::STAGES + place);
  }
  __device__ __forceinline__ Work* work(int place) const {
    return reinterpret_cast<Work*>(memory + P::WORKS_AT + place * sizeof(Work));
  }
};

/** `arrivals`: on the barrier of a full tile of queries. */
template <typename P>
__device__ __forceinline__ Stage<P> make_stage(unsigned char* memory, int arrivals) {
  const Stage<P> stage = {shared_address(memory), memory};
  if (threadIdx.x == 0) {
    for (int i = 0; i < P::SLOTS; i++) {
      barrier_init(stage.queriesFull(i), arrivals);
      barrier_init(stage.queriesEmpty(i), 4 * P::CONSUMERS);
    }
    for (int i = 0; i < P::STAGES; i++) {
      barrier_init(stage.keysFull(i), 1);
      barrier_init(stage.valuesFull(i), 1);
      barrier_init(stage.keysEmpty(i), 4 * P::CONSUMERS);
      barrier_init(stage.valuesEmpty(i), 4 * P::CONSUMERS);
    }
    barrier_inits_done();
  }
  __syncthreads();
  return stage;
}

// --- loading -----------------------------------------------------------------------------------------------------------

/** Boxes of 64 rows and 64 columns, that is what the tensor maps of queries, keys and values are made for. */
template <typename P, int ROWS>
__device__ __forceinline__ void load_rows(unsigned to, const TensorMap& map, unsigned barrier, int head, int row) {
#pragma unroll
  for (int panel = 0; panel < P::PANELS; panel++) {
#pragma unroll
    for (int r = 0; r < ROWS; r += 64)
      tma_load(to + panel * ROWS * 128 + r * 128, map, barrier, panel * PANEL, head, row + r);
  }
}

/** One thread: the keys and values of one tile of queries. */
template <typename P>
struct KeyLoader {
  Stage<P> stage;
  Ring<P::STAGES> keys, values;

  __device__ __forceinline__ void load(const TensorMap& map, bool isKeys, int kvHead, int row) {
    Ring<P::STAGES>& ring = isKeys ? keys : values;
    const unsigned full = isKeys ? stage.keysFull(ring.place) : stage.valuesFull(ring.place);
    barrier_wait(isKeys ? stage.keysEmpty(ring.place) : stage.valuesEmpty(ring.place), ring.parity ^ 1);
    barrier_arrive_expect(full, P::KEY_BYTES);
    load_rows<P, P::KEYS>(isKeys ? stage.keys(ring.place) : stage.values(ring.place), map, full, kvHead, row);
    ring.step();
  }

  /** Keys one tile in front of the values, as they are needed. */
  __device__ __forceinline__ void load_all(const TensorMap& k, const TensorMap& v, int kvHead, int firstKey,
                                           int tiles) {
    load(k, true, kvHead, firstKey);
    for (int j = 1; j < tiles; j++) {
      load(k, true, kvHead, firstKey - j * P::KEYS);
      load(v, false, kvHead, firstKey - (j - 1) * P::KEYS);
    }
    load(v, false, kvHead, firstKey - (tiles - 1) * P::KEYS);
  }
};

// --- products ------------------------------------------------------------------------------------------------------------

/** S = Q K, [64 x KEYS]: rows of queries from `queries`, a tile of keys at `keys`. */
template <typename P>
__device__ __forceinline__ void multiply_keys(float (&scores)[P::KEYS / 2], unsigned queries, unsigned keys) {
#pragma unroll
  for (int step = 0; step < P::D / 16; step++) {
    const unsigned panel = step / 4, within = step % 4 * 32;
    product<Along::rows, Along::rows>(scores, by_rows(queries + panel * P::ROWS * 128 + within),
                                      by_rows(keys + panel * P::KEYS * 128 + within), step > 0);
  }
  products_commit();
}

/** O += P V, or O = P V. */
template <typename P>
__device__ __forceinline__ void add_values(float (&out)[P::D / 2], const unsigned (&weights)[P::KEYS / 16][4],
                                           unsigned values, bool add) {
#pragma unroll
  for (int step = 0; step < P::KEYS / 16; step++)
    product<Along::columns>(out, weights[step], by_columns(values + step * 2048, P::KEYS * 128), add || step > 0);
  products_commit();
}

/** The two rows that a thread holds a share of: bounds of their keys, and how far the softmax has come. */
struct Rows {
  Bounds bounds[2];
  /** Largest raw score so far. */
  float most[2];
  /** This lane's share of the sum. */
  float sum[2];
};

/** Scores of keys that a row may not attend to become -inf. */
template <int N>
__device__ __forceinline__ void exclude(float (&scores)[N], const Rows& rows, int firstKey, int lane) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    const int key = firstKey + 8 * (i / 4) + 2 * (lane & 3) + (i & 1);
    if (!rows.bounds[i / 2 % 2].has(key)) scores[i] = -infinity();
  }
}

/** Scores become weights; `shrink`: what earlier weights are to be multiplied by. `scale`: log2(e) / sqrt(D). */
template <int N>
__device__ __forceinline__ void weigh(float (&scores)[N], float (&shrink)[2], Rows& rows, float scale) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float top[2] = {rows.most[half], -infinity()};
#pragma unroll
    for (int i = 2 * half; i < N; i += 4) {
      top[0] = fmaxf(top[0], scores[i]);
      top[1] = fmaxf(top[1], scores[i + 1]);
    }
    top[0] = fmaxf(top[0], top[1]);
    top[0] = fmaxf(top[0], __shfl_xor_sync(ALL_LANES, top[0], 1));
    top[0] = fmaxf(top[0], __shfl_xor_sync(ALL_LANES, top[0], 2));
    // Nothing allowed yet: any finite reference gives weights of zero.
    const float reference = top[0] == -infinity() ? 0.0f : top[0];
    shrink[half] = fast_exp2((rows.most[half] - reference) * scale);
    rows.most[half] = top[0];
    const float offset = -reference * scale;
    float added[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 2 * half; i < N; i += 4) {
      scores[i] = fast_exp2(fmaf(scores[i], scale, offset));
      scores[i + 1] = fast_exp2(fmaf(scores[i + 1], scale, offset));
      added[0] += scores[i];
      added[1] += scores[i + 1];
    }
    rows.sum[half] = fmaf(rows.sum[half], shrink[half], added[0] + added[1]);
  }
}

/** Accumulators, rounded, as left operands. */
template <int N>
__device__ __forceinline__ void round_weights(unsigned (&weights)[N / 8][4], const float (&scores)[N]) {
#pragma unroll
  for (int i = 0; i < N / 8; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) weights[i][j] = round_pair(scores[8 * i + 2 * j], scores[8 * i + 2 * j + 1]);
  }
}

/** Sums of rows from those of their four lanes. */
__device__ __forceinline__ void add_lanes(Rows& rows) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    rows.sum[half] += __shfl_xor_sync(ALL_LANES, rows.sum[half], 1);
    rows.sum[half] += __shfl_xor_sync(ALL_LANES, rows.sum[half], 2);
  }
}

template <int N>
__device__ __forceinline__ void scale_rows(float (&out)[N], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < N; i++) out[i] *= factor[i / 2 % 2];
}

/** A consumer warpgroup. */
template <typename P>
struct Consumer {
  Stage<P> stage;
  /** Warpgroup among the consumers, warp in it, and lane. */
  int group, warp, lane;
  Ring<P::SLOTS> queries;
  Ring<P::STAGES> keys, values;

  __device__ __forceinline__ explicit Consumer(const Stage<P>& stage)
      : stage(stage),
        group(int(threadIdx.x) / WARPGROUP - 1),
        warp(int(threadIdx.x) / WARP % 4),
        lane(int(threadIdx.x) % WARP) {}

  /** Row of the tile that accumulator half 0 or 1 of this lane belongs to. */
  __device__ __forceinline__ int row(int half) const { return 64 * group + 16 * warp + lane / 4 + 8 * half; }

  /** This warp does not need a place any more. */
  __device__ __forceinline__ void release(unsigned barrier) const {
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier);
  }

  /** The first warpgroup may begin. */
  __device__ __forceinline__ void take_turns() const {
    if (P::PINGPONG && group == P::CONSUMERS - 1) named_arrive(1, 2 * WARPGROUP);
  }

  /** Everything about the keys of `work`; `innerHigh`: a bound that keeps no row of this warpgroup from a key. */
  __device__ __forceinline__ void attend(float (&out)[P::D / 2], Rows& rows, const Work& work, int innerHigh,
                                         float scale) {
    const unsigned rowsAt = stage.queries(queries.place) + group * 64 * 128;
    float scores[P::KEYS / 2], shrink[2];
    unsigned weights[P::KEYS / 16][4];
    rows.most[0] = rows.most[1] = -infinity();
    rows.sum[0] = rows.sum[1] = 0.0f;
    int first = work.firstKey;
    const auto mask = [&] {
      if (first < work.lastLow || first + P::KEYS - 1 > innerHigh) exclude(scores, rows, first, lane);
      first -= P::KEYS;
    };

    barrier_wait(stage.keysFull(keys.place), keys.parity);
    products_begin();
    multiply_keys<P>(scores, rowsAt, stage.keys(keys.place));
    products_wait<0>();
    keep(scores);
    release(stage.keysEmpty(keys.place));
    keys.step();
    mask();
    weigh(scores, shrink, rows, scale);
    round_weights(weights, scores);
    for (int j = 1; j < work.tiles; j++) {
      if (P::AHEAD) {
        barrier_wait(stage.keysFull(keys.place), keys.parity);
        if (P::PINGPONG) named_sync(1 + group, 2 * WARPGROUP);
        products_begin();
        multiply_keys<P>(scores, rowsAt, stage.keys(keys.place));
        barrier_wait(stage.valuesFull(values.place), values.parity);
        add_values<P>(out, weights, stage.values(values.place), j > 1);
        if (P::PINGPONG) named_arrive(1 + (group + 1) % P::CONSUMERS, 2 * WARPGROUP);
        products_wait<1>();
        keep(scores);
        release(stage.keysEmpty(keys.place));
        mask();
        weigh(scores, shrink, rows, scale);
        products_wait<0>();
        keep(out);
        release(stage.valuesEmpty(values.place));
      } else {
        barrier_wait(stage.valuesFull(values.place), values.parity);
        products_begin();
        add_values<P>(out, weights, stage.values(values.place), j > 1);
        barrier_wait(stage.keysFull(keys.place), keys.parity);
        products_wait<0>();
        keep(out);
        release(stage.valuesEmpty(values.place));
        products_begin();
        multiply_keys<P>(scores, rowsAt, stage.keys(keys.place));
        products_wait<0>();
        keep(scores);
        release(stage.keysEmpty(keys.place));
        mask();
        weigh(scores, shrink, rows, scale);
      }
      keys.step();
      values.step();
      scale_rows(out, shrink);
      round_weights(weights, scores);
    }
    barrier_wait(stage.valuesFull(values.place), values.parity);
    products_begin();
    add_values<P>(out, weights, stage.values(values.place), work.tiles > 1);
    products_wait<0>();
    keep(out);
    release(stage.valuesEmpty(values.place));
    values.step();
    add_lanes(rows);
  }
};

/**
 * Partial results lie in memory so that the four lanes of a row write 64 bytes in a row at once: chunk i of 8 values
 * holds the lane's accumulators of columns 32 i .. 32 i + 31.
 */
__device__ __forceinline__ int partial_chunk(int i, int lane) { return (4 * i + (lane & 3)) * PER_VECTOR; }

// --- past --------------------------------------------------------------------------------------------------------------

struct PastArgs {
  bf16_bits* partial_TPSD;
  float* partialLse_TPS;
  const bf16_bits* q_THD;
  const int* entries_HL;
  const Item* items_HI;
  const int* itemCounts_H;
  long long entriesPerHead;
  int itemsPerHead, heads, kvHeads, selectedCount, blockSize, firstHead, headCount;
  /** Items in a row that a block of threads takes. */
  int run;
  float scale;
};

/** The items of this block of threads: runs of them, in turn with the other blocks, head after head. */
struct Items {
  int step = 0, head, before = 0, count;

  __device__ __forceinline__ explicit Items(const PastArgs& args)
      : head(args.firstHead), count(args.itemCounts_H[args.firstHead]) {}

  /** False when there are no more. */
  __device__ __forceinline__ bool next(const PastArgs& args, Item& item) {
    const int index = (step / args.run * int(gridDim.x) + int(blockIdx.x)) * args.run + step % args.run;
    step++;
    while (index - before >= count) {
      before += count;
      if (++head == args.firstHead + args.headCount) return false;
      count = args.itemCounts_H[head];
    }
    item = args.items_HI[(long long)head * args.itemsPerHead + index - before];
    return true;
  }
};

/**
 * One warp: 64 rows of a head's queries into a tile, from `firstRow` on. `tokens`: of rows `lane` and WARP + `lane`, -1
 * where there is none; such rows stay what they were: they meet no other row.
 */
template <typename P>
__device__ __forceinline__ void gather(unsigned tile, int firstRow, const bf16_bits* q_THD, long long stride,
                                       const int (&tokens)[2], int lane) {
  constexpr int CHUNKS = P::D / PER_VECTOR, AT_ONCE = WARP / CHUNKS;
  const int column = lane % CHUNKS * PER_VECTOR;
#pragma unroll 8
  for (int i = 0; i < 64 / AT_ONCE; i++) {
    const int row = AT_ONCE * i + lane / CHUNKS;
    const int token = __shfl_sync(ALL_LANES, i < 32 / AT_ONCE ? tokens[0] : tokens[1], row % WARP);
    if (token >= 0)
      copy_async_16(tile + panel_offset(P::ROWS, firstRow + row, column), q_THD + token * stride + column, true);
  }
}

template <typename P>
__device__ __forceinline__ void load_past(const Stage<P>& stage, const TensorMap& k, const TensorMap& v,
                                          const PastArgs& args) {
  const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
  const int tiles = (args.blockSize + P::KEYS - 1) / P::KEYS;
  Items items(args);
  Item item;
  if (warp == 0) {
    if (lane != 0) return;
    const int shared = args.heads / args.kvHeads;
    KeyLoader<P> loader = {stage};
    while (items.next(args, item)) {
      loader.load_all(k, v, items.head / shared, item.firstKey + (tiles - 1) * P::KEYS, tiles);
    }
    return;
  }
  if (warp > P::CONSUMERS) return;
  const int firstRow = 64 * (warp - 1);
  const long long stride = (long long)args.heads * P::D;
  Ring<P::SLOTS> queries;
  for (bool more = true; more; queries.step()) {
    more = items.next(args, item);
    int tokens[2] = {-1, -1};
    if (more) {
      const int* entries = args.entries_HL + items.head * args.entriesPerHead + item.firstEntry;
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int row = firstRow + WARP * i + lane;
        if (row < item.rows) tokens[i] = entries[row] / RANKS;
      }
    }
    barrier_wait(stage.queriesEmpty(queries.place), queries.parity ^ 1);
    const unsigned full = stage.queriesFull(queries.place);
    if (warp == 1 && lane == 0) {
      *stage.work(queries.place) = {items.head,
                                    item.firstEntry,
                                    item.rows,
                                    more ? tiles : 0,
                                    item.firstKey + (tiles - 1) * P::KEYS,
                                    item.firstKey,
                                    item.firstKey,
                                    item.firstKey + args.blockSize - 1};
      barrier_arrive(full);
    }
    gather<P>(stage.queries(queries.place), firstRow, args.q_THD + items.head * P::D, stride, tokens, lane);
    barrier_arrive_copies(full);
  }
  copy_commit();
  copy_wait<0>();
}

/** Of the two rows that a thread holds a share of; `entry`: -1 for a row that is not there. */
template <typename P>
__device__ __forceinline__ void store_partials(const PastArgs& args, const float (&out)[P::D / 2], const Rows& rows,
                                               const int (&entry)[2], int head, int lane) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (entry[half] < 0) continue;
    const long long slot =
        ((long long)(entry[half] / RANKS) * args.headCount + head - args.firstHead) * args.selectedCount +
        entry[half] % RANKS;
    const float sum = rows.sum[half], inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
    for (int i = 0; i < P::D / 32; i++) {
      Packed packed;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int n = 4 * (4 * i + j) + 2 * half;
        packed.pair[j] = round_pair(inverse * out[n], inverse * out[n + 1]);
      }
      store_packed(args.partial_TPSD + slot * P::D + partial_chunk(i, lane), packed);
    }
    // log2 of a zero sum is -inf: a partial result without weight.
    if ((lane & 3) == 0)
      args.partialLse_TPS[slot] = sum == 0.0f ? -infinity() : fmaf(rows.most[half], args.scale, log2f(sum));
  }
}

template <typename P>
__device__ __forceinline__ void attend_past(const Stage<P>& stage, const PastArgs& args) {
  Consumer<P> consumer(stage);
  const int lane = consumer.lane;
  consumer.take_turns();
  for (;; consumer.queries.step()) {
    barrier_wait(stage.queriesFull(consumer.queries.place), consumer.queries.parity);
    // The rows were not copied by TMA.
    fence_shared_for_async();
    const Work work = *stage.work(consumer.queries.place);
    if (work.tiles == 0) break;
    Rows rows;
    int entry[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      rows.bounds[half] = {work.low, work.high};
      const int row = consumer.row(half);
      entry[half] = row < work.rows ? args.entries_HL[work.head * args.entriesPerHead + work.first + row] : -1;
    }
    float out[P::D / 2];
    consumer.attend(out, rows, work, work.high, args.scale);
    consumer.release(stage.queriesEmpty(consumer.queries.place));
    store_partials<P>(args, out, rows, entry, work.head, lane);
  }
}

template <typename P>
__device__ __forceinline__ void forward_past(unsigned char* memory, const TensorMap& k, const TensorMap& v,
                                             const PastArgs& args) {
  const Stage<P> stage = make_stage<P>(memory, 1 + WARP * P::CONSUMERS);
  if (threadIdx.x < WARPGROUP) {
    registers_fewer<P::PRODUCER_REGISTERS>();
    load_past<P>(stage, k, v, args);
  } else {
    registers_more<P::CONSUMER_REGISTERS>();
    attend_past<P>(stage, args);
  }
}

// --- past, small blocks ------------------------------------------------------------------------------------------------
//
// Where a block's keys and values fit into one place, they stay while the items of a run are of the same block: loaded
// for each item, they would be half of what goes through the L2 cache. Each consumer warpgroup has a ring of its own
// with 64 rows in a place, and a warp that fills it; it takes every CONSUMERS-th half of an item, at its own pace. A
// place of keys and values is left when the work says that a later block is next.

/** SLOTS: of each consumer. */
template <int D_, int KEYS_, int CONSUMERS_, int SLOTS_, int STAGES_>
struct SmallPlan {
  static constexpr int D = D_, KEYS = KEYS_, CONSUMERS = CONSUMERS_, SLOTS = SLOTS_, STAGES = STAGES_;
  static constexpr int ROWS = 64;
  static constexpr int THREADS = WARPGROUP * (1 + CONSUMERS);
  static constexpr int PANELS = D / PANEL;
  static constexpr unsigned QUERY_BYTES = ROWS * 2 * D, KEY_BYTES = KEYS * 2 * D;
  static constexpr unsigned KEYS_AT = CONSUMERS * SLOTS * QUERY_BYTES, BARRIERS_AT = KEYS_AT + 2 * STAGES * KEY_BYTES;
  static constexpr unsigned WORKS_AT = BARRIERS_AT + 16 * (CONSUMERS * SLOTS + STAGES);
  static constexpr unsigned SHARED_BYTES = WORKS_AT + 16 * CONSUMERS * SLOTS;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 208 : 152;
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 80 : 56;
};

/** At most 64 rows of a head's list, from an entry on, and the number of their block in its order; no rows: the end. */
struct alignas(16) SmallWork {
  int head, first, rows, block;
};

template <typename P>
struct SmallStage {
  unsigned base;
  unsigned char* memory;

  /** `slot`: of all consumers'. */
  __device__ __forceinline__ unsigned queries(int slot) const { return base + slot * P::QUERY_BYTES; }
  __device__ __forceinline__ unsigned keys(int place) const { return base + P::KEYS_AT + place * 2 * P::KEY_BYTES; }
  __device__ __forceinline__ unsigned values(int place) const { return keys(place) + P::KEY_BYTES; }
  __device__ __forceinline__ unsigned barrier(int i) const { return base + P::BARRIERS_AT + 8 * i; }
  __device__ __forceinline__ unsigned full(int place) const { return barrier(place); }
  __device__ __forceinline__ unsigned empty(int place) const { return barrier(P::STAGES + place); }
  __device__ __forceinline__ unsigned queriesFull(int slot) const { return barrier(2 * P::STAGES + slot); }
  __device__ __forceinline__ unsigned queriesEmpty(int slot) const {
    return barrier(2 * P::STAGES + P::CONSUMERS * P::SLOTS + slot);
  }
  __device__ __forceinline__ SmallWork* work(int slot) const {
    return reinterpret_cast<SmallWork*>(memory + P::WORKS_AT + slot * sizeof(SmallWork));
  }
};

/** Numbers the blocks in the order of the items, in all warps alike. */
struct BlockCount {
  int last = -1, kvHead = -1, firstKey = -1;

  /** Whether the item is of another block than the one before it. */
  __device__ __forceinline__ bool next(int itemKvHead, int itemFirstKey) {
    if (itemKvHead == kvHead && itemFirstKey == firstKey) return false;
    kvHead = itemKvHead;
    firstKey = itemFirstKey;
    last++;
    return true;
  }
};

template <typename P>
__device__ __forceinline__ void load_small(const SmallStage<P>& stage, const TensorMap& k, const TensorMap& v,
                                           const PastArgs& args) {
  const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
  const int shared = args.heads / args.kvHeads;
  Items items(args);
  Item item;
  BlockCount blocks;
  if (warp == 0) {
    if (lane != 0) return;
    Ring<P::STAGES> ring;
    while (items.next(args, item)) {
      const int kvHead = items.head / shared;
      if (!blocks.next(kvHead, item.firstKey)) continue;
      barrier_wait(stage.empty(ring.place), ring.parity ^ 1);
      const unsigned full = stage.full(ring.place);
      barrier_arrive_expect(full, 2 * P::KEY_BYTES);
      load_rows<P, P::KEYS>(stage.keys(ring.place), k, full, kvHead, item.firstKey);
      load_rows<P, P::KEYS>(stage.values(ring.place), v, full, kvHead, item.firstKey);
      ring.step();
    }
    return;
  }
  if (warp > P::CONSUMERS) return;
  const long long stride = (long long)args.heads * P::D;
  Ring<P::SLOTS> queries;
  /** Whose turn it is: 0 for this warp's consumer. */
  int turn = warp - 1;
  for (bool more = true; more;) {
    more = items.next(args, item);
    if (more) blocks.next(items.head / shared, item.firstKey);
    for (int firstRow = 0; firstRow < (more ? item.rows : 1); firstRow += P::ROWS) {
      const bool mine = turn == 0;
      turn = mine ? P::CONSUMERS - 1 : turn - 1;
      if (more && !mine) continue;
      const int rows = more ? min(P::ROWS, item.rows - firstRow) : 0, first = item.firstEntry + firstRow;
      const int* entries = args.entries_HL + items.head * args.entriesPerHead + first;
      int tokens[2] = {-1, -1};
#pragma unroll
      for (int i = 0; i < 2; i++) {
        if (WARP * i + lane < rows) tokens[i] = entries[WARP * i + lane] / RANKS;
      }
      const int slot = (warp - 1) * P::SLOTS + queries.place;
      barrier_wait(stage.queriesEmpty(slot), queries.parity ^ 1);
      if (lane == 0) {
        *stage.work(slot) = {items.head, first, rows, more ? blocks.last : blocks.last + 1};
        barrier_arrive(stage.queriesFull(slot));
      }
      gather<P>(stage.queries(slot), 0, args.q_THD + items.head * P::D, stride, tokens, lane);
      barrier_arrive_copies(stage.queriesFull(slot));
      queries.step();
    }
  }
  copy_commit();
  copy_wait<0>();
}

/** The first array where both have the same size: registers that are not needed any more. */
template <int N>
__device__ __forceinline__ float (&reuse(float (&used)[N], float (&)[N]))[N] { return used; }
template <int N, int M>
__device__ __forceinline__ float (&reuse(float (&)[N], float (&others)[M]))[M] { return others; }

template <typename P>
__device__ __forceinline__ void attend_small(const SmallStage<P>& stage, const PastArgs& args) {
  const int group = int(threadIdx.x) / WARPGROUP - 1, warp = int(threadIdx.x) / WARP % 4;
  const int lane = int(threadIdx.x) % WARP;
  const auto release = [&](unsigned barrier) {
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier);
  };
  const auto wait_full = [&](int block) {
    barrier_wait(stage.full(block % P::STAGES), unsigned(block / P::STAGES) & 1);
  };
  Ring<P::SLOTS> queries;
  /** The first block that this warp has not left. */
  int block = 0;
  for (;; queries.step()) {
    const int slot = group * P::SLOTS + queries.place;
    barrier_wait(stage.queriesFull(slot), queries.parity);
    // The rows were not copied by TMA.
    fence_shared_for_async();
    const SmallWork work = *stage.work(slot);
    // Also those that were only for others, once they are there: a place must not be left twice in one phase.
    for (; block < work.block; block++) {
      wait_full(block);
      release(stage.empty(block % P::STAGES));
    }
    if (work.rows == 0) break;
    int entry[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = 16 * warp + lane / 4 + 8 * half;
      entry[half] = row < work.rows ? args.entries_HL[work.head * args.entriesPerHead + work.first + row] : -1;
    }
    wait_full(block);
    const int place = block % P::STAGES;
    float scores[P::KEYS / 2], shrink[2];
    products_begin();
    multiply_keys<P>(scores, stage.queries(slot), stage.keys(place));
    products_wait<0>();
    keep(scores);
    release(stage.queriesEmpty(slot));
    Rows rows;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      rows.bounds[half] = {0, args.blockSize - 1};
      rows.most[half] = -infinity();
      rows.sum[half] = 0.0f;
    }
    if (args.blockSize < P::KEYS) exclude(scores, rows, 0, lane);
    weigh(scores, shrink, rows, args.scale);
    unsigned weights[P::KEYS / 16][4];
    round_weights(weights, scores);
    float others[P::D / 2];
    float(&out)[P::D / 2] = reuse(scores, others);
    products_begin();
    add_values<P>(out, weights, stage.values(place), false);
    add_lanes(rows);
    products_wait<0>();
    keep(out);
    store_partials<P>(args, out, rows, entry, work.head, lane);
  }
}

template <typename P>
__device__ __forceinline__ void forward_small(unsigned char* memory, const TensorMap& k, const TensorMap& v,
                                              const PastArgs& args) {
  const SmallStage<P> stage = {shared_address(memory), memory};
  if (threadIdx.x == 0) {
    for (int i = 0; i < P::STAGES; i++) {
      barrier_init(stage.full(i), 1);
      barrier_init(stage.empty(i), 4 * P::CONSUMERS);
    }
    for (int i = 0; i < P::CONSUMERS * P::SLOTS; i++) {
      barrier_init(stage.queriesFull(i), 1 + WARP);
      barrier_init(stage.queriesEmpty(i), 4);
    }
    barrier_inits_done();
  }
  __syncthreads();
  if (threadIdx.x < WARPGROUP) {
    registers_fewer<P::PRODUCER_REGISTERS>();
    load_small<P>(stage, k, v, args);
  } else {
    registers_more<P::CONSUMER_REGISTERS>();
    attend_small<P>(stage, args);
  }
}

// --- own ---------------------------------------------------------------------------------------------------------------

struct OwnArgs {
  float* lse_TH;
  const int* selected_THS;
  const bf16_bits* partial_TPSD;
  const float* partialLse_TPS;
  Documents documents;
  /** i32 [1], zero before and after: how many tiles beyond the first of each block of threads have been taken. */
  int* taken;
  int tokens, heads, kvHeads, selectedCount, blockSize, firstHead, headCount;
  /** Heads whose tiles are taken in turn. */
  int together;
  float scale;
};

template <typename P>
__device__ __forceinline__ void load_own(const Stage<P>& stage, const TensorMap& q, const TensorMap& k,
                                         const TensorMap& v, const OwnArgs& args) {
  if (threadIdx.x != 0) return;
  const int tiles = (args.tokens + P::ROWS - 1) / P::ROWS, all = tiles * args.headCount;
  const int shared = args.heads / args.kvHeads;
  KeyLoader<P> loader = {stage};
  Ring<P::SLOTS> queries;
  for (int index = int(blockIdx.x); index < all; queries.step()) {
    // As many are taken as there are: whoever takes the last one leaves the counter as it was.
    const int ticket = atomicAdd(args.taken, 1);
    // Of the heads that share the cache, the longest tiles first.
    const int group = index / (args.together * tiles), inGroup = index % (args.together * tiles);
    const int size = min(args.together, args.headCount - group * args.together);
    const int head = args.firstHead + group * args.together + inGroup % size;
    const int t0 = (tiles - 1 - inGroup / size) * P::ROWS;
    const int rows = min(P::ROWS, args.tokens - t0);
    const int low = args.documents.own_start(t0, args.blockSize);
    const int lastLow = args.documents.own_start(t0 + rows - 1, args.blockSize);
    const int keyTiles = (t0 + P::ROWS - low + P::KEYS - 1) / P::KEYS, firstKey = t0 + P::ROWS - P::KEYS;

    barrier_wait(stage.queriesEmpty(queries.place), queries.parity ^ 1);
    *stage.work(queries.place) = {head, t0, rows, keyTiles, firstKey, low, lastLow, 0};
    const unsigned full = stage.queriesFull(queries.place);
    barrier_arrive_expect(full, P::QUERY_BYTES);
    load_rows<P, P::ROWS>(stage.queries(queries.place), q, full, head, t0);
    loader.load_all(k, v, head / shared, firstKey, keyTiles);
    if (ticket == all - 1) *args.taken = 0;
    index = int(gridDim.x) + ticket;
  }
  barrier_wait(stage.queriesEmpty(queries.place), queries.parity ^ 1);
  stage.work(queries.place)->tiles = 0;
  barrier_arrive(stage.queriesFull(queries.place));
}

/** Log-sum-exps of a row's partial results, -inf where there is none: lane i of the four has ranks i, i + 4, ... */
struct PartialWeights {
  static constexpr int PER_LANE = RANKS / 4;
  int selected[PER_LANE];
  float lse[PER_LANE];

  __device__ __forceinline__ void load(const OwnArgs& args, int token, int head, int lane) {
    const int* choice = args.selected_THS + ((long long)token * args.heads + head) * args.selectedCount;
    const float* from = args.partialLse_TPS + partial_slot(args, token, head);
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
      const int rank = 4 * i + (lane & 3);
      const bool there = token < args.tokens && rank < args.selectedCount;
      selected[i] = there ? choice[rank] : -1;
      lse[i] = there ? from[rank] : 0.0f;
    }
  }

  static __device__ __forceinline__ long long partial_slot(const OwnArgs& args, int token, int head) {
    return ((long long)token * args.headCount + head - args.firstHead) * args.selectedCount;
  }
};

/** Merges the partial results of the chosen blocks. Weights afterwards refer to 2^reference instead of the maximum. */
template <typename P>
__device__ __forceinline__ void merge(float (&out)[P::D / 2], Rows& rows, float (&reference)[2],
                                      PartialWeights (&partials)[2], const OwnArgs& args, const Work& work,
                                      const Consumer<P>& consumer) {
  const int lane = consumer.lane;
  float weight[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float top = -infinity();
#pragma unroll
    for (int i = 0; i < PartialWeights::PER_LANE; i++) {
      if (partials[half].selected[i] < 0) partials[half].lse[i] = -infinity();
      top = fmaxf(top, partials[half].lse[i]);
    }
    top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
    top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
    top = fmaxf(top, rows.most[half] * args.scale);
    reference[half] = top == -infinity() ? 0.0f : top;
    weight[half] = fast_exp2(fmaf(rows.most[half], args.scale, -reference[half]));
    rows.sum[half] *= weight[half];
  }
  scale_rows(out, weight);
#pragma unroll
  for (int i = 0; i < PartialWeights::PER_LANE; i++) {
    if (4 * i >= args.selectedCount) break;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int rank = 4 * i + j;
      Packed packed[2][P::D / 32];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float lse = __shfl_sync(ALL_LANES, partials[half].lse[i], (lane & ~3) + j);
        weight[half] = fast_exp2(lse - reference[half]);
        rows.sum[half] += weight[half];
        const long long slot = PartialWeights::partial_slot(args, work.first + consumer.row(half), work.head) + rank;
        const bf16_bits* from = args.partial_TPSD + slot * P::D;
#pragma unroll
        for (int n = 0; n < P::D / 32; n++) {
          packed[half][n] =
              lse > -infinity() ? load_packed(from + partial_chunk(n, lane)) : Packed{{0u, 0u, 0u, 0u}};
        }
      }
#pragma unroll
      for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int n = 0; n < P::D / 32; n++) {
#pragma unroll
          for (int m = 0; m < 4; m++) {
            const int at = 4 * (4 * n + m) + 2 * half;
            out[at] = fmaf(weight[half], low_bf16(packed[half][n].pair[m]), out[at]);
            out[at + 1] = fmaf(weight[half], high_bf16(packed[half][n].pair[m]), out[at + 1]);
          }
        }
      }
    }
  }
}

template <typename P, bool MERGE>
__device__ __forceinline__ void attend_own(const Stage<P>& stage, const TensorMap& outMap, const OwnArgs& args) {
  Consumer<P> consumer(stage);
  const int lane = consumer.lane;
  consumer.take_turns();
  for (;; consumer.queries.step()) {
    barrier_wait(stage.queriesFull(consumer.queries.place), consumer.queries.parity);
    const Work work = *stage.work(consumer.queries.place);
    if (work.tiles == 0) break;
    Rows rows;
    PartialWeights partials[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int t = work.first + consumer.row(half);
      // Rows behind the last token are zeros, and so are keys there.
      rows.bounds[half] = {work.low, t};
      if (work.low != work.lastLow)
        rows.bounds[half].low = args.documents.own_start(min(t, args.tokens - 1), args.blockSize);
      if (MERGE) partials[half].load(args, t, work.head, lane);
    }
    float out[P::D / 2];
    consumer.attend(out, rows, work, work.first + 64 * consumer.group, args.scale);
    float reference[2] = {rows.most[0] * args.scale, rows.most[1] * args.scale}, inverse[2];
    if (MERGE) merge<P>(out, rows, reference, partials, args, work, consumer);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int t = work.first + consumer.row(half);
      inverse[half] = 1.0f / rows.sum[half];
      if ((lane & 3) == 0 && t < args.tokens)
        args.lse_TH[(long long)t * args.heads + work.head] = (reference[half] + log2f(rows.sum[half])) * LN2;
    }
    // Through the place of the queries, which nobody in this warpgroup needs any more.
    named_sync(1 + P::CONSUMERS + consumer.group, WARPGROUP);
    const unsigned staged = stage.queries(consumer.queries.place);
#pragma unroll
    for (int n = 0; n < P::D / 8; n++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        store_shared(staged + panel_offset(P::ROWS, consumer.row(half), 8 * n + 2 * (lane & 3)),
                     round_pair(out[4 * n + 2 * half] * inverse[half], out[4 * n + 2 * half + 1] * inverse[half]));
      }
    }
    fence_shared_for_async();
    __syncwarp();
    if (lane == 0) {
      const int first = 64 * consumer.group + 16 * consumer.warp;
#pragma unroll
      for (int panel = 0; panel < P::PANELS; panel++) {
        tma_store(outMap, staged + panel_offset(P::ROWS, first, panel * PANEL), panel * PANEL, work.head,
                  work.first + first);
      }
      bulk_commit();
      bulk_wait_read<0>();
      barrier_arrive(stage.queriesEmpty(consumer.queries.place));
    }
    __syncwarp();
  }
}

/** MERGE: there are partial results. */
template <typename P, bool MERGE>
__device__ __forceinline__ void forward_own(unsigned char* memory, const TensorMap& out, const TensorMap& q,
                                            const TensorMap& k, const TensorMap& v, const OwnArgs& args) {
  const Stage<P> stage = make_stage<P>(memory, 1);
  if (threadIdx.x < WARPGROUP) {
    registers_fewer<P::PRODUCER_REGISTERS>();
    load_own<P>(stage, q, k, v, args);
  } else {
    registers_more<P::CONSUMER_REGISTERS>();
    attend_own<P, MERGE>(stage, out, args);
  }
}

// --- kernels -----------------------------------------------------------------------------------------------------------

using Full64 = Plan<64, 128, 3, 2, 2>;
using Full128 = Plan<128, 128, 2, 2, 2>;
using Own64 = Plan<64, 128, 2, 2, 2>;
using Own128 = Plan<128, 128, 2, 2, 2>;
using Past64 = Plan<64, 128, 2, 2, 2>;
using Past128 = Plan<128, 128, 2, 2, 2>;
using Small64 = SmallPlan<64, 128, 3, 2, 2>;
using Small128 = SmallPlan<128, 128, 3, 2, 2>;

#define ATTENTION_FORWARD_PAST(NAME, PLAN, FORWARD)                                                                  \
  extern "C" __global__ void __launch_bounds__(PLAN::THREADS, 1) NAME(                                               \
      bf16_bits* partial_TPSD, float* partialLse_TPS, const bf16_bits* q_THD, const __grid_constant__ TensorMap k,   \
      const __grid_constant__ TensorMap v, const int* entries_HL, const Item* items_HI, const int* itemCounts_H,     \
      long long entriesPerHead, int itemsPerHead, int heads, int kvHeads, int selectedCount, int blockSize,          \
      int firstHead, int headCount, int run, float scale) {                                                          \
    extern __shared__ __align__(1024) unsigned char dynamic[];                                                       \
    FORWARD<PLAN>(                                                                                                   \
        dynamic, k, v,                                                                                               \
        {partial_TPSD, partialLse_TPS, q_THD, entries_HL, items_HI, itemCounts_H, entriesPerHead, itemsPerHead,      \
         heads, kvHeads, selectedCount, blockSize, firstHead, headCount, run, scale});                               \
  }

#define ATTENTION_FORWARD_OWN(NAME, PLAN, MERGE)                                                                     \
  extern "C" __global__ void __launch_bounds__(PLAN::THREADS, 1)                                                     \
      NAME(const __grid_constant__ TensorMap out, float* lse_TH, const __grid_constant__ TensorMap q,                \
           const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const int* selected_THS,        \
           const bf16_bits* partial_TPSD, const float* partialLse_TPS, const int* document_T, const int* offsets_M,  \
           int* taken, int tokens, int heads, int kvHeads, int selectedCount, int blockSize, int firstHead,          \
           int headCount, int together, float scale) {                                                               \
    extern __shared__ __align__(1024) unsigned char dynamic[];                                                       \
    forward_own<PLAN, MERGE>(                                                                                        \
        dynamic, out, q, k, v,                                                                                       \
        {lse_TH, selected_THS, partial_TPSD, partialLse_TPS, {document_T, offsets_M}, taken, tokens, heads, kvHeads, \
         selectedCount, blockSize, firstHead, headCount, together, scale});                                          \
  }

ATTENTION_FORWARD_PAST(hopper_forward_past_d64, Past64, forward_past)
ATTENTION_FORWARD_PAST(hopper_forward_past_d128, Past128, forward_past)
ATTENTION_FORWARD_PAST(hopper_forward_small_d64, Small64, forward_small)
ATTENTION_FORWARD_PAST(hopper_forward_small_d128, Small128, forward_small)
ATTENTION_FORWARD_OWN(hopper_forward_full_d64, Full64, false)
ATTENTION_FORWARD_OWN(hopper_forward_full_d128, Full128, false)
ATTENTION_FORWARD_OWN(hopper_forward_own_d64, Own64, true)
ATTENTION_FORWARD_OWN(hopper_forward_own_d128, Own128, true)
