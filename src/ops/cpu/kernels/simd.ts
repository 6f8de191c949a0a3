/** Vector helpers: fused multiply-add where the engine has it, exp, sigmoid, sums over lanes, logarithm. */

/** a * b + c: one rounding in the relaxed build, two in the plain one. */
// @ts-ignore: decorator
@inline
export function fma(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

/** c - a * b. */
// @ts-ignore: decorator
@inline
export function fnma(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_nmadd(a, b, c);
  return f32x4.sub(c, f32x4.mul(a, b));
}

/** a * b + c for single numbers, rounded like a lane of `fma`, so that row ends agree with row middles. */
// @ts-ignore: decorator
@inline
export function fma1(a: f32, b: f32, c: f32): f32 {
  return f32x4.extract_lane(fma(f32x4.splat(a), f32x4.splat(b), f32x4.splat(c)), 0);
}

/**
 * exp(x), relative error below 1.2e-7. 0 below -87.3 (so for -Infinity), NaN for NaN, 2.4e38 from 88.37 on.
 * x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) by its Taylor series to r^7 (remainder below 6e-9), times 2^n.
 */
// @ts-ignore: decorator
@inline
export function exp(x: v128): v128 {
  // pmax and pmin keep a NaN in their first argument, and are one instruction where max and min are many.
  const clamped = f32x4.pmin(f32x4.pmax(x, f32x4.splat(-87.3)), f32x4.splat(88.37));
  // Adding 1.5 * 2^23 rounds to a whole number, which is then the low bits of the sum.
  const rounded = fma(clamped, f32x4.splat(1.44269504), f32x4.splat(12582912.0));
  const n = f32x4.sub(rounded, f32x4.splat(12582912.0));
  // ln 2 in two parts; the first has 9 bits, so that n times it is exact.
  const high = fnma(n, f32x4.splat(0.693359375), clamped);
  const r = fnma(n, f32x4.splat(-2.12194440e-4), high);
  let p = fma(r, f32x4.splat(1.0 / 5040.0), f32x4.splat(1.0 / 720.0));
  p = fma(p, r, f32x4.splat(1.0 / 120.0));
  p = fma(p, r, f32x4.splat(1.0 / 24.0));
  p = fma(p, r, f32x4.splat(1.0 / 6.0));
  p = fma(p, r, f32x4.splat(0.5));
  p = fma(p, f32x4.mul(r, r), r);
  p = f32x4.add(p, f32x4.splat(1.0));
  const scale = i32x4.add(i32x4.shl(rounded, 23), i32x4.splat(0x3f800000));
  return v128.andnot(f32x4.mul(p, scale), f32x4.lt(x, f32x4.splat(-87.3)));
}

/** 1 / (1 + exp(-x)). */
// @ts-ignore: decorator
@inline
export function sigmoid(x: v128): v128 {
  const one = f32x4.splat(1.0);
  return f32x4.div(one, f32x4.add(one, exp(f32x4.neg(x))));
}

/** Sum of the four lanes: (0 + 2) + (1 + 3). */
// @ts-ignore: decorator
@inline
export function sumLanes(v: v128): f32 {
  const pairs = f32x4.add(v, i32x4.shuffle(v, v, 2, 3, 2, 3));
  return f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1);
}

/** Largest of the four lanes. */
// @ts-ignore: decorator
@inline
export function maxLanes(v: v128): f32 {
  const pairs = f32x4.pmax(v, i32x4.shuffle(v, v, 2, 3, 2, 3));
  return max(f32x4.extract_lane(pairs, 0), f32x4.extract_lane(pairs, 1));
}

/**
 * Natural logarithm of a normal number, to about 1e-13. x = m 2^e with m in [sqrt(1/2), sqrt(2)),
 * log m = 2 atanh((m - 1) / (m + 1)). NaN and +Infinity pass through.
 */
export function log(x: f64): f64 {
  if (!(x < Infinity)) return x;
  let bits = reinterpret<u64>(x);
  let e = <i32>(bits >> 52) - 1023;
  let m = reinterpret<f64>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e += 1;
  }
  const s = (m - 1.0) / (m + 1.0);
  const s2 = s * s;
  let series = 1.0 / 15.0;
  series = series * s2 + 1.0 / 13.0;
  series = series * s2 + 1.0 / 11.0;
  series = series * s2 + 1.0 / 9.0;
  series = series * s2 + 1.0 / 7.0;
  series = series * s2 + 1.0 / 5.0;
  series = series * s2 + 1.0 / 3.0;
  series = series * s2 + 1.0;
  return 2.0 * s * series + <f64>e * 0.6931471805599453;
}

/** Argument `i` of a kernel: a whole number, an address, or a float's bits. */
// @ts-ignore: decorator
@inline
export function argument(args: usize, i: i32): i32 {
  return load<i32>(args + (i << 2));
}
// @ts-ignore: decorator
@inline
export function address(args: usize, i: i32): usize {
  return <usize>load<u32>(args + (i << 2));
}
// @ts-ignore: decorator
@inline
export function floatArgument(args: usize, i: i32): f32 {
  return load<f32>(args + (i << 2));
}
