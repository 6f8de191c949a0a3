/** The reference backend: every operation of the contract in plain float64 TypeScript. Slow, exact, easy to read. */
import type { Attention } from "../../attention/attention.ts";
import { earlierBlocks } from "../../attention/attention.ts";
import type { AttentionShape, AttentionState, Backend, Documents, Tensor } from "../contract.ts";
import * as check from "../validate.ts";
import * as attention from "./attention.ts";
import * as dense from "./dense.ts";
import * as keys from "./keys.ts";
import * as loss from "./loss.ts";
import { dataOf, ReferenceMemory, type ReferenceState, type ReferenceTensor } from "./memory.ts";
import * as routing from "./routing.ts";

export function createReferenceBackend(): Backend {
  return new ReferenceBackend();
}

const f64 = (tensor: Tensor) => dataOf(tensor) as Float64Array;
const i32 = (tensor: Tensor) => dataOf(tensor) as Int32Array;

class ReferenceBackend extends ReferenceMemory implements Backend {
  readonly name = "reference";
  readonly asynchronous = false;

  // --- embedding, RMSNorm, linear, SwiGLU ------------------------------------------------------------------------

  embeddingForward(out_TC: Tensor, table_VC: Tensor, tokens_T: Tensor): void {
    const { V, C } = this.check("embeddingForward", { out_TC, table_VC, tokens_T }, ["out_TC"]);
    check.checkTokens("embeddingForward", "tokens_T", i32(tokens_T), V, false);
    dense.embeddingForward(f64(out_TC), f64(table_VC), i32(tokens_T), C);
  }

  embeddingBackward(dTable_VC: Tensor, dOut_TC: Tensor, tokens_T: Tensor): void {
    const { V, C } = this.check("embeddingBackward", { dTable_VC, dOut_TC, tokens_T }, ["dTable_VC"]);
    check.checkTokens("embeddingBackward", "tokens_T", i32(tokens_T), V, false);
    dense.embeddingBackward(f64(dTable_VC), f64(dOut_TC), i32(tokens_T), C);
  }

  rmsNormForward(out_TC: Tensor, rstd_T: Tensor, x_TC: Tensor, gain_C: Tensor, eps: number): void {
    this.check("rmsNormForward", { out_TC, rstd_T, x_TC, gain_C }, ["out_TC", "rstd_T"]);
    check.checkPositive("rmsNormForward", "eps", eps);
    dense.rmsNormForward(f64(out_TC), f64(rstd_T), f64(x_TC), f64(gain_C), eps);
  }

  addRmsNormForward(
    sum_TC: Tensor,
    out_TC: Tensor,
    rstd_T: Tensor,
    x_TC: Tensor,
    delta_TC: Tensor,
    gain_C: Tensor,
    eps: number,
  ): void {
    const op = "addRmsNormForward";
    const tensors = { sum_TC, out_TC, rstd_T, x_TC, delta_TC, gain_C };
    this.check(op, tensors, ["sum_TC", "out_TC", "rstd_T"], {}, ["sum_TC=x_TC"]);
    check.checkPositive(op, "eps", eps);
    const sum = f64(sum_TC);
    const delta = f64(delta_TC);
    f64(x_TC).forEach((x, i) => {
      sum[i] = x + delta[i];
    });
    dense.rmsNormForward(f64(out_TC), f64(rstd_T), sum, f64(gain_C), eps);
  }

  rmsNormBackward(
    dX_TC: Tensor,
    dGain_C: Tensor,
    dOut_TC: Tensor,
    x_TC: Tensor,
    gain_C: Tensor,
    rstd_T: Tensor,
  ): void {
    this.check("rmsNormBackward", { dX_TC, dGain_C, dOut_TC, x_TC, gain_C, rstd_T }, ["dX_TC", "dGain_C"]);
    dense.rmsNormBackward(f64(dX_TC), f64(dGain_C), f64(dOut_TC), f64(x_TC), f64(gain_C), f64(rstd_T));
  }

  linearForward(out_TN: Tensor, x_TK: Tensor, w_NK: Tensor): void {
    const dims = this.check("linearForward", { out_TN, x_TK, w_NK }, ["out_TN"]);
    dense.linearForward(f64(out_TN), f64(x_TK), f64(w_NK), dims);
  }

  linearBackward(dX_TK: Tensor | null, dW_NK: Tensor, dOut_TN: Tensor, x_TK: Tensor, w_NK: Tensor): void {
    const dims = this.check("linearBackward", { dX_TK, dW_NK, dOut_TN, x_TK, w_NK }, ["dX_TK", "dW_NK"]);
    if (dX_TK) dense.linearBackwardInput(f64(dX_TK), f64(dOut_TN), f64(w_NK), dims);
    dense.linearBackwardWeight(f64(dW_NK), f64(dOut_TN), f64(x_TK), dims);
  }

  swigluForward(out_TF: Tensor, gateUp_T2F: Tensor): void {
    const { T, F } = this.check("swigluForward", { out_TF, gateUp_T2F }, ["out_TF"]);
    dense.swigluForward(f64(out_TF), f64(gateUp_T2F), T, F);
  }

  swigluBackward(dGateUp_T2F: Tensor, dOut_TF: Tensor, gateUp_T2F: Tensor): void {
    const { T, F } = this.check("swigluBackward", { dGateUp_T2F, dOut_TF, gateUp_T2F }, ["dGateUp_T2F"]);
    dense.swigluBackward(f64(dGateUp_T2F), f64(dOut_TF), f64(gateUp_T2F), T, F);
  }

  // --- key convolution, split and RoPE ---------------------------------------------------------------------------

  keyConvForward(
    qkv_TE: Tensor,
    keys_TGD: Tensor,
    w_WGD: Tensor,
    documents: Documents,
    kvHeads: number,
  ): void {
    const tensors = { qkv_TE, keys_TGD, w_WGD };
    const dims = check.checkKeyConv(this, "keyConvForward", tensors, documents, kvHeads);
    this.checkMemory("keyConvForward", tensors, ["qkv_TE", "keys_TGD"]);
    keys.keyConvForward(f64(qkv_TE), f64(keys_TGD), f64(w_WGD), documents.offsets, dims);
  }

  keyConvBackward(
    dQkv_TE: Tensor,
    dW_WGD: Tensor,
    keys_TGD: Tensor,
    w_WGD: Tensor,
    documents: Documents,
    kvHeads: number,
  ): void {
    const tensors = { dQkv_TE, dW_WGD, keys_TGD, w_WGD };
    const dims = check.checkKeyConv(this, "keyConvBackward", tensors, documents, kvHeads);
    this.checkMemory("keyConvBackward", tensors, ["dQkv_TE", "dW_WGD"]);
    const { offsets } = documents;
    keys.keyConvBackward(f64(dQkv_TE), f64(dW_WGD), f64(keys_TGD), f64(w_WGD), offsets, dims);
  }

  splitRopeForward(
    q_THD: Tensor,
    k_TGD: Tensor,
    v_TGD: Tensor,
    qkv_TE: Tensor,
    documents: Documents,
    theta: number,
    firstPosition = 0,
  ): void {
    const op = "splitRopeForward";
    const tensors = { q_THD, k_TGD, v_TGD, qkv_TE };
    const dims = check.checkSplitRope(this, op, tensors, documents, theta, firstPosition);
    this.checkMemory(op, tensors, ["q_THD", "k_TGD", "v_TGD"]);
    const { offsets } = documents;
    const [q, k, v, qkv] = [q_THD, k_TGD, v_TGD, qkv_TE].map(f64);
    keys.splitRopeForward(q, k, v, qkv, offsets, theta, firstPosition, dims);
  }

  splitRopeBackward(
    dQkv_TE: Tensor,
    dQ_THD: Tensor,
    dK_TGD: Tensor,
    dV_TGD: Tensor,
    documents: Documents,
    theta: number,
  ): void {
    const tensors = { dQkv_TE, dQ_THD, dK_TGD, dV_TGD };
    const dims = check.checkSplitRope(this, "splitRopeBackward", tensors, documents, theta);
    this.checkMemory("splitRopeBackward", tensors, ["dQkv_TE"]);
    const { offsets } = documents;
    keys.splitRopeBackward(f64(dQkv_TE), f64(dQ_THD), f64(dK_TGD), f64(dV_TGD), offsets, theta, dims);
  }

  // --- attention -------------------------------------------------------------------------------------------------

  attentionState(shape: AttentionShape): AttentionState {
    check.checkAttentionShape(shape);
    const { tokens, heads } = shape;
    const lse = this.tensor([tokens, heads], "float") as ReferenceTensor;
    const selected_THS = new Int32Array(tokens * heads * earlierBlocks(shape.attention)).fill(-1);
    this.bytes += selected_THS.byteLength;
    const state: ReferenceState = { shape: { ...shape }, lse, selected_THS };
    return state;
  }

  route(state: AttentionState, q_THD: Tensor, k_TGD: Tensor, documents: Documents): void {
    this.checkOpen();
    check.checkAttentionCall(this, "route", state, { q_THD, k_TGD }, documents);
    const { selected_THS, shape } = state as ReferenceState;
    routing.route(selected_THS, f64(q_THD), f64(k_TGD), documents.offsets, shape);
  }

  readRouting(state: AttentionState): Int32Array {
    this.checkOpen();
    return (state as ReferenceState).selected_THS.slice();
  }

  writeRouting(state: AttentionState, selected_THS: Int32Array, documents: Documents): void {
    this.checkOpen();
    check.checkRouting("writeRouting", state.shape, selected_THS, documents);
    (state as ReferenceState).selected_THS.set(selected_THS);
  }

  attentionForward(
    state: AttentionState,
    out_THD: Tensor,
    q_THD: Tensor,
    k_TGD: Tensor,
    v_TGD: Tensor,
    documents: Documents,
  ): void {
    const op = "attentionForward";
    const tensors = { out_THD, q_THD, k_TGD, v_TGD };
    const { shape, selected_THS, lse } = state as ReferenceState;
    check.checkAttentionCall(this, op, state, tensors, documents);
    check.checkRouting(op, shape, selected_THS, documents);
    this.checkMemory(op, tensors, ["out_THD"]);
    attention.attentionForward(
      shape,
      selected_THS,
      f64(lse),
      f64(out_THD),
      f64(q_THD),
      f64(k_TGD),
      f64(v_TGD),
      documents.offsets,
    );
  }

  attentionBackward(
    state: AttentionState,
    dQ_THD: Tensor,
    dK_TGD: Tensor,
    dV_TGD: Tensor,
    dOut_THD: Tensor,
    out_THD: Tensor,
    q_THD: Tensor,
    k_TGD: Tensor,
    v_TGD: Tensor,
    documents: Documents,
  ): void {
    const op = "attentionBackward";
    const tensors = { dQ_THD, dK_TGD, dV_TGD, dOut_THD, out_THD, q_THD, k_TGD, v_TGD };
    const { shape, selected_THS, lse } = state as ReferenceState;
    check.checkAttentionCall(this, op, state, tensors, documents);
    check.checkRouting(op, shape, selected_THS, documents);
    this.checkMemory(op, tensors, ["dQ_THD", "dK_TGD", "dV_TGD"]);
    attention.attentionBackward(
      shape,
      selected_THS,
      f64(lse),
      f64(dQ_THD),
      f64(dK_TGD),
      f64(dV_TGD),
      f64(dOut_THD),
      f64(out_THD),
      f64(q_THD),
      f64(k_TGD),
      f64(v_TGD),
      documents.offsets,
    );
  }

  attentionDecode(
    out_HD: Tensor,
    q_HD: Tensor,
    kCache_TGD: Tensor,
    vCache_TGD: Tensor,
    length: number,
    options: Attention,
  ): void {
    const tensors = { out_HD, q_HD, kCache_TGD, vCache_TGD };
    const dims = check.checkDecode(this, tensors, length, options);
    this.checkMemory("attentionDecode", tensors, ["out_HD"]);
    attention.attentionDecode(
      f64(out_HD),
      f64(q_HD),
      f64(kCache_TGD),
      f64(vCache_TGD),
      length,
      options,
      dims,
    );
  }

  // --- loss and optimizer ----------------------------------------------------------------------------------------

  lossForward(losses_T: Tensor, x_TC: Tensor, w_VC: Tensor, targets_T: Tensor): void {
    const { V, C } = this.check("lossForward", { losses_T, x_TC, w_VC, targets_T }, ["losses_T"]);
    check.checkTokens("lossForward", "targets_T", i32(targets_T), V, true);
    loss.lossForward(f64(losses_T), f64(x_TC), f64(w_VC), i32(targets_T), V, C);
  }

  lossForwardBackward(
    losses_T: Tensor,
    dX_TC: Tensor,
    dW_VC: Tensor,
    x_TC: Tensor,
    w_VC: Tensor,
    targets_T: Tensor,
    scale_1: Tensor,
  ): void {
    const op = "lossForwardBackward";
    const tensors = { losses_T, dX_TC, dW_VC, x_TC, w_VC, targets_T, scale_1 };
    const { V, C } = this.check(op, tensors, ["losses_T", "dX_TC", "dW_VC"]);
    check.checkTokens(op, "targets_T", i32(targets_T), V, true);
    loss.lossForwardBackward(
      f64(losses_T),
      f64(dX_TC),
      f64(dW_VC),
      f64(x_TC),
      f64(w_VC),
      i32(targets_T),
      f64(scale_1)[0],
      V,
      C,
    );
  }

  gradNorm(norm_1: Tensor, grads_P: Tensor): void {
    this.check("gradNorm", { norm_1, grads_P }, ["norm_1"]);
    f64(norm_1)[0] = loss.gradNorm(f64(grads_P));
  }

  adamw(
    master_P: Tensor,
    weights_P: Tensor,
    grads_P: Tensor,
    m_P: Tensor,
    v_P: Tensor,
    decayed: number,
    hyper: Tensor,
    norm_1: Tensor,
  ): void {
    const tensors = { master_P, weights_P, grads_P, m_P, v_P, norm_1 };
    check.checkAdamw(this, tensors, decayed, hyper);
    this.checkMemory(
      "adamw",
      { ...tensors, hyper },
      ["master_P", "weights_P", "m_P", "v_P"],
      ["master_P=weights_P"],
    );
    loss.adamw(f64(master_P), f64(grads_P), f64(m_P), f64(v_P), decayed, f64(hyper), f64(norm_1)[0]);
    // Two types would need two tensors; here one may serve as both.
    if (dataOf(weights_P) !== dataOf(master_P) && Number.isFinite(f64(norm_1)[0])) {
      f64(weights_P).set(f64(master_P));
    }
  }
}
