/**
 * Straight lines by least squares and what is known about them: variances, covariances between two lines fitted to
 * the same cases, and where such a line may be zero (Fieller's theorem). Everything here is on logarithms.
 */
import { t95 } from "./student.ts";

/** `y = value + slope (x - center)` with the covariance of (value, slope). */
export interface UncertainLine {
  readonly center: number;
  readonly value: number;
  readonly slope: number;
  readonly varianceOfValue: number;
  readonly varianceOfSlope: number;
  readonly covariance: number;
  readonly degreesOfFreedom: number;
}

/** A least-squares line; its center is the mean of x, where value and slope are uncorrelated. */
export interface Line extends UncertainLine {
  /** Cases, and their x about the center. */
  readonly deviations: readonly number[];
  readonly sumOfSquaresX: number;
  readonly residuals: readonly number[];
  readonly sumOfSquaredResiduals: number;
  /** With n - 2 degrees of freedom; NaN for n = 2. */
  readonly residualVariance: number;
}

export function mean(values: readonly number[]): number {
  let sum = 0;
  for (const value of values) sum += value;
  return sum / values.length;
}

/** Least squares of y on x, both of length n >= 2, x not all equal (else RangeError). */
export function fitLine(x: readonly number[], y: readonly number[]): Line {
  const n = x.length;
  const center = mean(x);
  const value = mean(y);
  const deviations = x.map((xi) => xi - center);
  let sumOfSquaresX = 0;
  let products = 0;
  for (let i = 0; i < n; i++) {
    sumOfSquaresX += deviations[i] ** 2;
    products += deviations[i] * (y[i] - value);
  }
  if (n < 2 || !(sumOfSquaresX > 1e-20 * n * Math.max(1, center * center))) {
    throw new RangeError(`a line needs two different x; got ${n} cases with x around ${center}`);
  }
  const slope = products / sumOfSquaresX;
  const residuals = y.map((yi, i) => yi - value - slope * deviations[i]);
  let sumOfSquaredResiduals = 0;
  for (const residual of residuals) sumOfSquaredResiduals += residual * residual;
  const degreesOfFreedom = n - 2;
  const residualVariance = sumOfSquaredResiduals / degreesOfFreedom;
  return {
    center,
    value,
    slope,
    varianceOfValue: residualVariance / n,
    varianceOfSlope: residualVariance / sumOfSquaresX,
    covariance: 0,
    degreesOfFreedom,
    deviations,
    sumOfSquaresX,
    residuals,
    sumOfSquaredResiduals,
    residualVariance,
  };
}

export function valueAt(line: UncertainLine, x: number): number {
  return line.value + line.slope * (x - line.center);
}

/** Variance of the line's value at x. */
export function varianceAt(line: UncertainLine, x: number): number {
  const d = x - line.center;
  return Math.max(0, line.varianceOfValue + 2 * d * line.covariance + d * d * line.varianceOfSlope);
}

/** 95 % interval of the line's value at x. */
export function intervalAt(line: UncertainLine, x: number): [low: number, high: number] {
  const half = t95(line.degreesOfFreedom) * Math.sqrt(varianceAt(line, x));
  const middle = valueAt(line, x);
  return [middle - half, middle + half];
}

/** 95 % interval of the slope. */
export function slopeInterval(line: UncertainLine): [low: number, high: number] {
  const half = t95(line.degreesOfFreedom) * Math.sqrt(line.varianceOfSlope);
  return [line.slope - half, line.slope + half];
}

/** Covariance of the errors of two lines fitted to the same cases in the same order. */
function residualCovariance(a: Line, b: Line): number {
  let sum = 0;
  for (let i = 0; i < a.residuals.length; i++) sum += a.residuals[i] * b.residuals[i];
  return sum / a.degreesOfFreedom;
}

/** Covariance of the slopes of two lines fitted to the same cases, whose x may differ. */
export function slopeCovariance(a: Line, b: Line): number {
  let products = 0;
  for (let i = 0; i < a.deviations.length; i++) products += a.deviations[i] * b.deviations[i];
  return (residualCovariance(a, b) * products) / (a.sumOfSquaresX * b.sumOfSquaresX);
}

/**
 * `other - baseline`, two lines fitted to the same cases (pairs) at x that may differ. Errors of a pair may be
 * correlated: their covariance is estimated from the residuals, so that with equal x this is exactly the regression of
 * the differences.
 */
export function differenceOfLines(other: Line, baseline: Line): UncertainLine {
  const center = (other.center + baseline.center) / 2;
  const n = other.residuals.length;
  const between = residualCovariance(other, baseline);
  const slopes = slopeCovariance(other, baseline);
  const dOther = center - other.center;
  const dBaseline = center - baseline.center;
  return {
    center,
    value: valueAt(other, center) - valueAt(baseline, center),
    slope: other.slope - baseline.slope,
    varianceOfValue:
      varianceAt(other, center) +
      varianceAt(baseline, center) -
      2 * (between / n + slopes * dOther * dBaseline),
    varianceOfSlope: Math.max(0, other.varianceOfSlope + baseline.varianceOfSlope - 2 * slopes),
    covariance:
      other.varianceOfSlope * dOther + baseline.varianceOfSlope * dBaseline - slopes * (dOther + dBaseline),
    degreesOfFreedom: other.degreesOfFreedom,
  };
}

/**
 * The x at which a line may be zero with 95 % confidence (Fieller's set): where `value^2 <= t^2 variance`. Its
 * complement is where the line differs from zero.
 */
export interface FiellerSet {
  /** `interval`: between the roots; `outside`: everywhere except between the roots; `all`: nowhere different from zero. */
  readonly kind: "interval" | "outside" | "all" | "none";
  readonly low: number;
  readonly high: number;
}

export function fiellerSet(line: UncertainLine): FiellerSet {
  const t2 = t95(line.degreesOfFreedom) ** 2;
  // a d^2 + 2 b d + c <= 0, d = x - center.
  const a = line.slope ** 2 - t2 * line.varianceOfSlope;
  const b = line.value * line.slope - t2 * line.covariance;
  const c = line.value ** 2 - t2 * line.varianceOfValue;
  const discriminant = b * b - a * c;
  if (a > 0) {
    // The zero of the line itself lies in the set, so the roots are real up to rounding.
    const root = Math.sqrt(Math.max(0, discriminant));
    const [first, second] = b > 0 ? [(-b - root) / a, c / (-b - root)] : [c / (-b + root), (-b + root) / a];
    const low = Number.isFinite(first) ? first : -b / a;
    const high = Number.isFinite(second) ? second : -b / a;
    return { kind: "interval", low: line.center + low, high: line.center + high };
  }
  if (a === 0 && b === 0) return { kind: c > 0 ? "none" : "all", low: Number.NaN, high: Number.NaN };
  if (discriminant <= 0) return { kind: "all", low: Number.NaN, high: Number.NaN };
  const root = Math.sqrt(discriminant);
  const roots = a === 0 ? [-c / (2 * b), b > 0 ? Infinity : -Infinity] : [(-b - root) / a, (-b + root) / a];
  roots.sort((p, q) => p - q);
  return { kind: "outside", low: line.center + roots[0], high: line.center + roots[1] };
}

/**
 * 95 % interval of the ratio `numerator / denominator` of two estimates with known covariance (Fieller's theorem), or
 * null when the denominator cannot be told from zero, so that the set is not bounded.
 */
export function fiellerRatio(
  numerator: number,
  denominator: number,
  variances: { readonly numerator: number; readonly denominator: number; readonly covariance: number },
  degreesOfFreedom: number,
): [low: number, high: number] | null {
  // The ratio q is where numerator - q denominator is zero: a line in q.
  const set = fiellerSet({
    center: 0,
    value: numerator,
    slope: -denominator,
    varianceOfValue: variances.numerator,
    varianceOfSlope: variances.denominator,
    covariance: -variances.covariance,
    degreesOfFreedom,
  });
  return set.kind === "interval" ? [set.low, set.high] : null;
}
