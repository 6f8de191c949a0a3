/**
 * How long one attention layer takes by context: routing, forward and backward on random data, batch 1, on any
 * backend. Each call is recorded many times over, so that neither launches nor waiting count; medians of several
 * replays. And where one attention becomes faster than another.
 */
import { type Attention, parseAttention } from "../attention/attention.ts";
import { attendedPairs, gateScores } from "../attention/pairs.ts";
import { Random } from "../data/random.ts";
import { RunError } from "../errors.ts";
import type { Backend } from "../ops/contract.ts";

export interface LayerShape {
  readonly heads: number;
  readonly kv_heads: number;
  readonly head_dim: number;
}

/** Milliseconds, and bytes beside inputs and outputs; null where the pass was not measured (see `Ending`). */
export interface SpeedRow {
  readonly attention: string;
  readonly context: number;
  /** Within `forward_ms`. */
  readonly route_ms: number;
  readonly forward_ms: number;
  readonly backward_ms: number | null;
  /** Forward and backward. */
  readonly training_ms: number | null;
  readonly forward_memory: number;
  readonly training_memory: number | null;
}

export const PASSES = ["forward", "training"] as const;
export type Pass = (typeof PASSES)[number];

/** The context from which on a pass of an attention was not measured, and why. */
export interface Ending {
  readonly attention: string;
  readonly pass: Pass;
  readonly context: number;
  readonly because: string;
}

export interface AttentionSpeed {
  readonly shape: LayerShape;
  readonly rows: readonly SpeedRow[];
  readonly endings: readonly Ending[];
}

export interface SpeedOptions {
  readonly shape: LayerShape;
  readonly attentions: readonly string[];
  /** In tokens. */
  readonly contexts: readonly number[];
  /** Seconds: what is expected to take longer, from the context before, is not called. The first context always is. */
  readonly longest: number;
  readonly onRow?: (row: SpeedRow) => void;
}

/**
 * Every attention at every context, ascending, each on a backend of its own. A pass ends early where a call would take
 * too long or memory runs out. Throws `RunError` when memory is too small for all of them.
 */
export function measureAttention(open: () => Backend, options: SpeedOptions): AttentionSpeed {
  const { shape, longest, onRow } = options;
  const contexts = [...options.contexts].sort((a, b) => a - b);
  const pattern = makePattern();
  const rows: SpeedRow[] = [];
  const endings: Ending[] = [];
  for (const label of options.attentions) {
    const attention = parseAttention(label);
    const ended = new Set<Pass>();
    const end = (pass: Pass, context: number, because: string) => {
      if (!ended.has(pass)) endings.push({ attention: label, pass, context, because });
      ended.add(pass);
    };
    let before: SpeedRow | undefined;
    for (const context of contexts) {
      const growth = before ? work(attention, context) / work(attention, before.context) : 0;
      const check = (pass: Pass, ms: number | null | undefined) => {
        const seconds = ((ms ?? 0) * growth) / 1000;
        if (seconds > longest)
          end(pass, context, `a call would take about ${seconds.toPrecision(2)} s, limit ${longest} s`);
      };
      check("forward", before?.forward_ms);
      if (ended.has("forward")) {
        end("training", context, "the forward pass ends here");
        break;
      }
      check("training", before?.backward_ms);
      const backend = open();
      try {
        const layer = openLayer(backend, attention, shape, context, pattern);
        const forward = layer.forward();
        const backward = ended.has("training")
          ? null
          : orOutOfMemory(layer.backward, (because) => end("training", context, because));
        before = {
          attention: label,
          context,
          ...forward,
          backward_ms: backward?.backward_ms ?? null,
          training_ms: backward ? forward.forward_ms + backward.backward_ms : null,
          training_memory: backward?.training_memory ?? null,
        };
        rows.push(before);
        onRow?.(before);
      } catch (error) {
        if (!isOutOfMemory(error)) throw error;
        end("forward", context, error.message);
        end("training", context, error.message);
        break;
      } finally {
        backend.close();
      }
    }
  }
  if (rows.length === 0) throw new RunError(endings[0]?.because ?? "nothing was measured");
  return { shape, rows, endings };
}

/** What the time of a pass grows with. A gate score is one product of D numbers, an attended pair two. */
function work(attention: Attention, context: number): number {
  return attendedPairs(attention, context) + gateScores(attention, context) / 2;
}

function openLayer(
  backend: Backend,
  attention: Attention,
  shape: LayerShape,
  T: number,
  pattern: Float32Array,
) {
  const { heads, kv_heads: kvHeads, head_dim: headDim } = shape;
  const source = backend.tensor([pattern.length], "activation");
  backend.write(source, pattern);
  const tensor = (heads: number) => backend.tensor([T, heads, headDim], "activation");
  /** The pattern over and over, from `start` on at first. */
  const random = (heads: number, start: number) => {
    const made = tensor(heads);
    for (let at = 0, from = start; at < made.length; from = 0) {
      const count = Math.min(pattern.length - from, made.length - at);
      backend.copy(backend.view(made, at, [count]), backend.view(source, from, [count]));
      at += count;
    }
    return made;
  };
  const [q, k, v] = [random(heads, 0), random(kvHeads, 1_000_003), random(kvHeads, 2_000_003)];
  const out = tensor(heads);
  const documents = backend.documents(T, 1);
  const bare = backend.memory();
  const state = backend.attentionState({ tokens: T, heads, kvHeads, headDim, maxDocuments: 1, attention });
  let forwardMemory = 0;
  return {
    forward() {
      const route =
        attention.kind === "full" ? 0 : time(backend, () => backend.route(state, q, k, documents));
      const attend = time(backend, () => backend.attentionForward(state, out, q, k, v, documents));
      forwardMemory = backend.memory() - bare;
      return { route_ms: route, forward_ms: route + attend, forward_memory: forwardMemory };
    },
    backward() {
      const dOut = random(heads, 3_000_017);
      const [dQ, dK, dV] = [tensor(heads), tensor(kvHeads), tensor(kvHeads)];
      const before = backend.memory();
      const ms = time(backend, () =>
        backend.attentionBackward(state, dQ, dK, dV, dOut, out, q, k, v, documents),
      );
      return { backward_ms: ms, training_memory: forwardMemory + backend.memory() - before };
    },
  };
}

/** Normal values; a number of them that no row divides, so that repeating them repeats neither keys nor blocks. */
function makePattern(): Float32Array {
  const random = new Random(1);
  return Float32Array.from({ length: 4_194_301 }, () => random.gaussian());
}

/**
 * Median milliseconds of a call; of one alone where it takes seconds. test/gpu/torch_attention.py makes as many calls:
 * how long and how hard a card has worked decides at which clock it works.
 */
function time(backend: Backend, call: () => void): number {
  const run = (what: () => void) => {
    backend.synchronize();
    const start = performance.now();
    what();
    backend.synchronize();
    return performance.now() - start;
  };
  const first = run(call);
  if (first > 2000) return first;
  const once = run(call);
  if (once > 300) return median([once, run(call), run(call)]);
  const calls = Math.max(1, Math.min(100, Math.ceil(30 / once)));
  const replay = backend.record(() => {
    for (let i = 0; i < calls; i++) call();
  });
  run(replay);
  return median(Array.from({ length: 5 }, () => run(replay) / calls));
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!;
}

function isOutOfMemory(error: unknown): error is RunError {
  return error instanceof RunError && error.message.includes("out of memory");
}

function orOutOfMemory<Result>(call: () => Result, otherwise: (because: string) => void): Result | null {
  try {
    return call();
  } catch (error) {
    if (!isOutOfMemory(error)) throw error;
    otherwise(error.message);
    return null;
  }
}

/** Operations of attended pairs: 4 D each and head forward, 8 D backward. */
export function attendedOperations(
  row: Pick<SpeedRow, "attention" | "context">,
  shape: LayerShape,
  pass: Pass,
): number {
  const pairs = attendedPairs(parseAttention(row.attention), row.context);
  return (pass === "forward" ? 4 : 12) * shape.head_dim * shape.heads * pairs;
}

export interface TimePoint {
  readonly context: number;
  readonly ms: number;
}

/** The measured contexts of one attention, ascending. */
export function timesOf(rows: readonly SpeedRow[], attention: string, pass: Pass): TimePoint[] {
  return rows.flatMap((row) => {
    const ms = pass === "forward" ? row.forward_ms : row.training_ms;
    return row.attention === attention && ms !== null ? [{ context: row.context, ms }] : [];
  });
}

export interface SpeedComparison {
  /** How many times faster than the baseline, at the contexts that both have, ascending. */
  readonly speedups: readonly { readonly context: number; readonly speedup: number }[];
  /**
   * Where it becomes faster and stays so, between two contexts by straight lines in log-log, and the time there; null
   * where it is faster at all contexts, or not at the last one.
   */
  readonly crossing: TimePoint | null;
}

export function compareTimes(baseline: readonly TimePoint[], other: readonly TimePoint[]): SpeedComparison {
  const both = other.flatMap(({ context, ms }) => {
    const base = baseline.find((point) => point.context === context);
    return base ? [{ context, base: base.ms, speedup: base.ms / ms }] : [];
  });
  const speedups = both.map(({ context, speedup }) => ({ context, speedup }));
  const i = both.findLastIndex(({ speedup }) => speedup <= 1);
  const [slower, faster] = [both[i], both[i + 1]];
  if (!slower || !faster) return { speedups, crossing: null };
  const share = Math.log(slower.speedup) / Math.log(slower.speedup / faster.speedup);
  const between = (a: number, b: number) => a * (b / a) ** share;
  const crossing = {
    context: between(slower.context, faster.context),
    ms: between(slower.base, faster.base),
  };
  return { speedups, crossing };
}
