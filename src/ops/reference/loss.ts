/** The output matrix with cross-entropy, one token's logits at a time; gradient norm and AdamW. */
import { Hyper } from "../contract.ts";

/** The logits of token `t` less their log-sum-exp. */
function logProbabilities(
  x_TC: Float64Array,
  w_VC: Float64Array,
  t: number,
  V: number,
  C: number,
): Float64Array {
  const logits = new Float64Array(V);
  for (let v = 0; v < V; v++) {
    for (let c = 0; c < C; c++) logits[v] += x_TC[t * C + c] * w_VC[v * C + c];
  }
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const lse = largest + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0));
  return logits.map((logit) => logit - lse);
}

export function lossForward(
  losses_T: Float64Array,
  x_TC: Float64Array,
  w_VC: Float64Array,
  targets_T: Int32Array,
  V: number,
  C: number,
): void {
  for (let t = 0; t < targets_T.length; t++) {
    const target = targets_T[t];
    losses_T[t] = target < 0 ? 0 : -logProbabilities(x_TC, w_VC, t, V, C)[target];
  }
}

export function lossForwardBackward(
  losses_T: Float64Array,
  dX_TC: Float64Array,
  dW_VC: Float64Array,
  x_TC: Float64Array,
  w_VC: Float64Array,
  targets_T: Int32Array,
  scale: number,
  V: number,
  C: number,
): void {
  losses_T.fill(0);
  dX_TC.fill(0);
  for (let t = 0; t < targets_T.length; t++) {
    const target = targets_T[t];
    if (target < 0) continue;
    const logP = logProbabilities(x_TC, w_VC, t, V, C);
    losses_T[t] = -logP[target];
    for (let v = 0; v < V; v++) {
      const dLogit = scale * (Math.exp(logP[v]) - (v === target ? 1 : 0));
      for (let c = 0; c < C; c++) {
        dX_TC[t * C + c] += dLogit * w_VC[v * C + c];
        dW_VC[v * C + c] += dLogit * x_TC[t * C + c];
      }
    }
  }
}

export function gradNorm(grads_P: Float64Array): number {
  let squares = 0;
  for (const g of grads_P) squares += g * g;
  return Math.sqrt(squares);
}

export function adamw(
  master_P: Float64Array,
  grads_P: Float64Array,
  m_P: Float64Array,
  v_P: Float64Array,
  decayed: number,
  hyper: Float64Array,
  norm: number,
): void {
  if (!Number.isFinite(norm)) return;
  const lr = hyper[Hyper.learningRate];
  const beta1 = hyper[Hyper.beta1];
  const beta2 = hyper[Hyper.beta2];
  const maxNorm = hyper[Hyper.maxNorm];
  const clip = maxNorm > 0 ? Math.min(1, maxNorm / norm) : 1;
  for (let p = 0; p < master_P.length; p++) {
    const g = clip * grads_P[p];
    m_P[p] = beta1 * m_P[p] + (1 - beta1) * g;
    v_P[p] = beta2 * v_P[p] + (1 - beta2) * g * g;
    const step =
      m_P[p] / hyper[Hyper.bias1] / (Math.sqrt(v_P[p] / hyper[Hyper.bias2]) + hyper[Hyper.epsilon]);
    const decay = p < decayed ? hyper[Hyper.weightDecay] * master_P[p] : 0;
    master_P[p] -= lr * (step + decay);
  }
}
