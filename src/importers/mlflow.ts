/** MLflow's file store: per run a folder with `meta.yaml` and `metrics/<name>`, each line `timestamp value step`. */
import { existsSync, lstatSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { InputError } from "../errors.ts";
import type { WantedColumns } from "./columns.ts";
import { numberOf } from "./numbers.ts";
import { type LongSeries, readLong } from "./tables.ts";
import { excerpt, linesOf } from "./text.ts";
import { type Log, SkipCounts } from "./types.ts";

export function isMlflowRun(folder: string): boolean {
  return existsSync(join(folder, "meta.yaml")) && existsSync(join(folder, "metrics"));
}

/** The metrics of one run's folder. */
export function readMlflowRun(folder: string, wanted: WantedColumns): Log {
  const skipped = new SkipCounts();
  const series = new Map<string, LongSeries>();
  for (const name of metricNames(join(folder, "metrics"), "")) {
    const path = join(folder, "metrics", name);
    series.set(name, parseMetric(readFileSync(path, "utf8"), path, skipped));
  }
  if (series.size === 0) throw new InputError(`${folder} is an MLflow run without metrics`);
  const read = readLong(series, wanted, folder, skipped);
  return {
    format: "MLflow run",
    runs: [{ name: runNameOf(folder), rows: read.rows, facts: {} }],
    skipped: skipped.list(),
    notes: [...read.notes],
  };
}

/** A name with slashes lies in folders. */
function metricNames(folder: string, prefix: string): string[] {
  return readdirSync(folder)
    .sort()
    .flatMap((name) => {
      const entry = lstatSync(join(folder, name));
      if (entry.isDirectory()) return metricNames(join(folder, name), `${prefix}${name}/`);
      return entry.isFile() ? [prefix + name] : [];
    });
}

/** Lines `timestamp value step`; the timestamp in milliseconds. A torn last line is skipped. */
export function parseMetric(text: string, path: string, skipped: SkipCounts): LongSeries {
  const series: LongSeries = { steps: [], values: [], times: [] };
  const lines = linesOf(text);
  for (const [i, line] of lines.entries()) {
    if (line.trim() === "") continue;
    const fields = line.trim().split(" ");
    const [time, value, step] = fields.map(numberOf);
    if (fields.length !== 3 || value === undefined || step === undefined) {
      if (i === lines.length - 1) skipped.add("last line is cut off", `${path}, line ${i + 1}`);
      else
        throw new InputError(
          `${path}, line ${i + 1}: ${excerpt(line)} where "timestamp value step" should be`,
        );
      continue;
    }
    series.steps.push(step);
    series.values.push(value);
    series.times.push(time === undefined ? Number.NaN : time / 1000);
  }
  return series;
}

/** The tag mlflow.runName, else run_name of meta.yaml, else the folder's name (the run's id). */
function runNameOf(folder: string): string {
  const tag = join(folder, "tags", "mlflow.runName");
  if (existsSync(tag)) {
    const name = readFileSync(tag, "utf8").trim();
    if (name !== "") return name;
  }
  const match = /^run_name: *['"]?([^'"\r\n]+)/m.exec(readFileSync(join(folder, "meta.yaml"), "utf8"));
  return match ? match[1].trim() : "";
}
