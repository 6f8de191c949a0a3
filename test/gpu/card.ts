/** What the tests on the card share: opening it, or saying why they are skipped. */
import { cudaAvailable, cudaFacts } from "../../src/ops/cuda/index.ts";

/** Given to node:test: false, or why there is nothing to run on. */
export const skip: false | string = cudaAvailable()
  ? false
  : `no CUDA card: ${cudaFacts().missing[0] ?? "none found"}`;

/**
 * Tolerances of the shared suite on the card (relative, Euclidean). What is stored in bf16 carries its rounding;
 * f32 that comes from f32, or from exact products of bf16, has none; other f32 tensors were made from rounded ones.
 */
export function tolerance(name: string, dtype: string): number {
  // Of logits rounded to bf16, which random weights make large; dense.test.ts holds them to rounded logits, closely.
  if (name === "losses with gradient") return 6e-3;
  if (name.endsWith("of the loss")) return 0.15;
  if (dtype === "bf16") return 1e-2;
  const exact = ["master", "m", "v", "norm", "rstd", "dGain", "dTable", "lse"];
  return exact.includes(name) ? 1e-5 : 4e-3;
}

/** Head dimensions with kernels, block sizes (the first is used most), what matrix widths are rounded up to. */
export const shapes = { headDims: [64, 128], blockSizes: [64, 16, 128], widthMultiple: 8, largestTopK: 16 };

/** The kernels to test: those for all cards, and where the card is one, Hopper's own. */
export const kernelSets = [
  { kernels: "kernels of all cards", hopper: false },
  ...(cudaFacts().cards[0]?.capability === 90 ? [{ kernels: "Hopper's kernels", hopper: true }] : []),
];

/**
 * Whether a test is this process's: with SHARD=i/n in the environment every n-th one from the i-th on, else all. The
 * float64 reference takes most of the time and one core; processes share a card without trouble.
 */
export const mine = (() => {
  const [shard, shards] = (process.env.SHARD ?? "0/1").split("/").map(Number);
  let tests = 0;
  return () => tests++ % shards === shard;
})();
