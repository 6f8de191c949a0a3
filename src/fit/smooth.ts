/** Smoothing of training curves: the same in the report and on the screen. */

/**
 * Exponential mean along log tokens, twice, so that it does not lag behind a trend: `decades` is the distance after which
 * a value counts 1/e. The smoothed value at a token depends on what came before it and on nothing else, in particular
 * not on the length of the run or on how many steps were recorded. Values that are not finite are passed over.
 * `decades` 0 returns the values.
 */
export function smooth(tokens: ArrayLike<number>, values: ArrayLike<number>, decades: number): Float64Array {
  const smoothed = Float64Array.from(values);
  if (!(decades > 0)) return smoothed;
  const reach = decades * Math.LN10;
  let mean = Number.NaN;
  let meanOfMeans = Number.NaN;
  let at = Number.NaN;
  for (let i = 0; i < smoothed.length; i++) {
    const value = values[i]!;
    const here = Math.log(tokens[i]!);
    if (Number.isFinite(value) && Number.isFinite(here)) {
      if (Number.isNaN(mean)) mean = meanOfMeans = value;
      else {
        const share = 1 - Math.exp((at - here) / reach);
        mean += share * (value - mean);
        meanOfMeans += share * (mean - meanOfMeans);
      }
      at = here;
    }
    // A mean lags behind a steady trend as far as its own mean lags behind it.
    const steady = 2 * mean - meanOfMeans;
    // Past a spike that would be below zero, where a log axis ends.
    smoothed[i] = steady > 0 ? steady : mean;
  }
  return smoothed;
}
