/** `mobalab import`: other trainers' logs to a curves table. */
import { Command, Option } from "commander";
import { withParents, writeWhole } from "../../files.ts";
import { formatCurves } from "../../fit/index.ts";
import { formatImport, importPaths, parseColumns, type RunFacts, type Split } from "../../importers/index.ts";
import { wrapLines } from "../format.ts";
import { jsonOption, positiveNumber, text, wholeNumber } from "../options.ts";

interface Options {
  out: string;
  attention?: string;
  model?: string;
  seed?: number;
  parameters?: number;
  tokensPerStep?: number;
  flopsPerToken?: number;
  columns?: string;
  run?: string;
  runMap?: string;
  split?: Split;
  json?: boolean;
}

export function importCommand(): Command {
  return new Command("import")
    .description("turn other trainers' logs into a curves table; their format is recognised from the content")
    .argument("<paths...>", "log files, or folders to look through (docs/import.md lists the formats)")
    .option("--out <file>", "where the curves table goes", text, "curves.csv")
    .option("--attention <label>", "the attention of all runs, such as full", text)
    .option("--model <name>", "the model of all runs (default: each run its own)", text)
    .option("--seed <n>", "the seed of all runs", wholeNumber(0))
    .option("--parameters <n>", "parameters without embedding and output matrix", positiveNumber)
    .option("--tokens-per-step <n>", "tokens of one optimizer step", positiveNumber)
    .option("--flops-per-token <x>", "training operations per token, attention as done", positiveNumber)
    .option("--run-map <file>", "CSV of the runs to import: run, and any of the six facts above by run", text)
    .option("--run <name>", "name of the one run that all the paths are of, in order", text)
    .option("--columns <map>", "which column is what, such as loss=val_loss,step=iter", text)
    .addOption(new Option("--split <split>", "keep only these losses").choices(["train", "eval"]))
    .addOption(jsonOption())
    .addHelpText(
      "after",
      "\nExample:\n  mobalab import main.log --attention full --parameters 85e6 --out curves.csv",
    )
    .action(run);
}

function run(paths: string[], options: Options): void {
  const facts: RunFacts = {};
  const { attention, model, seed, parameters, tokensPerStep, flopsPerToken } = options;
  if (attention !== undefined) facts.attention = attention;
  if (model !== undefined) facts.model = model;
  if (seed !== undefined) facts.seed = seed;
  if (parameters !== undefined) facts.parameters = parameters;
  if (tokensPerStep !== undefined) facts.tokens_per_step = tokensPerStep;
  if (flopsPerToken !== undefined) facts.flops_per_token = flopsPerToken;
  const result = importPaths(paths, {
    facts,
    columns: options.columns === undefined ? undefined : parseColumns(options.columns),
    run: options.run,
    runMap: options.runMap,
    split: options.split,
  });
  withParents(options.out, () => writeWhole(options.out, formatCurves(result.points)));
  const { points, ...account } = result;
  process.stdout.write(
    options.json
      ? `${JSON.stringify({ out: options.out, points: points.length, ...account }, null, 2)}\n`
      : wrapLines(
          `${formatImport(result)}\nwritten: ${options.out} (${points.length.toLocaleString("en-US")} rows)\n`,
        ),
  );
}
