/** From runs as logged to rows of the curves table: curves settled, labels set, tokens and compute filled in. */
import { pflopsDays } from "../compute/compute.ts";
import type { CurvePoint } from "../fit/types.ts";
import { settle } from "./settle.ts";
import type { LoggedRow, RunFacts, Split } from "./types.ts";

/** The label of runs whose attention nobody named. */
export const UNNAMED_ATTENTION = "unnamed";

/** What became of a run. */
export interface ImportedRun {
  readonly run: string;
  readonly attention: string;
  readonly model: string;
  readonly seed?: number;
  /** Points written, by split; a split without points is absent. */
  readonly points: Partial<Record<Split, number>>;
  /** The last step and, by split, the loss of all positions there. */
  readonly last_step?: number;
  readonly last_loss: Partial<Record<Split, number>>;
  readonly replaced: number;
  readonly rollbacks: number;
  readonly abandoned: number;
  readonly sorted: boolean;
  /** Points whose tokens were taken from other rows of the run. */
  readonly tokens_from_others: number;
  /** Facts that compute at the run's end still needs, by the name of their option. */
  readonly missing: ("tokens-per-step" | "parameters")[];
}

/**
 * One run's rows as curve points, each split and bucket a curve of its own. `facts` is all that is known of the run. The
 * rows themselves become the points.
 */
export function assembleRun(
  run: string,
  logged: readonly LoggedRow[],
  facts: RunFacts,
): { points: CurvePoint[]; summary: ImportedRun } {
  const attention = facts.attention ?? UNNAMED_ATTENTION;
  const model = facts.model ?? run;
  const groups = new Map<string, LoggedRow[]>();
  for (const row of logged) {
    const key = `${row.split} ${row.position_start} ${row.position_end}`;
    const group = groups.get(key);
    if (group) group.push(row);
    else groups.set(key, [row]);
  }
  const tokensAt = facts.tokens_per_step === undefined ? tokensByStep(logged) : () => undefined;
  const points: CurvePoint[] = [];
  const counts: Partial<Record<Split, number>> = {};
  const lastLoss: Partial<Record<Split, number>> = {};
  const total = { replaced: 0, rollbacks: 0, abandoned: 0, sorted: false };
  let fromOthers = 0;
  let lastStep: number | undefined;
  let end: CurvePoint | undefined;
  for (const group of groups.values()) {
    const settled = settle(group, placeOf(group));
    total.replaced += settled.replaced;
    total.rollbacks += settled.rollbacks;
    total.abandoned += settled.abandoned;
    total.sorted ||= settled.sorted;
    for (const row of settled.rows) {
      const stated = row.tokens;
      const tokens =
        row.step !== undefined && facts.tokens_per_step !== undefined
          ? row.step * facts.tokens_per_step
          : (stated ?? (row.step === undefined ? undefined : tokensAt(row.step)));
      const parameters = facts.parameters ?? row.parameters;
      if (stated === undefined && tokens !== undefined && facts.tokens_per_step === undefined) fromOthers++;
      row.attention = attention;
      row.model = model;
      row.run = run;
      row.seed = facts.seed;
      row.tokens = tokens;
      row.parameters = parameters;
      setCompute(row, facts.flops_per_token);
      points.push(row);
      counts[row.split] = (counts[row.split] ?? 0) + 1;
    }
    const last = settled.rows.at(-1);
    if (last === undefined) continue;
    if (last.position_start === null) lastLoss[last.split] = last.lm_loss;
    if (last.step !== undefined && last.step >= (lastStep ?? 0)) lastStep = last.step;
    end = points.at(-1);
  }
  return {
    points,
    summary: {
      run,
      attention,
      model,
      ...(facts.seed !== undefined && { seed: facts.seed }),
      points: counts,
      ...(lastStep !== undefined && { last_step: lastStep }),
      last_loss: lastLoss,
      ...total,
      tokens_from_others: fromOthers,
      missing: end === undefined ? [] : missingOf(end),
    },
  };
}

/** What places the rows of one curve: their steps when all have one, else tokens, compute or time. */
function placeOf(rows: readonly LoggedRow[]): (row: LoggedRow) => number {
  for (const name of ["step", "tokens", "pflops_days", "time_s"] as const) {
    if (rows.every((row) => typeof row[name] === "number")) return (row) => row[name] as number;
  }
  return (row) => row.step ?? row.tokens ?? row.pflops_days ?? row.time_s ?? 0;
}

/**
 * Tokens at a step by what other rows of the run state, since evaluations often leave them out: those of the same step,
 * else step times tokens per step where that is one and the same in all rows.
 */
function tokensByStep(rows: readonly LoggedRow[]): (step: number) => number | undefined {
  const found = new Map<number, number>();
  if (rows.every((row) => row.tokens !== undefined)) return () => undefined;
  let perStep: number | undefined;
  let constant = true;
  for (const { step, tokens } of rows) {
    if (step === undefined || tokens === undefined) continue;
    found.set(step, tokens);
    if (step === 0) continue;
    perStep ??= tokens / step;
    if (Math.abs(tokens - perStep * step) > 1e-9 * tokens) constant = false;
  }
  const known = constant && found.size > 1 ? perStep : undefined;
  return (step) => found.get(step) ?? (known === undefined ? undefined : known * step);
}

/**
 * 6ND from parameters and tokens where both are known, else as logged. Operations per token give the compute with
 * attention as done; without parameters they are the only compute there is, and stand for 6ND as well.
 */
function setCompute(row: LoggedRow, flopsPerToken: number | undefined): void {
  const { tokens, parameters } = row;
  if (tokens === undefined) return;
  if (parameters !== undefined) row.pflops_days = pflopsDays(6 * parameters * tokens);
  if (flopsPerToken === undefined) return;
  const attended = pflopsDays(flopsPerToken * tokens);
  if (row.pflops_days === null) row.pflops_days = attended;
  else row.pflops_days_attended = attended;
}

function missingOf(end: CurvePoint): ImportedRun["missing"] {
  if (end.pflops_days !== null) return [];
  return [
    ...(end.tokens === undefined ? (["tokens-per-step"] as const) : []),
    ...(end.parameters === undefined ? (["parameters"] as const) : []),
  ];
}
