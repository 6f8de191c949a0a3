import { describe, expect, test } from "vitest";
import { incompleteBeta, studentCdf, studentQuantile } from "../../src/fit/student.ts";

describe("Student's t", () => {
  // Any printed table of t.
  test.each([
    [0.975, 1, 12.706],
    [0.975, 2, 4.303],
    [0.975, 3, 3.182],
    [0.975, 4, 2.776],
    [0.975, 5, 2.571],
    [0.975, 10, 2.228],
    [0.975, 30, 2.042],
    [0.975, 120, 1.98],
    [0.95, 3, 2.353],
    [0.995, 8, 3.355],
  ])("quantile of %d with %d degrees of freedom is the table's %d", (p, dof, t) => {
    expect(studentQuantile(p, dof)).toBeCloseTo(t, 3);
  });

  test("quantiles agree with another implementation (scipy) to 12 digits", () => {
    const expected = [
      [0.975, 3, 3.1824463052837078],
      [0.975, 4.5, 2.6589123472044034],
      [0.99, 7, 2.9979515668685277],
      [0.9, 1, 3.0776835371752544],
      [0.9995, 2, 31.599054576445365],
    ];
    for (const [p, dof, t] of expected) expect(Math.abs(studentQuantile(p, dof) / t - 1)).toBeLessThan(1e-12);
  });

  test("one degree of freedom is Cauchy, two have a closed form", () => {
    for (const p of [0.01, 0.2, 0.6, 0.999]) {
      expect(studentQuantile(p, 1)).toBeCloseTo(Math.tan(Math.PI * (p - 0.5)), 8);
      expect(studentQuantile(p, 2)).toBeCloseTo((2 * p - 1) * Math.sqrt(2 / (4 * p * (1 - p))), 8);
    }
  });

  test("the distribution undoes the quantile and is symmetric", () => {
    for (const dof of [1, 2, 3, 7, 50, 1000]) {
      for (const p of [0.001, 0.3, 0.8, 0.99]) {
        expect(studentCdf(studentQuantile(p, dof), dof)).toBeCloseTo(p, 12);
        expect(studentQuantile(1 - p, dof)).toBeCloseTo(-studentQuantile(p, dof), 10);
      }
    }
  });

  test("the incomplete beta function at whole arguments is a binomial tail", () => {
    // I_x(2, 3) = P(at least 2 of 4) and scipy's value elsewhere.
    const x = 0.3;
    expect(incompleteBeta(x, 2, 3)).toBeCloseTo(1 - (1 - x) ** 4 - 4 * x * (1 - x) ** 3, 13);
    expect(incompleteBeta(0.3, 2.5, 1.7)).toBeCloseTo(0.10688143238579233, 13);
  });

  test("refuses what has no quantile", () => {
    expect(() => studentQuantile(0.975, 0)).toThrow(/degreesOfFreedom is 0/);
    expect(() => studentQuantile(1, 3)).toThrow(/p is 1/);
  });
});
