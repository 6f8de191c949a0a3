/** `mobalab data`: make a tokenized dataset from text, and say what one holds. */
import { existsSync } from "node:fs";
import { Command } from "commander";
import {
  type CodeSummary,
  demoCorpusPaths,
  demoHeldOut,
  openDataset,
  prepareCode,
  prepareDataset,
} from "../../data/index.ts";
import type { Dataset } from "../../data/types.ts";
import { short, table } from "../format.ts";
import { jobsOption, jsonOption, listOf, text, wholeNumber } from "../options.ts";
import { interruption, prepareProgress } from "../progress.ts";

interface CodeFlags {
  out: string;
  tokenizer: string;
  context: number;
  heldOut?: string[];
  jobs?: number;
  json?: boolean;
}

interface PrepareFlags {
  text?: string[];
  tokenizer: string;
  context: number;
  heldOut?: string[];
  jobs?: number;
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
    .addOption(jobsOption())
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
          jobs: flags.jobs,
        },
        prepareProgress(process.stderr, interruption().signal),
      );
      print(dataset, flags.context, flags.json);
    });
  data
    .command("code")
    .description("make a dataset from a tree of C source code, one document for each directory")
    .argument("<tree>", "an unpacked source tree, such as a Linux kernel")
    .requiredOption("--out <folder>", "where the dataset goes; must not exist", text)
    .option("--tokenizer <t>", "byte, bpe-<vocabulary> or a tokenizer.json", text, "bpe-16384")
    .option(
      "--context <tokens>",
      "held-out documents hold at least one window of this length",
      wholeNumber(1),
      16_384,
    )
    .option(
      "--held-out <directories>",
      "directories to hold out (default: a list for the Linux kernel, in other trees chosen by a hash)",
      listOf(text),
    )
    .addOption(jobsOption())
    .addOption(jsonOption())
    .addHelpText(
      "after",
      `
Files that are generated, tables, register headers or copies of others are left
out. Directories under 128 KiB go into their parents, those over 512 KiB are
split.

Example:
  apt-get download linux-source-6.12
  dpkg-deb -x linux-source-6.12_*.deb .
  tar -xf usr/src/linux-source-6.12.tar.xz
  mobalab data code linux-source-6.12 --out kernel`,
    )
    .action(async (tree: string, flags: CodeFlags) => {
      const { out, tokenizer, context, heldOut, jobs } = flags;
      const { dataset, summary } = await prepareCode(
        { tree, folder: out, tokenizer, context, heldOut, jobs },
        prepareProgress(process.stderr, interruption().signal),
      );
      print(dataset, context, flags.json, summary);
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

function print(dataset: Dataset, context: number, json = false, code?: CodeSummary): void {
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
      code,
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
  if (code) printCode(code);
}

function printCode({ found, leftOut, kept, dropped, heldOutDirectories }: CodeSummary): void {
  const amounts = { found, ...leftOut, kept, "in too short documents": dropped };
  const cells = Object.entries(amounts).map(([name, { files, bytes }]) => [
    name,
    String(files),
    short(bytes),
  ]);
  process.stdout.write(`\n${table([["files", "number", "bytes"], ...cells])}`);
  process.stdout.write(`held-out directories: ${heldOutDirectories.join(", ")}\n`);
}
