/** Figures as people read them, in tables of at most 80 columns. */

import { textTable, wrap } from "../report/table.ts";
import { sameAsFull } from "../study/laws.ts";
import type { PlannedRun } from "../study/plan.ts";
import { recipeInWords } from "../study/recipe.ts";

const SCALES: [number, string][] = [
  [1e12, "T"],
  [1e9, "B"],
  [1e6, "M"],
  [1e3, "k"],
];

/** 1,234,567 as 1.23M. */
export function short(value: number): string {
  for (const [scale, unit] of SCALES) {
    if (value >= scale) return `${Number((value / scale).toPrecision(3))}${unit}`;
  }
  return String(Number(value.toPrecision(3)));
}

export function bytes(value: number): string {
  if (value >= 2 ** 30) return `${(value / 2 ** 30).toFixed(value >= 100 * 2 ** 30 ? 0 : 1)} GiB`;
  return `${Math.ceil(value / 2 ** 20)} MiB`;
}

/** Seconds as 45 s, 3 min, 2.5 h 12 d or 40 y. */
export function duration(seconds: number): string {
  if (seconds < 99.5) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5970) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_000) return `${(seconds / 3600).toFixed(1)} h`;
  if (seconds < 63_100_000) return `${short(seconds / 86_400)} d`;
  return `${short(seconds / 31_557_600)} y`;
}

/** Each line broken at 80 columns, its further ones indented two more than its first. */
export function wrapLines(text: string): string {
  const indented = (line: string, indent: string) => wrap(line.slice(indent.length), indent, `${indent}  `);
  return text.replace(/^( *).+$/gm, indented);
}

/** The first column left, the others right. */
export function table([header, ...rows]: readonly (readonly string[])[]): string {
  const columns = header.map((title, i) => ({
    title,
    align: i === 0 ? ("left" as const) : ("right" as const),
  }));
  return `${textTable({ columns, rows })}\n`;
}

/**
 * The planned runs; with the estimated time when it was measured (null: finished), and a warning where runs need more
 * than `room` bytes.
 */
export function planTable(
  plan: readonly PlannedRun[],
  rule: string,
  room: number,
  seconds?: readonly (number | null)[],
): string {
  const header = ["run", "params", "tokens", "lr", "6ND", "attended", "memory"];
  const rows = plan.map((run) => [
    run.name,
    short(run.parameters),
    short(run.tokens),
    run.config.optimizer.learningRate.toExponential(1),
    run.pflopsDays.toExponential(1),
    run.pflopsDaysAttended.toExponential(1),
    bytes(run.memory),
  ]);
  if (seconds) {
    header.push("time");
    rows.forEach((row, i) => {
      const left = seconds[i];
      row.push(left === null ? "done" : duration(left));
    });
  }
  const routed = new Map(plan.map((run) => [run.config.attention, run.sparsity]));
  const sparse = [...routed].map(([label, share]) => `${label} ${(100 * share).toFixed(1)} %`).join(", ");
  const large = plan.filter(({ memory }) => memory > room).length;
  const warnings = [
    ...sameAsFull(plan.map(({ config }) => config)),
    ...(large > 0
      ? [
          `${large} of ${plan.length} runs need more memory than the ${bytes(room)} a run can have on this CPU`,
        ]
      : []),
  ];
  return [
    table([header, ...rows]),
    "params: non-embedding; 6ND, attended: PFLOP/s-days by each convention\n",
    `${wrap(`causal pairs not attended in a full window: ${sparse}`, "", "  ")}\n`,
    ...warnings.map((warning) => `${wrap(warning, "warning: ", "  ")}\n`),
    `rule: ${rule.replace("tokens, C", "tokens,\n  C")}\n`,
    `${wrap(recipeInWords(plan.map(({ config }) => config)), "recipe: ", "  ")}\n`,
  ].join("");
}
