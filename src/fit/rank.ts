/** Spearman's rank correlation of two lists as long; equal values share the mean of their ranks. NaN if one is constant. */
export function rankCorrelation(a: readonly number[], b: readonly number[]): number {
  const [ranksA, ranksB] = [ranks(a), ranks(b)];
  const middle = (a.length - 1) / 2;
  const product = (x: readonly number[], y: readonly number[]) =>
    x.reduce((sum, rank, i) => sum + (rank - middle) * (y[i] - middle), 0);
  return product(ranksA, ranksB) / Math.sqrt(product(ranksA, ranksA) * product(ranksB, ranksB));
}

function ranks(values: readonly number[]): number[] {
  const sorted = [...values].sort((a, b) => a - b);
  return values.map((value) => (sorted.indexOf(value) + sorted.lastIndexOf(value)) / 2);
}
