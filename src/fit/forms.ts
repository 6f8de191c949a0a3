/** The choice between forms of L(C), by the error with which each predicts the largest size from the others. */
import { bestBroken, DISTINCT_BUDGETS_FOR_A_BREAK, fitBroken } from "./broken.ts";
import { bestFloored, DISTINCT_BUDGETS_FOR_A_FLOOR, fitFloored } from "./floored.ts";
import { type LawKey, withoutLargest } from "./law.ts";
import { distinctBudgets } from "./points.ts";
import { fitPower, predictPower } from "./power.ts";
import type { FittedPoint, FormError, PowerLaw } from "./types.ts";

type Choice = FormError["form"];

const CHOICES: readonly { readonly form: Choice; readonly budgets: number }[] = [
  { form: "power", budgets: 3 },
  // A floor or a break needs its budgets in the refit too, which lacks one.
  { form: "floored", budgets: DISTINCT_BUDGETS_FOR_A_FLOOR + 1 },
  { form: "broken", budgets: DISTINCT_BUDGETS_FOR_A_BREAK + 1 },
];

export function fitForm(form: Choice, key: LawKey, points: FittedPoint[]): PowerLaw {
  if (form === "floored") return fitFloored(key, points);
  if (form === "broken") return fitBroken(key, points);
  return fitPower(key, points);
}

/** The log error with which a form predicts the largest size from the others, or null. */
function logError(form: Choice, points: readonly FittedPoint[]): number | null {
  const held = withoutLargest(points, 3);
  if (held === null) return null;
  const at = held.largest.pflops_days;
  let predicted: number | undefined;
  if (form === "power") predicted = predictPower(held.rest, at).loss;
  else if (form === "floored") predicted = bestFloored(held.rest).lossAt(at);
  else predicted = bestBroken(held.rest)?.lossAt(at);
  return predicted === undefined ? null : Math.log(predicted / held.largest.lm_loss);
}

/** The forms that every case has budgets for, the one with the smallest error first. */
export function formErrors(cases: readonly { readonly points: FittedPoint[] }[]): FormError[] {
  const fitted = cases.filter(({ points }) => points.length >= 3 && distinctBudgets(points) >= 3);
  if (fitted.length === 0) return [];
  const fewest = Math.min(...fitted.map(({ points }) => distinctBudgets(points)));
  const candidates = CHOICES.filter(({ budgets }) => fewest >= budgets);
  if (candidates.length < 2) return [];
  return candidates
    .map(({ form }) => {
      const errors = fitted
        .map(({ points }) => logError(form, points))
        .filter((error): error is number => error !== null);
      const squares = errors.reduce((sum, error) => sum + error * error, 0);
      return { form, holdout_error: Math.sqrt(squares / errors.length), laws: errors.length };
    })
    .filter(({ laws }) => laws > 0)
    .sort((a, b) => a.holdout_error - b.holdout_error);
}

/** The best predictor; `power` where no choice can be made. */
export function bestForm(forms: readonly FormError[]): Choice {
  return forms[0]?.form ?? "power";
}
