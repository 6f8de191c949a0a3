/** `mobalab data`: make a tokenized dataset from text, and say what one holds. */
import { existsSync } from "node:fs";
import { Command } from "commander";
import { demoCorpusPaths, demoHeldOut, openDataset, prepareDataset } from "../../data/index.ts";
import type { Dataset } from "../../data/types.ts";
import { short, table } from "../format.ts";
import { jsonOption, listOf, text, wholeNumber } from "../options.ts";
import { prepareProgress } from "../progress.ts";

interface PrepareFlags {
  text?: string[];
  tokenizer: string;
  context: number;
  heldOut?: string[];
  field?: string;
  endOfText?: number;
  json?: boolean;
}

export function dataCommand(): Command {
  const data = new Command("data").description("make and inspect tokenized datasets");
  data
    .command("prepare")
    .description("tokenize whole documents into a dataset folder, some held out")
    .argument("<folder>", "where the dataset goes; must not exist")
    .option(
      "--text <paths...>",
      "files or folders of .txt, .jsonl[.gz|.zst], .parquet, .bin (default: the demo corpus)",
    )
    .option(
      "--tokenizer <t>",
      "byte, bpe-<vocabulary>, a tokenizer.json; for .bin shards also unknown[-<vocabulary>]",
      text,
      "byte",
    )
    .option(
      "--context <tokens>",
      "held-out documents hold at least one window of this length",
      wholeNumber(1),
      2048,
    )
    .option(
      "--held-out <names>",
      "documents to hold out (default: chosen by a hash of their names)",
      listOf(text),
    )
    .option("--field <name>", "the field or column that holds the text", text)
    .option("--end-of-text <id>", "token that starts each document in .bin shards", wholeNumber(0))
    .addOption(jsonOption())
    .addHelpText(
      "after",
      "\nExample:\n  mobalab data prepare books --text ~/books --tokenizer bpe-4096 --context 8192",
    )
    .action(async (folder: string, flags: PrepareFlags) => {
      const dataset = await prepareDataset(
        {
          folder,
          sources: flags.text ?? demoCorpusPaths(),
          heldOut: flags.heldOut ?? (flags.text ? undefined : demoHeldOut),
          tokenizer: flags.tokenizer,
          context: flags.context,
          field: flags.field,
          endOfText: flags.endOfText,
        },
        prepareProgress(process.stderr),
      );
      print(dataset, flags.context, flags.json);
    });
  data
    .command("info")
    .description("say what a dataset holds")
    .argument("<folder>", "dataset folder, such as studies/quick/data")
    .option("--context <tokens>", "count the full windows of this length", wholeNumber(1), 2048)
    .addOption(jsonOption())
    .addHelpText("after", "\nExample:\n  mobalab data info studies/quick/data")
    .action((folder: string, flags: { context: number; json?: boolean }) => {
      print(
        openDataset(existsSync(`${folder}/data/dataset.json`) ? `${folder}/data` : folder),
        flags.context,
        flags.json,
      );
    });
  return data;
}

function print(dataset: Dataset, context: number, json = false): void {
  const parts = { training: dataset.train, "held out": dataset.heldOut };
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const rows = Object.entries(parts).map(([name, documents]) => ({
    part: name,
    documents: documents.length,
    tokens: sum(documents.map((d) => d.tokens)),
    bytes: sum(documents.map((d) => d.bytes)),
    longest: Math.max(0, ...documents.map((d) => d.tokens)),
  }));
  const windows = sum(dataset.heldOut.map((d) => Math.floor((d.tokens - 1) / context)));
  if (json) {
    const { tokenizerName, vocabulary } = dataset;
    const summary = {
      tokenizer: tokenizerName,
      vocabulary,
      parts: rows,
      context,
      evaluationWindows: windows,
    };
    process.stdout.write(`${JSON.stringify({ ...summary, heldOut: dataset.heldOut }, null, 2)}\n`);
    return;
  }
  const cells = rows.map((r) => [
    r.part,
    String(r.documents),
    short(r.tokens),
    short(r.bytes),
    short(r.longest),
  ]);
  process.stdout.write(table([["part", "documents", "tokens", "bytes", "longest (tokens)"], ...cells]));
  process.stdout.write(`tokenizer ${dataset.tokenizerName}, vocabulary ${dataset.vocabulary}\n`);
  process.stdout.write(`${windows} full held-out windows of ${context} tokens\n`);
}
