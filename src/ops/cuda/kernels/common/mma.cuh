// Tensor-core products of bf16 with f32 sums (mma.sync m16n8k16) and the asynchronous copies that feed them
// (cp.async), for compute capability 8.0 and newer. Addresses of shared memory are 32-bit (`shared_address`).
//
// How a warp holds its parts, with r = lane / 4 and c = 2 (lane % 4):
//   accumulator [16 x 8]   (r, c) (r, c + 1) (r + 8, c) (r + 8, c + 1)
//   left operand [16 x 16] pairs (r, c) (r + 8, c) (r, c + 8) (r + 8, c + 8)
// so two neighbouring accumulators, rounded to bf16, are the left operand of a following product.
#pragma once
#include "../common/vector.cuh"

__device__ __forceinline__ unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

/** sum += left right; `right0`, `right1`: rows 0-7 and 8-15 of a [16 x 8] operand. */
__device__ __forceinline__ void mma(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

/** Four 8 x 8 matrices; lane i names the row i % 8 of matrix i / 8. */
__device__ __forceinline__ void load_matrices(unsigned (&out)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&out)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

/** 16 bytes to shared memory, past L1; zeros when not `there` (then `from` is not read). */
__device__ __forceinline__ void copy_async_16(unsigned to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(there ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void copy_async_8(unsigned to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(there ? 8 : 0)
               : "memory");
}

/** Closes the group of this thread's copies since the last one. */
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/** Waits until at most `LEFT` groups of this thread are unfinished; a barrier shows the data to other threads. */
template <int LEFT>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// --- shared memory by address ----------------------------------------------------------------------------------------

__device__ __forceinline__ void store_shared(unsigned to, unsigned x) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}

__device__ __forceinline__ void store_shared(unsigned to, int2 x) {
  asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(to), "r"(x.x), "r"(x.y) : "memory");
}

__device__ __forceinline__ Packed load_shared(unsigned from) {
  Packed v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.pair[0]), "=r"(v.pair[1]), "=r"(v.pair[2]), "=r"(v.pair[3])
               : "r"(from)
               : "memory");
  return v;
}
