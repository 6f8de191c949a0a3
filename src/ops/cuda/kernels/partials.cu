// Sums of per-block partial results, in a fixed order: the second half of a gradient that many blocks contribute to.
#include "common/vector.cuh"

namespace {
constexpr int ROWS = 32;
}

/** out[c] += sum over p of partials[p][c]. Block [32, 32], a warp's lanes on neighbouring columns. */
extern "C" __global__ void __launch_bounds__(WARP* ROWS)
    add_partials(float* out /* [columns], += */, const float* partials /* [count, columns] */, int count, int columns) {
  __shared__ float sums[ROWS][WARP];
  const int c = blockIdx.x * WARP + threadIdx.x;
  float sum = 0.0f;
  if (c < columns) {
#pragma unroll 4
    for (int p = threadIdx.y; p < count; p += ROWS) sum += partials[(long long)p * columns + c];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= columns) return;
  sum = sums[0][threadIdx.x];
#pragma unroll
  for (int r = 1; r < ROWS; r++) sum += sums[r][threadIdx.x];
  out[c] += sum;
}
