/** A law as a line with its band: what the dashed projections draw. */
import { predict } from "../fit/index.ts";
import type { Interval, PowerLaw } from "../fit/types.ts";

/** A point of a projection: x in PFLOP/s-days, y in nats, and the 95 % interval of one new run there. */
export interface Projected {
  readonly x: number;
  readonly y: number;
  readonly low: number;
  readonly high: number;
}

/** The law at `steps + 1` budgets evenly spaced in log over the domain, both ends included. */
export function project(law: PowerLaw, domain: Interval, steps = 64): Projected[] {
  const [from, to] = domain;
  const line: Projected[] = [];
  for (let i = 0; i <= steps; i++) {
    const x = i === 0 ? from : i === steps ? to : from * (to / from) ** (i / steps);
    const { loss, prediction_interval } = predict(law, x);
    line.push({ x, y: loss, low: prediction_interval[0], high: prediction_interval[1] });
  }
  return line;
}
