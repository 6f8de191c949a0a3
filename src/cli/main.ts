#!/usr/bin/env node
/** The command line: builds the program from its commands, and turns every error into one sentence and an exit code. */
import { Command, CommanderError } from "commander";
import { codeVersion } from "../study/folder.ts";
import { benchCommand } from "./commands/bench.ts";
import { dataCommand } from "./commands/data.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { evalCommand } from "./commands/eval.ts";
import { exportCommand } from "./commands/export.ts";
import { fitCommand } from "./commands/fit.ts";
import { generateCommand } from "./commands/generate.ts";
import { importCommand } from "./commands/import.ts";
import { reportCommand } from "./commands/report.ts";
import { studyCommand } from "./commands/study.ts";
import { trainCommand } from "./commands/train.ts";
import { exitCodeOf, sentenceOf } from "./errors.ts";

const program = new Command("mobalab")
  .description("Train language models with MoBA and with full attention, and fit how their loss scales.")
  .version(codeVersion().mobalab)
  .showHelpAfterError("(--help shows the options and an example)")
  .exitOverride();

for (const command of [
  studyCommand(),
  trainCommand(),
  evalCommand(),
  generateCommand(),
  fitCommand(),
  importCommand(),
  reportCommand(),
  dataCommand(),
  benchCommand(),
  exportCommand(),
  doctorCommand(),
]) {
  program.addCommand(command.copyInheritedSettings(program));
}

// A reader that closed the pipe early (`| head`) is no error.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  process.stderr.write(`mobalab: cannot write to standard output: ${error.message}\n`);
  process.exit(1);
});
process.stderr.on("error", () => process.exit(1));

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : 2;
  } else {
    process.stderr.write(`mobalab: ${sentenceOf(error)}\n`);
    if (process.env.MOBALAB_TRACE && error instanceof Error) process.stderr.write(`${error.stack}\n`);
    process.exitCode = exitCodeOf(error);
  }
}
