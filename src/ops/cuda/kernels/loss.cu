// Cross-entropy in f32: losses of rows of f32 logits (evaluation), or losses of rows of bf16 logits that are overwritten by
// their gradient (training).
//
// A block per row, V a multiple of 8. Training: up to V = 32768 a row stays in the block's registers between the log-sum-exp and
// the gradient (loss_gradient_4 and _8: that many vectors of 8 logits per thread), so it is read and written once; longer
// rows are read twice (loss_gradient_long), the second time mostly from the L2 cache.
#include "common/vector.cuh"

namespace {

constexpr int MOST_THREADS = 1024;
constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;
/** Below every logit; finite even times log2 e, so that a thread without logits adds 0 and no NaN. */
constexpr float LOWEST = -1.0e38f;
constexpr unsigned MINUS_INFINITY = 0xff80ff80u;

/** The larger of each half; NaN only when both are. */
__device__ __forceinline__ unsigned larger_pair(unsigned a, unsigned b) {
  unsigned larger;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}

/** The sum of 2^((x - largest) log2 e) over the logits seen so far. */
struct SoftSum {
  float largest = LOWEST;
  float sum = 0.0f;

  /** Adds some vectors at once: one change of the largest for all. */
  template <int VECTORS>
  __device__ __forceinline__ void add(const Packed (&row)[VECTORS]) {
    unsigned pair = row[0].pair[0];
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
#pragma unroll
      for (int i = 0; i < 4; i++) pair = larger_pair(pair, row[v].pair[i]);
    }
    const float above = fmaxf(largest, fmaxf(low_bf16(pair), high_bf16(pair)));
    sum *= fast_exp2((largest - above) * LOG2E);
    largest = above;
    const float shift = -above * LOG2E;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        sum += fast_exp2(fmaf(low_bf16(row[v].pair[i]), LOG2E, shift)) +
               fast_exp2(fmaf(high_bf16(row[v].pair[i]), LOG2E, shift));
      }
    }
  }

  __device__ __forceinline__ void add(const float4& x) {
    const float above = fmaxf(fmaxf(largest, fmaxf(x.x, x.y)), fmaxf(x.z, x.w));
    sum *= fast_exp2((largest - above) * LOG2E);
    largest = above;
    const float shift = -above * LOG2E;
    sum += (fast_exp2(fmaf(x.x, LOG2E, shift)) + fast_exp2(fmaf(x.y, LOG2E, shift))) +
           (fast_exp2(fmaf(x.z, LOG2E, shift)) + fast_exp2(fmaf(x.w, LOG2E, shift)));
  }

  /** The log-sum-exp over the block in nats, for every thread. */
  __device__ __forceinline__ float log_sum_exp(float2 (&parts)[WARP]) {
    reduce();
    const int warps = blockDim.x / WARP;
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = make_float2(largest, sum);
    __syncthreads();
    const int lane = threadIdx.x % WARP;
    const float2 part = lane < warps ? parts[lane] : make_float2(LOWEST, 0.0f);
    largest = part.x;
    sum = part.y;
    reduce();
    return fmaf(log2f(sum), LN2, largest);
  }

 private:
  __device__ __forceinline__ void reduce() {
    const float above = warp_max(largest);
    sum = warp_sum(sum * fast_exp2((largest - above) * LOG2E));
    largest = above;
  }
};

__device__ __forceinline__ Packed load_or(const bf16_bits* row, int v, int V) {
  const unsigned none = MINUS_INFINITY;
  return v < V ? load_packed(row + v) : Packed{{none, none, none, none}};
}

/** scale times the softmax of 8 logits. `shift` is -lse log2 e. */
__device__ __forceinline__ Packed scaled_softmax(const Packed& logits, float shift, float scale) {
  float x[PER_VECTOR];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    // Not by a shift as in the sum, or the compiler would keep the sum's widened values: too many registers.
    x[2 * i] = __uint_as_float(__byte_perm(logits.pair[i], 0, 0x1044));
    x[2 * i + 1] = __uint_as_float(__byte_perm(logits.pair[i], 0, 0x3244));
  }
#pragma unroll
  for (int i = 0; i < PER_VECTOR; i++) x[i] = fast_exp2(fmaf(x[i], LOG2E, shift)) * scale;
  return round_packed(x);
}

/** Nothing to learn: loss 0, gradient 0. */
__device__ __forceinline__ void skip_row(float* loss, bf16_bits* row, int V) {
  if (threadIdx.x == 0) *loss = 0.0f;
  for (int v = threadIdx.x * PER_VECTOR; v < V; v += blockDim.x * PER_VECTOR) store_packed(row + v, Packed{});
}

/** What the thread whose vector holds the target knows of it. */
struct Target {
  bool mine;
  int target;
  /** NaN when the target is out of range, so that the loss shows it. */
  float logit;

  __device__ __forceinline__ Target(const bf16_bits* row, int target, int V)
      : mine(target / PER_VECTOR % blockDim.x == threadIdx.x), target(target), logit(__uint_as_float(0x7fc00000u)) {
    if (mine && target < V) logit = widen(row[target]);
  }

  __device__ __forceinline__ void write_loss(float* loss, float lse) const {
    if (mine) *loss = lse - logit;
  }

  /** scale (softmax - 1) over what the thread itself has just written. */
  __device__ __forceinline__ void write_gradient(bf16_bits* row, float shift, float scale, int V) const {
    if (mine && target < V) row[target] = round_bf16((fast_exp2(fmaf(logit, LOG2E, shift)) - 1.0f) * scale);
  }
};

template <int VECTORS>
__device__ __forceinline__ void loss_gradient(float* losses_T, bf16_bits* logits_TV, const int* targets_T,
                                              const float* scale_1, int V) {
  __shared__ float2 parts[WARP];
  bf16_bits* row = logits_TV + (long long)blockIdx.x * V;
  if (targets_T[blockIdx.x] < 0) return skip_row(losses_T + blockIdx.x, row, V);
  Packed logits[VECTORS];
#pragma unroll
  for (int u = 0; u < VECTORS; u++) logits[u] = load_or(row, (u * blockDim.x + threadIdx.x) * PER_VECTOR, V);
  const Target target(row, targets_T[blockIdx.x], V);
  SoftSum soft;
  soft.add(logits);
  const float lse = soft.log_sum_exp(parts);
  target.write_loss(losses_T + blockIdx.x, lse);
  const float shift = -lse * LOG2E;
  const float scale = scale_1[0];
#pragma unroll
  for (int u = 0; u < VECTORS; u++) {
    const int v = (u * blockDim.x + threadIdx.x) * PER_VECTOR;
    if (v < V) store_packed(row + v, scaled_softmax(logits[u], shift, scale));
  }
  target.write_gradient(row, shift, scale, V);
}

__device__ __forceinline__ void loss_gradient_of_long(float* losses_T, bf16_bits* logits_TV, const int* targets_T,
                                                      const float* scale_1, int V) {
  constexpr int IN_FLIGHT = 4;
  __shared__ float2 parts[WARP];
  bf16_bits* row = logits_TV + (long long)blockIdx.x * V;
  if (targets_T[blockIdx.x] < 0) return skip_row(losses_T + blockIdx.x, row, V);
  const Target target(row, targets_T[blockIdx.x], V);
  SoftSum soft;
  for (int first = threadIdx.x * PER_VECTOR; first < V; first += IN_FLIGHT * blockDim.x * PER_VECTOR) {
    Packed logits[IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) logits[u] = load_or(row, first + u * blockDim.x * PER_VECTOR, V);
    soft.add(logits);
  }
  const float lse = soft.log_sum_exp(parts);
  target.write_loss(losses_T + blockIdx.x, lse);
  const float shift = -lse * LOG2E;
  const float scale = scale_1[0];
  for (int first = threadIdx.x * PER_VECTOR; first < V; first += IN_FLIGHT * blockDim.x * PER_VECTOR) {
    Packed logits[IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) logits[u] = load_or(row, first + u * blockDim.x * PER_VECTOR, V);
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      const int v = first + u * blockDim.x * PER_VECTOR;
      if (v < V) store_packed(row + v, scaled_softmax(logits[u], shift, scale));
    }
  }
  target.write_gradient(row, shift, scale, V);
}

}  // namespace

// losses_T, targets_T: those of the rows at hand. -1 is no target. A block per row of logits_TV.
#define LOSS(NAME, BODY, THREADS, BLOCKS)                                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                      \
      NAME(float* losses_T, bf16_bits* logits_TV /* in place */, const int* targets_T, const float* scale_1, int V) { \
    BODY(losses_T, logits_TV, targets_T, scale_1, V);                                                                \
  }

LOSS(loss_gradient_4, loss_gradient<4>, 256, 4)
LOSS(loss_gradient_8, loss_gradient<8>, 512, 2)
LOSS(loss_gradient_long, loss_gradient_of_long, MOST_THREADS, 1)

/** Losses alone, of f32 logits: what is measured is not rounded. */
extern "C" __global__ void __launch_bounds__(MOST_THREADS)
    loss_rows(float* losses_T, const float* __restrict__ logits_TV, const int* targets_T, int V) {
  __shared__ float2 parts[WARP];
  const float* row = logits_TV + (long long)blockIdx.x * V;
  const int target = targets_T[blockIdx.x];
  if (target < 0) {
    if (threadIdx.x == 0) losses_T[blockIdx.x] = 0.0f;
    return;
  }
  SoftSum soft;
#pragma unroll 4
  for (int v = threadIdx.x * 4; v < V; v += blockDim.x * 4) soft.add(*reinterpret_cast<const float4*>(row + v));
  const float lse = soft.log_sum_exp(parts);
  if (threadIdx.x == 0) losses_T[blockIdx.x] = lse - (target < V ? row[target] : __uint_as_float(0x7fc00000u));
}

/** The sum of n values in f64: each thread adds its own in order, then the threads'. One block. */
extern "C" __global__ void __launch_bounds__(MOST_THREADS)
    loss_sum(double* sum_1, const float* __restrict__ losses_T, long long n) {
  __shared__ double parts[WARP];
  double sum = 0.0;
#pragma unroll 8
  for (long long t = threadIdx.x; t < n; t += MOST_THREADS) sum += losses_T[t];
  sum = block_sum<MOST_THREADS / WARP>(sum, parts);
  if (threadIdx.x == 0) sum_1[0] = sum;
}
