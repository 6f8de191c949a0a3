import { describe, expect, test } from "vitest";
import {
  differenceOfLines,
  fiellerRatio,
  fiellerSet,
  fitLine,
  intervalAt,
  slopeInterval,
  valueAt,
  varianceAt,
} from "../../src/fit/regression.ts";

describe("least squares", () => {
  test("a regression worked by hand", () => {
    // x 1..5, y 2 4 5 4 5: Sxx 10, Sxy 6, slope 0.6, intercept 2.2, residual squares 0.64+0.36+1+0.36+0.04 = 2.4.
    const line = fitLine([1, 2, 3, 4, 5], [2, 4, 5, 4, 5]);
    expect(line.slope).toBeCloseTo(0.6, 14);
    expect(valueAt(line, 0)).toBeCloseTo(2.2, 14);
    expect(line.sumOfSquaredResiduals).toBeCloseTo(2.4, 14);
    expect(line.residualVariance).toBeCloseTo(0.8, 14);
    // Standard error of the slope sqrt(0.8 / 10) = 0.2828, t 3.182: 0.6 +- 0.900.
    expect(slopeInterval(line)[0]).toBeCloseTo(-0.3, 3);
    expect(slopeInterval(line)[1]).toBeCloseTo(1.5, 3);
    // At x = 5: variance 0.8 (1/5 + 4/10) = 0.48, half-width 3.1824 * 0.69282 = 2.2048.
    expect(varianceAt(line, 5)).toBeCloseTo(0.48, 14);
    expect(intervalAt(line, 5)[0]).toBeCloseTo(5.2 - 2.2048, 3);
  });

  test("Anscombe's first set has its published line and standard errors", () => {
    const x = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5];
    const y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
    const line = fitLine(x, y);
    expect(line.slope).toBeCloseTo(0.5001, 4);
    expect(valueAt(line, 0)).toBeCloseTo(3.0001, 4);
    expect(Math.sqrt(line.varianceOfSlope)).toBeCloseTo(0.1179, 4);
    expect(Math.sqrt(varianceAt(line, 0))).toBeCloseTo(1.1247, 4);
  });

  test("refuses cases that carry no line", () => {
    expect(() => fitLine([2, 2, 2], [1, 2, 3])).toThrow(RangeError);
    expect(() => fitLine([2], [1])).toThrow(RangeError);
  });

  test("at equal x, the difference of two lines is the regression of the differences", () => {
    const x = [0.1, 0.9, 1.7, 3.2, 4.1];
    const a = [1.2, 1.1, 0.7, 0.5, 0.2];
    const b = [1.0, 1.05, 0.5, 0.45, 0.05];
    const joint = differenceOfLines(fitLine(x, a), fitLine(x, b));
    const direct = fitLine(
      x,
      a.map((ai, i) => ai - b[i]),
    );
    expect(joint.slope).toBeCloseTo(direct.slope, 13);
    for (const at of [-3, 0, 2, 9]) {
      expect(valueAt(joint, at)).toBeCloseTo(valueAt(direct, at), 13);
      expect(varianceAt(joint, at)).toBeCloseTo(varianceAt(direct, at), 13);
    }
  });
});

describe("Fieller", () => {
  test("a ratio of two uncorrelated estimates worked by hand", () => {
    // 10 (variance 1) over 5 (variance 0.25), 10 degrees of freedom: t = 2.2281389, g = t^2 0.25 / 25 = 0.0496460,
    // (2 +- (t / 5) sqrt(1 + 4 * 0.25 - g)) / (1 - g) = (2 +- 0.622343) / 0.950354.
    const interval = fiellerRatio(10, 5, { numerator: 1, denominator: 0.25, covariance: 0 }, 10)!;
    expect(interval[0]).toBeCloseTo(1.44963, 4);
    expect(interval[1]).toBeCloseTo(2.75933, 4);
  });

  test("covariance as in Fieller's formula", () => {
    const [a, b, v11, v22, v12, dof, t] = [3, 4, 0.3, 0.2, 0.1, 3, 3.182446305];
    const g = (t * t * v22) / (b * b);
    const middle = a / b - (g * v12) / v22;
    const half =
      (t / b) * Math.sqrt(v11 - (2 * a * v12) / b + (a / b) ** 2 * v22 - g * (v11 - v12 ** 2 / v22));
    const interval = fiellerRatio(a, b, { numerator: v11, denominator: v22, covariance: v12 }, dof)!;
    expect(interval[0]).toBeCloseTo((middle - half) / (1 - g), 7);
    expect(interval[1]).toBeCloseTo((middle + half) / (1 - g), 7);
  });

  test("no interval when the denominator may be zero", () => {
    expect(fiellerRatio(10, 1, { numerator: 1, denominator: 1, covariance: 0 }, 10)).toBeNull();
  });

  test("a line's ends of the set are where its interval touches zero", () => {
    const line = fitLine([0, 1, 2, 3, 4], [-2, -1.1, 0.2, 0.8, 2.1]);
    const set = fiellerSet(line);
    expect(set.kind).toBe("interval");
    expect(intervalAt(line, set.low)[1]).toBeCloseTo(0, 10);
    expect(intervalAt(line, set.high)[0]).toBeCloseTo(0, 10);
  });

  test("a flat line that differs from zero in the middle only has an outside set", () => {
    const line = fitLine([0, 1, 2, 3, 4], [1, 1.3, 0.8, 1.4, 0.9]);
    const set = fiellerSet(line);
    expect(set.kind).toBe("outside");
    expect(intervalAt(line, set.low)[0]).toBeCloseTo(0, 10);
    expect(intervalAt(line, set.high)[0]).toBeCloseTo(0, 10);
    expect(fiellerSet(fitLine([0, 1, 2, 3, 4], [1, -2, 2, -1, 0.3])).kind).toBe("all");
    expect(fiellerSet(fitLine([0, 1, 2], [0, 0, 0])).kind).toBe("all");
  });
});
