/** `mobalab report`: the charts, tables and words of a study folder or of any curves table. */
import { existsSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { Command, Option } from "commander";
import { InputError } from "../../errors.ts";
import { FORMS, type Form, readCurves } from "../../fit/index.ts";
import type { Interval } from "../../fit/types.ts";
import { AXES, type Axis } from "../../report/index.ts";
import { frozenStudyReport, frozenTableReport } from "../../server/freeze.ts";
import { range, text } from "../options.ts";

interface Options {
  out?: string;
  positions?: [number, number];
  baseline?: string;
  form?: Form;
  group?: string;
  xAxis?: Axis;
  x?: Interval;
  y?: Interval;
}

export function reportCommand(): Command {
  return new Command("report")
    .description("write report.html, chart.svg and chart.png for a study folder or a curves table")
    .argument("<source>", "study folder, or curves table (.csv, .jsonl)")
    .option("--out <folder>", "where the report of a curves table goes (default: <table>-report)", text)
    .option(
      "--positions <start-end>",
      "bucket of the leading chart (default: 10240-12288, else the last)",
      range("Expected <start>-<end> in tokens, such as 10240-12288.", true),
    )
    .option(
      "--baseline <label>",
      "the attention to compare with where there is no full, which is the baseline otherwise",
      text,
    )
    .addOption(
      new Option("--form <form>", "form of the laws of a curves table (default: power)").choices(FORMS),
    )
    .option(
      "--group <column>",
      "tell the runs of a curves table apart by this column instead of attention",
      text,
    )
    .addOption(
      new Option(
        "--x-axis <axis>",
        "what the leading chart of a curves table is drawn against (default: 6ND)",
      ).choices(AXES),
    )
    .option(
      "--x <from-to>",
      "limits of the leading chart's x axis, such as 0.02-50",
      range("Expected <from>-<to>, such as 0.02-50."),
    )
    .option(
      "--y <from-to>",
      "limits of the loss axis, such as 1-6",
      range("Expected <from>-<to>, such as 1-6."),
    )
    .addHelpText("after", "\nExample:\n  mobalab report curves.csv --out my-report")
    .action(run);
}

async function run(source: string, options: Options): Promise<void> {
  const shared = {
    headline: options.positions && {
      position_start: options.positions[0],
      position_end: options.positions[1],
    },
    baseline: options.baseline,
    xDomain: options.x,
    yDomain: options.y,
  };
  const isStudy = existsSync(join(source, "study.json"));
  for (const option of ["out", "form", "group", "xAxis"] as const) {
    if (isStudy && options[option] !== undefined) {
      const flag = option === "xAxis" ? "x-axis" : option;
      throw new InputError(
        `--${flag} is for curves tables, and ${source} is a study: give ${join(source, "curves.csv")}`,
      );
    }
  }
  const { summary, report, chartPng } = isStudy
    ? await frozenStudyReport(source, shared)
    : ofTable(source, options, shared);
  process.stdout.write(`${summary}\n\nreport: ${report}\nchart: ${chartPng}\n`);
}

function ofTable(source: string, options: Options, shared: object) {
  const points = readCurves(source, { group: options.group });
  const title = basename(source, extname(source));
  const folder = options.out ?? `${title}-report`;
  return frozenTableReport(points, folder, { title, form: options.form, axis: options.xAxis, ...shared });
}
