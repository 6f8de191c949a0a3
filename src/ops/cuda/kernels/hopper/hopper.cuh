// Hopper's own instructions (sm_90a): warpgroup products (wgmma), bulk copies (TMA) and the barriers they complete on.
//
// A warpgroup is 4 consecutive warps that start at a multiple of 4; it multiplies a left operand of 64 rows by a right
// one of N columns, 16 summed indices at a time. Thread t of it (warp w = t / 32, lane l) holds of a [64 x N]
// accumulator, for each j < N / 8:
//   d[4 j], d[4 j + 1]      row 16 w + l / 4,     columns 8 j + 2 (l % 4), + 1
//   d[4 j + 2], d[4 j + 3]  row 16 w + l / 4 + 8, the same columns
// A left operand [64 x 16] in registers is laid out as four 8 x 8 parts in the same way (as for mma.sync), so
// neighbouring accumulators, rounded to bf16, are the left operand of a following product.
//
// Tiles in shared memory are made of panels: `rows` rows of 64 bf16 values (128 bytes), panel after panel along the
// columns, each panel at a multiple of 1024 bytes. The 16-byte chunk i of row r lies at place i ^ (r % 8): what TMA's
// 128-byte swizzle writes, and free of bank conflicts. `offset(row, column)` finds a value by hand.
// An operand is described by where it starts:
//   by_rows     its rows are the rows (left) or columns (right) of the product, summed along the panel (K-major)
//   by_columns  its rows are the summed index, the panel's columns are the product's (MN-major, "transposed")
#pragma once
#include "../common/mma.cuh"

constexpr int WARPGROUP = 128;
constexpr int PANEL = 64;

/** CUtensorMap (cuda.h). A kernel takes it as `const __grid_constant__ TensorMap`. */
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

/** Byte offset of (row, column) in a tile of `rows` rows a panel. */
__device__ __forceinline__ unsigned panel_offset(int rows, int row, int column) {
  return unsigned(column / PANEL * rows * 128 + row * 128 + (((column % PANEL / 8) ^ (row & 7)) << 4) + (column & 7) * 2);
}

// --- barriers in shared memory -----------------------------------------------------------------------------------------

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/** After the inits, by the thread that made them; then a __syncthreads(). */
__device__ __forceinline__ void barrier_inits_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/** Arrives, and has the phase wait for `bytes` of bulk copies too. */
__device__ __forceinline__ void barrier_arrive_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/** Arrives once this thread's cp.async copies so far have landed; counts as one of the barrier's arrivals. */
__device__ __forceinline__ void barrier_arrive_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ bool barrier_try(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/** Waits for the end of the phase of this parity; a new barrier is in phase 0, so waiting for parity 1 passes. */
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
#ifdef MOBALAB_TRAP
  // An illegal address ends the kernel. The compiler takes printf and trap for calls, and then does products one by one.
  for (int tries = 0; !barrier_try(barrier, parity); tries++) {
    if (tries > 1 << 22) asm volatile("st.global.u32 [%0], %1;" ::"l"(16ull), "r"(0) : "memory");
  }
#else
  while (!barrier_try(barrier, parity)) {
  }
#endif
}

/** Barrier `id` (1 to 15; 0 is __syncthreads) among `threads` threads: wait for all, or only be counted. */
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/** Makes this thread's ordinary writes to shared memory visible to wgmma and TMA; a barrier must follow. */
__device__ __forceinline__ void fence_shared_for_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- registers ---------------------------------------------------------------------------------------------------------

/** Every warp of a warpgroup, in a kernel with __launch_bounds__(threads, 1). N: a multiple of 8. */
template <int N>
__device__ __forceinline__ void registers_more() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void registers_fewer() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// --- bulk copies (one thread starts them) --------------------------------------------------------------------------------

/** The box at (x, y, z) of a tensor, innermost index first; outside the tensor zeros. Counts as bytes on `barrier`. */
__device__ __forceinline__ void tma_load(unsigned to, const TensorMap& map, unsigned barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

/** From shared memory; what is outside the tensor is left out. */
__device__ __forceinline__ void tma_store(const TensorMap& map, unsigned from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map), "r"(from),
               "r"(x), "r"(y), "r"(z)
               : "memory");
}

/** `bytes` (a multiple of 16) in a row, both ends 16-byte aligned. */
__device__ __forceinline__ void bulk_load(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void bulk_store(void* to, unsigned from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
               "r"(from), "r"(bytes)
               : "memory");
}

/** to[i] += from[i] in f32, in no fixed order among blocks. */
__device__ __forceinline__ void bulk_add(float* to, unsigned from, unsigned bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(to)),
               "r"(from), "r"(bytes)
               : "memory");
}

/** Closes the group of this thread's bulk stores since the last one. */
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/** Waits until at most LEFT groups of this thread still read shared memory. */
template <int LEFT>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

/** Waits until at most LEFT groups of this thread are unfinished. */
template <int LEFT>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(LEFT) : "memory");
}

// --- products ------------------------------------------------------------------------------------------------------------

/** Before the first product after registers of accumulators or left operands were written. */
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/** Closes the group of products since the last one. */
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/** Waits until at most LEFT groups are unfinished. Accumulators may not be touched before; name them in `keep`. */
template <int LEFT>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/** Keeps the compiler from moving uses of `d` across this point. */
template <int N>
__device__ __forceinline__ void keep(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/** Describes an operand in 128-byte-swizzled panels; addresses below 256 KB, in units of 16 bytes. */
__device__ __forceinline__ unsigned long long describe(unsigned address, unsigned leading, unsigned stride) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)((leading & 0x3ffff) >> 4) << 16 |
         (unsigned long long)((stride & 0x3ffff) >> 4) << 32 | 1ull << 62;
}

/**
 * An operand whose rows are rows or columns of the product. `address`: row 0 (a multiple of 8 rows from the panel's
 * start) of the panel that holds the 16 summed columns, plus 2 bytes for each column into the panel (multiples of 16).
 */
__device__ __forceinline__ unsigned long long by_rows(unsigned address) { return describe(address, 16, 1024); }

/**
 * An operand whose rows are the summed index. `address`: the first of the 16 summed rows in the first panel of the
 * product's columns; further columns lie in the next panels, `panelBytes` on. Adjacent groups of 8 rows: 1024 bytes.
 */
__device__ __forceinline__ unsigned long long by_columns(unsigned address, unsigned panelBytes) {
  return describe(address, panelBytes, 1024);
}

/** Whether an operand's rows are the summed index. */
enum class Along { rows = 0, columns = 1 };

// Of accumulators d: their places in an instruction's text, and their operands.
#define PLACES_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_64 \
  PLACES_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HELD_8(i)                                                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define HELD_32(i) HELD_8(i), HELD_8(i + 8), HELD_8(i + 16), HELD_8(i + 24)
#define HELD_64 HELD_32(0), HELD_32(32)

/** d = left right, or d += left right; [64 x N], both operands in shared memory. `ADD` and the like: operands' places. */
#define PRODUCT_OF_SHARED(N, PLACES, HELD, LEFT_AT, RIGHT_AT, ADD_AT, LEFT_ALONG_AT, RIGHT_ALONG_AT)                  \
  template <Along LEFT, Along RIGHT>                                                                                 \
  __device__ __forceinline__ void product(float (&d)[N / 2], unsigned long long left, unsigned long long right,      \
                                          bool add) {                                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD_AT ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N              \
                 "k16.f32.bf16.bf16 {" PLACES "}, " LEFT_AT ", " RIGHT_AT ", p, 1, 1, " LEFT_ALONG_AT                \
                 ", " RIGHT_ALONG_AT ";\n}"                                                                          \
                 : HELD                                                                                              \
                 : "l"(left), "l"(right), "r"(int(add)), "n"(int(LEFT)), "n"(int(RIGHT)));                           \
  }

/** The same with the left operand in registers. */
#define PRODUCT_OF_REGISTERS(N, PLACES, HELD, LEFT_AT, RIGHT_AT, ADD_AT, RIGHT_ALONG_AT)                             \
  template <Along RIGHT>                                                                                             \
  __device__ __forceinline__ void product(float (&d)[N / 2], const unsigned (&left)[4], unsigned long long right,    \
                                          bool add) {                                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD_AT ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N              \
                 "k16.f32.bf16.bf16 {" PLACES "}, {" LEFT_AT "}, " RIGHT_AT ", p, 1, 1, " RIGHT_ALONG_AT ";\n}"      \
                 : HELD                                                                                              \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(int(add)),                \
                   "n"(int(RIGHT)));                                                                                 \
  }

PRODUCT_OF_SHARED(64, PLACES_32, HELD_32(0), "%32", "%33", "%34", "%35", "%36")
PRODUCT_OF_SHARED(128, PLACES_64, HELD_64, "%64", "%65", "%66", "%67", "%68")
PRODUCT_OF_REGISTERS(64, PLACES_32, HELD_32(0), "%32, %33, %34, %35", "%36", "%37", "%38")
PRODUCT_OF_REGISTERS(128, PLACES_64, HELD_64, "%64, %65, %66, %67", "%68", "%69", "%70")
