/**
 * The spelling of an attention per layer and over a run: a label for all layers, the last layers full, and changes at
 * shares of the run's tokens (MoBA technical report, section 3.2).
 *
 *   schedule = phase { "+" phase "@" share }      moba-b128-k4+full@0.9    full from 90 % of the tokens on
 *   phase    = label [ "/full:" layers ]          moba-b128-k4/full:2      the last two layers full
 */
import { type Attention, parseAttention } from "./attention.ts";

/** From `fromShare` of the run's tokens on (0: the start), layer `i` has attention `layers[i]`. */
export interface AttentionPhase {
  readonly fromShare: number;
  readonly layers: readonly Attention[];
}

/**
 * The phases of a schedule for a model of `layers` layers: the first starts at 0, shares strictly increase. Throws a
 * `RangeError` that names the spelling and what is allowed.
 */
export function parseSchedule(schedule: string, layers: number): AttentionPhase[] {
  const phases: AttentionPhase[] = [];
  for (const [index, part] of schedule.split("+").entries()) {
    const [spelling, shareText, ...rest] = part.split("@");
    const fromShare = index === 0 ? 0 : Number(shareText);
    const previous = phases.at(-1)?.fromShare ?? -1;
    const spelledRight =
      rest.length === 0 && (index === 0 ? shareText === undefined : /^0?\.\d+$/.test(shareText ?? ""));
    if (!spelledRight || !(fromShare > previous)) {
      throw new RangeError(
        `attention schedule "${schedule}": "${part}" should be ${
          index === 0
            ? "an attention without a share, because it starts the run"
            : "<attention>@<share>, the shares strictly increasing between 0 and 1"
        }, such as moba-b128-k4+full@0.9`,
      );
    }
    phases.push({ fromShare, layers: parsePhase(spelling, layers, schedule) });
  }
  return phases;
}

/**
 * How many tokens from a document's start on have queries that attend to everything before them, in all layers and
 * phases: `i` does where its block `floor(i / B)` is one of the first `k`. Infinite for full attention.
 */
export function fullReach(schedule: string, layers: number): number {
  const reaches = sparseOf(schedule, layers).map(({ blockSize, topK }) => blockSize * topK);
  return Math.min(...reaches);
}

/** A sparse attention of a schedule that leaves nothing out of such a context, its top-k blocks being all; or null. */
export function coversContext(
  schedule: string,
  layers: number,
  context: number,
): Exclude<Attention, { kind: "full" }> | null {
  return fullReach(schedule, layers) >= context ? (sparseOf(schedule, layers)[0] ?? null) : null;
}

function sparseOf(schedule: string, layers: number): Exclude<Attention, { kind: "full" }>[] {
  const all = parseSchedule(schedule, layers).flatMap((phase) => phase.layers);
  return all.filter((attention) => attention.kind !== "full");
}

function parsePhase(spelling: string, layers: number, schedule: string): Attention[] {
  const [label, tail, ...rest] = spelling.split("/");
  const attention = parseAttention(label);
  const all = new Array<Attention>(layers).fill(attention);
  if (tail === undefined) return all;
  const match = /^full:(\d+)$/.exec(tail);
  const full = Number(match?.[1]);
  if (!match || rest.length > 0 || full < 1 || full > layers) {
    throw new RangeError(
      `attention schedule "${schedule}": "/${[tail, ...rest].join("/")}" should be /full:<layers> with 1 to ${layers} layers, such as moba-b128-k4/full:2`,
    );
  }
  return all.fill({ kind: "full" }, layers - full);
}
