/**
 * The tensors of every operation of the contract: names, roles and shapes, as a table for argument checks. The name's
 * suffix is the shape: `w_NK` is [N, K], `gateUp_T2F` is [T, 2 F], `scale_1` is [1].
 */
import type { Role, Tensor } from "./contract.ts";

/** Each operation's tensors and their roles, inputs first. */
export const ARGUMENTS = {
  embeddingForward: { tokens_T: "index", table_VC: "weight", out_TC: "activation" },
  embeddingBackward: { tokens_T: "index", dOut_TC: "activation", dTable_VC: "float" },
  rmsNormForward: { x_TC: "activation", gain_C: "weight", out_TC: "activation", rstd_T: "float" },
  addRmsNormForward: {
    x_TC: "activation",
    delta_TC: "activation",
    gain_C: "weight",
    sum_TC: "activation",
    out_TC: "activation",
    rstd_T: "float",
  },
  rmsNormBackward: {
    x_TC: "activation",
    gain_C: "weight",
    rstd_T: "float",
    dOut_TC: "activation",
    dX_TC: "activation",
    dGain_C: "float",
  },
  linearForward: { x_TK: "activation", w_NK: "weight", out_TN: "activation" },
  linearBackward: {
    x_TK: "activation",
    w_NK: "weight",
    dOut_TN: "activation",
    dX_TK: "activation",
    dW_NK: "float",
  },
  keyConvForward: { w_WGD: "weight", qkv_TE: "activation", keys_TGD: "activation" },
  keyConvBackward: { w_WGD: "weight", keys_TGD: "activation", dQkv_TE: "activation", dW_WGD: "float" },
  splitRopeForward: { q_THD: "activation", k_TGD: "activation", v_TGD: "activation", qkv_TE: "activation" },
  splitRopeBackward: {
    dQ_THD: "activation",
    dK_TGD: "activation",
    dV_TGD: "activation",
    dQkv_TE: "activation",
  },
  route: { q_THD: "activation", k_TGD: "activation" },
  attentionForward: { q_THD: "activation", k_TGD: "activation", v_TGD: "activation", out_THD: "activation" },
  attentionBackward: {
    q_THD: "activation",
    k_TGD: "activation",
    v_TGD: "activation",
    out_THD: "activation",
    dOut_THD: "activation",
    dQ_THD: "activation",
    dK_TGD: "activation",
    dV_TGD: "activation",
  },
  attentionDecode: {
    q_HD: "activation",
    kCache_TGD: "activation",
    vCache_TGD: "activation",
    out_HD: "activation",
  },
  swigluForward: { out_TF: "activation", gateUp_T2F: "activation" },
  swigluBackward: { dOut_TF: "activation", gateUp_T2F: "activation", dGateUp_T2F: "activation" },
  lossForward: { targets_T: "index", x_TC: "activation", w_VC: "weight", losses_T: "float" },
  lossForwardBackward: {
    targets_T: "index",
    x_TC: "activation",
    w_VC: "weight",
    losses_T: "float",
    dX_TC: "activation",
    dW_VC: "float",
    scale_1: "float",
  },
  gradNorm: { grads_P: "float", norm_1: "float" },
  adamw: {
    master_P: "float",
    weights_P: "weight",
    grads_P: "float",
    m_P: "float",
    v_P: "float",
    norm_1: "float",
  },
} as const satisfies Record<string, Record<string, Role>>;

export type Operation = keyof typeof ARGUMENTS;
export type Arguments<O extends Operation> = {
  readonly [A in keyof (typeof ARGUMENTS)[O]]: Tensor | (A extends "dX_TK" ? null : never);
};
/** One argument; `{ factor, letter }` per dimension: "2F" is two times F, "1" is one (no letter). */
export interface Pattern {
  readonly name: string;
  readonly role: Role;
  readonly dims: readonly { readonly factor: number; readonly letter: string }[];
}

export const PATTERNS = new Map<string, Pattern[]>(
  Object.entries(ARGUMENTS).map(([op, roles]) => [
    op,
    Object.entries(roles).map(([name, role]) => ({
      name,
      role,
      dims: [...name.slice(name.lastIndexOf("_") + 1).matchAll(/(\d*)([A-Z]?)/g)]
        .filter((match) => match[0] !== "")
        .map((match) => ({ factor: Number(match[1] || 1), letter: match[2] })),
    })),
  ]),
);
