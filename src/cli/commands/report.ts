/** `mobalab report`: the charts, tables and words of a study folder or of any curves table. */
import { existsSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { Command } from "commander";
import { fit, readCurves } from "../../fit/index.ts";
import type { Interval } from "../../fit/types.ts";
import { formatReading, studyReport, type WrittenReport, writeReport } from "../../report/index.ts";
import { makeFolder } from "../../study/folder.ts";
import { range, text } from "../options.ts";

interface Options {
  out?: string;
  positions?: [number, number];
  baseline?: string;
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
    .option("--baseline <label>", "the attention to compare with (default: full)", text)
    .option("--x <from-to>", "limits of the compute axis, such as 0.02-50", range("Expected <from>-<to>, such as 0.02-50."))
    .option("--y <from-to>", "limits of the loss axis, such as 1-6", range("Expected <from>-<to>, such as 0.02-50."))
    .addHelpText("after", "\nExample:\n  mobalab report curves.csv --out my-report")
    .action(run);
}

function run(source: string, options: Options): void {
  const bucket = options.positions && {
    position_start: options.positions[0],
    position_end: options.positions[1],
  };
  const shared = { headline: bucket, baseline: options.baseline, xDomain: options.x, yDomain: options.y };
  let written: WrittenReport;
  let summary: string;
  if (existsSync(join(source, "study.json"))) {
    const result = studyReport(source, shared);
    written = result;
    summary = result.summary;
  } else {
    const points = readCurves(source);
    const result = fit(points, shared);
    const name = basename(source, extname(source));
    const folder = options.out ?? `${name}-report`;
    makeFolder(folder);
    written = writeReport(folder, { title: name, points, fit: result, ...shared });
    summary = formatReading(result);
  }
  process.stdout.write(`${summary}\n\nreport: ${written.report}\nchart: ${written.chartPng}\n`);
}
