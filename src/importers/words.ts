/** The account of an import, as a person reads it. */
import type { ImportResult } from "./import.ts";

/** More runs than this are counted, not listed. */
const MOST_RUNS = 20;

/** What was read, skipped and replaced, then the notes; lines without a last line end. */
export function formatImport(result: ImportResult): string {
  const lines: string[] = [];
  for (const { source, format, runs, rows, skipped } of result.sources) {
    lines.push(`${source}: ${format}, ${runs} run${runs === 1 ? "" : "s"}, ${count(rows)} losses`);
    for (const { reason, count: skips, first } of skipped) {
      lines.push(`  skipped ${count(skips)}: ${reason} (first: ${first})`);
    }
  }
  for (const { source, reason } of result.passed.slice(0, MOST_RUNS)) {
    lines.push(
      `left out ${source}: ${reason.startsWith(source) ? reason.slice(source.length).replace(/^:? /, "") : reason}`,
    );
  }
  if (result.passed.length > MOST_RUNS) lines.push(`left out ${result.passed.length - MOST_RUNS} files more`);
  for (const run of result.runs.slice(0, MOST_RUNS)) {
    const curves = (["train", "eval"] as const)
      .filter((split) => run.points[split] !== undefined)
      .map((split) => {
        const last = run.last_loss[split];
        return `${count(run.points[split]!)} ${split}${last === undefined ? "" : ` (last loss ${Number(last.toPrecision(5))})`}`;
      });
    const end = run.last_step === undefined ? "" : `, to step ${count(run.last_step)}`;
    lines.push(`run ${run.run}: ${curves.join(", ")}${end}`);
    if (run.replaced > 0) {
      lines.push(`  replaced ${count(run.replaced)}: of points at one step the later was kept`);
    }
    if (run.rollbacks > 0) {
      const dropped = run.abandoned > 0 ? `, ${count(run.abandoned)} points of what it gave up dropped` : "";
      lines.push(`  went back to an earlier step ${times(run.rollbacks)}${dropped}`);
    }
    if (run.tokens_from_others > 0) {
      lines.push(`  tokens of ${count(run.tokens_from_others)} points were taken from the run's other rows`);
    }
    if (run.sorted) lines.push("  rows were not in order of training and were sorted");
  }
  if (result.runs.length > MOST_RUNS) lines.push(`and ${result.runs.length - MOST_RUNS} runs more`);
  for (const note of result.notes) lines.push(`note: ${note}`);
  return lines.join("\n");
}

function count(value: number): string {
  return value.toLocaleString("en-US");
}

function times(value: number): string {
  return value === 1 ? "once" : `${count(value)} times`;
}
