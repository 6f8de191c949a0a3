/** Curves made for tests: known laws with seeded noise. */
import type { CurvePoint } from "../../src/fit/index.ts";

/** A seeded source of standard normal numbers (32-bit xorshift, Box and Muller). */
export function normals(seed: number): () => number {
  let state = seed | 1;
  const uniform = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return ((state >>> 0) + 0.5) / 2 ** 32;
  };
  return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
}

/** A final evaluation. */
export function end(
  attention: string,
  model: string,
  pflopsDays: number,
  lmLoss: number,
  more: Partial<CurvePoint> = {},
): CurvePoint {
  return {
    attention,
    model,
    position_start: null,
    position_end: null,
    pflops_days: pflopsDays,
    lm_loss: lmLoss,
    ...more,
  };
}

export const BUDGETS = [0.1, 0.3, 1, 3, 10];

/** Both attentions over the budgets: `full` by 2 C^-0.08, `moba` by a ratio `r C^s` above it, times e to the noise. */
export function ladder(
  r: number,
  s: number,
  noise: (i: number) => [number, number] = () => [0, 0],
): CurvePoint[] {
  return BUDGETS.flatMap((budget, i) => {
    const [full, moba] = noise(i);
    const loss = 2 * budget ** -0.08;
    return [
      end("full", `m${i}`, budget, loss * Math.exp(full)),
      end("moba", `m${i}`, budget, loss * r * budget ** s * Math.exp(moba)),
    ];
  });
}

/** Noise that a law of 5 sizes cannot absorb, of standard deviation about `size` in the ratio. */
export function wiggle(size: number): (i: number) => [number, number] {
  const shape = [1, -1.6, 0.4, 1.1, -0.9];
  return (i) => [0.3 * size * shape[(i + 2) % 5], size * shape[i]];
}
