/** Embedding, norms, key convolution, RoPE and SwiGLU: not built yet. */
import type { Backend } from "../contract.ts";
import type { Context } from "./context.ts";

export type DenseOperations = Pick<
  Backend,
  | "embeddingForward"
  | "embeddingBackward"
  | "rmsNormForward"
  | "addRmsNormForward"
  | "rmsNormBackward"
  | "keyConvForward"
  | "keyConvBackward"
  | "splitRopeForward"
  | "splitRopeBackward"
  | "swigluForward"
  | "swigluBackward"
>;

export function denseOperations(_context: Context): DenseOperations {
  const missing = (): never => {
    throw new Error("not built");
  };
  return {
    embeddingForward: missing,
    embeddingBackward: missing,
    rmsNormForward: missing,
    addRmsNormForward: missing,
    rmsNormBackward: missing,
    keyConvForward: missing,
    keyConvBackward: missing,
    splitRopeForward: missing,
    splitRopeBackward: missing,
    swigluForward: missing,
    swigluBackward: missing,
  };
}
