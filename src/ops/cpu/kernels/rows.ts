/**
 * Ends of rows whose length is not a multiple of four. Loads may run up to 12 bytes past the end of a row (the host
 * keeps that much memory behind every tensor); what must not leak into sums is masked, what is stored is cut.
 */

/** The first `count` lanes of v, 0 elsewhere. */
// @ts-ignore: decorator
@inline
export function firstLanes(v: v128, count: i32): v128 {
  return v128.and(v, i32x4.lt_s(i32x4(0, 1, 2, 3), i32x4.splat(count)));
}

/** Stores the first `count` lanes, 1 to 4. */
// @ts-ignore: decorator
@inline
export function storeLanes(to: usize, v: v128, count: i32): void {
  if (count >= 4) {
    v128.store(to, v);
  } else {
    store<f32>(to, f32x4.extract_lane(v, 0));
    if (count > 1) store<f32>(to, f32x4.extract_lane(v, 1), 4);
    if (count > 2) store<f32>(to, f32x4.extract_lane(v, 2), 8);
  }
}
