/** Thins a curve to what a chart can show: per pixel column its lowest and highest point, in order. */

/** A point in pixels, or in any unit in which one column is `column` wide. */
export interface XY {
  readonly x: number;
  readonly y: number;
}

/**
 * Keeps the first and last point and, in every column of `column` pixels, the point with the smallest and the one
 * with the largest y. `toPixel` maps a point to its horizontal pixel. Nothing is averaged or drawn at random, so
 * spikes stay where they are.
 */
export function thinByColumn<P extends XY>(
  points: readonly P[],
  toPixel: (point: P) => number,
  column: number,
): P[] {
  const kept: P[] = [];
  let start = 0;
  while (start < points.length) {
    const bin = Math.floor(toPixel(points[start]!) / column);
    let end = start;
    let low = start;
    let high = start;
    while (end < points.length && Math.floor(toPixel(points[end]!) / column) === bin) {
      if (points[end]!.y < points[low]!.y) low = end;
      if (points[end]!.y > points[high]!.y) high = end;
      end++;
    }
    const indices = new Set([Math.min(low, high), Math.max(low, high)]);
    if (start === 0) indices.add(0);
    if (end === points.length) indices.add(end - 1);
    for (const index of [...indices].sort((a, b) => a - b)) kept.push(points[index]!);
    start = end;
  }
  return kept;
}
