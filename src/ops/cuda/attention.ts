/** Attention: not built yet. */
import type { Backend } from "../contract.ts";
import type { Context } from "./context.ts";

export type AttentionOperations = Pick<
  Backend,
  | "attentionState"
  | "route"
  | "readRouting"
  | "writeRouting"
  | "attentionForward"
  | "attentionBackward"
  | "attentionDecode"
>;

export function attentionOperations(_context: Context): AttentionOperations {
  const missing = (): never => {
    throw new Error("not built");
  };
  return {
    attentionState: missing,
    route: missing,
    readRouting: missing,
    writeRouting: missing,
    attentionForward: missing,
    attentionBackward: missing,
    attentionDecode: missing,
  };
}
