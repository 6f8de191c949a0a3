/**
 * The presets: what a ladder trains when only a name is given. A ladder is sizes (one dial: depth) x attentions x
 * seeds, all on one dataset, with one rule for learning rate and batch.
 */
import { InputError } from "../errors.ts";

export interface LadderSize {
  /** Name in tables and run names. */
  readonly name: string;
  readonly depth: number;
  /** Training tokens; when absent `tokensPerParameter` of the ladder decides. */
  readonly tokens?: number;
  /** In place of the ladder's. */
  readonly seeds?: readonly number[];
  readonly keyConvolution?: 0 | 3 | 5;
}

export interface Ladder {
  readonly name: string;
  readonly about: string;
  readonly sizes: readonly LadderSize[];
  readonly headDim: number;
  readonly kvHeads?: number;
  readonly tiedOutput: boolean;
  /** Base of the rotary embedding. One too small for the context hides what is far back (arXiv 2405.14591). */
  readonly ropeTheta: number;
  readonly keyConvolution: 0 | 3 | 5;
  readonly attentions: readonly string[];
  readonly seeds: readonly number[];
  readonly context: number;
  readonly buckets: number;
  /** `byte`, `bpe-<vocabulary>` (learned from the training documents) or the path of a tokenizer.json. */
  readonly tokenizer: string;
  readonly tokensPerParameter: number;
  /** Factor on the rule's learning rate, 1 unless a sweep says otherwise; several are a sweep, a model each (see `planRuns`). */
  readonly learningRateFactors: readonly number[];
  /** Factor on the rule's batch; or windows per step, the same for every size, in place of the rule. */
  readonly batchFactor: number;
  readonly sequencesPerStep?: number;
  readonly evaluations: number;
  /** Held-out windows of each evaluation, see `RunConfig`; all of them when absent. */
  readonly evaluationWindows?: number;
  /** Share of the training sequences with recall records, see `RunConfig`; no task when absent. */
  readonly recall?: number;
  /** How many of the demo corpus's held-out addresses are used; the others are trained on. */
  readonly demoHeldOut: number;
}

/** Table 1 of the MoBA report (arXiv 2502.13189): layers = heads, D = 128, tokens in billions. */
const REPORT_SIZES: LadderSize[] = [
  { name: "545M", depth: 14, tokens: 10.8e9 },
  { name: "822M", depth: 16, tokens: 15.3e9 },
  { name: "1.1B", depth: 18, tokens: 20.6e9 },
  { name: "1.5B", depth: 20, tokens: 27.4e9 },
  { name: "2.1B", depth: 22, tokens: 36.9e9 },
];

const report = (name: string, context: number): Ladder => ({
  name,
  about: `the MoBA report's ladder, 545M to 2.1B parameters at context ${context}: for clusters; here --dry-run`,
  sizes: REPORT_SIZES,
  headDim: 128,
  tiedOutput: false,
  // The report names none; 10,000 is too small for its contexts (see `card`).
  ropeTheta: 500_000,
  keyConvolution: 0,
  attentions: ["full", "moba-b512-k3"],
  seeds: [1],
  context,
  buckets: 16,
  tokenizer: "bpe-32768",
  tokensPerParameter: 20,
  learningRateFactors: [1],
  batchFactor: 1,
  evaluations: 60,
  demoHeldOut: 11,
});

/**
 * Tokens of every size up to 16M parameters: copying from the context is learned in one late, sudden drop, near 100 M
 * tokens in a pilot, and a run that ends before it or on it lies on no law.
 */
const PAST_THE_DROP = 320_000_000;

/** What the studies on one card share: 16k windows, two a step, a fixed part of the held-out windows. */
const card = {
  headDim: 64,
  tiedOutput: false,
  // With 10,000 full attention looks back 4k, with this all of 16k and loses 5 to 8 % less (docs/results).
  ropeTheta: 500_000,
  keyConvolution: 0,
  context: 16_384,
  buckets: 16,
  tokenizer: "bpe-8192",
  tokensPerParameter: 20,
  learningRateFactors: [0.35],
  batchFactor: 1,
  sequencesPerStep: 2,
  evaluations: 12,
  evaluationWindows: 144,
  recall: 0,
  demoHeldOut: 11,
} as const;

export const PRESETS: readonly Ladder[] = [
  {
    name: "quick",
    about: "four small sizes with both attentions on State of the Union addresses: minutes on a laptop's CPU",
    sizes: [
      { name: "d1", depth: 1, tokens: 500_000 },
      { name: "d2", depth: 2, tokens: 600_000 },
      { name: "d3", depth: 3, tokens: 650_000 },
      { name: "d4", depth: 4, tokens: 700_000 },
    ],
    headDim: 16,
    tiedOutput: true,
    ropeTheta: 10_000,
    keyConvolution: 0,
    attentions: ["full", "moba-b128-k4"],
    seeds: [1],
    context: 2048,
    buckets: 16,
    tokenizer: "byte",
    tokensPerParameter: 5,
    learningRateFactors: [0.4],
    batchFactor: 1,
    evaluations: 7,
    demoHeldOut: 2,
  },
  {
    ...card,
    name: "h200-16k",
    about: "five sizes, 1.3M to 25.7M, at context 16,384 on a large corpus (--data): hours of one H200",
    sizes: [
      { name: "d3", depth: 3, tokens: PAST_THE_DROP, seeds: [1, 2, 3] },
      { name: "d4", depth: 4, tokens: PAST_THE_DROP, seeds: [1, 2, 3] },
      { name: "d5", depth: 5, tokens: PAST_THE_DROP },
      { name: "d6", depth: 6, tokens: PAST_THE_DROP },
      { name: "d8", depth: 8 },
    ],
    attentions: ["full", "moba-b512-k3"],
    seeds: [1],
  },
  {
    ...card,
    name: "h200-16k-fine",
    about: "two sizes of it with finer blocks, with and without a key convolution",
    sizes: [
      { name: "d4", depth: 4, tokens: PAST_THE_DROP },
      { name: "d4-kconv3", depth: 4, tokens: PAST_THE_DROP, keyConvolution: 3 },
      { name: "d5", depth: 5, tokens: PAST_THE_DROP },
      { name: "d5-kconv3", depth: 5, tokens: PAST_THE_DROP, keyConvolution: 3 },
    ],
    attentions: ["full", "moba-b512-k3", "moba-b128-k8"],
    seeds: [1],
  },
  report("report-8k", 8192),
  report("report-32k", 32768),
];

/** Throws an `InputError` that lists the presets when the name is unknown. */
export function preset(name: string): Ladder {
  const found = PRESETS.find((p) => p.name === name);
  if (!found) {
    throw new InputError(
      `unknown preset "${name}": expected one of ${PRESETS.map((p) => p.name).join(", ")}`,
    );
  }
  return found;
}
