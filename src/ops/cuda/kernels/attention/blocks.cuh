// Documents and blocks as the attention kernels see them, and the lists that tell which queries chose a block.
//
// A token's own block is the one it lies in; blocks are counted from their document's first token. Only whole blocks
// can be chosen; they are numbered through the batch: whole block `b` of document `d` is first_M[d] + b.
// An entry of a list is 16 * token + rank, `rank` its place in the token's choice.
#pragma once

/** log2(e), and its inverse: softmax is computed with powers of two. */
constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;
constexpr int RANKS = 16;

/** By name: run-time compilation has no math.h. */
__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) < infinity(); }

struct Documents {
  /** i32 [T], each token's document; null: one document that starts at token 0. */
  const int* document_T;
  /** i32 [documents + 1] */
  const int* offsets_M;

  __device__ __forceinline__ int of(int token) const { return document_T ? document_T[token] : 0; }
  __device__ __forceinline__ int start(int document) const { return document_T ? offsets_M[document] : 0; }

  /** First token that `token` may attend to in its own block; in its document when blockSize is 0 (full attention). */
  __device__ __forceinline__ int own_start(int token, int blockSize) const {
    const int first = start(of(token));
    return blockSize == 0 ? first : token - (token - first) % blockSize;
  }
};

/** Keys low .. high (none when high < low) that a query may attend to. */
struct Bounds {
  int low, high;

  __device__ __forceinline__ bool has(int key) const { return key >= low && key <= high; }
};
