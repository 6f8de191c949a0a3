/** Gradient norm and AdamW: not built yet. */
import type { Backend } from "../contract.ts";
import type { Context } from "./context.ts";

export type OptimizerOperations = Pick<Backend, "gradNorm" | "adamw">;

export function optimizerOperations(_context: Context): OptimizerOperations {
  const missing = (): never => {
    throw new Error("not built");
  };
  return { gradNorm: missing, adamw: missing };
}
