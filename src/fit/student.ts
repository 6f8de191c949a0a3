/** Student's t distribution: quantiles by inverting the regularised incomplete beta function. */

/** Natural logarithm of the gamma function for x > 0 (Stirling's series after shifting x above 15; error below 1e-14). */
function logGamma(x: number): number {
  let shift = 0;
  let z = x;
  while (z < 15) {
    shift += Math.log(z);
    z += 1;
  }
  const inverse = 1 / z;
  const square = inverse * inverse;
  const series =
    inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))));
  return (z - 0.5) * Math.log(z) - z + 0.5 * Math.log(2 * Math.PI) + series - shift;
}

/** Continued fraction of the incomplete beta function (modified Lentz); converges fast for x < (a + 1) / (a + b + 2). */
function betaFraction(x: number, a: number, b: number): number {
  const tiny = 1e-300;
  const guard = (value: number) => (Math.abs(value) < tiny ? tiny : value);
  let c = 1;
  let d = 1 / guard(1 - ((a + b) * x) / (a + 1));
  let result = d;
  for (let m = 1; m <= 500; m++) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / guard(1 + even * d);
    c = guard(1 + even / c);
    result *= d * c;
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / guard(1 + odd * d);
    c = guard(1 + odd / c);
    const factor = d * c;
    result *= factor;
    if (Math.abs(factor - 1) < 1e-16) break;
  }
  return result;
}

/** Regularised incomplete beta function I_x(a, b), 0 <= x <= 1, a and b positive. */
export function incompleteBeta(x: number, a: number, b: number): number {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x));
  return x < (a + 1) / (a + b + 2)
    ? (front * betaFraction(x, a, b)) / a
    : 1 - (front * betaFraction(1 - x, b, a)) / b;
}

/** P(T <= t) for Student's t with `degreesOfFreedom` > 0. */
export function studentCdf(t: number, degreesOfFreedom: number): number {
  const tail = incompleteBeta(degreesOfFreedom / (degreesOfFreedom + t * t), degreesOfFreedom / 2, 0.5) / 2;
  return t > 0 ? 1 - tail : tail;
}

/** The t below which Student's t falls with probability `p`, 0 < p < 1. Throws RangeError for degrees of freedom not above 0. */
export function studentQuantile(p: number, degreesOfFreedom: number): number {
  if (!(degreesOfFreedom > 0)) {
    throw new RangeError(`degreesOfFreedom is ${degreesOfFreedom}; a t quantile needs a number above 0`);
  }
  if (!(p > 0 && p < 1)) throw new RangeError(`p is ${p}; a quantile needs a probability between 0 and 1`);
  if (p < 0.5) return -studentQuantile(1 - p, degreesOfFreedom);
  let low = 0;
  let high = 1;
  while (studentCdf(high, degreesOfFreedom) < p) high *= 2;
  for (let i = 0; i < 200 && high - low > 1e-14 * high; i++) {
    const middle = (low + high) / 2;
    if (studentCdf(middle, degreesOfFreedom) < p) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

const twoSided95 = new Map<number, number>();

/** Half-width factor of a two-sided 95 % interval. */
export function t95(degreesOfFreedom: number): number {
  let t = twoSided95.get(degreesOfFreedom);
  if (t === undefined) twoSided95.set(degreesOfFreedom, (t = studentQuantile(0.975, degreesOfFreedom)));
  return t;
}
