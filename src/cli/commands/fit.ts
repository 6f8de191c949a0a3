/** `mobalab fit`: scaling laws of any curves table, in words and tables or as JSON. */
import { Command, InvalidArgumentError } from "commander";
import { fit, readCurves } from "../../fit/index.ts";
import { formatFit } from "../../report/index.ts";
import { jsonOption, positiveNumber, text } from "../options.ts";

export const FORMS = ["power", "floored", "parametric"] as const;

export function fitCommand(): Command {
  return new Command("fit")
    .description("fit the scaling laws of a curves table and compare the attentions in it")
    .argument("<curves>", "curves table, .csv or .jsonl (columns: see docs/curves.md)")
    .option("--form <form>", `${FORMS.join(", ")}`, (value) => {
      if (!FORMS.includes(value as never))
        throw new InvalidArgumentError(`Expected one of ${FORMS.join(", ")}.`);
      return value as (typeof FORMS)[number];
    })
    .option("--baseline <label>", "the attention to compare with (default: full)", text)
    .option(
      "--margin <percent>",
      "within this margin two losses count as the same (default: 1)",
      positiveNumber,
    )
    .addOption(jsonOption())
    .addHelpText("after", "\nExample:\n  mobalab fit studies/quick/curves.csv")
    .action(
      (
        path: string,
        options: { form?: (typeof FORMS)[number]; baseline?: string; margin?: number; json?: boolean },
      ) => {
        const result = fit(readCurves(path), {
          form: options.form,
          baseline: options.baseline,
          margin: options.margin === undefined ? undefined : options.margin / 100,
        });
        process.stdout.write(
          options.json ? `${JSON.stringify(result, null, 2)}\n` : `${formatFit(result)}\n`,
        );
      },
    );
}
