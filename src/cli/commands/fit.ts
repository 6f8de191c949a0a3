/** `mobalab fit`: scaling laws of any curves table, in words and tables or as JSON. */
import { existsSync } from "node:fs";
import { basename, dirname } from "node:path";
import { Command, Option } from "commander";
import { InputError } from "../../errors.ts";
import { FORMS, type Form, fit, type Interval, readCurves } from "../../fit/index.ts";
import type { CurvePoint } from "../../fit/types.ts";
import { formatFit } from "../../report/index.ts";
import { paths, readRuns } from "../../study/folder.ts";
import { sizesInWords } from "../../study/laws.ts";
import { readRunConfig } from "../../train/config.ts";
import { aboveZeroTo, jsonOption, range, text, wholeNumber } from "../options.ts";

export function fitCommand(): Command {
  return new Command("fit")
    .description("fit the scaling laws of a curves table and compare the attentions in it")
    .argument("<curves>", "curves table, .csv or .jsonl (columns: see docs/curves.md)")
    .addOption(
      new Option("--form <form>", "form of the laws (see docs/fits.md)").choices(FORMS).default("power"),
    )
    .option(
      "--baseline <label>",
      "the attention to compare with where there is no full, which is the baseline otherwise",
      text,
    )
    .option("--group <column>", "tell runs apart by this column of the table instead of attention", text)
    .option(
      "--margin <percent>",
      "within this margin two losses count as the same (default: 1)",
      aboveZeroTo(50),
    )
    .option(
      "--window <from-to>",
      "budgets of form envelope, in PFLOP/s-days (default: from the shortest run's end to the longest's)",
      range("Expected <from>-<to> in PFLOP/s-days, such as 0.02-50."),
    )
    .option(
      "--bootstrap <n>",
      "resamples of the runs, where there are 8 or more (default: 1000)",
      wholeNumber(0, 1_000_000),
    )
    .addOption(jsonOption())
    .addHelpText("after", "\nExample:\n  mobalab fit studies/quick/curves.csv")
    .action(run);
}

interface Options {
  form: Form;
  baseline?: string;
  group?: string;
  margin?: number;
  window?: Interval;
  bootstrap?: number;
  json?: boolean;
}

function run(path: string, { group, json, margin, ...options }: Options): void {
  if (options.window && options.form !== "envelope") {
    throw new InputError(`--window is for --form envelope, and the form is ${options.form}`);
  }
  const points = readCurves(path, { group });
  const fitted = fit(points, { ...options, margin: margin === undefined ? undefined : margin / 100 });
  const result = { ...fitted, warnings: [...sizesBeside(path, points), ...fitted.warnings] };
  process.stdout.write(json ? `${JSON.stringify(result, null, 2)}\n` : `${formatFit(result)}\n`);
}

/** What the runs beside a study's own table say of its sizes: a table has no shapes. */
function sizesBeside(path: string, points: readonly CurvePoint[]): string[] {
  const folder = dirname(path);
  if (basename(path) !== "curves.csv" || !existsSync(paths.study(folder))) return [];
  const told = new Set(points.map(({ run }) => run));
  const { runs } = readRuns(folder, (run, name) => ({ name, config: readRunConfig(run) }));
  return sizesInWords(runs.filter(({ name }) => told.has(name)).map(({ config }) => config));
}
