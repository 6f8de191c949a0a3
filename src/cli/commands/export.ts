/** `mobalab export`: results in other tools' formats. */
import { Command, Option } from "commander";
import {
  exportCsv,
  exportHuggingFace,
  exportParquet,
  exportStudy,
  exportTensorBoard,
} from "../../study/export.ts";
import type { UnreadableRun } from "../../study/folder.ts";

/** Each returns the runs that it left out. */
const WRITE = {
  hf: (source, to) => {
    exportHuggingFace(source, to);
    return [];
  },
  tensorboard: (source, to) => {
    exportTensorBoard(source, to);
    return [];
  },
  csv: exportCsv,
  parquet: exportParquet,
  study: exportStudy,
} as const satisfies Record<string, (source: string, to: string) => readonly UnreadableRun[]>;
type Format = keyof typeof WRITE;

export function exportCommand(): Command {
  return new Command("export")
    .description(
      "write a checkpoint as a Hugging Face folder, metrics as TensorBoard events, curves as CSV or Parquet, a study without checkpoints; runs that cannot be read are named and left out",
    )
    .argument(
      "<source>",
      "a run's folder (hf, tensorboard); a study's folder (study), or also a curves table (csv, parquet)",
    )
    .argument("<to>", "where it goes: a folder (hf, tensorboard, study) or a file (csv, parquet)")
    .addOption(
      new Option("--format <format>", "what to write").choices(Object.keys(WRITE)).makeOptionMandatory(),
    )
    .addHelpText("after", "\nExample:\n  mobalab export studies/quick/runs/d4_full_s1 d4-hf --format hf")
    .action((source: string, to: string, options: { format: Format }) => {
      const unreadable = WRITE[options.format](source, to);
      for (const { name, reason } of unreadable)
        process.stderr.write(`left out: ${name} cannot be read: ${reason}\n`);
      process.stdout.write(`written: ${to}\n`);
    });
}
