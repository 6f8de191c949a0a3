/** The attentions' colours are told apart by people with and without colour-vision deficiencies, on both pages. */
import { describe, expect, it } from "vitest";
import { attentionColours } from "../../src/report/labels.ts";
import { onDark } from "../../web/palette.ts";

const LABELS = ["full", ...[1, 2, 3, 4, 5, 6, 7].map((k) => `moba-b128-k${k}`)];

/** Severity 1 of Machado, Oliveira and Fernandes (2009), on linear RGB. */
const SIGHT: Record<string, readonly (readonly number[])[]> = {
  usual: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function linear(colour: string): number[] {
  return [1, 3, 5].map((i) => {
    const c = Number.parseInt(colour.slice(i, i + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
}

/** CIE L*a*b*, D65, of a colour as such a person sees it. */
function lab(colour: string, sight: readonly (readonly number[])[]): number[] {
  const rgb = linear(colour);
  const [r, g, b] = sight.map((row) =>
    Math.min(
      1,
      Math.max(
        0,
        row.reduce((sum, w, i) => sum + w * rgb[i], 0),
      ),
    ),
  );
  const f = (t: number) => (t > (6 / 29) ** 3 ? Math.cbrt(t) : t / (3 * (6 / 29) ** 2) + 4 / 29);
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function contrast(a: string, b: string): number {
  const luminance = (colour: string) => {
    const [r, g, blue] = linear(colour);
    return 0.2126 * r + 0.7152 * g + 0.0722 * blue;
  };
  const [low, high] = [luminance(a), luminance(b)].sort((p, q) => p - q);
  return (high + 0.05) / (low + 0.05);
}

describe.each([
  ["light", (colour: string) => colour, "#ffffff"],
  ["dark", onDark, "#14171b"],
] as const)("the colours of a %s page", (_, shown, paper) => {
  const colours = [...attentionColours(LABELS).values()].map(shown);

  it.each(Object.keys(SIGHT))("are told apart with %s sight", (sight) => {
    for (const [i, a] of colours.entries()) {
      for (const b of colours.slice(i + 1)) {
        const [p, q] = [lab(a, SIGHT[sight]), lab(b, SIGHT[sight])];
        const distance = Math.hypot(...p.map((value, k) => value - q[k]));
        expect(distance, `${a} and ${b}`).toBeGreaterThan(12);
      }
    }
  });

  it("stand out from the paper", () => {
    for (const colour of colours) expect(contrast(colour, paper), colour).toBeGreaterThan(3);
  });
});
