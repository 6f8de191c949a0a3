/** `mobalab export`: results in other tools' formats. */
import { Command, Option } from "commander";
import { exportCsv, exportHuggingFace, exportParquet, exportTensorBoard } from "../../study/export.ts";

const FORMATS = ["hf", "tensorboard", "csv", "parquet"] as const;

export function exportCommand(): Command {
  return new Command("export")
    .description(
      "write a checkpoint as a Hugging Face folder, metrics as TensorBoard events, curves as CSV or Parquet",
    )
    .argument(
      "<source>",
      "a run's folder (hf, tensorboard); a study's folder or a curves table (csv, parquet)",
    )
    .argument("<to>", "where it goes: a folder (hf, tensorboard) or a file (csv, parquet)")
    .addOption(new Option("--format <format>", "what to write").choices(FORMATS).makeOptionMandatory())
    .addHelpText("after", "\nExample:\n  mobalab export studies/quick/runs/d4_full_s1 d4-hf --format hf")
    .action((source: string, to: string, options: { format: (typeof FORMATS)[number] }) => {
      if (options.format === "hf") exportHuggingFace(source, to);
      else if (options.format === "tensorboard") exportTensorBoard(source, to);
      else if (options.format === "csv") exportCsv(source, to);
      else exportParquet(source, to);
      process.stdout.write(`written: ${to}\n`);
    });
}
