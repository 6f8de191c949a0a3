/** What a fitted law says about a budget: the charts' projections and their bands. */
import { predictBroken } from "./broken.ts";
import { predictFloored } from "./floored.ts";
import type { Prediction } from "./law.ts";
import { predictPower } from "./power.ts";
import type { PowerLaw } from "./types.ts";

/** Loss and intervals of a fitted law at a budget in PFLOP/s-days (by the law's own convention). */
export function predict(law: PowerLaw, pflopsDays: number): Prediction {
  if (law.form === "floored") return predictFloored(law.points, pflopsDays);
  if (law.form === "broken") return predictBroken(law.points, pflopsDays);
  return predictPower(law.points, pflopsDays);
}
