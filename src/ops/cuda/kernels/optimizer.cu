// Gradient norm and AdamW over flat parameters. Memory-bound: 4 and 30 bytes per parameter. All pointers are aligned to
// 16 bytes; the parameters behind the last whole vector are handled one by one.
#include "common/vector.cuh"

namespace {

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / WARP;
constexpr int UNROLL = 4;

/** Indices into hyper, as in contract.ts. */
enum Hyper { LEARNING_RATE, BETA1, BETA2, EPSILON, WEIGHT_DECAY, BIAS1, BIAS2, MAX_NORM };

__device__ __forceinline__ double square(float x) { return double(x) * double(x); }

__device__ __forceinline__ double squares(const float4& x) {
  return (square(x.x) + square(x.y)) + (square(x.z) + square(x.w));
}

}  // namespace

/** sums[block]: the squares of the block's share of the gradients, in f64: no finite gradient overflows. */
extern "C" __global__ void __launch_bounds__(THREADS)
    grad_squares(double* sums /* [blocks] */, const float* __restrict__ grads_P, long long P) {
  __shared__ double parts[WARPS];
  const float4* vectors = reinterpret_cast<const float4*>(grads_P);
  const long long count = P / 4;
  const long long stride = (long long)gridDim.x * THREADS;
  double sum = 0.0;
  long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  const long long tail = 4 * count + i;
  if (tail < P) sum = square(grads_P[tail]);
  for (; i + (UNROLL - 1) * stride < count; i += UNROLL * stride) {
    float4 x[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) x[u] = vectors[i + u * stride];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) sum += squares(x[u]);
  }
  for (; i < count; i += stride) sum += squares(vectors[i]);
  sum = block_sum<WARPS>(sum, parts);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/** norm = sqrt(sum of sums). One block. */
extern "C" __global__ void __launch_bounds__(THREADS) grad_norm(float* norm_1, const double* sums, int count) {
  __shared__ double parts[WARPS];
  double sum = 0.0;
  for (int i = threadIdx.x; i < count; i += THREADS) sum += sums[i];
  sum = block_sum<WARPS>(sum, parts);
  if (threadIdx.x == 0) norm_1[0] = float(sqrt(sum));
}

namespace {

struct Step {
  float learningRate, beta1, beta2, epsilon, decay, perBias1, perBias2, clip;

  /** Updates m and v and returns the new master weight. */
  __device__ __forceinline__ float operator()(float master, float grad, float& m, float& v, bool decays) const {
    const float g = clip * grad;
    m = fmaf(beta1, m, (1.0f - beta1) * g);
    v = fmaf(beta2, v, (1.0f - beta2) * g * g);
    const float step = m * perBias1 / (sqrtf(v * perBias2) + epsilon);
    return master - learningRate * fmaf(decays ? decay : 0.0f, master, step);
  }
};

}  // namespace

/**
 * Everything stays as it is when the norm is not finite. weights_P: the new master weights, rounded to bf16. A thread
 * takes 8 neighbouring parameters; the grid covers ceil(P / 8) threads.
 */
extern "C" __global__ void __launch_bounds__(THREADS)
    adamw(float* __restrict__ master_P, bf16_bits* __restrict__ weights_P, const float* __restrict__ grads_P,
          float* __restrict__ m_P, float* __restrict__ v_P, const float* __restrict__ hyper,
          const float* __restrict__ norm_1, long long P, long long decayed) {
  const long long p = ((long long)blockIdx.x * THREADS + threadIdx.x) * PER_VECTOR;
  const float norm = norm_1[0];
  if (p >= P || !isfinite(norm)) return;
  const float maxNorm = hyper[MAX_NORM];
  const Step step = {hyper[LEARNING_RATE],
                     hyper[BETA1],
                     hyper[BETA2],
                     hyper[EPSILON],
                     hyper[WEIGHT_DECAY],
                     1.0f / hyper[BIAS1],
                     1.0f / hyper[BIAS2],
                     maxNorm > 0.0f && norm > maxNorm ? maxNorm / norm : 1.0f};
  if (p + PER_VECTOR > P) {
    for (long long i = p; i < P; i++) {
      const float master = step(master_P[i], grads_P[i], m_P[i], v_P[i], i < decayed);
      master_P[i] = master;
      weights_P[i] = round_bf16(master);
    }
    return;
  }
  union Eight {
    float4 vector[2];
    float value[PER_VECTOR];
  };
  Eight master, grad, m, v;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    master.vector[half] = reinterpret_cast<const float4*>(master_P + p)[half];
    grad.vector[half] = reinterpret_cast<const float4*>(grads_P + p)[half];
    m.vector[half] = reinterpret_cast<const float4*>(m_P + p)[half];
    v.vector[half] = reinterpret_cast<const float4*>(v_P + p)[half];
  }
#pragma unroll
  for (int i = 0; i < PER_VECTOR; i++) {
    master.value[i] = step(master.value[i], grad.value[i], m.value[i], v.value[i], p + i < decayed);
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    reinterpret_cast<float4*>(master_P + p)[half] = master.vector[half];
    reinterpret_cast<float4*>(m_P + p)[half] = m.vector[half];
    reinterpret_cast<float4*>(v_P + p)[half] = v.vector[half];
  }
  store_packed(weights_P + p, round_packed(master.value));
}
