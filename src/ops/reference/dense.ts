/** Token-wise operations in plain loops: embedding, RMSNorm, linear, SwiGLU. Shapes as in the contract. */

export function embeddingForward(
  out_TC: Float64Array,
  table_VC: Float64Array,
  tokens_T: Int32Array,
  C: number,
): void {
  for (let t = 0; t < tokens_T.length; t++) {
    for (let c = 0; c < C; c++) out_TC[t * C + c] = table_VC[tokens_T[t] * C + c];
  }
}

export function embeddingBackward(
  dTable_VC: Float64Array,
  dOut_TC: Float64Array,
  tokens_T: Int32Array,
  C: number,
): void {
  for (let t = 0; t < tokens_T.length; t++) {
    for (let c = 0; c < C; c++) dTable_VC[tokens_T[t] * C + c] += dOut_TC[t * C + c];
  }
}

export function rmsNormForward(
  out_TC: Float64Array,
  rstd_T: Float64Array,
  x_TC: Float64Array,
  gain_C: Float64Array,
  eps: number,
): void {
  const C = gain_C.length;
  for (let t = 0; t < rstd_T.length; t++) {
    let squares = 0;
    for (let c = 0; c < C; c++) squares += x_TC[t * C + c] ** 2;
    rstd_T[t] = 1 / Math.sqrt(squares / C + eps);
    for (let c = 0; c < C; c++) out_TC[t * C + c] = x_TC[t * C + c] * rstd_T[t] * gain_C[c];
  }
}

export function rmsNormBackward(
  dX_TC: Float64Array,
  dGain_C: Float64Array,
  dOut_TC: Float64Array,
  x_TC: Float64Array,
  gain_C: Float64Array,
  rstd_T: Float64Array,
): void {
  const C = gain_C.length;
  for (let t = 0; t < rstd_T.length; t++) {
    // With the normalised x^ = x rstd: dx = rstd (g dOut - x^ mean(g dOut x^)).
    let mean = 0;
    for (let c = 0; c < C; c++) {
      const normalised = x_TC[t * C + c] * rstd_T[t];
      mean += (gain_C[c] * dOut_TC[t * C + c] * normalised) / C;
    }
    for (let c = 0; c < C; c++) {
      const normalised = x_TC[t * C + c] * rstd_T[t];
      dX_TC[t * C + c] += rstd_T[t] * (gain_C[c] * dOut_TC[t * C + c] - normalised * mean);
      dGain_C[c] += dOut_TC[t * C + c] * normalised;
    }
  }
}

export function linearForward(
  out_TN: Float64Array,
  x_TK: Float64Array,
  w_NK: Float64Array,
  { T, N, K }: { [letter: string]: number },
): void {
  for (let t = 0; t < T; t++) {
    for (let n = 0; n < N; n++) {
      let sum = 0;
      for (let k = 0; k < K; k++) sum += x_TK[t * K + k] * w_NK[n * K + k];
      out_TN[t * N + n] = sum;
    }
  }
}

/** dX = dOut w. */
export function linearBackwardInput(
  dX_TK: Float64Array,
  dOut_TN: Float64Array,
  w_NK: Float64Array,
  { T, N, K }: { [letter: string]: number },
): void {
  dX_TK.fill(0);
  for (let t = 0; t < T; t++) {
    for (let n = 0; n < N; n++) {
      for (let k = 0; k < K; k++) dX_TK[t * K + k] += dOut_TN[t * N + n] * w_NK[n * K + k];
    }
  }
}

/** dW += dOut^T x. */
export function linearBackwardWeight(
  dW_NK: Float64Array,
  dOut_TN: Float64Array,
  x_TK: Float64Array,
  { T, N, K }: { [letter: string]: number },
): void {
  for (let t = 0; t < T; t++) {
    for (let n = 0; n < N; n++) {
      for (let k = 0; k < K; k++) dW_NK[n * K + k] += dOut_TN[t * N + n] * x_TK[t * K + k];
    }
  }
}

export function sigmoid(x: number): number {
  return 1 / (1 + Math.exp(-x));
}

/** SiLU(x) = x sigmoid(x). */
export function silu(x: number): number {
  return x * sigmoid(x);
}

export function siluDerivative(x: number): number {
  return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}

export function swigluForward(out_TF: Float64Array, gateUp_T2F: Float64Array, T: number, F: number): void {
  for (let t = 0; t < T; t++) {
    for (let f = 0; f < F; f++) {
      const gate = gateUp_T2F[t * 2 * F + f];
      const up = gateUp_T2F[t * 2 * F + F + f];
      out_TF[t * F + f] = silu(gate) * up;
    }
  }
}

export function swigluBackward(
  dGateUp_T2F: Float64Array,
  dOut_TF: Float64Array,
  gateUp_T2F: Float64Array,
  T: number,
  F: number,
): void {
  for (let t = 0; t < T; t++) {
    for (let f = 0; f < F; f++) {
      const gate = gateUp_T2F[t * 2 * F + f];
      const up = gateUp_T2F[t * 2 * F + F + f];
      const dOut = dOut_TF[t * F + f];
      dGateUp_T2F[t * 2 * F + f] = dOut * up * siluDerivative(gate);
      dGateUp_T2F[t * 2 * F + F + f] = dOut * silu(gate);
    }
  }
}
