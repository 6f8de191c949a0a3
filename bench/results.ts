/** Where benchmarks write their figures: results/<what>_<cpu>_<date>.json. */
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { fileURLToPath } from "node:url";

/** Adds the machine and the date to the figures, writes them, prints where. */
export function writeResult(what: string, figures: object): void {
  const cpu = cpus()[0].model.trim();
  const date = new Date().toISOString().slice(0, 10);
  const record = { benchmark: what, cpu, cores: cpus().length, node: process.version, date, ...figures };
  const name = `${what}_${cpu.toLowerCase().replace(/[^a-z0-9]+/g, "-")}_${date}.json`;
  const file = new URL(`results/${name}`, import.meta.url);
  mkdirSync(new URL("results/", import.meta.url), { recursive: true });
  writeFileSync(file, `${JSON.stringify(record, null, 2)}\n`);
  console.log(`written to ${fileURLToPath(file)}`);
}

/** To four digits. */
export function rounded(value: number): number {
  return Number(value.toPrecision(4));
}
