/** Thins a curve to what a chart can show: per pixel column its lowest and highest point, in order. */

/**
 * Indices of the points to keep: the first and the last and, in every column of `column` pixels, the one with the
 * smallest and the one with the largest y. `x` (pixels, or any unit in which one column is `column` wide) and `y` have
 * the points in order. Nothing is averaged or drawn at random, so spikes stay where they are.
 */
export function thinByColumn(x: ArrayLike<number>, y: ArrayLike<number>, column: number): number[] {
  const kept: number[] = [];
  const size = x.length;
  let start = 0;
  while (start < size) {
    const bin = Math.floor(x[start]! / column);
    let end = start;
    let low = start;
    let high = start;
    while (end < size && Math.floor(x[end]! / column) === bin) {
      if (y[end]! < y[low]!) low = end;
      if (y[end]! > y[high]!) high = end;
      end++;
    }
    const first = Math.min(low, high);
    const second = Math.max(low, high);
    if (start === 0 && first > 0) kept.push(0);
    kept.push(first);
    if (second > first) kept.push(second);
    if (end === size && second < size - 1) kept.push(size - 1);
    start = end;
  }
  return kept;
}
