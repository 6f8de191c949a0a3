#!/usr/bin/env node
/** The command line: builds the program from its commands, and turns every error into one sentence and an exit code. */
import { Command, CommanderError } from "commander";
import { packageVersion } from "../study/folder.ts";
import { exitCodeOf, sentenceOf } from "./errors.ts";

/** In the order that help lists them. */
const COMMANDS: Record<string, () => Promise<Command>> = {
  study: async () => (await import("./commands/study.ts")).studyCommand(),
  train: async () => (await import("./commands/train.ts")).trainCommand(),
  eval: async () => (await import("./commands/eval.ts")).evalCommand(),
  generate: async () => (await import("./commands/generate.ts")).generateCommand(),
  fit: async () => (await import("./commands/fit.ts")).fitCommand(),
  import: async () => (await import("./commands/import.ts")).importCommand(),
  report: async () => (await import("./commands/report.ts")).reportCommand(),
  serve: async () => (await import("./commands/serve.ts")).serveCommand(),
  data: async () => (await import("./commands/data.ts")).dataCommand(),
  bench: async () => (await import("./commands/bench.ts")).benchCommand(),
  export: async () => (await import("./commands/export.ts")).exportCommand(),
  doctor: async () => (await import("./commands/doctor.ts")).doctorCommand(),
};

const program = new Command("mobalab")
  .description("Train language models with MoBA and with full attention, and fit how their loss scales.")
  .version(packageVersion())
  .showHelpAfterError("(--help shows the options and an example)")
  .exitOverride();

// Only the command asked for is loaded: a study starts a process for every run, and training needs no charts.
const asked = Object.entries(COMMANDS).filter(([name]) => name === process.argv[2]);
for (const [, load] of asked.length > 0 ? asked : Object.entries(COMMANDS)) {
  const command = await load();
  program.addCommand(command);
  inherit(command, program);
}

/** Commands within commands too end with the exit codes of the program. */
function inherit(command: Command, parent: Command): void {
  command.copyInheritedSettings(parent);
  for (const inner of command.commands) inherit(inner, command);
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
