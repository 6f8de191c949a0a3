/** `mobalab export`: results in other tools' formats. */
import { Command, Option } from "commander";
import {
  exportCsv,
  exportHuggingFace,
  exportParquet,
  exportStudy,
  exportTensorBoard,
} from "../../study/export.ts";

const WRITE = {
  hf: exportHuggingFace,
  tensorboard: exportTensorBoard,
  csv: exportCsv,
  parquet: exportParquet,
  study: exportStudy,
} as const;
type Format = keyof typeof WRITE;

export function exportCommand(): Command {
  return new Command("export")
    .description(
      "write a checkpoint as a Hugging Face folder, metrics as TensorBoard events, curves as CSV or Parquet, a study without checkpoints",
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
      WRITE[options.format](source, to);
      process.stdout.write(`written: ${to}\n`);
    });
}
