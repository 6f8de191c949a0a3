/** 95 % intervals over documents (docs/method.md, section 2): what other documents of the same kind would have given. */
import { t95 } from "./student.ts";

/** Documents that a mean needs for an interval to be worth saying. */
export const FEWEST_DOCUMENTS = 8;

/** Mean losses of one document, each of as many tokens (or in proportion to them). */
export interface Row {
  readonly weight: number;
  readonly losses: readonly number[];
}

export interface Estimate {
  readonly value: number;
  /** 95 %. */
  readonly interval: [number, number];
}

/** Sums over documents of each loss. */
export function totals(documents: readonly Row[]): number[] {
  return documents[0].losses.map((_, i) => {
    return documents.reduce((sum, { weight, losses }) => sum + weight * losses[i], 0);
  });
}

/**
 * What `of` makes of the losses over all tokens; it must not depend on their scale. The interval is over documents, by the
 * jackknife: each is left out once, so that a loss that is divided by counts too. The degrees of freedom are one less than
 * the documents of equal weight whose mean would be as certain (Kish's effective number).
 */
export function overDocuments(
  documents: readonly Row[],
  of: (losses: readonly number[]) => number,
): Estimate {
  const all = totals(documents);
  const value = of(all);
  const without = documents.map(({ weight, losses }) => of(all.map((sum, i) => sum - weight * losses[i])));
  const squares = without.reduce((sum, one) => sum + (one - value) ** 2, 0);
  const weights = documents.map(({ weight }) => weight);
  const effective = add(weights) ** 2 / add(weights.map((weight) => weight ** 2));
  const half = t95(Math.max(1, effective - 1)) * Math.sqrt(squares * (1 - 1 / documents.length));
  return { value, interval: [value - half, value + half] };
}

const add = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);
