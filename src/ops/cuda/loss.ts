/** Output matrix and cross-entropy: not built yet. */
import type { Backend } from "../contract.ts";
import type { Context } from "./context.ts";

export type LossOperations = Pick<Backend, "lossForward" | "lossForwardBackward">;

export function lossOperations(_context: Context): LossOperations {
  const missing = (): never => {
    throw new Error("not built");
  };
  return { lossForward: missing, lossForwardBackward: missing };
}
