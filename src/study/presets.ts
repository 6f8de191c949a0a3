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
}

export interface Ladder {
  readonly name: string;
  readonly about: string;
  readonly sizes: readonly LadderSize[];
  readonly headDim: number;
  readonly kvHeads?: number;
  readonly tiedOutput: boolean;
  readonly keyConvolution: 0 | 3 | 5;
  readonly attentions: readonly string[];
  readonly seeds: readonly number[];
  readonly context: number;
  readonly buckets: number;
  /** `byte`, `bpe-<vocabulary>` (learned from the training documents) or the path of a tokenizer.json. */
  readonly tokenizer: string;
  readonly tokensPerParameter: number;
  /** Factor on the rule's learning rate and batch, 1 unless a sweep says otherwise. */
  readonly learningRateFactor: number;
  readonly batchFactor: number;
  readonly evaluations: number;
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
  keyConvolution: 0,
  attentions: ["full", "moba-b512-k3"],
  seeds: [1],
  context,
  buckets: 16,
  tokenizer: "bpe-32768",
  tokensPerParameter: 20,
  learningRateFactor: 1,
  batchFactor: 1,
  evaluations: 60,
  demoHeldOut: 11,
});

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
    keyConvolution: 0,
    attentions: ["full", "moba-b128-k4"],
    seeds: [1],
    context: 2048,
    buckets: 16,
    tokenizer: "byte",
    tokensPerParameter: 5,
    learningRateFactor: 0.4,
    batchFactor: 1,
    evaluations: 7,
    demoHeldOut: 2,
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
