/** The recipe of runs in words. */
import { expect, it } from "vitest";
import { recipeInWords } from "../../src/study/recipe.ts";
import { tinyConfig } from "../train/tiny.ts";

it("says what runs share, and every value of what they do not", () => {
  const config = tinyConfig();
  const { shape, optimizer, context, sequencesPerStep } = config;
  const same =
    `rotary base ${shape.ropeTheta}; head width ${shape.headDim}; vocabulary ${shape.vocabulary}; ` +
    `output matrix ${shape.tiedOutput ? "tied" : "untied"}; AdamW betas 0.9, 0.95; weight decay 0.1; ` +
    "gradient norm at most 1; schedule cosine, warm-up 10 %, down to 10 %; " +
    `${sequencesPerStep} x ${context} tokens a step`;
  expect(recipeInWords([config, config])).toBe(same);
  const other = {
    ...config,
    shape: { ...shape, ropeTheta: 7, keyConvolution: 3 as const },
    optimizer: { ...optimizer, maxNorm: 0, schedule: "wsd" as const },
    recall: 0.07,
  };
  const words = recipeInWords([config, other]);
  expect(words).toContain(`rotary base ${shape.ropeTheta} | 7; `);
  expect(words).toContain("; key convolution none | 3; ");
  expect(words).toContain("; gradient norm at most 1 | free; ");
  expect(words).toContain(
    "; schedule cosine, warm-up 10 %, down to 10 % | wsd, warm-up 10 %, down to 10 % over the last 20 %; ",
  );
  expect(words).toContain("; recall records in 0 % | 7 % of the sequences; ");
});
